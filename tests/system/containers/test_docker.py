"""``run_with_docker.sh`` runs whole campaigns on real engines."""

import contextlib
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import threading
import time

import pytest

from rn50.settings import fields
from tests.system.containers.engines import MARKS, SCRIPT, SOMEBODY, containers, run
from tests.system.job import BUSY_S, POLL_S, ROOT, Job, assert_aborted, events, keys

pytestmark = MARKS
ON_ONE = pytest.mark.parametrize("engine", ["docker"], indirect=True)
"""For what the script does whatever the engine: the other tests show what engines differ in."""


def test_labels_are_true(engine, image):
    template = '{{index .Config.Labels "%s"}}'
    for name, package in {
        "mxnet": "mxnet", "nvidia-dali": "nvidia-dali-cuda110", "horovod": "horovod"}.items():
        label = run(engine, "image", "inspect", "--format", template % f"rn50.{name}", image).strip()
        code = f"from importlib.metadata import version; print(version('{package}'))"
        # Podman asks for higher limits than its caller may have.
        limits = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")
        assert (
            label
            == run(engine, "run", "--rm", "--network=host", *limits, image, "python", "-c", code).strip())
    revision = run(
        engine, "image", "inspect", "--format", template % "org.opencontainers.image.revision", image).strip()
    assert revision == run("git", "describe", "--always", "--dirty", "--abbrev=40", cwd=str(ROOT)).strip()


@contextlib.contextmanager
def writes_on(meter):
    """A power meter writes a line each fifth of a second."""
    over = threading.Event()

    def write():
        with meter.open("a") as stream:
            while not over.wait(0.2):
                stream.write(f"{time.time():.1f},80\n")
                stream.flush()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_campaign_of_two_ranks_for_somebody(contained, checkout, engine):
    """Caller's owner, data that cannot be written, the library's environment passed on, two runs checked and
    scored."""
    before = []
    if engine == "docker" and not os.geteuid():
        docker = str(pathlib.Path("/var/run/docker.sock").stat().st_gid)
        before = ["setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", f"--groups={docker}"]
    results = checkout / "mine"
    results.mkdir()
    owner = SOMEBODY if before else os.geteuid()
    os.chown(str(results), owner, owner)
    with (checkout / "configs" / "config_TINY.sh").open("a") as stream:
        stream.write("export DGXNGPU=2\nexport BATCHSIZE=8\n")
    meter = checkout / "meter.csv"
    meter.write_text(f"{time.time():.1f},80\n")
    environment = {"LOGDIR": str(results), "HOME": str(checkout), "POWER": f"file:{meter},0"}
    job = contained(before=before, NEXP="2", **environment)
    with writes_on(meter):
        job.wait(BUSY_S)
    logs = [results / "result_0.txt", results / "result_1.txt"]
    assert "2 runs of 5" in job.out, job.err
    assert job.out.count("kept, ") == 0
    assert {path.stat().st_uid for path in results.iterdir()} == {owner}
    for log in logs:
        assert events(log)[-1]["key"] == "run_stop"
        (power_log,) = (results / "power" / log.stem).iterdir()
        assert power_log.read_text().count("power_reading") > 1
    assert len({event["value"] for log in logs for event in events(log) if event["key"] == "seed"}) == 2


# What engines do with signals, the tests below show; what is kept is the script's.
@ON_ONE
def test_an_interrupted_campaign_is_resumed(contained, checkout):
    first, second = (checkout / "results" / "TINY" / f"result_{index}.txt" for index in range(2))
    job = contained(NEXP="2")
    job.until_logged(second, "run_start")
    job.signal_group(signal.SIGINT)
    assert job.wait() in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    assert "rn50: run 2 stopped by SIG" in job.complaints[-1]
    assert_aborted(second)
    finished = first.read_bytes()
    job = contained(NEXP="2")
    job.wait(BUSY_S)
    assert "2 runs of 5" in job.out, job.err
    assert job.out.count("kept, ") == 1
    assert first.read_bytes() == finished


def test_a_signal_to_the_script_alone_ends_its_run(contained, checkout):
    log = checkout / "results" / "TINY" / "result_0.txt"
    with (checkout / "configs" / "config_TINY.sh").open("a") as stream:
        stream.write("export NUMEPOCHS=1000\n")
    job = contained(NEXP="1")
    job.until_logged(log, "run_start")
    job.signal(signal.SIGTERM)
    assert job.wait() == 128 + signal.SIGTERM
    assert_aborted(log)


def test_a_killed_container_is_no_result(contained, checkout, engine):
    log = checkout / "results" / "TINY" / "result_0.txt"
    with (checkout / "configs" / "config_TINY.sh").open("a") as stream:
        stream.write("export NUMEPOCHS=1000\n")
    job = contained(NEXP="1")
    job.until_logged(log, "run_start")
    (name,) = [
        name for name in containers(engine) if name.split("-")[-1] in {str(p.pid) for p in job.processes()}]
    run(engine, "kill", name)
    assert job.wait() == 128 + signal.SIGKILL
    assert job.complaint == "rn50: run 1 stopped by SIGKILL; the same command again resumes there"
    assert_aborted(log)


