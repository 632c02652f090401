"""``rn50 tune input`` finds what is faster, never writes what is not, and writes nothing but the section that
it is for."""

import dataclasses
import json
import math
import os
import pathlib
import random
import subprocess
import sys

import cv2
import numpy as np
import pytest

from rn50 import process
from rn50.data import recordio
from rn50.errors import UserError
from rn50.run.loop import EpochResult
from rn50.run.precision import Precision
from rn50.settings import config as configuration
from rn50.settings import document, writing
from rn50.settings.document import Document
from rn50.speed import input_settings, measured_steps, tuned_config, tuning
from rn50.speed.tuning import Tuner
from tests.conftest import with_changes
from tests.support import documented
from tests.support.pace import slowness

CONFIGS = sorted(document.CONFIGS.glob("config_*.sh"))
DEMO = document.CONFIGS / "config_DEMO_CPU.sh"
ENOUGH_SECONDS = 1000  # of a trainer that takes none


class OneRank:
    """A job of one process."""

    rank, local_rank, size, library = 0, 0, 1, ""

    def barrier(self):
        pass

    def all_reduce(self, array):
        return array


UNIT_S = 1e-5


class Formula:
    """A trainer whose every step takes the units that ``cost(settings)`` gives, times noise; ``cost`` may
    refuse settings."""

    precision = Precision("float32")

    def __init__(self, cost, synthetic=0.1, noise=0.0, seed=0):
        self.communicator = OneRank()
        self._cost, self._synthetic, self._noise, self._random = cost, synthetic, noise, random.Random(seed)

    def warm_up(self, seed):
        return []

    def open_input(self, wanted):
        return self._synthetic if wanted is None else self._cost(wanted)

    def train(self, batches, lead_in, steps):
        noise = math.exp(self._random.gauss(0, self._noise))
        return EpochResult(steps * 16, steps * UNIT_S * batches * noise, 0.0)

    def take(self, batches, lead_in, steps):
        return self.train(0.05 * batches, lead_in, steps)

    def close(self):
        pass


def search(config, trainer, cores=4, seconds=ENOUGH_SECONDS):
    with pytest.MonkeyPatch.context() as patched:
        for name in ("open_input", "train"):
            patched.setattr(measured_steps, name, lambda rank, *rest, name=name: getattr(rank, name)(*rest))
        patched.setattr(measured_steps, "take", trainer.take)
        return Tuner(config, trainer, cores, seconds).run()


def cost(wanted):
    """Best with 4 threads, 3 batches ahead, fused, and the file mapped."""
    return (
        0.2 + 0.3 / min(wanted.threads, 4) + 0.1 * abs(wanted.prefetch_queue_depth - 3)
        + 0.2 * (not wanted.roi_decode) + 0.05 * wanted.dont_use_mmap)


def test_the_best_knobs_are_found_one_after_another(tiny_config):
    config = with_changes(
        tiny_config,
        input_pipeline={"threads": 1, "prefetch_queue_depth": 8, "roi_decode": False, "dont_use_mmap": True})
    outcome = search(config, Formula(cost))
    found = outcome.after.input_pipeline
    assert (found.threads, found.prefetch_queue_depth, found.roi_decode, found.dont_use_mmap) == (
        4, 3, True, False)
    assert outcome.faster and outcome.in_time
    before, after = cost(config.input_pipeline), cost(found)
    assert outcome.compared.median == pytest.approx(before / after)
    measured = outcome.images_per_second_before, outcome.images_per_second_after
    assert measured == pytest.approx((16 / before / UNIT_S, 16 / after / UNIT_S), rel=1e-4)
    assert outcome.of_synthetic == pytest.approx(0.1 / after)
    alone, bound, together = (16 / units / UNIT_S for units in (0.05 * after, 0.1, after))
    assert outcome.overlap[1:4] == pytest.approx((alone, bound, together), rel=1e-4)
    assert outcome.overlap.of_slower.rounds == tuning.rates.ROUNDS
    assert [trial.change for trial in outcome.trials if trial.kept] == [
        "DALI_ROI_DECODE=1", "DALI_THREADS=2", "DALI_THREADS=3", "DALI_THREADS=4", "DALI_PREFETCH_QUEUE=6",
        "DALI_PREFETCH_QUEUE=4", "DALI_PREFETCH_QUEUE=3", "DALI_DONT_USE_MMAP=0"]
    for section in ("hyperparameters", "run", "data"):
        assert getattr(outcome.after, section) == getattr(config, section)


