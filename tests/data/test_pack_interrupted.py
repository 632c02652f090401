"""An interrupted packing leaves nothing that is taken for whole, and the same command goes on.

Processes: signals, killed workers and full disks end a process.
"""

import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from rn50.data.layout import FILES, PACKED
from rn50.data.packing import pack as packing
from rn50.data.packing.imagenet_folder import scan
from rn50.data.packing.pack import PARTIAL, order
from rn50.errors import UserError
from tests.conftest import in_test_all
from tests.data.record_files import contents, stop_at

pytestmark = pytest.mark.xdist_group("packing")
pack = functools.partial(packing.pack, workers=1)  # another process would cost more than it packs
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("count", [1, 63, 80, *in_test_all(8, 30, 64, 91)])
def test_the_same_command_goes_on_after_ctrl_c(tree, packed, tmp_path, monkeypatch, count):
    monkeypatch.setattr(packing, "CHUNK", 4)
    with pytest.raises(KeyboardInterrupt):
        pack(tree, tmp_path, progress=stop_at(count))
    assert [path.name for path in tmp_path.iterdir()] == [PARTIAL]
    began = []
    pack(tree, tmp_path, progress=lambda done, total: began.append(done))
    # Not from the beginning: of each set only the last record a second time.
    assert all(done >= count - 1 for done in began if done not in (62, 63))
    assert contents(tmp_path) == contents(packed)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((*FILES, *PACKED))


def test_a_packing_of_smaller_images_goes_on_to_the_same_bytes(tree, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "CHUNK", 4)
    for count in (32, 80):
        with pytest.raises(KeyboardInterrupt):
            pack(tree, tmp_path / "out", progress=stop_at(count), short_side=36)
    began = []
    pack(tree, tmp_path / "out", progress=lambda done, total: began.append(done), short_side=36)
    assert began[:2] == [62, 63] and min(began[2:]) >= 79  # of each set the last record a second time
    packing.pack(tree, tmp_path / "at_once", workers=2, short_side=36)
    assert contents(tmp_path / "out") == contents(tmp_path / "at_once")


@pytest.mark.parametrize("kind", ["rec", "idx", "tsv"])
@pytest.mark.parametrize("lost", [7, *in_test_all(1, 50)])
def test_the_ends_of_files_that_a_kill_left_are_not_trusted(tree, packed, tmp_path, monkeypatch, kind, lost):
    monkeypatch.setattr(packing, "CHUNK", 4)
    with pytest.raises(KeyboardInterrupt):
        pack(tree, tmp_path, progress=stop_at(32))
    path = tmp_path / PARTIAL / f"train.{kind}"
    if kind == "rec":  # the index never is ahead of it
        path.write_bytes(path.read_bytes() + b"\0" * lost)
    else:
        path.write_bytes(path.read_bytes()[:-lost])
    pack(tree, tmp_path)
    assert contents(tmp_path) == contents(packed)


@pytest.mark.parametrize("placed", [0, 7, *in_test_all(*range(1, 7))])
def test_a_kill_between_two_renames_is_mended(tree, packed, tmp_path, monkeypatch, placed):
    replace, calls = os.replace, []

    def killed(source, target):
        if Path(target).parent == tmp_path:
            calls.append(target)
            if len(calls) > placed:
                raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            pack(tree, tmp_path)
    assert not (tmp_path / "pack.json").exists()
    pack(tree, tmp_path, progress=lambda done, total: pytest.fail("an image was packed again"))
    assert contents(tmp_path) == contents(packed) and not (tmp_path / PARTIAL).exists()


