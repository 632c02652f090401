"""Faults that leave processes standing, and others from outside: the run ends on every rank and says which
rank and why.

Killed processes are in test_interrupts.py, bad data and full disks in test_bad_input.py.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.system.cluster import Namespaces, Ssh, need_namespaces
from tests.system.job import ANOTHER_RANK, BUSY_S, LAUNCH, Job, assert_aborted, events, keys

USER_CAN_MEND, TARGET_MISSED, DIVERGED = 2, 3, 4
ENDLESS = {"NUMEPOCHS": "1000"}
SHORT = {"RN50_WATCHDOG_S": "6"}
"""A watchdog that waits 6 s for a heartbeat and 9 s for a step."""


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_stopped(start, results, victim):
    """The moments of a run are told apart in tests/run/test_watchdog.py."""
    job = start(**ENDLESS, **SHORT, DGXNGPU="2", LAUNCHER="python")
    job.until_logged(results / "result_1.txt", "epoch_start")
    job.ranks()[victim].suspend()
    assert job.wait() == USER_CAN_MEND
    other = r"rank 0 \(.+\)" if victim else "the others"
    assert re.fullmatch(
        rf"rn50: rank {victim} \(.+\) not heard of for \d+ s, and {other} waiting for it; .*start the "
        r"run again", job.complaint)
    assert_aborted(results / "result_1.txt")


@contextlib.contextmanager
def mounted(folder, *command):
    """What ``command`` mounts on ``folder``; skips the test where that is not permitted."""
    folder.mkdir()
    done = subprocess.run([*command, str(folder)], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        pytest.skip(f"the fault needs a file system of its own: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], stderr=subprocess.DEVNULL)


@pytest.fixture
def disk(tiny_folder, tmp_path):
    """The tiny data set on a file system of its own."""
    with mounted(tmp_path / "disk", "mount", "-t", "tmpfs", "tmpfs") as folder:
        for file in tiny_folder.iterdir():
            shutil.copy(str(file), str(folder))
        yield folder


def test_a_data_folder_that_is_unmounted_before_all_of_it_is_open(start, results, disk):
    job = start(**ENDLESS, DATADIR=str(disk), EVAL_OFFSET="8")
    job.until_logged(results / "result_1.txt", "epoch_start")
    subprocess.run(["umount", "--lazy", str(disk)], check=True)
    assert job.wait() == USER_CAN_MEND
    # Which of the two depends on how far the ranks have come.
    assert re.search(r"(train|val)\.idx: cannot be read \(No such file", job.complaint)
    assert_aborted(results / "result_1.txt")


def test_a_data_folder_that_is_unmounted_stays_readable_to_a_run_that_has_it_open(start, results, disk):
    job = start(DATADIR=str(disk), NUMEPOCHS="5")
    job.until_logged(results / "result_1.txt", "eval_accuracy")
    subprocess.run(["umount", "--lazy", str(disk)], check=True)
    assert not (disk / "train.rec").exists()
    assert job.wait(BUSY_S) == TARGET_MISSED, job.err
    assert job.complaints == []
    assert events(results / "result_1.txt")[-1]["key"] == "run_stop"


SIGBUS = (
    "0", 128 + signal.SIGBUS,
    r"(the training process|rank \d) was killed by SIGBUS \(a file of DATADIR was cut short")
TRUNCATED = "1", USER_CAN_MEND, r"train\.rec: truncated: record \d+ "


@pytest.mark.parametrize(
    "framework, ranks, mapped, status, says",
    [
        ("mxnet", 1, *SIGBUS),
        ("mxnet", 2, *TRUNCATED),
        ("paddle", 1, *SIGBUS),  # its import takes this signal too
    ],
)
def test_data_that_vanish_in_mid_run(start, results, disk, framework, ranks, mapped, status, says):
    job = start(
        **ENDLESS, FRAMEWORK=framework, DATADIR=str(disk), DGXNGPU=str(ranks), DALI_DONT_USE_MMAP=mapped)
    job.until_logged(results / "result_1.txt", "eval_accuracy")  # at first DALI may still be opening the file
    os.truncate(str(disk / "train.rec"), 4096)
    assert job.wait() == status, job.err
    assert re.search(says, job.complaint)
    assert_aborted(results / "result_1.txt")


@pytest.fixture
def server(tiny_folder, tmp_path):
    """The tiny data set as a network file system would hold it: a server process answers every read. (its
    mount, its process)"""
    if shutil.which("bindfs") is None:
        pytest.skip("a file server is played by bindfs; apt-get install bindfs")
    # With direct_io nothing is kept in memory: every read asks the server.
    with mounted(tmp_path / "served", "bindfs", "-o", "direct_io", str(tiny_folder)) as folder:
        found = subprocess.run(
            ["pgrep", "-f", f"bindfs .*{folder}$"], stdout=subprocess.PIPE, text=True, check=True)
        process = int(found.stdout)
        try:
            yield folder, process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def test_a_file_server_that_hangs(start, results, server):
    folder, process = server
    job = start(**ENDLESS, **SHORT, DATADIR=str(folder), DGXNGPU="2", DALI_DONT_USE_MMAP="1")
    job.until_logged(results / "result_1.txt", "epoch_start")
    os.kill(process, signal.SIGSTOP)
    job.until_logged(results / "result_1.txt", "run_stop")  # said while it hangs
    os.kill(
        process, signal.SIGKILL
    )  # only now may the kernel end processes that are in the middle of reading
    assert job.wait() == USER_CAN_MEND
    complaint, *later = [line for line in job.complaints if line != ANOTHER_RANK]
    assert re.search(
        r"no step has ended for \d+ s: rank \d \(.+\) waiting for data.*; look at DATADIR", complaint)
    # A rank may see that the server is gone in the moment before it is ended.
    assert all(re.search(r"served/train\.(rec|idx): .*not connected", line) for line in later)
    assert_aborted(results / "result_1.txt")


def test_a_file_server_that_is_gone(start, results, server):
    folder, process = server
    job = start(**ENDLESS, DATADIR=str(folder), DALI_DONT_USE_MMAP="1")
    job.until_logged(results / "result_1.txt", "epoch_start")
    os.kill(process, signal.SIGKILL)
    assert job.wait() == USER_CAN_MEND
    assert re.search(r"served/train\.(rec|idx): .*(not connected|No such file)", job.complaint)
    assert_aborted(results / "result_1.txt")


def test_a_clock_that_jumps(start, results, tmp_path):
    libraries = sorted(pathlib.Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not libraries:
        pytest.skip("clocks are set by libfaketime; apt-get install faketime")
    offset = tmp_path / "offset"
    offset.write_text("+0")
    faked = {
        "LD_PRELOAD": str(libraries[0]), "FAKETIME_TIMESTAMP_FILE": str(offset), "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    job = start(**faked, NUMEPOCHS="30")
    begin = time.monotonic()
    job.until_logged(results / "result_1.txt", "epoch_start")
    for jump in ("-7200", "+7200"):
        evaluated = keys(results / "result_1.txt.partial").count("eval_accuracy")
        job.until(
            lambda before=evaluated: (
                keys(results / "result_1.txt.partial").count("eval_accuracy") >= before + 2))
        offset.write_text(jump)
        seen = subprocess.run(
            ["date", "+%s"], env={**os.environ, **faked}, stdout=subprocess.PIPE, check=True)
        assert abs(int(seen.stdout) - time.time() - int(jump)) < 60  # it did jump
    assert job.wait(BUSY_S) == TARGET_MISSED, job.err
    times = [event["time_ms"] for event in events(results / "result_1.txt")]
    assert times == sorted(times)
    assert times[-1] - times[0] <= (time.monotonic() - begin) * 1000


@pytest.fixture
def control_group():
    """Makes a control group below that of this process; skips the test where that is not permitted."""
    made = []

    def make(controller, **limits):
        own = re.search(
            rf"^\d+:(?:.*,)?{controller}(?:,.*)?:/(.*)$", pathlib.Path("/proc/self/cgroup").read_text(),
            re.MULTILINE)
        if not own:
            pytest.skip(f"no controller {controller} of control groups version 1")
        group = pathlib.Path("/sys/fs/cgroup", controller, own[1], f"rn50-test-{os.getpid()}")
        try:
            group.mkdir()
            made.append(group)
            for name, value in limits.items():
                (group / f"{controller}.{name}").write_text(str(value))
        except OSError as error:
            pytest.skip(f"no control group can be made: {error}")
        return group

    yield make
    for group in made:
        for process in (
            (group / "cgroup.procs").read_text().split()
        ):  # ended by now, but for zombies of others
            (group.parent / "cgroup.procs").write_text(process)
        group.rmdir()


HOG = """
import pathlib, sys, time
group, blocks = pathlib.Path(sys.argv[1]), []
(group / "cgroup.procs").write_text("0")
while "oom_kill 0" in (group / "memory.oom_control").read_text():
    blocks.append(b"x" * (1 << 22))
    time.sleep(0.005)
