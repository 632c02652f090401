"""POWER: a process beside the run that writes its power log, and says what it cannot read."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from rn50.errors import UserError
from rn50.launch import power_sampler
from rn50.machine import power as meters
from rn50.machine.sources import Sources
from rn50.results import parse, power
from rn50.settings import config as configuration
from tests.conftest import with_changes

NO_RAPL = meters.rapl(Sources())[1]


def readings(file, begin_s, end_s, watts=100.0):
    """A meter's file: a heading, a reading each 0.1 s, and at last half a line."""
    count = round((end_s - begin_s) * 10) + 1
    rows = [f"{begin_s + number / 10:.3f},{watts}" for number in range(count)]
    file.write_text("\n".join(["time,watts", *rows, f"{end_s:.3f}"[:8]]))


@pytest.mark.parametrize("text", ["on", "file:", "rapl,nvml", "1"])
def test_another_value_is_refused(tiny_environment, text):
    with pytest.raises(UserError, match=f"POWER={text} is not one of auto, nvml, rapl, file:PATH, off"):
        configuration.from_environment({**tiny_environment, "POWER": text})


@pytest.mark.skipif(not NO_RAPL, reason="this machine has RAPL")
def test_a_meter_that_is_asked_for_and_missing_is_refused(tiny_config, capsys):
    with pytest.raises(UserError, match="POWER=rapl: RAPL: .*; set POWER=off"):
        power_sampler.refuse_impossible(with_changes(tiny_config, run={"power": "rapl"}))
    power_sampler.refuse_impossible(with_changes(tiny_config, run={"power": "auto"}))
    said = capsys.readouterr().err
    assert said.startswith("POWER=auto: no power is measured: NVML: ") and said.count("\n") == 1
    with pytest.raises(UserError, match="absent.csv"):
        power_sampler.refuse_impossible(with_changes(tiny_config, run={"power": "file:absent.csv"}))


def test_off_starts_nothing_and_leaves_the_hash(tiny_config, tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    with power_sampler.beside(tiny_config, {}, tmp_path / "result_0.txt"):
        pass
    assert list(tmp_path.iterdir()) == []
    assert with_changes(tiny_config, run={"power": "auto"}).sha256 == tiny_config.sha256


@pytest.mark.parametrize(
    "how, path, ahead",
    [
        ("file:a.csv", "a.csv", 0.0),
        ("file:/b/a.csv,1.5", "/b/a.csv", 1.5),
        ("file:a,b.csv", "a,b.csv", 0.0),
        ("file:a,b.csv,-2", "a,b.csv", -2.0),
    ],
)
def test_the_file_and_how_far_its_clock_is_ahead(how, path, ahead):
    assert power_sampler.meter_file(how) == (pathlib.Path(path), ahead)


@pytest.mark.parametrize("ahead", [0.0, 3600.0])
def test_a_meters_readings_become_a_power_log(tiny_config, tmp_path, ahead):
    """Those of the time in which it measured, and no others."""
    file = tmp_path / "meter.csv"
    file.write_text("")
    config = with_changes(tiny_config, run={"power": f"file:{file},{ahead}"})
    begin = time.time()
    with power_sampler.beside(config, {**os.environ, "SLURM_NODEID": "2"}, tmp_path / "result_1.txt"):
        time.sleep(0.5)
        now = time.time()
        readings(file, begin - 60 + ahead, now + 600 + ahead)
    node, faults = power.read(tmp_path / "power" / "result_1" / "node_2.txt")
    assert faults == [] and begin * 1000 - 1 <= node.begin_ms < now * 1000 < node.end_ms
    times = [at for at, _ in node.readings]
    assert node.begin_ms <= times[0] <= node.begin_ms + 101 and node.end_ms - 101 <= times[-1] <= node.end_ms
    assert set(np.diff(times)) <= {99, 100, 101} and {watts for _, watts in node.readings} == {100.0}


def test_the_second_rank_of_a_machine_measures_nothing(tiny_config, tmp_path):
    (tmp_path / "meter.csv").write_text("")
    config = with_changes(tiny_config, run={"power": f"file:{tmp_path}/meter.csv"})
    with power_sampler.beside(config, {"SLURM_LOCALID": "1"}, tmp_path / "result_0.txt"):
        pass
    assert not (tmp_path / "power").exists()


SAMPLED = """
import itertools, pathlib, sys
from rn50.launch import power_sampler
from rn50.machine.power import Counter

counted = itertools.count()

def read():
    joules = next(counted)
    if joules > 3:
        raise OSError("package-0 is gone")
    return float(joules)

power_sampler.INTERVAL_S = 0.01
power_sampler.power.counters = lambda how: ([Counter("package-0", read)], [])
power_sampler.main("rapl", pathlib.Path(sys.argv[1]))
"""


def test_counters_are_read_until_one_vanishes(tmp_path):
    """Its log then has no end, which rn50 check reports: never a silent zero."""
    log = tmp_path / "node_0.txt"
    done = subprocess.run(
        [sys.executable, "-c", SAMPLED, str(log)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "ready\n"
    assert done.stderr == "rn50: POWER=rapl: package-0 is gone; the power of this run is not known\n"
    node, faults = power.read(log)
    assert [fault.message for fault in faults] == [f"no record {power.STOP}, not one"]
    assert len(node.readings) == 3 and all(watts > 0 for _, watts in node.readings)
    assert node.not_included == "GPUs, memory, disks, fans, power supplies and network"


def test_a_meters_file_that_vanishes_is_said(tiny_config, tmp_path, capfd):
    file = tmp_path / "meter.csv"
    file.write_text("")
    config = with_changes(tiny_config, run={"power": f"file:{file}"})
    with power_sampler.beside(config, os.environ, tmp_path / "result_0.txt"):
        file.unlink()
    assert "meter.csv'; the power of this run is not known" in capfd.readouterr().err


def test_it_ends_on_sigterm_with_a_whole_log(tmp_path):
    (tmp_path / "meter.csv").write_text("")
    log = tmp_path / "power" / "node_0.txt"
    command = [sys.executable, "-m", "rn50.launch.power_sampler", f"file:{tmp_path}/meter.csv", str(log)]
    sampler = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert sampler.stdout.readline() == b"ready\n"
    sampler.send_signal(signal.SIGINT)  # Ctrl-C on a terminal reaches it too
    sampler.send_signal(signal.SIGTERM)
    assert sampler.wait(20) == 0
    assert set(parse.read_log(log).by_key) == {power.START, power.STOP}


@pytest.mark.slow
def test_the_energy_of_a_timed_run(tiny_environment, tmp_path):
    pytest.importorskip("implementations.mxnet")
    file, log = tmp_path / "meter.csv", tmp_path / "result_0.txt"
    readings(file, time.time() - 10, time.time() + 600, 80.0)  # as if the meter had measured already
    environment = {**os.environ, **tiny_environment, "RESULT_FILE": str(log), "POWER": f"file:{file}"}
    environment.update(TARGET="none", NUMEPOCHS="3", EVAL_OFFSET="2")
    done = subprocess.run([sys.executable, "-m", "rn50", "launch"], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr
    read = parse.read_log(log)
    energy = power.judge([read])[0][0]
    assert energy.mean_watts == pytest.approx(80) and energy.peak_watts == 80
    assert energy.kilojoules * 1000 == pytest.approx(80 * 60 * read.minutes)
