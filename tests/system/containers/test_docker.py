"""``run_with_docker.sh`` as a user types it: on real engines, with the image that ``make image`` builds on a bare Debian."""

import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from tests.system.job import BUSY_S, POLL_S, ROOT, Job, assert_aborted, configuration_file, events, keys

SCRIPT = "./run_with_docker.sh"
USER_CAN_MEND = 2
BASE_IMAGE, PACKAGES, IMAGE = "rn50-base", "rn50-test:cpu-packages", "rn50-test:cpu"
SOMEBODY = 54321
"""A user that neither this machine nor the image knows."""
BUILD_LIMIT_S = 1500
GPUS = pathlib.Path("/etc/cdi/nvidia.yaml")

# The first test builds the image. With pytest-xdist one worker has all: podman takes from docker what is long to build.
pytestmark = [pytest.mark.timeout(BUILD_LIMIT_S + 600), pytest.mark.xdist_group("engines")]


def run(*command, **kwargs):
    """What a command says on standard output; fails where it fails."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, **kwargs)
    assert done.returncode == 0, (command, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


def refusal(engine):
    """Why an engine cannot be used; None where it answers."""
    if shutil.which(engine) is None:
        return f"{engine} is not installed; .ci/run installs it"
    asked = subprocess.run([engine, "ps"], capture_output=True, text=True)
    return f"{engine} does not answer: {asked.stderr.strip()}" if asked.returncode else None


@pytest.fixture(scope="session", params=["docker", "podman"])
def engine(request):
    """An engine that answers."""
    reason = refusal(request.param)
    if reason:
        pytest.skip(reason)
    return request.param


@pytest.fixture(scope="session")
def image(engine, tmp_path_factory):
    """The image of stage cpu, built by ``make image`` on a base that is made here, without a registry.

    Docker builds all of it. Podman takes the base and the stage that compiles Horovod from docker, where there is one, and builds
    the rest.
    """
    program = engine
    if engine == "podman" and refusal("docker") is None:
        make_base("docker")
        make_image("docker", "cpu-packages", PACKAGES)
        for name in (BASE_IMAGE, PACKAGES):
            hand_over(name)
        program = tmp_path_factory.mktemp("podman") / "podman"
        stage = f"--build-context=cpu-packages=container-image://localhost/{PACKAGES}"
        program.write_text(f'#!/bin/sh\nverb=$1\nshift\nexec podman "$verb" {stage} "$@"\n')
        program.chmod(0o755)
    else:
        make_base(engine)
    make_image(program, "cpu", IMAGE)
    return IMAGE


def make_base(engine):
    """Make the base image where the engine has none."""
    if subprocess.run([engine, "image", "inspect", BASE_IMAGE], capture_output=True).returncode:
        if os.geteuid() or shutil.which("debootstrap") is None:
            pytest.skip("a base image needs root and debootstrap; .ci/run installs it")
        run("requirements/base_image.sh", cwd=str(ROOT), env={**os.environ, "ENGINE": engine, "BASE_IMAGE": BASE_IMAGE})


def make_image(program, stage, tag):
    """Build a stage by ``make image``."""
    run("make", "image", f"ENGINE={program}", f"STAGE={stage}", f"BASE_IMAGE={BASE_IMAGE}", f"TAG={tag}", cwd=str(ROOT),
        timeout=BUILD_LIMIT_S)


def hand_over(name):
    """Give podman an image of docker's."""
    run("sh", "-c", 'docker save "$0" | podman load', name, timeout=BUILD_LIMIT_S)