def test_other_images_or_other_options_do_not_go_on(tree, copy, packed, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        pack(tree, tmp_path / "out", progress=stop_at(32))
    for source, options in ((copy, {}), (tree, {"seed": 1}), (tree, {"short_side": 36})):
        with pytest.raises(
            UserError, match="other options was begun here; give that command again, or delete this folder"
        ):
            pack(source, tmp_path / "out", **options)
        with pytest.raises(
            UserError, match=r"pack\.json: a packing of other images or with other options; choose another"
        ):
            pack(source, packed, **options)


def test_after_another_start_of_the_machine_it_begins_afresh(tree, packed, tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        pack(tree, tmp_path, progress=stop_at(32))
    rec = tmp_path / PARTIAL / "train.rec"
    rec.write_bytes(bytes(rec.stat().st_size))  # as a power cut leaves a file
    monkeypatch.setattr(packing, "_boot_id", lambda: "another")
    pack(tree, tmp_path)
    assert contents(tmp_path) == contents(packed)


def test_an_image_that_changed_since_it_was_packed_is_noticed(copy, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        pack(copy, tmp_path / "out", progress=stop_at(32))
    path = copy / "train" / scan(copy).images["train"][order(63, 0, "train")[3]].path
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(UserError, match=f"{path.name} has changed since it was packed; delete .*{PARTIAL}"):
        pack(copy, tmp_path / "out")


def start(tree, folder, before=""):
    """The command in a process of its own, one image at a time."""
    code = (
        f"import time\nfrom rn50.data.packing import pack\nfrom rn50 import cli\npack.CHUNK = 1\n{before}\n"
        f"cli.main(['pack', {str(tree)!r}, {str(folder)!r}])")
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True)


SLOWLY = (
    "in_order = pack._in_order\ndef slow(*arguments):\n    for each in in_order(*arguments):\n        "
    "yield each\n" "        time.sleep(0.05)\npack._in_order = slow")


def until_bytes(count, folder, process):
    path = folder / PARTIAL / "train.rec"
    while not path.exists() or path.stat().st_size < count:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, *in_test_all(signal.SIGTERM)])
def test_a_signal_leaves_nothing_that_is_taken_for_whole_and_the_command_goes_on(
    tree, packed, tmp_path, number
):
    process = start(tree, tmp_path, SLOWLY)
    until_bytes(20_000, tmp_path, process)
    os.killpg(process.pid, number)
    _, messages = process.communicate(timeout=60)
    assert process.returncode != 0 and "Traceback" not in messages
    if number == signal.SIGINT:
        assert process.returncode == 130 and "the same command starts again" in messages
    assert [path.name for path in tmp_path.iterdir()] == [PARTIAL]
    whole = (tmp_path / PARTIAL / "train.idx").read_bytes().count(b"\n")
    assert whole > 2
    began = []
    pack(tree, tmp_path, progress=lambda done, total: began.append(done))
    assert began[0] == whole - 1  # the last one may be cut short
    assert contents(tmp_path) == contents(packed)


def test_a_process_that_is_killed_is_one_line_and_the_command_goes_on(tree, packed, tmp_path):
    process = start(tree, tmp_path, SLOWLY)
    until_bytes(20_000, tmp_path, process)
    workers = [
        each for each in psutil.Process(process.pid).children() if "spawn_main" in " ".join(each.cmdline())]
    assert workers
    workers[0].kill()
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 2
    last = messages.splitlines()[-1]
    assert (
        "a process packing a data set was killed, perhaps for want of memory; the same command goes on where "
        "it stopped" in last)
    pack(tree, tmp_path)
    assert contents(tmp_path) == contents(packed)


def test_a_disk_that_takes_no_more_is_one_line_and_the_command_goes_on(tree, packed, tmp_path):
    process = start(
        tree, tmp_path, "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))")
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 2
    assert (
        "cannot be written (File too large); fix that, and the same command goes on"
        in messages.splitlines()[-1])
    assert [path.name for path in tmp_path.iterdir()] == [PARTIAL]
    pack(tree, tmp_path)
    assert contents(tmp_path) == contents(packed)


def test_a_second_process_in_the_same_folder_is_refused(tree, tmp_path):
    process = start(tree, tmp_path, SLOWLY)
    until_bytes(1, tmp_path, process)
    try:
        with pytest.raises(UserError, match="another process is packing a data set there"):
            pack(tree, tmp_path)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