def test_no_more_threads_than_cores_and_no_dead_knob_is_tried(tiny_config):
    trials = search(tiny_config, Formula(lambda wanted: 1 / wanted.threads), cores=2).trials
    assert {trial.change.split("=")[0] for trial in trials} == {
        "DALI_ROI_DECODE", "DALI_THREADS", "DALI_PREFETCH_QUEUE", "DALI_DONT_USE_MMAP"}
    assert max(int(trial.change.split("=")[1]) for trial in trials if "THREADS" in trial.change) == 2
    gpu = with_changes(tiny_config, run={"device": "gpu"}, input_pipeline={"roi_decode": False})
    names = {input_settings.NAMES[setting.field] for setting in input_settings.to_try(gpu, 2)}
    assert names == {trial.change.split("=")[0] for trial in trials} | {
        "DALI_HW_DECODER_LOAD", "DALI_CACHE_SIZE"}


def test_a_cache_is_tried_only_where_whole_images_are_decoded(tiny_config):
    gpu = with_changes(tiny_config, run={"device": "gpu"})
    for roi, first in ((True, "DALI_ROI_DECODE=0 DALI_CACHE_SIZE=4096"), (False, "DALI_CACHE_SIZE=1024")):
        config = with_changes(gpu, input_pipeline={"roi_decode": roi})
        trials = search(config, Formula(lambda wanted, roi=roi: 1.0 + (wanted.roi_decode != roi))).trials
        assert [trial.change for trial in trials if "DALI_CACHE_SIZE" in trial.change] == [first]


def test_a_cache_is_found_that_pays_only_with_whole_images_though_these_alone_do_not(tiny_config):
    config = with_changes(tiny_config, run={"device": "gpu"}, input_pipeline={"roi_decode": True})
    outcome = search(
        config, Formula(lambda wanted: 1.0 if wanted.roi_decode else 1.2 - 0.4 * (wanted.cache_size_mb > 0)))
    assert outcome.faster
    assert (outcome.after.input_pipeline.roi_decode, outcome.after.input_pipeline.cache_size_mb) == (
        False, 4096)


def test_what_cannot_be_run_is_told_and_passed_over(tiny_config):
    def refusing(wanted):
        if wanted.prefetch_queue_depth > 2:
            raise RuntimeError("out of memory\nand a long trace")
        return 1 / wanted.threads

    outcome = search(tiny_config, Formula(refusing))
    [failed] = [trial for trial in outcome.trials if trial.reason]
    assert failed.change == "DALI_PREFETCH_QUEUE=3" and failed.reason == "out of memory" and not failed.kept
    assert outcome.faster and outcome.after.input_pipeline.threads == 4


def test_with_the_time_over_it_says_so_and_what_was_found_is_compared(tiny_config):
    outcome = search(tiny_config, Formula(cost), seconds=0)
    assert (outcome.trials, outcome.in_time, outcome.compared, outcome.faster) == ((), False, None, False)
    assert outcome.after == tiny_config


def test_under_heavy_noise_nothing_slower_is_ever_found_faster(tiny_config):
    """The best settings from the start, every other value 3 % slower, noise of 10 % on every measurement."""
    best = tiny_config.input_pipeline
    trainers = [
        Formula(lambda wanted: 1.0 if wanted == best else 1.03, noise=0.1, seed=seed) for seed in range(300)]
    outcomes = [search(tiny_config, trainer) for trainer in trainers]
    doubted = [outcome for outcome in outcomes if outcome.compared is not None]
    assert len(doubted) > 20  # noise does lead the search astray
    assert not any(outcome.faster for outcome in outcomes)


def test_a_real_gain_is_found_through_noise(tiny_config):
    slow = with_changes(tiny_config, input_pipeline={"roi_decode": False})
    trainers = [
        Formula(lambda wanted: 0.8 if wanted.roi_decode else 1.0, noise=0.03, seed=seed) for seed in range(50)
    ]
    assert sum(search(slow, trainer).faster for trainer in trainers) >= 48


