"""Attribution: groups and points of a way, shares against a known truth, a campaign that goes on."""

import io
import json
import math
import pathlib

import numpy as np
import pytest

from rn50.attribution import campaign, display, shares, steps
from rn50.attribution.steps import COMMUNICATION, CONTAINER, GROUPS, HYPERPARAMETERS, INPUT, PRECISION
from rn50.errors import UserError
from rn50.printed import as_json
from rn50.settings import config as configuration
from rn50.settings import config_file
from rn50.terminal import Terminal
from tests.results.scored import write_run
from tests.support import documented

DEMO = config_file.sourced_environment(config_file.file_of("DEMO_CPU"), {})


def way(**changes):
    return steps.between(DEMO, {**DEMO, **changes})


def test_what_differs_is_in_groups():
    found = way(
        LR="1.0", CROP_AREA_MIN="0.4", DALI_THREADS="2", DGXNGPU="1", BATCHSIZE="64", PRECISION="float32"
    )
    assert found.groups == (HYPERPARAMETERS, INPUT, COMMUNICATION, PRECISION)
    assert found.differences[HYPERPARAMETERS] == {"LR": ("3.0", "1.0"), "CROP_AREA_MIN": ("0.6", "0.4")}
    assert found.differences[COMMUNICATION] == {"DGXNGPU": ("2", "1")}
    assert len(found.points) == 2 * 4 and found.orders[1] == found.groups[::-1]
    assert found.settings(INPUT) == ["DALI_THREADS 1 -> 2"]


def test_the_global_batch_belongs_to_the_hyperparameters():
    """One rank trains on the whole batch of two."""
    found = way(DGXNGPU="1", BATCHSIZE="128", LR="1.0")
    assert found.differences[HYPERPARAMETERS]["global batch size"] == ("64", "128")
    sizes = {steps.name_of(point): found.environment(point)["BATCHSIZE"] for point in found.points}
    assert sizes == {
        "as it is": "32",
        HYPERPARAMETERS: "64",
        COMMUNICATION: "64",
        f"{HYPERPARAMETERS} + {COMMUNICATION}": "128",
    }
    assert found.environment(frozenset({COMMUNICATION}))["LR"] == "3.0"


@pytest.mark.parametrize(
    "changes, says",
    [
        ({}, "do not differ in anything that a run reads"),
        ({"SEED": "1", "SUBMISSION_ORG": "x"}, "do not differ in anything that a run reads"),
        ({"NUMCLASSES": "11"}, "NUMCLASSES: 10 in the first and 11 in the second: another task"),
        ({"TARGET": "none"}, "TARGET: 0.759 in the first and none in the second: another task"),
        ({"DGXNGPU": "3"}, "the global batch size of 64 cannot be divided among the 3 ranks"),
    ],
)
def test_what_cannot_be_attributed_is_said(changes, says):
    with pytest.raises(UserError, match=says):
        way(**changes)


TRUTH = {HYPERPARAMETERS: 0.7, INPUT: 0.95, COMMUNICATION: 0.6, PRECISION: 1.0}
"""Factor of the minutes by group, without interaction; hyperparameters alone change the epochs."""


def simulated(found, seed, runs=6, rounds=6):
    rng = np.random.default_rng(seed)
    load = rng.normal(0, 0.05, rounds)  # other load slows all points of a round alike
    seconds, epochs = {}, {}
    for point in found.points:
        factor = math.prod(TRUTH[group] for group in point if group != HYPERPARAMETERS)
        seconds[point] = list(20 * factor * np.exp(load + rng.normal(0, 0.02, rounds)))
        key = shares.epochs_key(point)
        mean = 10 * (TRUTH[HYPERPARAMETERS] if HYPERPARAMETERS in point else 1)
        epochs[key] = list(mean * np.exp(rng.normal(0, 0.05, runs)))
    return shares.Measured(epochs, seconds)


def test_each_share_of_a_known_truth_lies_in_its_interval():
    """In 19 of 20 simulations, of every group and of the whole."""
    found = way(LR="1.0", DALI_THREADS="2", DGXNGPU="1", BATCHSIZE="64", PRECISION="float32")
    total = math.log(math.prod(TRUTH.values()))
    held = dict.fromkeys(TRUTH, 0) | {"all": 0}
    for seed in range(20):
        attribution = shares.of(found, simulated(found, seed))
        for part in attribution.parts:
            true = 100 * (math.exp(total) - 1) * math.log(TRUTH[part.group]) / total
            held[part.group] += part.low <= true <= part.high
        held["all"] += attribution.low <= 100 * (math.exp(total) - 1) <= attribution.high
        assert sum(part.minutes for part in attribution.parts) == pytest.approx(
            attribution.second - attribution.first
        )
        assert sum(part.percent for part in attribution.parts) == pytest.approx(attribution.percent)
    assert min(held.values()) >= 19, held


