"""The curves of a run for TensorBoard, read back from the file of events."""

import pytest

from rn50.errors import UserError
from rn50.run.display import Display
from rn50.run.tensorboard import TensorBoardDisplay
from tests.conftest import with_changes

STEPS = 13
"""Of an epoch of the tiny data set: 203 images in batches of 16."""


def scalars(folder):
    """Name -> (step, value) in order, of the only file in a folder."""
    from tensorboardX.proto.event_pb2 import Event

    [file] = folder.iterdir()
    content, found = file.read_bytes(), {}
    while content:
        length = int.from_bytes(content[:8], "little")  # then a checksum of 4 bytes, as behind the record
        for value in Event.FromString(content[12 : 12 + length]).summary.value:
            event = Event.FromString(content[12 : 12 + length])
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
        ("initialising", "compiling"),
        ("remark", "bfloat16"),
        ("epoch_begins", 1),
        ("trained", 80, 2.5),
        ("trained", 160, 2.0),
        ("epoch_ends", 1, 1000.0),
        ("evaluated", 1, 0.25),
        ("epoch_begins", 2),
        ("trained", 16, 1.5),
    ]
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


def test_a_rank_that_shows_nothing_writes_nothing(tiny_config, tmp_path):
    TensorBoardDisplay(Display(), tiny_config, tmp_path / "curves").close()
    assert not (tmp_path / "curves").exists()


def test_without_the_package_it_says_how_to_install_it(tiny_config, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    with pytest.raises(UserError, match="tensorboardX is not installed; .* -m pip install tensorboardX"):
        TensorBoardDisplay(Display(), tiny_config, tmp_path)
