"""Energy of a run from power logs: integrals against an independent sum, damage named, nothing silent."""

import json
import pathlib
import random
import shutil

import numpy as np
import pytest

from rn50.files import ROOT
from rn50.results import parse, power, score
from rn50.results.validity.findings import ERROR
from rn50.submission import check
from tests.results.scored import power_record as record
from tests.results.scored import printed, write_run
from tests.results.scored import write_power as write
from tests.support.published import FOLDER, needs_published

SAMPLE = FOLDER / "power_sample"


@pytest.fixture
def log(tmp_path):
    """A run of 100 s."""
    write_run(tmp_path / "result_0.txt", 100)
    return tmp_path / "result_0.txt"


def energy_of(log):
    return power.judge([parse.read_log(log)])[0][0]


def findings(log):
    return power.judge([parse.read_log(log)])[1]


def test_a_constant_power(log):
    write(log, [(at, 250.0) for at in np.arange(-4, 106)])
    energy = energy_of(log)
    assert energy.kilojoules == pytest.approx(25) and energy.mean_watts == pytest.approx(250)
    images = 35 * 1_281_167
    assert energy.joules_an_image == pytest.approx(25_000 / images)
    assert energy.images_per_joule == pytest.approx(images / 100 / 250)  # images/s a watt
    assert findings(log) == []
    [system] = score.score([log])
    assert system.energy is None  # one run is no score
    assert "not in it: GPUs" in energy.sentence


def test_the_parts_of_intervals_outside_the_run_do_not_count(log):
    write(log, [(-0.5, 1e6), (50, 100.0), (100.5, 300.0), (101, 1e6)], begin=-10)
    joules = 100 * 50 + 300 * 50 + 1e6 * 0
    assert energy_of(log).kilojoules * 1000 == pytest.approx(joules)


@pytest.mark.parametrize("seed", range(20))
def test_replayed_logs_integrate_to_an_independent_sum(log, seed):
    """A step function on a fine grid, summed by NumPy, within 0.1 %; two nodes."""
    rng = np.random.default_rng(seed)
    total = 0.0
    for node in range(2):
        ends = np.cumsum(rng.uniform(0.3, 0.99, 400)) - 20
        watts = rng.uniform(50, 500, len(ends))
        write(log, list(zip(ends, watts, strict=True)), begin=ends[0] - 0.5, node=node)
        grid = np.arange(0, 100, 0.001) + 0.0005
        total += watts[np.searchsorted(ends, grid)].sum() * 0.001
    assert energy_of(log).kilojoules * 1000 == pytest.approx(total, rel=1e-3)


def test_the_score_has_the_mean_of_the_runs_that_count(tmp_path):
    for number, seconds in enumerate((100, 101, 102, 103, 104)):
        write_run(tmp_path / f"result_{number}.txt", seconds)
        write(tmp_path / f"result_{number}.txt", [(at, 100.0 * (number + 1)) for at in range(-2, 110)])
    [system] = score.score([tmp_path])
    kept = [run.energy.kilojoules for run in system.runs if run.kept]
    assert system.energy.kilojoules == pytest.approx(sum(kept) / 3) and len(kept) == 3
    assert "energy 30.7 kJ" in printed([system])
    shutil.rmtree(tmp_path / "power" / "result_2")
    [system] = score.score([tmp_path])
    assert system.energy is None
    assert any(
        "0 power logs, and another run has 1" in fault.message for fault in check.check([tmp_path]).findings)