def outcome_of(config, **changes):
    """That of a search which found these settings."""
    after = dataclasses.replace(config, input_pipeline=dataclasses.replace(config.input_pipeline, **changes))
    lost = tuning.overlap.of_rounds(config.run.device, [9000.0] * 5, [1130.0] * 5, [1100.0] * 5)
    return tuning.Tuning(
        config, after, (), True, 1000.0, 1100.0, tuning.rates.compare([1100.0] * 9, [1000.0] * 9), 0.97, lost)


@pytest.mark.parametrize("file", CONFIGS, ids=[file.stem for file in CONFIGS])
def test_the_file_that_is_written_is_the_base_with_these_knobs(file, tmp_path):
    base = writing.split(Document(file), "input_pipeline")
    changes = {"threads": 7, "prefetch_queue_depth": 5, "dont_use_mmap": True}
    outcome = outcome_of(base.config, **changes)
    output = tmp_path / "config_TUNED.sh"
    output.write_text(tuned_config.text(base, outcome))
    read = configuration.from_environment(Document(output).sourced(), Document(output))
    assert dataclasses.asdict(read.input_pipeline) == {
        **dataclasses.asdict(base.config.input_pipeline), **changes}
    assert dataclasses.replace(read, input_pipeline=base.config.input_pipeline) == base.config
    tuned = input_settings.NAMES.values()
    assert {name: value for name, value in Document(output).sourced().items() if name not in tuned} == {
        name: value for name, value in Document(file).sourced().items() if name not in tuned}
    old, new = file.read_text().splitlines(), output.read_text().splitlines()
    header = [line for line in new if line.startswith("#") and line not in old]
    assert header[0].startswith("#   tuned       by `rn50 tune input`: DALI_THREADS=7 (was ")
    assert (
        "1,000 -> 1,100 images/s of training on real data: 1.100 times (1.100 to 1.100 in 9 rounds)"
        in header[1])
    assert len(header) == 2 and "97.0% of synthetic" in header[1]
    lost = [line for line in old if line not in new]
    assert all(
        line.split("=")[0].split()[-1] in ("DALI_THREADS", "DALI_PREFETCH_QUEUE", "DALI_DONT_USE_MMAP")
        for line in lost)


def test_a_file_that_was_tuned_before_is_tuned_again(tmp_path):
    again = DEMO
    for threads in (2, 3):
        base = writing.split(Document(again), "input_pipeline")
        made = tuned_config.text(base, outcome_of(base.config, threads=threads))
        again = tmp_path / f"config_{threads}.sh"
        again.write_text(made)
    assert made.count("# ") - DEMO.read_text().count("# ") == 2 and "DALI_THREADS=3 (was 2)" in made
    assert made.count("DALI_THREADS=") == 2  # in the header, and once in its section


def test_a_file_that_sets_knobs_elsewhere_too_or_has_no_section_is_refused(tmp_path):
    file = tmp_path / "config_X.sh"
    file.write_text(DEMO.read_text() + "\nexport DALI_THREADS=9\n")
    with pytest.raises(UserError, match="sets variables of the input pipeline outside of their section"):
        base = writing.split(Document(file), "input_pipeline")
        tuned_config.text(base, outcome_of(base.config, threads=2))
    file.write_text(DEMO.read_text().replace("# --- input pipeline", "# input pipeline"))
    with pytest.raises(UserError, match="no section `# --- input pipeline`"):
        writing.split(Document(file), "input_pipeline")


def test_the_environment_of_a_run_has_the_knobs_of_the_file_alone(monkeypatch):
    own = {"DALI_THREADS": "9", "DALI_DONT_USE_MMAP": "1", "DATADIR": "/here", "PATH": "/bin"}
    monkeypatch.setattr(process, "environment", lambda: own)
    environ = tuned_config.configured(Document(DEMO)).environ()
    assert environ["DALI_THREADS"] == "1" and "DALI_DONT_USE_MMAP" not in environ
    assert (environ["DATADIR"], environ["PATH"], environ["CONFIG_FILE"]) == ("/here", "/bin", str(DEMO))


