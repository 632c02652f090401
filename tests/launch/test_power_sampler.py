"""POWER: a process beside the run that writes its power log, and says what it cannot read."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from rn50.errors import UserError
from rn50.launch import power_sampler
from rn50.machine import power as meters
from rn50.machine.sources import Sources
from rn50.results import parse, power
from rn50.settings import config as configuration
from tests.conftest import with_changes

NO_RAPL = meters.rapl(Sources())[1]


def meter(file, seconds, watts=100.0, ahead=0.0):
    """What a meter writes: a heading, a reading each 0.1 s, and at last half a line."""
    until = time.time() + seconds
    with open(file, "a", buffering=1) as stream:
        stream.write("time,watts\n")
        while time.time() < until:
            stream.write(f"{time.time() + ahead:.3f},{watts}\n")
            time.sleep(0.1)
        stream.write(f"{time.time():.3f}"[:8])


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
    file = tmp_path / "meter.csv"
    file.write_text("")
    writing = threading.Thread(target=meter, args=(file, 3, 100.0, ahead))
    config = with_changes(tiny_config, run={"power": f"file:{file},{ahead}"})
    writing.start()
    with power_sampler.beside(config, {**os.environ, "SLURM_NODEID": "2"}, tmp_path / "result_1.txt"):
        begin = round(time.time() * 1000)
        time.sleep(1.5)
        end = round(time.time() * 1000)
    writing.join()
    node, faults = power.read(tmp_path / "power" / "result_1" / "node_2.txt")
    assert faults == [] and node.begin_ms <= begin and node.end_ms >= end
    assert node.joules(begin, end) == pytest.approx(100 * (end - begin) / 1000)
    assert 12 <= sum(begin <= at <= end for at, _ in node.readings) <= 16


def test_the_second_rank_of_a_machine_measures_nothing(tiny_config, tmp_path):
    (tmp_path / "meter.csv").write_text("")
    config = with_changes(tiny_config, run={"power": f"file:{tmp_path}/meter.csv"})
    with power_sampler.beside(config, {"SLURM_LOCALID": "1"}, tmp_path / "result_0.txt"):
        pass
    assert not (tmp_path / "power").exists()


SAMPLED = """
import pathlib, sys
from rn50.launch import power_sampler
from rn50.machine import power
from rn50.machine.sources import Sources
power_sampler.counters = lambda how: power.rapl(Sources(pathlib.Path(sys.argv[1])))
power_sampler.main("rapl", pathlib.Path(sys.argv[2]))
"""


def test_counters_are_read_until_one_vanishes(tmp_path):
    """Its log then has no end, which rn50 check reports: never a silent zero."""
    zone = tmp_path / meters.ZONES / "intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0")
    (zone / "energy_uj").write_text("0")
    log = tmp_path / "node_0.txt"
    command = [sys.executable, "-c", SAMPLED, str(tmp_path), str(log)]
    sampler = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert sampler.stdout.readline() == "ready\n"
    begin = time.monotonic()
    while time.monotonic() < begin + 1.8:
        (zone / "energy_uj").write_text(str(round(50e6 * (time.monotonic() - begin))))
        time.sleep(0.05)
    (zone / "energy_uj").unlink()
    _, said = sampler.communicate(timeout=20)
    assert "energy_uj'; no power is measured from here on" in said
    node, faults = power.read(log)
    assert [fault.message for fault in faults] == [f"no record {power.STOP}, not one"]
    assert len(node.readings) == 3 and all(watts == pytest.approx(50, rel=0.2) for _, watts in node.readings)
    assert node.not_included == "GPUs, memory, disks, fans, power supplies and network"


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
    pytest.importorskip("mxnet")
    file, log = tmp_path / "meter.csv", tmp_path / "result_0.txt"
    file.write_text("")
    environment = {**os.environ, **tiny_environment, "RESULT_FILE": str(log), "POWER": f"file:{file}"}
    environment.update(TARGET="none", NUMEPOCHS="3", EVAL_OFFSET="2")
    writing = threading.Thread(target=meter, args=(file, 60, 80.0), daemon=True)
    writing.start()
    done = subprocess.run([sys.executable, "-m", "rn50", "launch"], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr
    read = parse.read_log(log)
    energy = power.energy(read)
    assert energy.mean_watts == pytest.approx(80) and energy.peak_watts == 80
    assert energy.kilojoules * 1000 == pytest.approx(80 * 60 * read.minutes)
