"""The simulated run of a search, and what its folder tells."""

import pathlib
import sys
import tempfile

from rn50.hyperparameters.search import objective
from rn50.hyperparameters.search.journal import RESULT, Journal
from rn50.results.parse import read_log
from rn50.settings import document

_FOLDER = tempfile.TemporaryDirectory()
DEMO = pathlib.Path(_FOLDER.name) / "config_DEMO_CPU.sh"
"""The demo with a longer schedule, so that a recipe can be much better than its own."""
_TEXT = (document.CONFIGS / "config_DEMO_CPU.sh").read_text()
DEMO.write_text(_TEXT.replace("WARMUP_EPOCHS=0.5", "WARMUP_EPOCHS=1").replace("NUMEPOCHS=7", "NUMEPOCHS=12"))
DONE, USER_CAN_MEND = 0, 2
SIMULATED = [sys.executable, "-m", "tests.hyperparameters.simulated_run"]


def trials(folder):
    return Journal(folder).trials


def result_file(folder, number):
    return folder / "trials" / f"{number:03d}" / RESULT


def complaint(result):
    assert result.exit_code == USER_CAN_MEND, result.output
    lines = [line for line in result.stderr.splitlines() if line.startswith("rn50: ")]
    assert len(lines) == 1, result.stderr
    return lines[0]


def results(folder):
    """Whole logs, of trials and of the confirmation."""
    return {file: file.read_bytes() for file in folder.rglob("result_*.txt")}


def assert_nothing_lost_or_repeated(folder, repeats):
    told = trials(folder)
    whole = {trial.number for trial in told if result_file(folder, trial.number).exists()}
    assert whole == {trial.number for trial in told if trial.state == "finished"}
    for trial in told:
        assert trial.state in ("finished", "stopped", "interrupted")
        if trial.state == "finished":
            log = read_log(result_file(folder, trial.number))
            assert trial.value == objective.value(log.evaluations) and log.seed == trial.seed
    for point in {trial.point for trial in told}:
        assert (
            sum(trial.point == point and trial.state in ("finished", "stopped") for trial in told) <= repeats)
    assert len({trial.seed for trial in told}) == len(told)