@pytest.fixture
def checkout(tiny_environment):
    """What the script needs of the repository, where everybody may read it, and a system TINY."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        shutil.copytree(str(ROOT / "configs"), str(folder / "configs"))
        shutil.copytree(tiny_environment.pop("DATADIR"), str(folder / "data"))
        for script in (SCRIPT, "run_experiments.sh"):
            shutil.copy(str(ROOT / script), name)
        del tiny_environment["SEED"]
        configuration_file(folder / "configs" / "config_TINY.sh", {**tiny_environment, "DATADIR": str(folder / "data")})
        yield folder


@pytest.fixture
def start(checkout):
    """Starts the script; ``start(NEXP="2", before=["setpriv", ...])``."""
    jobs = []

    def started(before=(), **environment):
        variables = {"CONFIG_FILE": "", "DGXSYSTEM": "TINY", "LOGDIR": "", "ENGINE": "", "CONT": "", **environment}
        jobs.append(Job(variables, [*before, SCRIPT], checkout))
        return jobs[-1]

    yield started
    for job in jobs:
        job.end()


@pytest.fixture
def contained(start, engine, image):
    """As ``start``, on a real engine; afterwards no container may be left."""
    there = set(containers(engine))
    yield lambda **environment: start(**{"ENGINE": engine, "CONT": image, **environment})
    left = set(containers(engine)) - there
    if left:
        run(engine, "rm", "--force", *left)
    assert not left


def containers(engine):
    """Names of our containers, of those that have ended too."""
    return run(engine, "ps", "--all", "--filter", "name=rn50-", "--format", "{{.Names}}").split()


def test_labels_are_true(engine, image):
    template = "{{index .Config.Labels \"%s\"}}"
    for name in ("mxnet", "dali", "horovod"):
        package = {"mxnet": "mxnet", "dali": "nvidia-dali-cuda110", "horovod": "horovod"}[name]
        label = run(engine, "image", "inspect", "--format", template % f"rn50.{name}", image).strip()
        code = f"from importlib.metadata import version; print(version('{package}'))"
        # Podman asks for higher limits than its caller may have.
        limits = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")
        assert label == run(engine, "run", "--rm", "--network=host", *limits, image, "python", "-c", code).strip()
    revision = run(engine, "image", "inspect", "--format", template % "org.opencontainers.image.revision", image).strip()
    assert revision == run("git", "describe", "--always", "--dirty", "--abbrev=40", cwd=str(ROOT)).strip()


def test_a_campaign_of_two_ranks_for_somebody(contained, checkout, engine):
    """Caller's owner, data that cannot be written, the library's environment passed on, two runs checked and scored."""
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
    job = contained(before=before, NEXP="2", LOGDIR=str(results), HOME=str(checkout))
    job.wait(BUSY_S)
    logs = [results / "result_0.txt", results / "result_1.txt"]
    assert "2 runs of 5" in job.out, job.err
    assert job.out.count("kept, ") == 0
    assert {path.stat().st_uid for path in results.iterdir()} == {owner}
    for log in logs:
        assert events(log)[-1]["key"] == "run_stop"
    assert len({event["value"] for log in logs for event in events(log) if event["key"] == "seed"}) == 2


def test_an_interrupted_campaign_is_resumed(contained, checkout):
    first, second = (checkout / "results" / "TINY" / f"result_{index}.txt" for index in range(2))
    job = contained(NEXP="2")
    job.until_logged(second, "run_start")
    job.signal_group(signal.SIGINT)
    assert job.wait() in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    assert "run_with_docker.sh: run 2 stopped with status" in job.complaints[-1]
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
    (name,) = [name for name in containers(engine) if name.split("-")[-1] in {str(p.pid) for p in job.processes()}]
    run(engine, "kill", name)
    assert job.wait() == 128 + signal.SIGKILL
    assert job.complaint == "run_with_docker.sh: run 1 stopped with status 137; the same command again resumes there"
    assert_aborted(log)


def test_ctrl_c_in_a_terminal(checkout, engine, image):
    """With a terminal the engine's client passes no signals on: the terminal of the container makes one of Ctrl-C."""
    log = checkout / "results" / "TINY" / "result_0.txt"
    with (checkout / "configs" / "config_TINY.sh").open("a") as stream:
        stream.write("export NUMEPOCHS=1000\n")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "DGXSYSTEM": "TINY", "NEXP": "1", "ENGINE": engine, "CONT": image}
    process = subprocess.Popen(["setsid", "--ctty", "--wait", SCRIPT], cwd=str(checkout), env=environment, stdin=theirs,
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
    environment = {"CONFIG_FILE": str(config), "CONT": image, "NEXP": "2", "CONTAINERS_CONF": str(limits),
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


# What is said before anything starts.


@pytest.mark.parametrize("nexp", ["0", "abc", "1.5"])
def test_number_of_runs_that_is_none(start, nexp):
    job = start(NEXP=nexp)
    assert job.wait() == USER_CAN_MEND
    assert job.complaint == f"run_with_docker.sh: NEXP={nexp} is not a number of runs; set NEXP=5"


@pytest.mark.parametrize("system", ["", "NF5688M7"])
def test_no_such_system(start, system):
    job = start(DGXSYSTEM=system)
    assert job.wait() == USER_CAN_MEND
    assert "DGXSYSTEM" in job.complaint
    systems = "1xA100 1xL40S 2xA30 DEMO_CPU DEMO_CPU_PYTORCH DEMO_GPU_PYTORCH DGXA100 DGXH100 H200 NF5488A5 NF5688M6 TINY"
    assert systems in job.complaint


def test_no_such_configuration_file(start):
    job = start(CONFIG_FILE="/nowhere/config.sh")
    assert job.wait() == USER_CAN_MEND
    assert job.complaint == "run_with_docker.sh: CONFIG_FILE=/nowhere/config.sh: no such file"


def test_no_engine(start, tmp_path):
    for folder in ("/usr/bin", "/bin"):
        for program in pathlib.Path(folder).iterdir():
            if program.name not in ("docker", "podman") and not (tmp_path / program.name).is_symlink():
                (tmp_path / program.name).symlink_to(program)
    job = start(before=["env", f"PATH={tmp_path}"])
    assert job.wait() == USER_CAN_MEND
    assert job.complaint == "run_with_docker.sh: no docker or podman here; sudo apt-get install docker.io, or podman"


def test_an_engine_that_does_not_answer(start):
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed; .ci/run installs it")
    job = start(ENGINE="docker", DOCKER_HOST="unix:///nowhere/docker.sock")
    assert job.wait() == USER_CAN_MEND
    assert re.search("docker does not answer: .*nowhere.*sudo systemctl start docker", job.complaint)


def test_no_permission(start, engine):
    if engine != "docker" or os.geteuid():
        pytest.skip("podman needs no permission, and only root can become somebody without it")
    job = start(before=["setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups"], ENGINE=engine)
    assert job.wait() == USER_CAN_MEND
    assert re.search("docker: no permission to use it; sudo usermod -aG docker", job.complaint)


def test_no_image(start, engine):
    job = start(ENGINE=engine, CONT="rn50:of-nobody")
    assert job.wait() == USER_CAN_MEND
    assert re.search(rf"CONT=rn50:of-nobody: {engine} has no such image; make image ENGINE={engine} STAGE=cpu", job.complaint)


def test_missing_data(contained, checkout):
    (checkout / "data" / "val.idx").unlink()
    job = contained()
    assert job.wait() == USER_CAN_MEND
    assert re.search("DATADIR=.*data: no val.idx there; set DATADIR to the folder of train.rec", job.complaint)
    assert not (checkout / "results").exists()


def test_no_gpu_to_hand_over(contained, checkout):
    if list(GPUS.parent.glob("nvidia*")) or shutil.which("nvidia-container-runtime"):
        pytest.skip("this machine has NVIDIA's container toolkit")
    with (checkout / "configs" / "config_TINY.sh").open("a") as stream:
        stream.write("export DEVICE=gpu\n")
    job = contained()
    assert job.wait() == USER_CAN_MEND
    assert re.search("DEVICE=gpu: .* has no GPU to hand over; .*nvidia-ctk cdi generate", job.complaint)


def test_gpus_are_handed_over_as_their_description_says(contained, checkout, engine):
    """A description of GPUs (CDI) puts another rn50 into the container: it runs, so the engine was given the GPUs."""
    if engine != "podman" or os.geteuid() or GPUS.exists():
        pytest.skip("docker knows descriptions from version 25 on, and only root can write one where there is none")
    script = checkout / "described.py"
    script.write_text("import sys\nprint('rn50: the GPUs are here', file=sys.stderr)\nsys.exit(2)\n")
    with (checkout / "configs" / "config_TINY.sh").open("a") as stream:
        stream.write("export DEVICE=gpu\n")
    mount = f"{{hostPath: {script}, containerPath: /opt/rn50/rn50/__main__.py, options: [ro, bind]}}"
    GPUS.parent.mkdir(exist_ok=True)
    try:
        edits = f"{{mounts: [{mount}]}}"
        GPUS.write_text(f"cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: [{{name: all, containerEdits: {edits}}}]\n")
        job = contained(NEXP="1")
        assert job.wait() == USER_CAN_MEND
    finally:
        GPUS.unlink()
    assert job.complaint == "rn50: the GPUs are here"


def test_too_little_shared_memory(contained, checkout):
    with (checkout / "configs" / "config_TINY.sh").open("a") as stream:
        stream.write("export DGXNGPU=2\n")
    if os.geteuid():
        pytest.skip("only root can make a smaller /dev/shm")
    job = contained(before=["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"', "sh"])
    assert job.wait() == USER_CAN_MEND
    assert re.search("/dev/shm has 1 MiB free, and 2 ranks want 1024; sudo mount", job.complaint)