def _damages():
    """Fifty ways to spoil a whole log of 110 readings; each with the words that name it."""
    for line in range(5, 15):
        yield f"hole {line}", lambda lines, at=line: lines[:at] + lines[at + 6 :], "a hole of"
    for value in (-1, "x", None, True, 1e9, float("nan"), [1], {"a": 1}, "6000", float("inf")):
        yield (
            f"value {value}",
            lambda lines, value=value: [*lines[:30], with_value(lines[30], value), *lines[31:]],
            "is not a power|not an MLPerf record")
    for keep in (3, 20, 40, 60):
        yield f"first {keep}", lambda lines, keep=keep: [*lines[:keep], lines[-1]], "before run_stop"
        yield (
            f"last {keep}", lambda lines, keep=keep: [with_time(lines[0], lines[-keep]), *lines[-keep:]],
            "after run_start|clocks are apart")
    for seconds in (3600, -3600, 600, -600, 86_400, -86_400):
        yield (
            f"clock {seconds}", lambda lines, by=seconds: [shifted(line, by) for line in lines],
            "clocks are apart")
    yield "no start", lambda lines: lines[1:], f"no record {power.START}"
    yield "no stop", lambda lines: lines[:-1], f"no record {power.STOP}"
    yield "two starts", lambda lines: [lines[0], *lines], f"2 record {power.START}"
    yield "two stops", lambda lines: [*lines, lines[-1]], f"2 record {power.STOP}"
    yield "no reading", lambda lines: [lines[0], lines[-1]], "no record power_reading"
    yield "start = stop", lambda lines: [*lines[:-1], with_time(lines[-1], lines[0])], "is not later than"
    yield "stop before start", lambda lines: [shifted(lines[0], 900), *lines[1:]], "is not later than"
    yield "reversed", lambda lines: [lines[0], *reversed(lines[1:-1]), lines[-1]], "not in the order of time"
    yield (
        "two swapped", lambda lines: [*lines[:9], lines[10], lines[9], *lines[11:]],
        "not in the order of time")
    yield "every third", lambda lines: [lines[0], *lines[1:-1:3], lines[-1]], "a reading each 3.0 s"
    yield (
        "conversion of 0", lambda lines: [lines[0], record("conversion_eff", 0, 0), *lines[1:]],
        "is not a factor")
    yield (
        "conversion of text", lambda lines: [lines[0], record("conversion_eff", 0, "x"), *lines[1:]],
        "is not a factor")
    yield "cut line", lambda lines: [*lines[:20], lines[20][:40], *lines[21:]], "not an MLPerf record"
    yield "binary", lambda lines: [*lines[:20], ":::MLLOG \x00\x01", *lines[21:]], "not an MLPerf record"
    yield (
        "few", lambda lines: [lines[0], *lines[1:-1:2], lines[-1]],
        "readings in the run, and the rules want 60")
    yield (
        "a time of text",
        lambda lines: [*lines[:20], lines[20].replace('"time_ms": ', '"time_ms": "x'), *lines[21:]],
        "not an MLPerf record")


def parts(line):
    return json.loads(line.removeprefix(":::MLLOG "))


def with_value(line, value):
    return ":::MLLOG " + json.dumps({**parts(line), "value": value})


def with_time(line, like):
    return ":::MLLOG " + json.dumps({**parts(line), "time_ms": parts(like)["time_ms"]})


def shifted(line, seconds):
    fields = parts(line)
    return ":::MLLOG " + json.dumps({**fields, "time_ms": fields["time_ms"] + 1000 * seconds})


DAMAGES = list(_damages())


def test_there_are_fifty():
    assert len(DAMAGES) == len({name for name, _, _ in DAMAGES}) >= 50


@pytest.mark.parametrize("name, damage, says", DAMAGES, ids=[name for name, _, _ in DAMAGES])
def test_a_damaged_log_is_reported(log, name, damage, says):
    file = write(log, [(at, 250.0) for at in range(-4, 106)])
    file.write_text("\n".join(damage(file.read_text().splitlines())) + "\n")
    found = findings(log)
    assert any(any(words in fault.message for words in says.split("|")) for fault in found), found
    assert all(fault.file == file and fault.remedy for fault in found)
    if any("before run_stop" in fault.message or "clocks" in fault.message for fault in found):
        assert energy_of(log) is None


def test_a_run_without_power_logs_is_as_before(log):
    assert energy_of(log) is None and findings(log) == []


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"no record\n"])
def test_a_file_that_is_no_log_leaves_the_score_as_it_is(log, content):
    file = write(log, [(at, 250.0) for at in range(-4, 106)])
    file.write_bytes(content)
    [system] = score.score([log])
    assert system.runs[0].minutes and system.runs[0].energy is None
    assert [(fault.file, fault.message) for fault in findings(log)] == [(file, "no :::MLLOG line in it")]


