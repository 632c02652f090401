"""The choice of a launcher: which machines, argv and environment the ranks get, and how their output is read;
system/test_launchers.py starts them.

Processes: children are ended, and their output is read.
"""

import io
import os
import shutil
import signal
import subprocess
import sys
import types

import psutil
import pytest

from rn50.errors import UserError
from rn50.launch import hosts, job, launchers, local_launcher
from rn50.process import python
from tests.conftest import with_changes


@pytest.mark.parametrize(
    "device, ranks, cores, threads",
    [
        ("cpu", 1, 8, "7"),  # one core is left to the input pipeline
        ("cpu", 1, 1, "1"),
        ("cpu", 4, 8, "1"),
        ("gpu", 4, 32, "8"),
        ("gpu", 8, 4, "1"),
    ],
)
def test_threads_are_a_ranks_share_of_the_cores(tiny_config, monkeypatch, device, ranks, cores, threads):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    config = with_changes(tiny_config, run={"device": device, "ranks_per_node": ranks})
    for given, found in (
        ({}, threads), ({"OMP_NUM_THREADS": "3", "X": "y"}, "3"), ({"OMP_NUM_THREADS": ""}, threads),
    ):
        assert job.rank_environment(with_changes(config, given))["OMP_NUM_THREADS"] == found