def test_ctrl_c_in_a_terminal(checkout, engine, image):
    """With a terminal the engine's client passes no signals on: the terminal of the container makes one of
    Ctrl-C."""
    log = checkout / "results" / "TINY" / "result_0.txt"
    with (checkout / "configs" / "config_TINY.sh").open("a") as stream:
        stream.write("export NUMEPOCHS=1000\n")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "DGXSYSTEM": "TINY", "NEXP": "1", "ENGINE": engine, "CONT": image}
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", SCRIPT], cwd=str(checkout), env=environment, stdin=theirs,
        stdout=theirs, stderr=theirs)
    partial = pathlib.Path(f"{log}.partial")
    shown, asked, deadline = b"", False, time.monotonic() + BUSY_S
    while True:
        if select.select([ours], [], [], POLL_S)[0]:
            shown += os.read(ours, 65536)
        elif process.poll() is not None or time.monotonic() > deadline:
            break
        if not asked and partial.exists() and "run_start" in keys(partial):
            os.write(ours, b"\x03")
            asked = True
    process.kill()
    os.close(ours)
    os.close(theirs)
    assert process.wait() == 128 + signal.SIGINT, shown.decode()
    assert b"stopped by SIGINT" in shown
    assert_aborted(log)
    assert not containers(engine)


@ON_ONE
def test_anybodys_configuration_file(contained, checkout):
    foreign = checkout / "theirs" / "config_somebodys.sh"
    foreign.parent.mkdir()
    shutil.move(str(checkout / "configs" / "config_TINY.sh"), str(foreign))
    with foreign.open("a") as stream:
        stream.write("export SOME_KNOB_OF_THEIRS=1\n")
    job = contained(DGXSYSTEM="", CONFIG_FILE="theirs/config_somebodys.sh", NEXP="1")
    job.wait(BUSY_S)
    assert "1 run of 5" in job.out, job.err
    assert (checkout / "results" / "somebodys" / "result_0.txt").exists()


# Of one framework: an image takes five minutes.
@ON_ONE
def test_the_demo_with_pytorch(contained, checkout, pytorch_image):
    """The image of the configuration's FRAMEWORK, by its name of `make image`, on data that are made
    first."""
    with (checkout / "configs" / "config_TINY.sh").open("a") as stream:
        stream.write("export FRAMEWORK=pytorch\n")
    job = contained(CONT=pytorch_image, NEXP="1")
    job.wait(BUSY_S)
    assert "1 run of 5" in job.out, job.err
    log = checkout / "results" / "TINY" / "result_0.txt"
    packages = json.loads(log.with_suffix(".json").read_text())["packages"]
    assert "torch" in packages and "mxnet" not in packages and "pytest" not in packages


@ON_ONE
def test_variables_are_passed_on(contained, checkout):
    """All that a run reads or hands to a library, whatever it is; the configuration says what arrived."""
    there = checkout / "results" / "TINY" / "environment"
    with (checkout / "configs" / "config_TINY.sh").open("a") as stream:
        stream.write(f'[ ! -d /opt/rn50 ] || {{ env && cat "$INITIAL_WEIGHTS"; }} >{there}\n')
    weights = checkout / "weights"
    weights.write_text("READ=7\n")
    in_file = re.findall(
        r"^export (\w+)=", (checkout / "configs" / "config_TINY.sh").read_text(), re.MULTILINE)
    # The script sets or unsets these itself.
    own = [
        "CONFIG_FILE", "DGXSYSTEM", "DATADIR", "LOGDIR", "RESULT_FILE", "CACHE_CLEARED", "SEED",
        "INITIAL_WEIGHTS"]
    names = {pattern.replace("*", "OF_SOMEBODY") for pattern in fields.patterns_of_names()} - {
        *own, *in_file}
    job = contained(NEXP="1", INITIAL_WEIGHTS=str(weights), **dict.fromkeys(names, "7"))
    job.wait(BUSY_S)
    arrived = dict(line.split("=", 1) for line in there.read_text().splitlines() if "=" in line)
    assert {name for name in {*names, "READ"} if arrived.get(name) != "7"} == set()
    assert arrived["INITIAL_WEIGHTS"] == str(weights)


@ON_ONE
def test_a_seed_is_not_passed_on(contained):
    job = contained(NEXP="1", SEED="1")
    job.wait(BUSY_S)
    assert "SEED=1 is not used" in job.err


def test_a_job_of_slurm_in_containers(engine, image, checkout, request, tmp_path):
    """Every rank in a container of its own, as run.sub starts them where the cluster has podman."""
    if engine != "podman":
        pytest.skip("of the two engines run.sub knows podman")
    for script in ("run.sub", "run_and_time.sh"):
        shutil.copy(str(ROOT / script), str(checkout))
    config = checkout / "configs" / "config_TINY.sh"
    with config.open("a") as stream:
        stream.write("export DGXNGPU=2\nexport BATCHSIZE=8\n")
    limits = tmp_path / "containers.conf"  # podman asks for higher limits than its caller may have
    limits.write_text('[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n')
    results = checkout / "results" / "TINY"
    environment = {
        "CONFIG_FILE": str(config), "CONT": image, "NEXP": "2", "CONTAINERS_CONF": str(limits),
        **request.getfixturevalue("slurm").environment}
    job = Job(environment, ["./run.sub", "--wait"], checkout)
    try:
        status = job.wait(BUSY_S)
        (output,) = (checkout / "results").glob("slurm-*.txt")
        text = output.read_text()
        assert status == 1 and "2 runs of 5" in text, text + job.err  # neither reached the target
        for run in range(2):
            log = events(results / f"result_{run}.txt")
            assert {event["key"]: event["value"] for event in log}["global_batch_size"] == 16
            assert log[-1]["key"] == "run_stop"
            packages = json.loads((results / f"result_{run}.json").read_text())["packages"]
            assert "horovod" in packages and "pytest" not in packages  # those of the image
    finally:
        job.end()