def test_a_node_without_a_reading_in_the_run_is_not_counted_as_nothing(tmp_path):
    """The run is shorter than the time by which a log may miss its end."""
    write_run(tmp_path / "result_0.txt", 1)
    log = tmp_path / "result_0.txt"
    write(log, [(at / 4, 250.0) for at in range(-8, 8)])
    assert energy_of(log).mean_watts == pytest.approx(250)
    write(log, [(-1, 250.0), (0, 250.0)], node=1)
    assert energy_of(log) is None


def test_random_damage_is_never_a_traceback(log):
    file = write(log, [(at, 250.0) for at in range(-4, 106)])
    whole, rng = file.read_bytes(), random.Random(1)
    for _ in range(100):
        spoiled = bytearray(whole)
        for _ in range(rng.randrange(1, 20)):
            spoiled[rng.randrange(len(spoiled))] = rng.randrange(256)
        file.write_bytes(spoiled)
        findings(log)
        energy_of(log)


H200 = ROOT / "docs" / "evidence" / "h200" / "seeds_fused"
"""Five runs on an H200 whose energy NVML measured: 78 W before the clock, 583 in the run, 700 its limit. One
reading of each run has a step of the counter too many: 834 W. Runs 0 and 2 are dropped."""


def judged(folder):
    """Energy of the score, and the errors of the power logs."""
    [system] = score.score([folder])
    found = power.judge([run.log for run in system.runs])[1]
    return system.energy, [fault.message for fault in found if fault.severity == ERROR]


def test_the_power_logs_of_an_h200_are_valid():
    energy, errors = judged(H200)
    assert errors == []
    assert energy.kilojoules == pytest.approx(10.61, abs=0.01) and energy.nodes == 1
    assert energy.mean_watts == pytest.approx(583, abs=1) and 800 < energy.peak_watts < 850
    [before, *_], _ = zip(*power.read(power.file_of(H200 / "result_0.txt", 0))[0].readings, strict=True)
    assert before < parse.read_log(H200 / "result_0.txt").run_start_ms


def scaled(by, runs=range(5)):
    def change(folder):
        for run in runs:
            edit(folder, run, lambda value: None if value is None else round(value * by, 3))

    return change


def edit(folder, run, of_value, node=0, **metadata):
    """Change the readings, and the metadata of the first record."""
    file = power.file_of(folder / f"result_{run}.txt", node)
    records = [parts(line) for line in file.read_text().splitlines()]
    records[0]["metadata"].update(metadata)
    for fields in records:
        if fields["key"] == power.READING:
            fields["value"] = of_value(fields["value"])
    file.write_text("".join(f":::MLLOG {json.dumps(fields)}\n" for fields in records))


def factor(*values, runs=range(5)):
    def change(folder):
        for run in runs:
            file = power.file_of(folder / f"result_{run}.txt", 0)
            start, *lines = file.read_text().splitlines()
            file.write_text(
                "\n".join([start, *(record("conversion_eff", 0, value) for value in values), *lines]))

    return change


def copies(by=1.0, change=lambda lines: lines):
    """The readings of run 0 beside all others of its length or less, shifted in time and scaled."""

    def copy(folder):
        logs = [parse.read_log(folder / f"result_{run}.txt") for run in range(5)]
        first = change(power.file_of(logs[0].path, 0).read_text().splitlines())
        for log in logs[1:]:
            late = (log.run_stop_ms - logs[0].run_stop_ms) / 1000
            file = power.file_of(log.path, 0)
            file.write_text("\n".join(shifted(line, round(late)) for line in first) + "\n")
            edit(folder, int(log.path.stem[-1]), lambda value: round(value * by, 3))

    return copy


def nodes(number):
    def change(folder):
        for run in range(5):
            for node in range(1, number):
                log = folder / f"result_{run}.txt"
                shutil.copy(power.file_of(log, 0), power.file_of(log, node))

    return change


def metadata(run, **values):
    return lambda folder: edit(folder, run, lambda value: value, **values)


def gone(run):
    return lambda folder: shutil.rmtree(folder / "power" / f"result_{run}")