@pytest.mark.parametrize("ranks, cores, threads", [(1, 16, "15"), (4, 32, "7"), (1, 1, "1"), (8, 4, "1")])
def test_0_threads_of_the_input_are_a_ranks_share_of_the_cores_less_one(
    tiny_config, monkeypatch, ranks, cores, threads
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    config = with_changes(tiny_config, run={"ranks_per_node": ranks}, input_pipeline={"threads": 0})
    assert job.rank_environment(with_changes(config, {"DALI_THREADS": "0"}))["DALI_THREADS"] == threads
    given = with_changes(config, {}, input_pipeline={"threads": 3})
    assert "DALI_THREADS" not in job.rank_environment(given)


@pytest.mark.parametrize(
    "device, environ, queues",
    [("gpu", {}, "32"), ("gpu", {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, "1"), ("cpu", {}, None),
     ("cpu", {"CUDA_DEVICE_MAX_CONNECTIONS": "4"}, "4")])
def test_a_gpu_gets_all_hardware_queues_unless_the_user_says_otherwise(tiny_config, device, environ, queues):
    config = with_changes(tiny_config, environ, run={"device": device})
    assert job.rank_environment(config).get("CUDA_DEVICE_MAX_CONNECTIONS") == queues


@pytest.fixture
def installed(monkeypatch):
    """Says which launchers there are; ``installed(mpirun=True, horovod_mpi=False)``."""

    def said(mpirun=True, horovod=True, horovod_mpi=True):
        monkeypatch.setattr(launchers.shutil, "which", lambda name: f"/usr/bin/{name}" if mpirun else None)
        monkeypatch.setattr(launchers.importlib.util, "find_spec", lambda name: object() if horovod else None)
        monkeypatch.setattr(launchers, "horovod_has_mpi", lambda: horovod_mpi)

    said()
    return said


TRAIN = python("-m", "rn50", "train")
STEP = {
    "SLURM_JOB_ID": "12345", "SLURM_STEP_ID": "6", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "2",
    "SLURM_PROCID": "3", "SLURM_NODEID": "1", "SLURM_LOCALID": "1", "SLURM_STEP_NODELIST": "node[08-09]"}


@pytest.mark.parametrize(
    "ranks, nodes, environ, there, chosen",
    [
        (1, 1, {}, {}, "python"),
        (1, 1, {"SLURM_JOB_ID": "1"}, {}, "python"),
        (1, 1, {"SLURM_STEP_NUM_TASKS": "1"}, {}, "python"),
        (2, 1, {}, {}, "python"),
        (2, 1, {"SLURM_STEP_NUM_TASKS": "1"}, {}, "python"),  # an interactive shell in Slurm
        (2, 2, {}, {}, "mpirun"),
        (2, 2, {}, {"mpirun": False}, "horovodrun"),
        (2, 2, {}, {"horovod_mpi": False}, "horovodrun"),
        (2, 2, STEP, {}, "srun"),
        (1, 1, STEP, {}, "srun"),  # so that four processes do not each run alone: it is refused
    ],
)
def test_auto_takes_what_fits(tiny_config, installed, ranks, nodes, environ, there, chosen):
    installed(**there)
    config = with_changes(tiny_config, environ, run={"ranks_per_node": ranks, "nodes": nodes})
    assert launchers.choose(config) == chosen
    if chosen == "python" and ranks > 1:
        assert launchers.choose(with_changes(config, run={"device": "gpu"})) == "horovodrun"
    explicit = with_changes(config, run={"launcher": "horovodrun"})
    assert launchers.choose(explicit) == "horovodrun"


def test_pytorch_needs_no_horovod(tiny_config, installed, monkeypatch):
    installed(horovod=False, mpirun=False)
    monkeypatch.setattr(launchers, "_address", {"node08": "127.0.0.8", "node09": "127.0.0.9"}.get)
    config = with_changes(tiny_config, run={"framework": "pytorch", "ranks_per_node": 2, "device": "gpu"})
    assert launchers.start(config).argv == python("-m", "rn50.launch.local_launcher", "2", *TRAIN)
    task = launchers.start(with_changes(config, STEP, run={"nodes": 2}))
    assert (task.rank, task.argv) == (3, TRAIN)
    port = task.environ.pop("MASTER_PORT")
    assert 10000 <= int(port) < 30000 and task.environ == {
        "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.8",
        "GLOO_SOCKET_IFNAME": "lo"}
    assert "./run.sub" in refusal(config, {}, nodes=2)
    assert "do not use Horovod; set LAUNCHER=auto" in refusal(config, {}, launcher="mpirun")
    assert launchers.sharing(with_changes(config, {"LOCAL_RANK": "1"})) == (1, 2)


def refusal(config, environ, **run):
    with pytest.raises(UserError) as refused:
        launchers.start(with_changes(config, environ, run=run))
    (line,) = str(refused.value).splitlines()
    return line


def test_what_cannot_start_is_refused_with_the_remedy(tiny_config, installed):
    assert "LAUNCHER=auto" in refusal(tiny_config, {}, launcher="python", ranks_per_node=2, nodes=2)
    assert "LAUNCHER=auto" in refusal(tiny_config, {}, launcher="python", ranks_per_node=2, device="gpu")
    assert "run.sub" in refusal(tiny_config, {}, launcher="srun")
    assert "4 tasks on 2 machines, not DGXNNODES=1 times DGXNGPU=1; use ./run.sub" in refusal(
        tiny_config, STEP)
    assert "HOSTS=host1:4,host2:4" in refusal(tiny_config, {}, nodes=2, ranks_per_node=4)
    installed(horovod_mpi=False)
    assert "libopenmpi-dev" in refusal(tiny_config, {}, launcher="mpirun")
    installed(mpirun=False)
    assert "openmpi-bin" in refusal(tiny_config, {}, launcher="mpirun")
    installed(horovod=False)
    assert "LAUNCHER=auto: 2 ranks need Horovod" in refusal(tiny_config, {}, ranks_per_node=2, device="gpu")
    for run, remedy in (
        ({"ranks_per_node": 2, "device": "gpu"}, "or set DGXNGPU=1"),
        ({"nodes": 2, "hosts": "a,b"}, "or set DGXNNODES=1"),
        ({"ranks_per_node": 2, "nodes": 2, "hosts": "a,b"}, "or set DGXNGPU=1 and DGXNNODES=1"),
        ({"launcher": "horovodrun"}, "or set LAUNCHER=auto"),
    ):
        assert refusal(tiny_config, {}, **run).endswith(remedy)


@pytest.mark.parametrize(
    "given, complaint",
    [("a:8,b:4", "'b:4' is not NAME:8"), ("a,b;c", "'b;c' is not"), ("a,,b", "'' is not"),
     ("a:8", "names 1 machines, DGXNNODES=2"), ("a,b,c", "names 3 machines, DGXNNODES=2"),
     ("a,a", "names a machine twice"), ("-h,-v", "'-h' is not NAME:8")])
def test_hosts_that_cannot_be(installed, tiny_config, given, complaint):
    assert complaint in refusal(tiny_config, {}, hosts=given, nodes=2, ranks_per_node=8)


def test_hosts_of_a_run(tiny_config):
    def found(environ, **run):
        return hosts.of_run(with_changes(tiny_config, environ, run=run))

    assert found({"SLURM_JOB_NODELIST": "n[1-2]"}, hosts="a,b") == ["localhost"]
    assert found({}, hosts="a, 10.0.0.2:1", nodes=2) == ["a", "10.0.0.2"]
    assert found({"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_STEP_NODELIST": "n[2-3]"}, nodes=2) == ["n2", "n3"]
    assert found({"SLURM_JOB_NODELIST": "n[1-2]"}, hosts="a,b", nodes=2) == ["a", "b"]
    with pytest.raises(UserError, match="SLURM_JOB_NODELIST=n1 names 1 machines"):
        found({"SLURM_JOB_NODELIST": "n1"}, nodes=2)
    with pytest.raises(UserError, match="SLURM_JOB_NODELIST=-h,n1: a name that begins with -"):
        found({"SLURM_JOB_NODELIST": "-h,n1"}, nodes=2)


@pytest.mark.parametrize(
    "nodelist, names",
    [("a", ["a"]), ("a,b-1", ["a", "b-1"]), ("n[1-3]", ["n1", "n2", "n3"]),
     ("n[08-10,15]x,m2", ["n08x", "n09x", "n10x", "n15x", "m2"]),
     ("r[1-2]n[0,9].local", ["r1n0.local", "r1n9.local", "r2n0.local", "r2n9.local"])])
def test_a_node_list_of_slurm(nodelist, names):
    assert hosts.expand(nodelist) == names


@pytest.mark.parametrize("nodelist", ["a[1-x]", "a[-]", "a[1-99999999999]", "a[\uff11]", "a[]"])
def test_a_list_of_slurms_that_is_none(nodelist):
    with pytest.raises(UserError, match="is not a range of numbers; set HOSTS"):
        hosts.expand(nodelist)


def test_horovodrun_over_two_machines(tiny_config, installed):
    config = with_changes(
        tiny_config, run={"nodes": 2, "ranks_per_node": 3, "hosts": "a,b", "launcher": "horovodrun"})
    argv = launchers.start(config).argv
    assert argv[argv.index("-np") + 1] == "6" and argv[argv.index("-H") + 1] == "a:3,b:3"
    assert argv[-len(TRAIN) :] == TRAIN


def test_mpirun_takes_the_configuration_along_and_nothing_that_is_this_machines_own(
    tiny_config, tiny_environment, installed
):
    environ = {
        **tiny_environment, "NCCL_DEBUG": "INFO", "PGNGPU": "1", "PYTHONPATH": "x", "HOSTNAME": "a",
        "PMIX_RANK": "0"}
    start = launchers.start(with_changes(tiny_config, environ, run={"nodes": 2, "hosts": "a,b"}))
    assert start.argv[start.argv.index("-H") + 1] == "a:1,b:1" and start.rank is None
    taken = {name for flag, name in zip(start.argv, start.argv[1:], strict=False) if flag == "-x"}
    assert {*tiny_environment, "NCCL_DEBUG", "PGNGPU", "PYTHONPATH", "HOROVOD_CONTROLLER"} <= taken
    assert not {"HOSTNAME", "PMIX_RANK"} & taken


def test_a_task_of_slurm_is_one_rank(tiny_config, installed, monkeypatch):
    monkeypatch.setattr(launchers, "_address", {"node08": "127.0.0.8", "node09": "127.0.0.9"}.get)
    config = with_changes(tiny_config, STEP, run={"nodes": 2, "ranks_per_node": 2})
    start = launchers.start(config)
    assert (start.rank, start.argv) == (3, TRAIN)
    assert start.environ["HOROVOD_RANK"] == "3" and start.environ["HOROVOD_SIZE"] == "4"
    assert start.environ["HOROVOD_LOCAL_RANK"] == "1" and start.environ["HOROVOD_CROSS_RANK"] == "1"
    assert (
        start.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "127.0.0.8"
        and start.environ["HOROVOD_GLOO_IFACE"] == "lo")
    ports = {
        launchers.start(with_changes(config, {**STEP, "SLURM_JOB_ID": job_id})).environ[
            "HOROVOD_GLOO_RENDEZVOUS_PORT"]
        for job_id in "123"}
    assert len(ports) == 3 and all(10000 <= int(port) < 30000 for port in ports)


@pytest.mark.parametrize(
    "environ, place",
    [
        ({}, (0, 4)),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "3"}, (3, 4)),
        ({"HOROVOD_LOCAL_RANK": "2"}, (2, 4)),
        ({**STEP, "SLURM_LOCALID": "3", "SLURM_CPU_BIND_TYPE": "none", "SLURM_CPU_BIND_LIST": ""}, (3, 4)),
        ({**STEP, "SLURM_LOCALID": "3", "SLURM_CPU_BIND_TYPE": "mask_cpu:",
          "SLURM_CPU_BIND_LIST": "0x1,0x2,0x4,0x8"},
         (0, 1)),
        ({**STEP, "SLURM_LOCALID": "3", "SLURM_CPU_BIND_TYPE": "mask_cpu:",
          "SLURM_CPU_BIND_LIST": "0x3,0xc,0x3,0xc"},
         (1, 2)),
        # Bound is the interactive shell in which this was started, and all ranks share what it may use.
        ({"SLURM_STEP_NUM_TASKS": "1", "SLURM_CPU_BIND_TYPE": "mask_cpu:", "SLURM_CPU_BIND_LIST": "0xf"},
         (0, 4)),
    ],
)
def test_ranks_that_share_cores(tiny_config, environ, place):
    assert launchers.sharing(with_changes(tiny_config, environ, run={"ranks_per_node": 4})) == place


