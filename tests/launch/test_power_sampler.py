"""POWER: a process beside the run that writes its power log, and says what it cannot read.

Processes: the sampler is a process, and so is the meter.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from rn50.doctor import host
from rn50.doctor.diagnosis import FAILURE, OK
from rn50.errors import UserError
from rn50.launch import power_sampler
from rn50.machine import hardware, software
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


def running(tmp_path, ahead=0.0):
    """The file of a meter that has begun to measure."""
    file = tmp_path / "meter.csv"
    file.write_text(f"time,watts\n{time.time() + ahead:.3f},80\n")
    return file


def begin(config, how):
    """Enter and leave the context of a run that is not logged."""
    with power_sampler.running(with_changes(config, {}, run={"power": how}), None):
        pass


@pytest.mark.parametrize("text", ["on", "file:", "rapl,nvml", "1"])
def test_another_value_is_refused(tiny_environment, text):
    with pytest.raises(UserError, match=f"POWER={text} is not one of auto, nvml, rapl, file:PATH, off"):
        configuration.from_environment({**tiny_environment, "POWER": text})


@pytest.mark.skipif(not NO_RAPL, reason="this machine has RAPL")
def test_a_meter_that_is_asked_for_and_missing_is_refused(tiny_config, capsys):
    with pytest.raises(UserError, match="POWER=rapl: RAPL: .*; set POWER=off"):
        begin(tiny_config, "rapl")
    begin(tiny_config, "auto")
    said = capsys.readouterr().err
    assert said.startswith("POWER=auto: no power is measured: NVML: ") and said.count("\n") == 1
    with pytest.raises(UserError, match="absent.csv"):
        begin(tiny_config, "file:absent.csv")


NOW = 1_800_000_000
USELESS = {
    "nothing": (b"", "no reading"), "a heading": (b"time,watts\n", "no reading"),
    "ms": (b"%d000,80\n" % NOW, "ahead of now"), "semicolons": (b"%d;80\n" % NOW, "no reading"),
    "UTF-16": (f"{NOW},80\n".encode("utf-16"), "no reading"),
    "columns exchanged": (b"80,%d\n" % NOW, "no reading"), "NaN": (b"%d,nan\n" % NOW, "no reading"),
    "infinite": (b"%d,inf\n" % NOW, "no reading"), "negative": (b"%d,-80\n" % NOW, "no reading"),
    "an infinite time": (b"inf,80\n1e400,80\nnan,80\n", "no reading"),
    "a huge time": (b"1e300,80\n", "ahead of now"),
    "of yesterday": (b"%d,80\n" % (NOW - 86_400), "its last reading is 86,400 s old"),
    "an hour ahead": (b"%d,80\n" % (NOW + 3600), "3,600 s ahead of now; .*PATH,SECONDS"),
    "text": (b"root:x:0:0:root:/root:/bin/bash\n", "no reading")}


@pytest.mark.parametrize("content, says", USELESS.values(), ids=USELESS)
def test_a_useless_meter_is_refused_before_the_run(tiny_config, tmp_path, monkeypatch, content, says):
    monkeypatch.setattr(meters.time, "time", lambda: NOW)
    file = tmp_path / "meter.csv"
    file.write_bytes(content)
    with pytest.raises(UserError, match=f"POWER=file:{file}: .*{says}"):
        begin(tiny_config, f"file:{file}")
    file.write_bytes(b'time,watts\n"%d.5","80"\n%d' % (NOW - 3, NOW))  # and half a line
    begin(tiny_config, f"file:{file}")


def test_the_doctor_refuses_the_same_before_the_first_run(tiny_config, tmp_path):
    machine = hardware.read()

    def found(how):
        config = with_changes(tiny_config, run={"power": how})
        return [each for each in host.diagnoses(machine, software.read(), config) if "POWER" in each.subject]

    (tmp_path / "meter.csv").touch()
    [useless] = found(f"file:{tmp_path}/meter.csv")
    assert useless.severity == FAILURE and "no reading" in useless.found and useless.remedy
    [auto] = found("auto")
    assert auto.severity == OK
    assert found("off") == []


def test_off_starts_nothing_and_leaves_the_hash(tiny_config, tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    with power_sampler.running(with_changes(tiny_config, {}), tmp_path / "result_0.txt"):
        pass
    assert list(tmp_path.iterdir()) == []
    assert with_changes(tiny_config, run={"power": "auto"}).sha256 == tiny_config.sha256


@pytest.mark.parametrize(
    "how, path, ahead",
    [("file:a.csv", "a.csv", 0.0), ("file:/b/a.csv,1.5", "/b/a.csv", 1.5),
     ("file:a,b.csv", "a,b.csv", 0.0), ("file:a,b.csv,-2", "a,b.csv", -2.0), ("file:a,inf", "a,inf", 0.0),
     ("file:a,nan", "a,nan", 0.0), ("file:there,5", "there,5", 0.0)])
def test_the_file_and_how_far_its_clock_is_ahead(tmp_path, monkeypatch, how, path, ahead):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("there,5").touch()
    assert meters.meter_file(how) == (pathlib.Path(path), ahead * 1000)


@pytest.mark.parametrize("ahead", [0.0, 3600.0])
def test_a_meters_readings_become_a_power_log(tiny_config, tmp_path, capfd, ahead):
    """Those of the time in which it measured, and no others."""
    file = running(tmp_path, ahead)
    config = with_changes(tiny_config, run={"power": f"file:{file},{ahead}"})
    begin = time.time()
    with power_sampler.running(
        with_changes(config, {**os.environ, "SLURM_NODEID": "2"}), tmp_path / "result_1.txt"
    ):
        time.sleep(0.5)
        now = time.time()
        readings(file, begin - 60 + ahead, now + 600 + ahead)  # in place of what was there
    assert "readings in this run, 1 other line" in capfd.readouterr().err
    node, faults = power.read(tmp_path / "power" / "result_1" / "node_2.txt")
    assert faults == [] and begin * 1000 - 1 <= node.begin_ms < now * 1000 < node.end_ms
    times = [at for at, _ in node.readings]
    assert node.begin_ms <= times[0] <= node.begin_ms + 101 and node.end_ms - 101 <= times[-1] <= node.end_ms
    assert set(np.diff(times)) <= {99, 100, 101} and {watts for _, watts in node.readings} == {100.0}


def test_the_second_rank_of_a_machine_measures_nothing(tiny_config, tmp_path):
    (tmp_path / "meter.csv").write_text("")
    config = with_changes(tiny_config, run={"power": f"file:{tmp_path}/meter.csv"})
    with power_sampler.running(with_changes(config, {"SLURM_LOCALID": "1"}), tmp_path / "result_0.txt"):
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
        [sys.executable, "-c", SAMPLED, str(log)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "ready\n"
    assert done.stderr == "rn50: POWER=rapl: package-0 is gone; the power of this run is not known\n"
    node, faults = power.read(log)
    assert [fault.message for fault in faults] == [f"no record {power.STOP}, not one"]
    assert len(node.readings) == 3 and all(watts > 0 for _, watts in node.readings)
    assert node.not_included == "GPUs, memory, disks, fans, power supplies and network"


def test_a_meters_file_that_vanishes_is_said(tiny_config, tmp_path, capfd):
    file = running(tmp_path)
    config = with_changes(tiny_config, run={"power": f"file:{file}"})
    with power_sampler.running(with_changes(config, os.environ), tmp_path / "result_0.txt"):
        file.unlink()
    said = capfd.readouterr().err
    assert "meter.csv: cannot be read" in said and "the power of this run is not known" in said


def test_bad_lines_are_skipped_and_counted(tiny_config, tmp_path, capfd):
    """One of them cost the energy of the whole run."""
    file = running(tmp_path)
    with file.open("a") as meter:
        meter.write("3")  # the meter is writing this line
    bad = [
        "inf,80", "1e400,80", "nan,80", "{},nan", "{},inf", "{},-1", "{},1e9", '"{},80', "x" * 200_000, ";"]
    config = with_changes(tiny_config, run={"power": f"file:{file}"})
    with (
        power_sampler.running(with_changes(config, os.environ), tmp_path / "result_0.txt"),
        file.open("a") as meter,
    ):
        meter.write(",4\n")
        for number, line in enumerate(bad):
            meter.write(line.format(time.time()) + f"\n{time.time()},{number}\n")
    assert "11 readings in this run, 9 other lines" in capfd.readouterr().err
    node, faults = power.read(tmp_path / "power" / "result_0" / "node_0.txt")
    assert faults == [] and sorted(watts for _, watts in node.readings) == [*range(10), 80]


def test_a_file_that_became_another_is_read_whole_and_a_pipe_is_not_waited_for(tiny_config, tmp_path, capfd):
    file = running(tmp_path)
    file.write_text(file.read_text() * 1000)
    config = with_changes(tiny_config, run={"power": f"file:{file}"})
    log = tmp_path / "result_0.txt"
    with power_sampler.running(with_changes(config, os.environ), log):
        file.write_text(f"{time.time()},7\n")
    assert "1 reading in this run, 0 other lines" in capfd.readouterr().err
    with power_sampler.running(with_changes(config, os.environ), log):
        file.unlink()
        os.mkfifo(file)
    assert "is a pipe, no regular file" in capfd.readouterr().err


def test_a_sampler_that_is_late_does_not_outlive_the_run(tiny_config, tmp_path, monkeypatch, capfd):
    file = running(tmp_path)
    started, late = [], "import time; print('ready', flush=True); time.sleep(600)"
    before = subprocess.Popen

    def start(command, **options):
        started.append(
            before([sys.executable, "-c", f"import signal; signal.signal(15, 1); {late}"], **options))
        return started[-1]

    monkeypatch.setattr(power_sampler.subprocess, "Popen", start)
    monkeypatch.setattr(power_sampler, "READY_S", 0.1)
    config = with_changes(tiny_config, run={"power": f"file:{file}"})
    with power_sampler.running(with_changes(config, os.environ), tmp_path / "result_0.txt"):
        pass
    assert started[0].returncode == -signal.SIGKILL
    assert "the power of this run is not known" in capfd.readouterr().err


def test_the_power_log_of_a_run_that_left_no_log_is_replaced(tiny_config, tmp_path):
    file, old = running(tmp_path), power.file_of(tmp_path / "result_0.txt", 0)
    old.parent.mkdir(parents=True)
    old.write_text(':::MLLOG {"key": "power_reading"}\n')
    config = with_changes(tiny_config, run={"power": f"file:{file}"})
    with power_sampler.running(with_changes(config, os.environ), tmp_path / "result_0.txt"):
        pass
    assert set(parse.read_log(old).by_key) == {power.START, power.STOP}


def test_a_folder_that_cannot_be_made_is_refused_before_the_run(tiny_config, tmp_path):
    (tmp_path / "power").touch()
    config = with_changes(tiny_config, run={"power": f"file:{running(tmp_path)}"})
    with (
        pytest.raises(UserError, match="power/result_0: cannot be made"),
        power_sampler.running(with_changes(config, {}), tmp_path / "result_0.txt"),
    ):
        raise AssertionError("the run began")


def test_it_ends_on_sigterm_with_a_whole_log(tmp_path):
    (tmp_path / "meter.csv").write_text("")
    log = tmp_path / "node_0.txt"
    command = [sys.executable, "-m", "rn50.launch.power_sampler", f"file:{tmp_path}/meter.csv", str(log)]
    sampler = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert sampler.stdout.readline() == b"ready\n"
    sampler.send_signal(signal.SIGINT)  # Ctrl-C on a terminal reaches it too
    sampler.send_signal(signal.SIGTERM)
    assert sampler.wait(20) == 0
    assert set(parse.read_log(log).by_key) == {power.START, power.STOP}


METER = """
import time
while True:
    print(f"{time.time()},80.0")
    time.sleep(0.1)
"""


@pytest.mark.slow  # a real run of three epochs
def test_the_energy_of_a_timed_run(tiny_environment, tmp_path):
    pytest.importorskip("implementations.mxnet")
    file, log = tmp_path / "meter.csv", tmp_path / "result_0.txt"
    meter = subprocess.Popen([sys.executable, "-uc", METER], stdout=file.open("w"))
    environment = {**os.environ, **tiny_environment, "RESULT_FILE": str(log), "POWER": f"file:{file}"}
    environment.update(TARGET="none", NUMEPOCHS="3", EVAL_OFFSET="2")
    while not file.stat().st_size:
        time.sleep(0.02)
    try:
        done = subprocess.run([sys.executable, "-m", "rn50", "launch"], env=environment, capture_output=True)
    finally:
        meter.kill()
        meter.wait()
    assert done.returncode == 0, done.stderr
    assert b" readings in this run, 0 other lines" in done.stderr
    read = parse.read_log(log)
    energy = power.judge([read])[0][0]
    assert energy.mean_watts == pytest.approx(80) and energy.peak_watts == 80
    assert energy.kilojoules * 1000 == pytest.approx(80 * 60 * read.minutes)
