"""The clock runs before the first file of the data set is opened, and stops at the first evaluation at the
target."""

import shutil
import struct

import inotify_simple
import pytest

from rn50.data.recordio import read_index
from tests.contract.frameworks import installed
from tests.system.job import BUSY_S, LAUNCH, ROOT, Job, configuration_file, events, keys

DATA_SET = {"train.rec", "train.idx", "val.rec", "val.idx", "certificate.json"}
LABEL = 12
"""Where the label stands in a record, in bytes."""


@pytest.fixture
def data(tiny_folder, tmp_path):
    """A copy of the tiny data set that nobody else opens, every image of class 0, so that a run reaches the
    target at once."""
    folder = tmp_path / "data"
    shutil.copytree(str(tiny_folder), str(folder))
    for name in ("train", "val"):
        with (folder / f"{name}.rec").open("r+b") as stream:
            for offset in read_index(folder / f"{name}.idx")[1]:
                stream.seek(int(offset) + LABEL)
                stream.write(struct.pack("<f", 0))
    return folder


@pytest.mark.parametrize(
    "way, framework",
    [("rn50 launch", "mxnet"), ("run_and_time.sh", "mxnet"), ("rn50 launch", "paddle"),
     ("rn50 launch", "pytorch")])
def test_no_file_of_the_data_set_is_opened_before_the_clock_runs(
    tiny_environment, results, data, tmp_path, way, framework
):
    installed(framework)
    environment, command = (
        {**tiny_environment, "FRAMEWORK": framework, "DATADIR": str(data), "NUMEPOCHS": "5"}, LAUNCH)
    if way == "run_and_time.sh":
        file = configuration_file(tmp_path / "somebodys.sh", environment)
        environment, command = {"CONFIG_FILE": str(file)}, [str(ROOT / way)]
    log = results / "result_1.txt"
    partial = results / "result_1.txt.partial"
    with inotify_simple.INotify() as watch:
        watch.add_watch(str(data), inotify_simple.flags.OPEN | inotify_simple.flags.ACCESS)
        job = Job({**environment, "RESULT_FILE": str(log)}, command)
        first = []
        job.until(
            lambda: first.extend(watch.read(timeout=1000)) or first
        )  # woken by the first event, whatever it is
        logged = keys(partial) if partial.exists() else []
        assert "run_start" in logged, f"{[event.name for event in first]} opened before the clock ran"
        assert job.wait(BUSY_S) == 0, job.err
        opened = {
            event.name for event in first + watch.read(timeout=0) if event.mask & inotify_simple.flags.OPEN}
    assert opened == DATA_SET
    logged = events(log)
    assert [event["key"] for event in logged].count(
        "eval_accuracy"
    ) == 1  # 5 epochs were allowed, the first sufficed
    assert logged[-1]["key"] == "run_stop" and logged[-1]["metadata"]["status"] == "success"
