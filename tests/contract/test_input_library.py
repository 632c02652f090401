"""Without DALI: timed runs whose images a DataLoader reads, and what they say of a record that does not
decode.

Processes: a rank without DALI is a process that never loads it.
"""

import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import types
import zlib

import pytest

from rn50 import frameworks
from rn50.data import recordio
from rn50.errors import UserError
from rn50.results import parse
from rn50.results.parse import partial_name
from rn50.run import agreement, input_library, loop
from rn50.speed import measured_steps
from tests.conftest import EVAL_SAMPLES, TRAIN_SAMPLES, with_changes
from tests.contract.frameworks import installed
from tests.support import documented

ROOT = pathlib.Path(__file__).resolve().parents[2]
WITHOUT_DALI = "import sys; sys.modules['nvidia.dali'] = None; from rn50.cli import main; main(['train'])"
DATALOADER = {
    "FRAMEWORK": "pytorch", "INPUT_LIBRARY": "dataloader", "DALI_ROI_DECODE": "0", "DALI_THREADS": "2"}


@pytest.fixture(params=["pytorch, dataloader", "paddle, dataloader"])
def library(request):
    """FRAMEWORK and INPUT_LIBRARY, both installed."""
    installed(request.param)
    framework, name = request.param.split(", ")
    return {"FRAMEWORK": framework, "INPUT_LIBRARY": name}


@pytest.fixture(params=["pytorch", "paddle"])
def framework(request):
    """A framework that is installed and has a DataLoader."""
    installed(request.param)
    return request.param


def train(environment, result):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_DALI], env={**os.environ, **environment, "RESULT_FILE": str(result)},
        cwd=str(ROOT), capture_output=True, text=True, timeout=300)


def test_a_timed_run_without_dali(tiny_environment, tmp_path, library):
    result = tmp_path / "result_0.txt"
    done = train({**tiny_environment, **DATALOADER, **library}, result)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    log = parse.read_log(result)
    assert (log.train_samples, log.eval_samples) == (TRAIN_SAMPLES, EVAL_SAMPLES)
    assert [event.key for event in log.events].count("eval_accuracy") >= 1 and log.events[
        -1].key == "run_stop"
    (samples,) = [event for event in log.events if event.key == "train_samples"]
    assert samples.metadata["input_library"] == library["INPUT_LIBRARY"]
    saved = json.loads(result.with_suffix(".json").read_text())
    assert (
        saved["variables"]["INPUT_LIBRARY"] == saved["config"]["input_pipeline"]["library"]
        == library["INPUT_LIBRARY"])


def test_ranks_of_equal_seeds_say_that_they_saw_the_same_images(tiny_environment, tmp_path, framework):
    """The log of an epoch has a hash of the order of its samples, of any number of ranks the same."""
    orders = []
    for number, changes in enumerate(({}, {"DGXNGPU": "2", "BATCHSIZE": "8"}, {"SEED": "8"})):
        log = tmp_path / f"result_{number}.txt"
        environment = {**tiny_environment, **DATALOADER, "FRAMEWORK": framework, "RESULT_FILE": str(log)}
        command = [sys.executable, "-m", "rn50", "launch"]
        done = subprocess.run(command, env={**os.environ, **environment, **changes}, capture_output=True)
        assert log.exists(), done.stderr
        stats = parse.read_log(log).by_key["tracked_stats"]
        orders.append([event.metadata["sample_order"] for event in stats])
    one, two, other = orders
    assert one == two and len(set(one + other)) == 4 and all(len(order) == 16 for order in one)


def test_with_dali_it_needs_dali_before_the_clock_starts(tiny_environment, tmp_path, framework):
    named = {"FRAMEWORK": framework, "INPUT_LIBRARY": "dali"}
    done = train({**tiny_environment, **DATALOADER, **named}, tmp_path / "result_0.txt")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("rn50: ")]
    assert done.returncode == 2 and line.startswith("rn50: INPUT_LIBRARY=dali: ") and "nvidia.dali" in line
    assert line.endswith(f"requirements/install.sh {framework}-cpu, or set INPUT_LIBRARY=auto")
    assert [event.key for event in parse.read_log(partial_name(tmp_path / "result_0.txt")).events][
        -1] == "init_start"


def test_what_auto_became_is_in_the_log_and_beside_it(tiny_environment, tmp_path, framework):
    result = tmp_path / "result_0.txt"
    done = train({**tiny_environment, **DATALOADER, "FRAMEWORK": framework, "INPUT_LIBRARY": ""}, result)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    (samples,) = [event for event in parse.read_log(result).events if event.key == "train_samples"]
    saved = json.loads(result.with_suffix(".json").read_text())
    assert samples.metadata["input_library"] == saved["input_library"] == "dataloader"
    assert saved["variables"]["INPUT_LIBRARY"] == "auto"


