"""Two ranks are one run, whoever starts them and wherever: horovodrun, mpirun and Slurm, on this machine and
on two hosts.

The engines are real: Open MPI, Slurm (slurmctld, slurmd, munge) and OpenSSH as the system has them, on hosts
that are network namespaces. A test is skipped where a package or the kernel's permission is missing, and says
which.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

from rn50.launch.launchers import horovod_has_mpi
from tests.contract.frameworks import installed
from tests.system.cluster import Namespaces, Slurm, Ssh, need_namespaces, need_slurm
from tests.system.job import BUSY_S, LAUNCH, RN50, ROOT, Job, assert_aborted, configuration_file, events

# With pytest-xdist one worker has all: the losses of every launcher are compared, and Slurm starts once.
pytestmark = pytest.mark.xdist_group("launchers")

TARGET_MISSED = 3
ENDLESS = {"NUMEPOCHS": "1000"}
# On the data of ``memorised``: learnt by heart after some 35 epochs of half a second.
BY_HEART = {
    "NUMEPOCHS": "52", "EVAL_OFFSET": "2", "EVAL_PERIOD": "4", "LABELSMOOTHING": "0", "CROP_AREA_MIN": "1",
    "BATCHSIZE": "7", "NUMEXAMPLES": "40", "NUMVALEXAMPLES": "40"}
SRUN = ("srun", "--cpu-bind=none", "--mpi=none", "--wait=30")


@pytest.fixture
def mpi():
    """Needed by tests of mpirun."""
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun; install the package openmpi-bin")
    if not horovod_has_mpi():
        pytest.skip("Horovod is built without MPI; install libopenmpi-dev; 'make test-rest' builds it again")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Two hosts and their link."""
    need_namespaces()
    namespaces = Namespaces(tmp_path_factory.mktemp("hosts"))
    yield namespaces
    namespaces.close()


@pytest.fixture(scope="module")
def slurm_on_hosts(hosts, tmp_path_factory):
    """Slurm on the two hosts."""
    need_slurm()
    cluster = Slurm(hosts.hosts, tmp_path_factory.mktemp("slurm_on_hosts"))
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def ssh(hosts, tmp_path_factory):
    """From host to host by ssh."""
    if shutil.which("ssh") is None or not (shutil.which("sshd") or os.path.exists("/usr/sbin/sshd")):
        pytest.skip("no ssh and sshd; install the packages openssh-client and openssh-server")
    daemons = Ssh(hosts.hosts, tmp_path_factory.mktemp("ssh"))
    yield daemons
    daemons.close()


def on_this_machine(launcher, request, framework="mxnet"):
    """(command, environment) that starts two ranks here. Only Python's own launcher does without Horovod."""
    both = {"DGXNGPU": "2", "LAUNCHER": launcher}
    if launcher != "python" and framework == "mxnet":
        request.getfixturevalue("horovod")
    if launcher == "mpirun":
        request.getfixturevalue("mpi")
    if launcher == "srun":
        return (*SRUN, "--ntasks=2", *LAUNCH), {**both, **request.getfixturevalue("slurm").environment}
    return LAUNCH, both


def on_two_hosts(launcher, request, folder, framework="mxnet"):
    """(command, environment) that starts one rank on each of two hosts."""
    if framework == "mxnet":
        request.getfixturevalue("horovod")
    both = {"DGXNNODES": "2", "DGXNGPU": "1", "LAUNCHER": launcher}
    first, second = request.getfixturevalue("hosts").hosts
    if launcher == "srun":
        slurm = request.getfixturevalue("slurm_on_hosts")
        return first.argv(*SRUN, "--nodes=2", "--ntasks=2", *LAUNCH), {**both, **slurm.environment}
    if launcher == "mpirun":
        request.getfixturevalue("mpi")
        # mpirun calls it as it would call ssh: agent HOST COMMAND...
        agent = folder / "agent"
        enter = " ".join(f"'{word}'" for word in second.argv("sh", "-c"))
        agent.write_text(f'#!/bin/sh\n[ "$1" = {second.name} ] || exit 1\nshift\nexec {enter} "$*"\n')
        agent.chmod(0o755)
        both["OMPI_MCA_plm_rsh_agent"] = str(agent)
    else:
        folders = (
            request.getfixturevalue("ssh").path, pathlib.Path(sys.executable).parent, os.environ["PATH"])
        path = ":".join(map(str, folders))
        both["PATH"] = path
    return first.argv(*LAUNCH), {**both, "HOSTS": f"{first.name}:1,{second.name}:1"}