FORGERIES = {
    "all readings x 0.001": (scaled(0.001), "where at least 10 W are possible"),
    "all readings x 0.01": (scaled(0.01), "where at least 10 W are possible"),
    "all 0 W": (scaled(0), "a mean of 0 W"), "10 MW": (scaled(20_000), "at most 2,500 W are possible"),
    "one reading of 1 MW": (
        lambda folder: edit(folder, 1, lambda value: 1e6 if value > 650 else value), "1,000,000"),
    "factor 0.001": (factor(0.001), "conversion_eff 0.001"),
    "two factors": (factor(1.0, 0.5), "conversion_eff 1.0, 0.5"),
    "a factor in one run": (factor(0.5, runs=[1]), "times 0.5"),
    "readings of run 0": (copies(), "has the readings of result_0/node_0.txt"),
    "those, scaled": (copies(0.97), "has the readings of result_0/node_0.txt"),
    "those, but the first ten": (copies(change=lambda lines: [lines[0], *lines[11:]]), "has the readings of"),
    "other sources in a run": (metadata(1, sources="package-0"), "measured is 'package-0'"),
    "nothing left out in a run": (metadata(3, not_included=""), "'GPU 0' without '', times 1"),
    "a copy as second node": (nodes(2), "2 power logs, and the run has 1 nodes"),
    "100 nodes": (nodes(100), "100 power logs, and the run has 1 nodes"),
    "none in a run": (gone(1), "0 power logs, and another run has 1")}


@pytest.mark.parametrize("forge, says", FORGERIES.values(), ids=FORGERIES)
def test_forged_energy_is_an_error_and_shown_nowhere(tmp_path, forge, says):
    shutil.copytree(H200, tmp_path / "results")
    forge(tmp_path / "results")
    energy, errors = judged(tmp_path / "results")
    assert any(says in message for message in errors), errors
    assert energy is None


def test_the_same_factor_in_all_runs_is_none(tmp_path):
    """A supply's efficiency, and a meter with a resolution of 1 W that shows little but its noise."""
    shutil.copytree(H200, tmp_path / "results")
    factor(1.1)(tmp_path / "results")
    for run in range(5):
        edit(tmp_path / "results", run, lambda value: 400 + round(value) % 3)
    energy, errors = judged(tmp_path / "results")
    assert errors == [] and energy.mean_watts == pytest.approx(1.1 * 401, abs=1)


def test_nodes_that_were_not_measured_are_told(tmp_path, log):
    write(log, [(at, 250.0) for at in np.arange(-4, 106)])
    saved = {"config": {"run": {"nodes": 4, "ranks_per_node": 8, "device": "gpu"}}}
    log.with_suffix(".json").write_text(json.dumps(saved))
    assert energy_of(log).not_included == "3 of 4 nodes; GPUs"


def test_what_the_log_leaves_out_is_not_repeated_at_length(log):
    write(log, [(at, 250.0) for at in np.arange(-4, 106)])
    file = power.file_of(log, 0)
    file.write_text(file.read_text().replace('"GPUs"', json.dumps("G" * 10_000)))
    assert len(energy_of(log).sentence) < 400


def test_readings_after_the_run_are_not_its_peak(log):
    write(log, [(at, 250.0) for at in np.arange(-4, 103)] + [(103, 9_000.0)])
    assert energy_of(log).peak_watts == 250


@needs_published
def test_the_published_sample(tmp_path):
    """Against the official summarizer's formula: mean power of the measurement, times the run's time."""
    shutil.copy(SAMPLE / "result_2.txt", tmp_path / "result_2.txt")
    node = tmp_path / "power" / "result_2" / "node_1.txt"
    node.parent.mkdir(parents=True)
    shutil.copy(SAMPLE / "node_1.txt", node)
    log = parse.read_log(tmp_path / "result_2.txt")
    energy = power.judge([log])[0][0]
    lines = [parts(line) for line in pathlib.Path(node).read_text().splitlines()]
    at, summed = lines[0]["time_ms"], 0.0
    for line in lines:
        if line["key"] == power.READING:
            summed += line["value"] * (line["time_ms"] - at)
            at = line["time_ms"]
    official = (
        summed * (log.run_stop_ms - log.run_start_ms) / (lines[-1]["time_ms"] - lines[0]["time_ms"]) / 1000)
    assert energy.kilojoules * 1000 == pytest.approx(official, rel=0.02)
    found = power.judge([log])[1]
    assert {fault.severity for fault in found} == {"warning"} and "a reading each 2.0 s" in found[0].message
    assert not any(fault.severity == ERROR for fault in found)