def test_a_run_that_is_stopped_behind_its_end_is_not_to_be_started_again(tmp_path):
    """While it saves its weights, say."""
    log = tmp_path / "result_0.txt"
    assert job._remains(log) == job._remains(None) == "the same command starts the run again"
    log.touch()
    assert (
        job._remains(log)
        == f"the run had ended, and {log} is whole; weights that it was to save may be missing")


def test_all_children_are_killed_though_one_has_gone():
    gone, alive = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
    processes = [psutil.Process(child.pid) for child in (gone, alive)]
    gone.kill()
    gone.wait()
    local_launcher.kill(processes)
    assert alive.wait(60) == -signal.SIGKILL


def test_lines_of_ranks_in_pieces_are_whole_again():
    """Recorded of Open MPI 4.1.4: two ranks print at once, and each writes the end of a line on its own."""
    output = b"""\
rank 0 of this machine: CPU 0
[1,0]<stdout>:a b[1,1]<stdout>:c[1,1]<stdout>: d
[1,1]<stderr>:e  [1,0]<stdout>:
[1,1]<stderr>:
that process rank 1 [1,0]<stdout>:caf\xc3[1,0]<stdout>:\xa9
[0]<stdout>:of horovodrun
[1,1]<stdout>:cut"""
    assert [line for line in job._lines(io.BytesIO(output)) if any(line)] == [
        ("rank 0 of this machine: CPU 0", ""), ("c d", "stdout"), ("a b", "stdout"), ("e", "stderr"),
        ("that process rank 1", ""), ("café", "stdout"), ("of horovodrun", "stdout"), ("cut", "stdout")]