def command(environ, *arguments):
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "OMP_NUM_THREADS") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-m", "rn50", "tune", "input", *map(str, arguments)], env={**kept, **environ},
        capture_output=True, text=True, timeout=300)


def test_what_cannot_be_written_is_said_before_anything_is_measured(tmp_path, tiny_folder):
    there = tmp_path / "there.sh"
    there.write_text("mine")
    for output, words in (
        (there, "exists; give another --output, or --force"), (tmp_path / "no" / "x.sh", "cannot be written"),
    ):
        said = command({"DATADIR": str(tiny_folder)}, DEMO, "-o", output)
        assert (
            (said.returncode, said.stdout) == (2, "") and words in said.stderr
            and len(said.stderr.splitlines()) == 1)
    assert there.read_text() == "mine"
    said = command({}, DEMO.parent / "config_NONE.sh")
    assert said.returncode == 2 and "no such file" in said.stderr


@pytest.fixture(scope="module")
def slow_to_decode(tmp_path_factory):
    """64 images so tall that training waits for them, and a configuration that decodes the whole of each to
    crop a small part."""
    folder = tmp_path_factory.mktemp("slow")
    noise = np.random.default_rng(1).integers(0, 255, (225, 6, 3)).astype(np.uint8)
    jpeg = cv2.imencode(".jpg", cv2.resize(noise, (240, 9000)), [cv2.IMWRITE_JPEG_QUALITY, 60])[1].tobytes()
    for name in ("train", "val"):
        with recordio.IndexedRecordWriter(folder / name) as writer:
            for index in range(64):
                writer.write(index, float(index % 10), jpeg)
    text = DEMO.read_text()
    for old, new in (
        ("BATCHSIZE=32  ", "BATCHSIZE=4  "), ("NUMEXAMPLES=6000", "NUMEXAMPLES=64"),
        ("WIDTH=0.25", "WIDTH=0.125"), ("NUMVALEXAMPLES=2000", "NUMVALEXAMPLES=64"),
        ("CROP_AREA_MIN=0.75", "CROP_AREA_MIN=0.05"), ("IMAGE_SIZE=48", "IMAGE_SIZE=32"),
        ("PRECISION=auto", "PRECISION=float32"),
        ("export DALI_ROI_DECODE=1            # decode only the random crop\n", ""),
    ):
        assert old in text
        text = text.replace(old, new)
    file = folder / "config_SLOW.sh"
    file.write_text(text)
    return folder, file


def test_end_to_end_a_faster_configuration_is_written_and_it_is_faster(slow_to_decode, tmp_path):
    pytest.importorskip("implementations.mxnet")
    folder, base = slow_to_decode
    output = tmp_path / "config_TUNED.sh"
    for _ in range(3):  # whatever else the machine does may spoil a round, and then nothing may be written
        seconds = round(25 * slowness())  # in which a slow machine measures as many steps
        said = command({"DATADIR": str(folder)}, base, "-o", output, "--seconds", seconds, "--json")
        assert said.returncode == 0, said.stderr
        report = json.loads(said.stdout)
        if report["faster"]:
            break
        assert not output.exists() and report["written"] is None
    assert documented.differences("tune input", report) == []
    assert (
        report["faster"] and report["written"] == str(output) and report["changes"]["DALI_ROI_DECODE"] == "1")
    compared = report["after_of_before"]
    assert compared["lowest"] > 1 and compared["rounds"] == tuning.FINAL_ROUNDS
    assert report["images_per_second_after"] > report["images_per_second_before"] > 0
    written = Document(output).sourced({"DATADIR": str(folder)})
    assert written["DALI_ROI_DECODE"] == "1" and written["BATCHSIZE"] == "4"
    assert f"{compared['median']:.3f} times" in output.read_text()
    assert [path.name for path in pathlib.Path(tmp_path).iterdir()] == [output.name]
    # Without a gain nothing is written: the threads of a pipeline that is fused already are all that there is
    # to turn.
    again = command({"DATADIR": str(folder)}, output, "-o", tmp_path / "again.sh", "--seconds", "1", "--json")
    assert again.returncode == 0 and (tmp_path / "again.sh").exists() == json.loads(again.stdout)["faster"]