def test_what_changes_nothing_is_noise_and_what_does_is_not():
    found = way(LR="1.0", DALI_THREADS="2", DGXNGPU="1", BATCHSIZE="64", PRECISION="float32")
    parts = {part.group: part for part in shares.of(found, simulated(found, 1)).parts}
    assert parts[PRECISION].is_noise and not parts[HYPERPARAMETERS].is_noise
    assert not parts[COMMUNICATION].is_noise


def test_interaction_is_the_difference_of_the_orders():
    found = way(DALI_THREADS="2", DGXNGPU="1", BATCHSIZE="64")
    none, both = frozenset(), frozenset({INPUT, COMMUNICATION})
    seconds = {
        none: [20.0] * 3,
        frozenset({INPUT}): [10.0] * 3,
        frozenset({COMMUNICATION}): [20.0] * 3,
        both: [10.0] * 3,
    }
    epochs = {none: [10.0] * 3, frozenset({COMMUNICATION}): [10.0] * 3}
    assert shares.of(found, shares.Measured(epochs, seconds)).interaction == pytest.approx(0)
    seconds[both] = [20.0 * 0.8] * 3
    parts = shares.of(found, shares.Measured(epochs, seconds))
    assert parts.interaction > 20 and parts.percent == pytest.approx(-20)


def test_it_is_shown_and_drawn(tmp_path):
    found = way(LR="1.0", DALI_THREADS="2", DGXNGPU="1", BATCHSIZE="64", PRECISION="float32")
    attribution = shares.of(found, simulated(found, 2))
    stream = io.StringIO()
    display.show(attribution, Terminal(file=stream))
    text = stream.getvalue()
    assert f"{PRECISION} (noise)" in text and "│ all " in text and "DALI_THREADS 1 -> 2" in text
    assert documented.differences("attribute", json.loads(json.dumps(as_json(attribution)))) == []
    bars = shares.waterfall(attribution)
    assert bars[0][1] == attribution.first and bars[-1][2] == pytest.approx(attribution.second)
    assert "minutes of training" in display.draw(attribution, tmp_path).read_text()
    display.draw(attribution, tmp_path).write_text("<?xml of somebody else")
    with pytest.raises(UserError, match="give another --output"):
        display.draw(attribution, tmp_path)


def write_attributed(log, environ, seconds, **options):
    """A run as a campaign makes it: with the recipe that its configuration says, and that saved beside it."""
    config = configuration.from_environment(environ)
    write_run(log, seconds, **options)
    saved = {"variables": config.as_environment()}
    log.with_suffix(".json").write_text(json.dumps(saved))


class Jobs:
    """Stands in for the jobs of a campaign: minutes of training are not to be waited for."""

    def __init__(self, monkeypatch):
        self.timed, self.trained = [], []
        monkeypatch.setattr(campaign.worker, "run", self.time)
        monkeypatch.setattr(campaign.subprocess, "run", self.train)

    def time(self, module, environ, log, model, kinds, seconds, rounds):
        assert (module, model, list(kinds), rounds) == ("speed.cell", "ours", ["real"], 1) and seconds > 0
        self.timed.append(environ["DALI_THREADS"])
        rate = 1000.0 * int(environ["DALI_THREADS"])
        return {"images_per_second": {"real": [rate]}}, ""

    def train(self, command, env, **_):
        self.trained.append((env["LR"], env["EVAL_PERIOD"], "SEED" in env))
        log = pathlib.Path(env["RESULT_FILE"])
        write_attributed(log, env, 60 + len(self.trained), epochs=7 if env["LR"] == "3.0" else 11)


def test_a_campaign_measures_and_goes_on(tmp_path, monkeypatch):
    jobs = Jobs(monkeypatch)
    found, said = steps.between({**DEMO, "SEED": "1"}, {**DEMO, "LR": "1.0", "DALI_THREADS": "2"}), []
    measuring = campaign.Campaign(found, tmp_path)
    campaign.go(measuring, 600, said.append, lambda done, total: None)
    assert "4 points, timed in 3 rounds; 3 seeds at each of 2 that may differ" in said[0]
    assert len(jobs.timed) == 12 and len(jobs.trained) == 6
    assert {(every, fixed) for _, every, fixed in jobs.trained} == {("1", False)}  # each draws its seed
    attribution = shares.of(found, measuring.measured()[0])
    parts = {part.group: part.minutes for part in attribution.parts}
    assert attribution.second == pytest.approx(attribution.first / 2 * 11 / 7, rel=0.01)
    assert parts[INPUT] < 0 < parts[HYPERPARAMETERS]
    again = campaign.Campaign(found, tmp_path)
    campaign.go(again, 600, said.append, lambda done, total: None)
    assert len(jobs.timed) == 12 and len(jobs.trained) == 6
    with pytest.raises(UserError, match="way.json: of another pair of configurations; give another --output"):
        campaign.Campaign(way(LR="2.0"), tmp_path)