@pytest.mark.parametrize("number, said", [(None, "rn50: another rank has stopped\n"), (signal.SIGINT, "")])
def test_after_a_signal_no_rank_complains_of_another(capsys, number, said):
    line = "[1]<stderr>:rn50: another rank has stopped\\n"
    process = subprocess.Popen(["printf", line], stdout=subprocess.PIPE)
    job._relay(process, "python", types.SimpleNamespace(signal=number))
    process.stdout.close()
    assert capsys.readouterr().err == said


def test_mpirun_passes_on_long_lines_and_those_written_in_pieces():
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun; install the package openmpi-bin")
    write = "import os; [os.write(1, part) for part in (b'a' * 9000, b'b', b'\\n')]"
    argv = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--tag-output", "-np", "2", sys.executable]
    done = subprocess.run([*argv, "-c", write], capture_output=True)
    lines = [line for line in job._lines(io.BytesIO(done.stdout)) if line[1]]
    assert lines == [("a" * 9000 + "b", "stdout")] * 2, done.stderr


@pytest.mark.parametrize("number", ["x", "", "-1", "1.5", pytest.param("x" * 10_000, id="long")])
def test_a_number_of_a_rank_that_is_none_is_a_line(tiny_config, number):
    with pytest.raises(UserError) as refused:
        launchers.sharing(with_changes(tiny_config, {"RN50_RANK": number}))
    assert str(refused.value).startswith("RN50_RANK=") and len(str(refused.value)) < 200
