"""``rn50 borrow`` as a user calls it, and the configuration that its file makes."""

from click.testing import CliRunner

from rn50.benchmark.recipe import Recipe
from rn50.cli import main
from rn50.settings import document, named

EIGHT = document.CONFIGS / "config_NF5688M6.sh"


def configured(text, folder):
    """The configuration that a run has when bash has read the file."""
    file = folder / "config_BORROWED.sh"
    file.write_text(text)
    return named.read(str(file), environ={})


def recipe_of(global_batch_size):
    """A whole recipe of LARS."""
    return Recipe(
        global_batch_size=global_batch_size, optimizer="lars", learning_rate=9.0, warmup_epochs=2.0,
        decay_epochs=37.0, weight_decay=5e-5, momentum=0.9)


def rn50(*arguments, **environ):
    result = CliRunner().invoke(
        main, ["borrow", *map(str, arguments)], env={"DGXSYSTEM": "", "CONFIG_FILE": "", **environ})
    return result.exit_code, result.output
