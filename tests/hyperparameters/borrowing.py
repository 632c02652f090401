"""``rn50 borrow`` as a user calls it, and the configuration that its file makes."""

from click.testing import CliRunner

from rn50.cli import main
from rn50.settings import config as configuration
from rn50.settings import config_file

EIGHT = config_file.CONFIGS / "config_NF5688M6.sh"


def configured(text, folder):
    """The configuration that a run has when bash has read the file."""
    file = folder / "config_BORROWED.sh"
    file.write_text(text)
    return configuration.from_environment(config_file.source(str(file)), str(file))


def rn50(*arguments, **environ):
    result = CliRunner().invoke(
        main, ["borrow", *map(str, arguments)], env={"DGXSYSTEM": "", "CONFIG_FILE": "", **environ}
    )
    return result.exit_code, result.output
