"""``rn50 bench input``: the verdict out of the figures, and the figures of pipelines whose bottleneck is
known.

Processes: the command measures processes.
"""

import json
import os
import re
import subprocess
import sys

import cv2
import numpy as np
import pytest

from rn50 import rates
from rn50.data import recordio
from rn50.errors import UserError
from rn50.run.loop import Rank
from rn50.speed import input_pipeline
from rn50.speed.meter import Meter
from tests.conftest import with_changes
from tests.support import documented

FAST = rates.Comparison(1.01, 0.99, 1.02, 5)
SLOW = rates.Comparison(0.8, 0.78, 0.81, 5)
MEDIANS = {"read": 9000.0, "decode": 5000.0, "pipeline": 4500.0, "synthetic": 1000.0, "real": 990.0}


def test_a_difference_is_shown_where_every_round_says_so():
    slower = rates.compare([90, 91, 80, 70, 99], [100, 100, 100, 100, 100])
    assert (slower.median, slower.lowest, slower.highest, slower.rounds, slower.shown) == (
        0.9, 0.7, 0.99, 5, True)
    assert rates.compare([110] * 5, [100] * 5).shown
    assert not rates.compare([90, 91, 80, 70, 101], [100] * 5).shown
    assert not rates.compare([50] * 4, [100] * 4).shown  # too few rounds, however far apart
    assert "no difference" in rates.compare([90, 101] * 3, [100] * 6).spread
    assert "no difference" not in slower.spread


def test_what_is_compared_is_what_was_measured_in_the_same_round():
    drifting = [100.0, 200.0, 300.0, 400.0, 500.0]  # the machine gets faster from round to round
    assert rates.compare([0.9 * rate for rate in drifting], drifting).shown


@pytest.mark.parametrize(
    "changes, compared, words",
    [({}, FAST, "the training step"), ({}, SLOW, "what training and input share"),
     ({"pipeline": 700.0, "decode": 800.0}, SLOW, "the input pipeline, and in it decoding"),
     ({"pipeline": 700.0, "read": 750.0}, SLOW, "the input pipeline, and in it reading"),
     ({"pipeline": 700.0}, SLOW, "the input pipeline, and in it cropping, resizing and normalising"),
     ({"pipeline": 700.0, "decode": 800.0}, rates.Comparison(0.8, 0.7, 1.1, 5),
      "the input pipeline, and in it decoding"),
     ({}, rates.Comparison(0.5, 0.4, 0.6, 3), "as far as these rounds show"),
     ({}, rates.Comparison(1.2, 1.1, 1.3, 5),
      "the training step, as far as these rounds show; other load on this machine, probably"),
     ({}, rates.Comparison(1.2, 1.02, 1.3, 5), "the training step, as far as these rounds show")])
def test_the_bottleneck_follows_from_the_figures(changes, compared, words):
    told = input_pipeline.bottleneck({**MEDIANS, **changes}, compared)
    assert words in told and ("other load" in words) == ("other load" in told)


def test_which_part_of_another_librarys_pipeline_is_slow_is_not_known():
    medians = {"pipeline": 700.0, "synthetic": 1000.0, "real": 690.0}
    assert input_pipeline.bottleneck(medians, SLOW) == "the input pipeline"


@pytest.fixture
def large_images(tmp_path):
    """64 images that take long to decode."""
    noise = np.random.default_rng(1).integers(0, 255, (90, 120, 3)).astype(np.uint8)
    jpeg = cv2.imencode(".jpg", cv2.resize(noise, (2400, 1800)))[1].tobytes()
    with recordio.IndexedRecordWriter(tmp_path / "train") as writer:
        for index in range(64):
            writer.write(index, float(index % 10), jpeg)
    return tmp_path


def test_a_pipeline_that_cannot_keep_up_is_named(tiny_config, large_images):
    pytest.importorskip("implementations.mxnet")
    config = with_changes(
        tiny_config, hyperparameters={"batch_size": 4}, input_pipeline={"roi_decode": False},
        data={"folder": str(large_images), "train_samples": 64})
    rank = Rank(config)
    report = input_pipeline.measure(config, rank, seconds=5, rounds=5)
    rank.close()
    median = {name: rate.median for name, rate in report.images_per_second.measured.items()}
    assert median["read"] > 5 * median["decode"]
    assert median["pipeline"] < median["synthetic"] and median["real"] < median["synthetic"]
    # In which part of it depends on what else the machine does; MEDIANS above say how the part follows from
    # the figures.
    assert report.bottleneck.startswith("the input pipeline, and in it ")
    assert report.waiting.reader_ratio > 0.3
    assert report.waiting.reader_cost_s == pytest.approx(
        report.waiting.reader_ratio * report.waiting.batch_cost_s, rel=0.3)
    assert report.waiting.images_per_second == pytest.approx(4 / report.waiting.batch_cost_s, rel=0.3)


def test_a_batch_that_no_rank_can_fill_is_refused(tiny_config):
    pytest.importorskip("implementations.mxnet")
    config = with_changes(tiny_config, hyperparameters={"batch_size": 150}, run={"ranks_per_node": 2})
    with pytest.raises(UserError, match="BATCHSIZE=150: more than the 101 images of a rank"):
        Meter(config, Rank(with_changes(config, run={"ranks_per_node": 1})))


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_command_measures_all_ranks_and_says_what_it_found(tiny_environment, ranks):
    pytest.importorskip("implementations.mxnet")
    environ = {
        **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}, **tiny_environment}
    if ranks == 2:
        environ.update(DGXNGPU="2", BATCHSIZE="8")
    command = [sys.executable, "-m", "rn50", "bench", "input", "--seconds", "2", "--rounds", "2"]
    said = subprocess.run([*command, "--json"], env=environ, capture_output=True, text=True, timeout=120)
    assert said.returncode == 0, said.stderr
    report = json.loads(said.stdout)
    assert documented.differences("bench input", report) == []
    assert re.search("^timing takes about [0-9]+ s from here", said.stderr, re.MULTILINE)
    assert report["ranks"] == ranks and list(report["images_per_second"]) == list(input_pipeline.MEANING)
    for rate in report["images_per_second"].values():
        assert 0 < rate["lowest"] <= rate["median"] <= rate["highest"]
    told = [report["images_per_second"][name]["median"] for name in ("pipeline", "synthetic", "real")]
    assert [report["overlap"][name] for name in ("input", "step", "together")] == told
    assert report["real_of_synthetic"]["rounds"] == 2 and not report["real_of_synthetic"]["shown"]
    assert "measuring input" in said.stderr and said.stderr.count("of 15") == 10  # one rank shows it
    if ranks == 1:
        table = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120).stdout
        *_, before, last = table.splitlines()
        assert before.startswith("the input can deliver ") and " images/s, the step takes " in before
        assert (
            re.match("real = [0-9.]+% of synthetic, the median of the rounds' ratios [(]", last)
            and "; the bottleneck is " in last)


def test_data_that_are_not_there_are_named(tiny_environment, tmp_path):
    absent = tmp_path / "absent"
    environ = {
        **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}, **tiny_environment}
    said = subprocess.run(
        [sys.executable, "-m", "rn50", "bench", "input"], env={**environ, "DATADIR": str(absent)},
        capture_output=True, text=True, timeout=60)
    assert said.returncode == 2 and said.stdout == ""
    [line] = said.stderr.splitlines()
    assert line.startswith(f"rn50: {absent}: ") and "set DATADIR" in line