@pytest.fixture
def launched(tiny_environment):
    """Starts a job that also writes down its losses; ``launched(folder, command, environment)``. All end with
    the test."""
    jobs = []

    def started(folder, command, environment):
        own = {
            "RESULT_FILE": str(folder / "result.txt"), "FRAMEWORK": "losses",
            "PYTHONPATH": str(ROOT / "tests/system/losses")}
        jobs.append(Job({**tiny_environment, **own, **environment}, command))
        return jobs[-1]

    yield started
    for job in jobs:
        job.end()


FIRST = {}
"""The losses of the launcher that came first."""


def assert_same_losses(folder):
    """The losses of every step are those of the other launchers, to the last bit."""
    losses = {file.name: file.read_text().split() for file in sorted((folder / "losses").iterdir())}
    assert sorted(losses) == ["rank_0.txt", "rank_1.txt"] and losses["rank_0.txt"] != losses["rank_1.txt"]
    assert len(losses["rank_0.txt"]) == len(losses["rank_1.txt"]) > 10
    assert losses == FIRST.setdefault("losses", losses)


def check(*logs):
    """Exit status and words of the official checker."""
    done = subprocess.run(
        [*RN50, "check", *map(str, logs)], cwd=str(ROOT), capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_two_ranks_on_one_machine_learn_by_heart(launched, memorised, tmp_path, request):
    command, environment = on_this_machine("python", request)
    job = launched(tmp_path, command, {**BY_HEART, "DATADIR": str(memorised), **environment})
    assert job.wait(BUSY_S) == 0, job.err
    assert job.complaints == []
    log = events(tmp_path / "result.txt")
    assert [event["value"] for event in log if event["key"] == "global_batch_size"] == [14]
    assert log[-1]["metadata"]["status"] == "success"
    assert check(tmp_path / "result.txt")[0] == 0, check(tmp_path / "result.txt")[1]


@pytest.mark.parametrize(
    "launcher",
    ["python here", "horovodrun here", "mpirun here", "srun here", "horovodrun", "mpirun", "srun"])
def test_two_ranks_train_one_model(launched, tmp_path, request, launcher):
    """Here or on two hosts."""
    name, _, here = launcher.partition(" ")
    if here:
        command, environment = on_this_machine(name, request)
    else:
        command, environment = on_two_hosts(name, request, tmp_path)
        received = request.getfixturevalue("hosts").received_bytes()
    job = launched(tmp_path, command, environment)
    assert job.wait(BUSY_S) == TARGET_MISSED, job.err
    assert job.complaints == []
    assert [event["key"] for event in events(tmp_path / "result.txt")].count("run_stop") == 1
    assert_same_losses(tmp_path)
    if here:
        assert job.err.count(" of this machine: CPU ") == 2, job.err  # each rank says where it is bound
    else:
        # Every step sends the gradients of some 400,000 weights; that they went over the link says that these
        # are two hosts.
        assert request.getfixturevalue("hosts").received_bytes() - received > 10_000_000


def test_machines_are_cells_of_a_throughput_matrix(launched, tmp_path, request):
    """The second row runs over the link."""
    command, environment = on_two_hosts("mpirun", request, tmp_path)
    asked = ("bench", "throughput", "--nodes=1,2", "--data=synthetic", "--seconds=1", "--rounds=2", "--json")
    (*enter, _), environment = command, {**environment, "FRAMEWORK": "mxnet"}
    received = request.getfixturevalue("hosts").received_bytes()
    bench = launched(tmp_path, (*enter, *asked, f"--output={tmp_path}"), environment)
    assert bench.wait(BUSY_S) == 0, (
        bench.out + bench.err + "".join(log.read_text() for log in tmp_path.glob("*.log")))
    one, two = json.loads(bench.out)["cells"]
    assert (one["nodes"], one["hosts"], two["nodes"], two["hosts"]) == (1, None, 2, "alpha1,alpha2")
    assert one["scaling"]["synthetic"] is None and two["scaling"]["synthetic"] > 0
    assert 0 < two["step"]["communication"] < 1 and 0 < two["step"]["loss"] < 3
    assert request.getfixturevalue("hosts").received_bytes() - received > 10_000_000


def test_the_input_of_two_ranks_is_measured_and_tuned(launched, tiny_environment, tmp_path, request):
    """By a launcher that calls rn50; tests/speed/test_tuning.py has one that rn50 calls."""
    (*command, _), environment = on_this_machine("srun", request)
    mxnet = {**environment, "FRAMEWORK": "mxnet"}
    bench = launched(tmp_path, (*command, "bench", "input", "--seconds=2", "--rounds=2", "--json"), mxnet)
    assert bench.wait(BUSY_S) == 0, bench.err
    measured = json.loads(bench.out)
    assert (
        measured["ranks"] == 2
        and min(rates["lowest"] for rates in measured["images_per_second"].values()) > 0)
    base, output = tmp_path / "config_TINY.sh", tmp_path / "config_TUNED.sh"
    everything = {**tiny_environment, **mxnet}
    text = {True: "", False: ""}
    for name, value in everything.items():
        text[name.startswith("DALI_")] += f"export {name}={shlex.quote(value)}\n"
    base.write_text(f"{text[False]}# --- input pipeline ---\n{text[True]}")
    tune = launched(
        tmp_path, (*command, "tune", "input", str(base), f"--output={output}", "--seconds=5", "--json"),
        environment)
    status = tune.wait(BUSY_S)
    found = json.loads(tune.out)
    # One rank tells and writes it, and all end alike.
    assert (status, output.exists(), found["written"] is not None) == (
        0, bool(found["faster"]), bool(found["faster"]))
    assert [trial["change"] for trial in found["trials"]], tune.err


@pytest.mark.parametrize("launcher", ["python", "horovodrun", "mpirun"])
def test_ranks_do_not_outlive_a_launcher_that_is_killed(launched, tmp_path, request, launcher):
    command, environment = on_this_machine(launcher, request)
    job = launched(tmp_path, command, {**ENDLESS, **environment})
    job.until_logged(tmp_path / "result.txt", "epoch_start")
    job.signal(signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL  # and it fails where any process is left
    assert_aborted(tmp_path / "result.txt")


def test_a_rank_of_mpirun_killed(launched, tmp_path, request):
    command, environment = on_this_machine("mpirun", request)
    job = launched(tmp_path, command, {**ENDLESS, **environment})
    job.until_logged(tmp_path / "result.txt", "epoch_start")
    job.ranks()[0].kill()  # which ends the log
    assert job.wait() == 128 + signal.SIGKILL
    assert job.complaint == "rn50: rank 0 was killed by SIGKILL; start the run again"
    assert_aborted(tmp_path / "result.txt")


def test_sigterm_to_the_launcher_of_mpirun(launched, tmp_path, request):
    command, environment = on_this_machine("mpirun", request)
    job = launched(tmp_path, command, {**ENDLESS, **environment})
    job.until_logged(tmp_path / "result.txt", "epoch_start")
    job.signal(signal.SIGTERM)
    assert job.wait() == 128 + signal.SIGTERM
    assert job.complaint == "rn50: stopped by SIGTERM; the same command starts the run again"
    assert_aborted(tmp_path / "result.txt")


def test_what_a_user_can_mend_is_said_once_by_mpirun(launched, tmp_path, request):
    command, environment = on_this_machine("mpirun", request)
    job = launched(tmp_path, command, {**environment, "NUMVALEXAMPLES": "56"})
    assert job.wait() == 2
    assert "lists 57 records, but NUMVALEXAMPLES is 56" in job.complaint
    assert_aborted(tmp_path / "result.txt")


@pytest.mark.parametrize(
    "launcher, words",
    [("mpirun", "nowhere.invalid"), ("horovodrun", "could not connect to some hosts via ssh")])
def test_a_host_that_cannot_be_reached(launched, tmp_path, request, launcher, words):
    command, environment = on_this_machine(launcher, request)
    if shutil.which("ssh") is None:
        pytest.skip("no ssh; install the package openssh-client")
    hosts = {"DGXNNODES": "2", "DGXNGPU": "1", "HOSTS": "localhost,nowhere.invalid"}
    job = launched(tmp_path, command, {**environment, **hosts})
    assert job.wait() not in (0, TARGET_MISSED)
    assert job.complaint.startswith(f"rn50: {launcher} ended with status ") and words in job.complaint
    assert_aborted(tmp_path / "result.txt", clock_ran=False)


def test_a_rank_of_slurm_killed(launched, tmp_path, request):
    command, environment = on_this_machine("srun", request)
    job = launched(tmp_path, command, {**ENDLESS, **environment})
    job.until_logged(tmp_path / "result.txt", "epoch_start")
    job.ranks()[0].kill()  # which ends the log
    assert job.wait() == 128 + signal.SIGKILL
    assert "rn50: rank 0 was killed by SIGKILL; start the run again" in job.complaints
    assert_aborted(tmp_path / "result.txt")


def test_a_task_too_few(launched, tmp_path, request):
    command, environment = on_this_machine("srun", request)
    job = launched(tmp_path, command, {**environment, "DGXNGPU": "3"})
    assert job.wait() == 2
    wrong = "rn50: srun started 2 tasks on 1 machines, not DGXNNODES=1 times DGXNGPU=3; use ./run.sub"
    assert {complaint.split(", which")[0] for complaint in job.complaints} == {wrong}


@pytest.mark.parametrize("hosts_of_the_job, framework", [(1, "pytorch"), (2, "paddle")])
def test_two_ranks_of_other_frameworks_under_slurm(launched, tmp_path, request, hosts_of_the_job, framework):
    installed(framework)
    if hosts_of_the_job == 1:
        command, environment = on_this_machine("srun", request, framework)
    else:
        command, environment = on_two_hosts("srun", request, tmp_path, framework)
    job = launched(tmp_path, command, {**environment, "FRAMEWORK": framework})
    assert job.wait(BUSY_S) == TARGET_MISSED, job.err
    assert job.complaints == []
    log = events(tmp_path / "result.txt")
    values = {event["key"]: event["value"] for event in log}
    assert (values["global_batch_size"], values["train_samples"], values["eval_samples"]) == (32, 203, 57)
    assert log[-1]["key"] == "run_stop"


@pytest.mark.usefixtures("horovod")
def test_run_sub_makes_a_whole_result(tiny_environment, tmp_path, request):
    for part in ("rn50", "implementations", "configs"):
        shutil.copytree(
            str(ROOT / part), str(tmp_path / part), symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__"))
    for script in ("run.sub", "run_experiments.sh", "run_and_time.sh"):
        shutil.copy(str(ROOT / script), str(tmp_path))
    del tiny_environment["SEED"]
    configuration = {**tiny_environment, "DGXNGPU": "2", "DGXNNODES": "2", "BATCHSIZE": "8"}
    configuration_file(tmp_path / "configs" / "config_TINY.sh", configuration)
    first = request.getfixturevalue("hosts").hosts[0]
    environment = {"DGXSYSTEM": "TINY", "NEXP": "2", **request.getfixturevalue("slurm_on_hosts").environment}
    job = Job(environment, first.argv("./run.sub", "--wait"), tmp_path)
    try:
        status = job.wait(BUSY_S)
        (output,) = (tmp_path / "results").glob("slurm-*.txt")
        text = output.read_text()
        assert status == 1 and "2 runs of 5" in text, (
            text + job.err
        )  # a score needs five, and none reached the target
        assert "Traceback" not in text
        for run in range(2):
            log = events(tmp_path / "results" / "TINY" / f"result_{run}.txt")
            values = {event["key"]: event["value"] for event in log}
            assert values["global_batch_size"] == 32 and values["eval_samples"] == 57
            assert values["cache_clear"] is True  # on both hosts: their caches are those of this machine
            assert log[-1]["metadata"]["status"] == "aborted"
        faults = re.findall(r"^error: \S+/result_\d\.txt:\d+(?: and 1 more)?: ([^:]+):", text, re.MULTILINE)
        # Once where both runs ended with the same accuracy.
        assert set(faults) == {"the run missed the target"} and "(2 errors, 0 warnings)" in text, text
    finally:
        job.end()
