"""A search whose runs are simulated."""

import pytest
from click.testing import CliRunner

from rn50.cli import main
from rn50.hyperparameters.search import search, training
from tests.hyperparameters.searches import DEMO, SIMULATED


@pytest.fixture
def data(tmp_path):
    """Files of the names and about the sizes of a data set."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("train.rec", "train.idx", "val.rec", "val.idx"):
        (folder / name).write_text("not opened by anybody here" * 2000)
    return folder


@pytest.fixture
def seek(data, tmp_path, monkeypatch):
    """``seek("--trials", 3, SIMULATED_EPOCH_S=0.1)`` is a call of the command in this process; ``tmp_path /
    "to"`` its folder."""
    monkeypatch.setattr(training, "COMMAND", SIMULATED)
    monkeypatch.setattr(search, "POLL_S", 0.02)

    def called(*arguments, config=DEMO, **environ):
        given = ["search", str(config), "-o", str(tmp_path / "to"), *map(str, arguments)]
        variables = {"DATADIR": str(data), "CONFIG_FILE": "", "SIMULATED_EPOCH_S": "0", **environ}
        return CliRunner(mix_stderr=False).invoke(main, given, env=variables)

    return called
