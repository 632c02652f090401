"""Energy of a run from power logs: integrals against an independent sum, damage named, nothing silent."""

import json
import pathlib
import random
import shutil

import numpy as np
import pytest

from rn50.results import parse, power, score
from rn50.results.validity.findings import ERROR
from rn50.submission import check
from tests.results.scored import printed, write_run
from tests.support.published import FOLDER, needs_published

SAMPLE = FOLDER / "power_sample"


def record(key, at, value=None, **metadata):
    return ":::MLLOG " + json.dumps({"time_ms": round(at), "key": key, "value": value, "metadata": metadata})


def write(log, readings, begin=None, end=None, node=0, more=()):
    """A power log of (seconds after run_start, watts)."""
    start = parse.read_log(log).run_start_ms
    file = log.parent / "power" / log.stem / f"node_{node}.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    begin = readings[0][0] - 1 if begin is None else begin
    end = readings[-1][0] if end is None else end
    lines = [
        record(power.START, start + 1000 * begin, not_included="GPUs"),
        *more,
        *(record(power.READING, start + 1000 * at, watts) for at, watts in readings),
        record(power.STOP, start + 1000 * end),
    ]
    file.write_text("\n".join(lines) + "\n")
    return file


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
        "0 power logs, and another run has 1" in fault.message for fault in check.check([tmp_path]).findings
    )


def _damages():
    """Fifty ways to spoil a whole log of 110 readings; each with the words that name it."""
    for line in range(5, 15):
        yield f"hole {line}", lambda lines, at=line: lines[:at] + lines[at + 6 :], "a hole of"
    for value in (-1, "x", None, True, 1e9, float("nan"), [1], {"a": 1}, "6000", float("inf")):
        yield (
            f"value {value}",
            lambda lines, value=value: [*lines[:30], with_value(lines[30], value), *lines[31:]],
            "is not a power|not an MLPerf record",
        )
    for keep in (3, 20, 40, 60):
        yield f"first {keep}", lambda lines, keep=keep: [*lines[:keep], lines[-1]], "before run_stop"
        yield (
            f"last {keep}",
            lambda lines, keep=keep: [with_time(lines[0], lines[-keep]), *lines[-keep:]],
            "after run_start|clocks are apart",
        )
    for seconds in (3600, -3600, 600, -600, 86_400, -86_400):
        yield (
            f"clock {seconds}",
            lambda lines, by=seconds: [shifted(line, by) for line in lines],
            "clocks are apart",
        )
    yield "no start", lambda lines: lines[1:], f"no record {power.START}"
    yield "no stop", lambda lines: lines[:-1], f"no record {power.STOP}"
    yield "two starts", lambda lines: [lines[0], *lines], f"2 record {power.START}"
    yield "two stops", lambda lines: [*lines, lines[-1]], f"2 record {power.STOP}"
    yield "no reading", lambda lines: [lines[0], lines[-1]], "no record power_reading"
    yield "start = stop", lambda lines: [*lines[:-1], with_time(lines[-1], lines[0])], "is not later than"
    yield "stop before start", lambda lines: [shifted(lines[0], 900), *lines[1:]], "is not later than"
    yield "reversed", lambda lines: [lines[0], *reversed(lines[1:-1]), lines[-1]], "not in the order of time"
    yield (
        "two swapped",
        lambda lines: [*lines[:9], lines[10], lines[9], *lines[11:]],
        "not in the order of time",
    )
    yield "every third", lambda lines: [lines[0], *lines[1:-1:3], lines[-1]], "a reading each 3.0 s"
    yield (
        "conversion of 0",
        lambda lines: [lines[0], record("conversion_eff", 0, 0), *lines[1:]],
        "is not a factor",
    )
    yield (
        "conversion of text",
        lambda lines: [lines[0], record("conversion_eff", 0, "x"), *lines[1:]],
        "is not a factor",
    )
    yield "cut line", lambda lines: [*lines[:20], lines[20][:40], *lines[21:]], "not an MLPerf record"
    yield "binary", lambda lines: [*lines[:20], ":::MLLOG \x00\x01", *lines[21:]], "not an MLPerf record"
    yield (
        "few",
        lambda lines: [lines[0], *lines[1:-1:2], lines[-1]],
        "readings in the run, and the rules want 60",
    )
    yield (
        "a time of text",
        lambda lines: [*lines[:20], lines[20].replace('"time_ms": ', '"time_ms": "x'), *lines[21:]],
        "not an MLPerf record",
    )


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
        summed * (log.run_stop_ms - log.run_start_ms) / (lines[-1]["time_ms"] - lines[0]["time_ms"]) / 1000
    )
    assert energy.kilojoules * 1000 == pytest.approx(official, rel=0.02)
    found = power.judge([log])[1]
    assert {fault.severity for fault in found} == {"warning"} and "a reading each 2.0 s" in found[0].message
    assert not any(fault.severity == ERROR for fault in found)