time.sleep(60)
"""


def test_memory_that_runs_out(tiny_environment, results, control_group):
    group = control_group("memory")
    script = f"echo $$ > {group}/cgroup.procs; exec {' '.join(LAUNCH)}"
    job = Job(
        {**tiny_environment, **ENDLESS, "DGXNGPU": "2", "RESULT_FILE": str(results / "result_1.txt")},
        ["sh", "-c", script])
    job.until_logged(results / "result_1.txt", "epoch_start")
    used = int((group / "memory.usage_in_bytes").read_text())
    (group / "memory.limit_in_bytes").write_text(str(used + (64 << 20)))
    # Something else takes what is left, until the kernel ends a process, by preference a rank.
    for rank in job.ranks().values():
        pathlib.Path(f"/proc/{rank.pid}/oom_score_adj").write_text("1000")
    hog = subprocess.Popen([sys.executable, "-c", HOG, str(group)])
    try:
        status = job.wait()
    finally:
        hog.kill()
        hog.wait()
        job.end()
    assert status == 128 + signal.SIGKILL
    assert re.search(r"(the training process|rank \d) was killed by SIGKILL \(out of memory: ", job.complaint)
    assert_aborted(results / "result_1.txt")


def test_a_slow_rank_is_named_before_the_clock(start, results, control_group):
    group = control_group("cpu", cfs_period_us=10000, cfs_quota_us=1000)  # a tenth of a core
    job = start(
        DGXNGPU="2", BATCHSIZE="64", NUMEPOCHS="1", IMAGE_SIZE="64", EVAL_RESIZE="72", WARMUP_EPOCHS="0")
    job.until_logged(results / "result_1.txt", "init_start")
    (group / "cgroup.procs").write_text(str(job.ranks()[1].pid))
    assert job.wait(BUSY_S) == TARGET_MISSED, job.err
    assert re.search(r"2 ranks, shared memory: [\d.]+ MB of gradients are summed in [\d.]+ ms", job.err)
    assert re.search(
        r"warning: rank 1 \(.+\) takes [\d.]+ times as long for a forward pass as rank 0", job.err)


def test_a_learning_rate_far_too_high(start, results):
    job = start(LR="1e6", OPTIMIZER="sgd", WD="1", WARMUP_EPOCHS="0", SUBMISSION_DIVISION="open")
    assert job.wait() == DIVERGED, job.err
    assert re.search(
        r"training loss is (nan|inf) in epoch [12]: LR=1e\+06 with WARMUP_EPOCHS=0 is too high", job.complaint
    )
    assert_aborted(results / "result_1.txt")


@pytest.fixture
def two_hosts(tmp_path):
    """Two machines on one link, and ssh between them."""
    need_namespaces()
    if shutil.which("ssh") is None or not (shutil.which("sshd") or os.path.exists("/usr/sbin/sshd")):
        pytest.skip("no ssh and sshd; install the packages openssh-client and openssh-server")
    (tmp_path / "ssh").mkdir()
    with (
        contextlib.closing(Namespaces(tmp_path)) as hosts,
        contextlib.closing(Ssh(hosts.hosts, tmp_path / "ssh")) as ssh,
    ):
        yield hosts.hosts, f"{ssh.path}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"


@pytest.mark.usefixtures("horovod")
def test_a_host_whose_network_is_cut(tiny_environment, results, two_hosts):
    (first, second), path = two_hosts
    both = {
        "DGXNNODES": "2", "DGXNGPU": "1", "LAUNCHER": "horovodrun",
        "HOSTS": f"{first.name}:1,{second.name}:1"}
    environment = {
        **tiny_environment, **ENDLESS, **SHORT, **both, "PATH": path,
        "RESULT_FILE": str(results / "result_1.txt")}
    job = Job(environment, first.argv(*LAUNCH))
    try:
        job.until_logged(results / "result_1.txt", "epoch_start")
        subprocess.run(second.argv("ip", "link", "set", "link0", "down"), check=True)
        job.until_logged(results / "result_1.txt", "run_stop")
        assert job.wait() == USER_CAN_MEND
    finally:
        job.end()
    says = (
        rf"rn50: rank 1 \({second.name}\) not heard of for \d+ s, and rank 0 \({first.name}\) waiting for it")
    assert any(re.match(says, line) for line in job.complaints), job.err
    assert_aborted(results / "result_1.txt")