def test_a_run_that_misses_counts_as_all_its_epochs_and_is_said(tmp_path, monkeypatch):
    found = way(LR="1.0")
    measuring = campaign.Campaign(found, tmp_path)
    for number, accuracy in enumerate((0.8, 0.7)):
        for key in measuring.keys:
            log = tmp_path / "runs" / measuring._place(key) / f"result_{number}.txt"
            environ = {**found.environment(key), **campaign.EVALUATION}
            write_attributed(log, environ, 60 + number, epochs=11, accuracy=accuracy)
    measured, cautions = measuring.measured()
    assert all(values[1] == 11 and values[0] < 11 for values in measured.epochs.values())
    assert len(cautions) == 2 and "1 of 2 runs missed the target" in cautions[0]


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """A whole campaign, its folder and what stands in for its jobs."""
    jobs, found = Jobs(monkeypatch), way(LR="1.0")
    campaign.go(campaign.Campaign(found, tmp_path), 600, lambda line: None, lambda done, total: None)
    return found, tmp_path, jobs


def test_an_unfinished_run_is_made_again(measured):
    found, folder, jobs = measured
    log = next((folder / "runs").glob("*/result_1.txt"))
    whole, made = log.read_text(), len(jobs.trained)
    for lost in ('"key": "run_stop"', '"key": "eval_accuracy"'):
        log.write_text("".join(line for line in whole.splitlines(True) if lost not in line))
        again = campaign.Campaign(found, folder)
        campaign.go(again, 600, lambda line: None, lambda done, total: None)
        made += 1
        assert len(jobs.trained) == made and '"run_stop"' in log.read_text()
        assert lost not in log.with_suffix(".unfinished").read_text()
        assert all(len(epochs) == 3 for epochs in again.measured()[0].epochs.values())


def test_runs_of_another_configuration_and_copies_do_not_count(measured):
    found, folder, jobs = measured
    one, other = sorted((folder / "runs").iterdir())
    foreign = one / "result_7.txt"
    write_run(foreign, 90)
    with pytest.raises(UserError, match="result_7.json beside it is missing, or not what rn50 saves"):
        campaign.Campaign(found, folder)
    foreign.with_suffix(".json").write_bytes((other / "result_0.json").read_bytes())
    with pytest.raises(UserError, match="result_7.txt: is of another configuration: LR is "):
        campaign.Campaign(found, folder)
    foreign.write_bytes((one / "result_0.txt").read_bytes())
    foreign.with_suffix(".json").write_bytes((one / "result_0.json").read_bytes())
    with pytest.raises(UserError, match="result_7.txt: is a copy of .*result_0.txt; move it away"):
        campaign.Campaign(found, folder)


def test_another_beginning_of_the_same_way_is_another_pair(measured):
    found, folder, _ = measured
    other = {**DEMO, "DALI_THREADS": "3"}
    way_of_three = steps.between(other, {**other, "LR": "1.0"})
    assert way_of_three.differences == found.differences
    with pytest.raises(UserError, match="way.json: of another pair of configurations"):
        campaign.Campaign(way_of_three, folder)


@pytest.mark.parametrize(
    "content",
    [
        *(
            "{}",
            "[]",
            "null",
            "{",
            '{"epoch_seconds": "x"}',
            '{"epoch_seconds": null}',
            '{"epoch_seconds": 0}',
        ),
        *('{"epoch_seconds": -1}', '{"epoch_seconds": [1]}', '{"epoch_seconds": 1e308}'),
    ],
)
def test_a_broken_rate_names_itself(measured, content):
    found, folder, _ = measured
    file = next((folder / "rates").glob("01/*.json"))
    file.write_text(content)
    with pytest.raises(
        UserError, match=f"01/{file.name}: .*; remove it, and the same command measures again"
    ):
        campaign.Campaign(found, folder).measured()


def test_an_evaluation_of_epoch_0_is_no_run(measured):
    found, folder, jobs = measured
    log = next((folder / "runs").glob("*/result_1.txt"))
    write_run(log, 60, epochs=1)
    log.write_text(log.read_text().replace('"epoch_num": 1}', '"epoch_num": 0}'))
    made = len(jobs.trained)
    campaign.go(campaign.Campaign(found, folder), 600, lambda line: None, lambda done, total: None)
    assert len(jobs.trained) == made + 1


def test_a_run_without_a_log_ends_it(tmp_path, monkeypatch):
    Jobs(monkeypatch)
    monkeypatch.setattr(campaign.subprocess, "run", lambda *_, **__: None)
    measuring = campaign.Campaign(way(LR="1.0"), tmp_path)
    with pytest.raises(UserError, match="its run left no log; .*result_0.out says why"):
        campaign.go(measuring, 60, lambda line: None, lambda done, total: None)


def test_every_group_has_its_place():
    assert set(steps._OF_RUN.values()) | set(steps._OF_DATA.values()) | {INPUT, HYPERPARAMETERS} == set(
        GROUPS
    )
    assert CONTAINER not in steps.CHANGE_EPOCHS
