"""The curves of a run for TensorBoard, read back from the file of events."""

import pytest

from rn50.errors import UserError
from rn50.run.display import Display
from rn50.run.tensorboard import TensorBoardDisplay
from tests.conftest import with_changes

STEPS = 13
"""Of an epoch of the tiny data set: 203 images in batches of 16."""


def scalars(folder):
    """Name -> (step, value) in order, of the files in a folder, without what TensorBoard drops: points from
    the step on at which a later file says that a session starts."""
    from tensorboardX.proto.event_pb2 import Event

    found = {}
    for file in sorted(folder.iterdir()):
        content = file.read_bytes()
        while content:
            length = int.from_bytes(content[:8], "little")  # then a checksum of 4 bytes, as behind the record
            event = Event.FromString(content[12 : 12 + length])
            if event.session_log.status == event.session_log.START:
                for tag, points in found.items():
                    found[tag] = [point for point in points if point[0] < event.step]
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
            content = content[16 + length :]
    return found


class Remembered(Display):
    def __init__(self):
        self.calls = []

    def __getattribute__(self, name):
        if name in vars(Display) and not name.startswith("_"):
            return lambda *given: self.calls.append((name, *given))
        return super().__getattribute__(name)


def test_a_run_has_its_curves_and_is_shown_as_without_them(tiny_config, tmp_path):
    config = with_changes(tiny_config, run={"result_file": str(tmp_path / "MINE+LR=1" / "result_3.txt")})
    shown = Remembered()
    display = TensorBoardDisplay(shown, config, tmp_path / "curves")
    calls = [
        ("initialising", "compiling"), ("remark", "bfloat16"), ("epoch_begins", 1), ("trained", 80, 2.5),
        ("trained", 160, 2.0), ("epoch_ends", 1, 1000.0), ("evaluated", 1, 0.25), ("epoch_begins", 2),
        ("trained", 16, 1.5)]
    for name, *given in calls:
        getattr(display, name)(*given)
    display.close()
    assert shown.calls == calls
    read = scalars(tmp_path / "curves" / "MINE+LR=1" / "result_3")
    assert read["loss"] == [(5, 2.5), (10, 2.0), (STEPS + 1, 1.5)]
    assert read["top_1"] == [(STEPS, 0.25)] and read["epoch_images_per_second"] == [(STEPS, 1000.0)]
    # One epoch of warm-up to 2.0, then the first step of the decay.
    rates = [value for _, value in read["learning_rate"]]
    assert rates[:2] == pytest.approx([2.0 * 5 / STEPS, 2.0 * 10 / STEPS]) and 1.6 < rates[2] < 2.0
    assert all(value > 0 for _, value in read["images_per_second"])


@pytest.mark.parametrize("resumed_at", [1, 3], ids=["from zero", "from the checkpoint of epoch 2"])
def test_a_run_that_begins_again_has_no_points_of_its_dead_attempt(tiny_config, tmp_path, resumed_at):
    config = with_changes(tiny_config, run={"result_file": str(tmp_path / "MINE" / "result_0.txt")})
    for begin, end, epoch_loss in ((1, 4, 9.0), (resumed_at, 5, 1.0)):
        display = TensorBoardDisplay(Display(), config, tmp_path)
        for epoch in range(begin, end):
            display.epoch_begins(epoch)
            display.trained(16, epoch_loss)
            display.epoch_ends(epoch, 1000.0)
        display.evaluated(end - 1, epoch_loss / 10)
        display.close()
        for file in (tmp_path / "MINE" / "result_0").glob("*tfevents*.*.*"):  # else of the same second
            file.rename(file.with_name(f"events.out.tfevents.{begin + end}"))
    read = scalars(tmp_path / "MINE" / "result_0")
    steps = [STEPS * (epoch - 1) + 1 for epoch in range(1, 5)]
    assert read["loss"] == [(step, 9.0 if step < steps[resumed_at - 1] else 1.0) for step in steps]
    assert read["epoch"] == [(STEPS * epoch, epoch) for epoch in range(1, 5)]
    assert read["top_1"] == [(STEPS * 4, pytest.approx(0.1))]


def test_a_rank_that_shows_nothing_writes_nothing(tiny_config, tmp_path):
    TensorBoardDisplay(Display(), tiny_config, tmp_path / "curves").close()
    assert not (tmp_path / "curves").exists()


def test_without_the_package_it_says_how_to_install_it(tiny_config, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    with pytest.raises(UserError, match="tensorboardX is not installed; .* -m pip install tensorboardX"):
        TensorBoardDisplay(Display(), tiny_config, tmp_path)
