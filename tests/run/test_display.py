"""What a rank shows of its run."""

import pytest

from rn50.run import display
from rn50.terminal import Terminal
from tests.conftest import with_changes


@pytest.mark.parametrize("first, left", [(1, "40"), (4, "10")])
def test_a_resumed_run_counts_its_own_epochs_for_the_time_left(
    tiny_config, capsys, monkeypatch, first, left
):
    """An epoch takes 10 seconds, and what came before the first 100."""
    config = with_changes(tiny_config, hyperparameters={"num_epochs": 5})
    times = iter([0.0, 100.0, 110.0])
    monkeypatch.setattr(display.time, "monotonic", lambda: next(times, 110.0))
    shown = display.LiveDisplay(config, Terminal())
    shown.epoch_begins(first)
    shown.epoch_ends(first, 7.0)
    assert f"epoch  {first}/5  7 img/s" in (said := capsys.readouterr().out) and f"ETA <= {left} s" in said
    [task] = shown._progress.tasks
    assert task.completed == first * config.epoch_samples and task.started