@pytest.mark.parametrize(
    "framework, device, missing, expected",
    [("mxnet", "cpu", {"nvidia.dali"}, "dali"), ("mxnet", "gpu", {}, "dali"),
     ("pytorch", "cpu", {}, "dali"), ("pytorch", "gpu", {}, "dali"),
     ("pytorch", "cpu", {"nvidia.dali"}, "dataloader"), ("pytorch", "gpu", {"nvidia.dali"}, "dataloader"),
     ("pytorch", "gpu", {"nvidia.dali.plugin.pytorch"}, "dataloader"), ("paddle", "cpu", {}, "dali"),
     ("paddle", "gpu", {}, "dali"), ("paddle", "gpu", {"nvidia.dali"}, "dataloader")])
def test_auto_takes_dali_and_without_it_the_dataloader(
    tiny_config, monkeypatch, framework, device, missing, expected
):
    for module in ("nvidia.dali", f"nvidia.dali.plugin.{framework}"):
        there = module.startswith(tuple(missing)) if missing else False
        monkeypatch.setitem(sys.modules, module, None if there else types.ModuleType(module))
    monkeypatch.setattr(frameworks, "is_importable", frameworks.is_importable.__wrapped__)
    config = with_changes(tiny_config, run={"framework": framework, "device": device})
    assert input_library.chosen(config) == expected
    explicit = with_changes(config, input_pipeline={"library": "dataloader"})
    assert input_library.chosen(explicit) == "dataloader"


def test_ranks_that_would_read_through_different_libraries_are_refused(tiny_config):
    def refuse(config, other):
        communicator = types.SimpleNamespace(
            rank=1, size=2, all_reduce=lambda array: array + zlib.crc32(other))
        agreement.on_input_library(config, communicator)

    refuse(tiny_config, b"dali")
    refuse(with_changes(tiny_config, input_pipeline={"library": "dali"}), b"dataloader")
    with pytest.raises(
        UserError, match="INPUT_LIBRARY=auto: it is dali on this rank, .* or set INPUT_LIBRARY"
    ):
        refuse(tiny_config, b"dataloader")


def test_steps_that_only_measure_and_no_process_afterwards(tiny_config, library):
    config = with_changes(
        tiny_config, run={"framework": library["FRAMEWORK"]},
        input_pipeline={"library": library["INPUT_LIBRARY"], "threads": 2})
    rank = loop.Rank(config)
    rank.warm_up(5)
    batches = measured_steps.open_input(rank, config.input_pipeline)
    assert len(multiprocessing.active_children()) == 2
    result = measured_steps.train(rank, batches, 2, 5)
    assert (
        result.samples == 5 * config.hyperparameters.batch_size
        and 0 <= result.data_wait_seconds <= result.seconds)
    rank.close()
    del batches
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("verb", ["bench input", "profile"])
def test_its_pipeline_is_measured_as_a_whole(tiny_environment, tmp_path, library, verb):
    folder = ["--output", str(tmp_path / "profile")] if verb == "profile" else []
    command = [
        sys.executable, "-m", "rn50", *verb.split(), "--seconds", "2", "--rounds", "1", "--json", *folder]
    done = subprocess.run(
        command, cwd=str(ROOT), env={**os.environ, **tiny_environment, **library, "DALI_THREADS": "1"},
        text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert documented.differences(verb, report) == []
    assert list(report["images_per_second"]) == ["pipeline", "synthetic", "real"]
    assert all(rate["median"] > 0 for rate in report["images_per_second"].values())


@pytest.mark.parametrize("name", ["train", "val"])
def test_a_record_that_does_not_decode_is_named(tiny_environment, tiny_folder, tmp_path, library, name):
    for file in tiny_folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    with recordio.IndexedRecordReader(tiny_folder / f"{name}.rec", tiny_folder / f"{name}.idx") as reader:
        records = [reader.read(position) for position in range(len(reader))]
    for kind in ("rec", "idx"):
        (tmp_path / f"{name}.{kind}").unlink()
    (tmp_path / "certificate.json").unlink(missing_ok=True)  # it would tell of the other size
    with recordio.IndexedRecordWriter(tmp_path / name) as writer:
        for position, (header, jpeg) in enumerate(records):
            writer.write(position, header.label, jpeg[: len(jpeg) // 2] if position == 40 else jpeg)
    environment = {**tiny_environment, **DATALOADER, **library, "DATADIR": str(tmp_path)}
    done = train(environment, tmp_path / "result_0.txt")
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("rn50: ")]
    assert f"{name}.rec: record 40 at byte " in line and "does not decode" in line
    stop = parse.read_log(partial_name(tmp_path / "result_0.txt")).events[-1]
    assert (stop.key, stop.metadata["status"]) == ("run_stop", "aborted")
