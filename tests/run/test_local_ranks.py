"""Ranks of one machine: real processes that sum, fail, and are ended.

Processes: ranks are processes.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.support.ended import all_end

ROOT = pathlib.Path(__file__).resolve().parents[2]
BEGIN = """
import json, os, signal, sys, time
import numpy as np
from rn50.errors import RankLostError
from rn50.run.local_ranks import LocalRanks, started_here
ranks = LocalRanks(os.environ)
"""


@pytest.fixture
def launched():
    """Starts ``script`` as so many ranks; all end with the test."""
    started = []

    def launch(ranks, script):
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "rn50.launch.local_launcher", str(ranks), sys.executable, "-c",
                 BEGIN + script],
                cwd=str(ROOT), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                start_new_session=True))
        return started[-1]

    yield launch
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def lines(process, limit_s=60):
    """What the launcher printed: {rank: [line]} of standard output, and its own lines."""
    out, err = process.communicate(timeout=limit_s)
    assert err == ""
    by_rank, own = {}, []
    for line in out.splitlines():
        if line.startswith("["):
            rank, text = line[1:].split("]<stdout>:", 1)
            by_rank.setdefault(int(rank), []).append(text)
        else:
            own.append(line)
    return by_rank, own


@pytest.mark.parametrize("size", [2, 3, 5])
def test_sums_are_those_of_numpy_and_equal_on_all_ranks(launched, size):
    process = launched(
        size,
        """
assert started_here(os.environ)
values = [1, 5, 70_001]  # fewer than there are ranks, and more than one chunk each
shared = [ranks.allocate(count) for count in values]
report = {"rank": ranks.rank, "size": ranks.size, "sums": []}
for step in range(3):
    for arrays in shared:
        arrays[ranks.rank][:] = np.random.RandomState(10 * step + ranks.rank).standard_normal(len(arrays[0]))
        ranks.all_reduce_shared(arrays)
        report["sums"].append([arrays[ranks.rank][:3].tolist(), arrays[ranks.rank].tobytes().hex()[-64:]])
integers = np.array([[2 ** 62 // ranks.size, ranks.rank]], dtype=np.int64)
report["integers"] = ranks.all_reduce(integers).tolist()
print(json.dumps(report))
ranks.close()
ranks.close()
""",
    )
    by_rank, own = lines(process)
    assert process.returncode == 0 and own == []
    reports = [json.loads(by_rank[rank][0]) for rank in range(size)]
    assert [(report["rank"], report["size"]) for report in reports] == [(rank, size) for rank in range(size)]
    assert all(report["sums"] == reports[0]["sums"] for report in reports)
    assert reports[0]["integers"] == [[2**62 // size * size, sum(range(size))]]
    seen = iter(reports[0]["sums"])
    for step in range(3):
        for count in (1, 5, 70_001):
            drawn = [
                np.random.RandomState(10 * step + rank).standard_normal(count).astype(np.float32)
                for rank in range(size)]
            expected = drawn[0].copy()
            for each in drawn[1:]:
                expected += each
            first, end = next(seen)
            assert first == expected[:3].tolist() and end == expected.tobytes().hex()[-64:]


def test_the_memory_of_timed_sums_is_given_back(launched):
    process = launched(
        2,
        """
memory = int(os.environ["RN50_RANK_MEMORY"])
kept = ranks.allocate(5000)
kept[ranks.rank][:] = 1 + ranks.rank
sizes = [os.fstat(memory).st_size]
ranks.barrier()  # so that no rank enlarges the memory before all have seen its size
for values in (70_001, 300_000):
    assert len(ranks.all_reduce_seconds(values, 3)) == 3
    sizes.append(os.fstat(memory).st_size)
    ranks.barrier()
later = ranks.allocate(70_001)
fresh = not later[ranks.rank].any()
later[ranks.rank][:] = 10
ranks.all_reduce_shared(later)
kept = [sorted(set(each.tolist())) for each in kept]
print(json.dumps([sizes, fresh, later[ranks.rank].sum().item(), kept]))
""",
    )
    by_rank, own = lines(process)
    assert process.returncode == 0 and own == []
    for rank in range(2):
        sizes, fresh, total, kept = json.loads(by_rank[rank][0])
        assert 2 * 4 * 5000 <= sizes[0] < 2 * 4 * 70_001 and sizes == sizes[:1] * 3
        assert fresh and total == 20 * 70_001
        assert kept == [[1.0], [2.0]]


@pytest.mark.parametrize("end, status", [("os.kill(os.getpid(), signal.SIGKILL)", -9), ("sys.exit(2)", 2)])
def test_a_rank_that_ends_is_seen_by_the_others_at_once(launched, end, status):
    process = launched(
        3,
        f"""
ranks.barrier()
if ranks.rank == 1:
    {end}
begin = time.monotonic()
try:
    ranks.barrier()
except RankLostError:
    print(time.monotonic() - begin)
    sys.exit(7)
""",
    )
    by_rank, own = lines(process)
    assert sorted(by_rank) == [0, 2] and all(float(seconds) < 5 for (seconds,) in by_rank.values())
    # Another one may be quicker to end than the one that it has missed.
    assert sorted(own) == [
        f"Process {rank} exit with status code {status if rank == 1 else 7}" for rank in range(3)]
    assert process.returncode in (7, status if status > 0 else 128 - status)


def test_ranks_that_do_not_end_are_ended_when_one_has_failed(launched):
    process = launched(
        2,
        """
if ranks.rank == 0:
    sys.exit(5)
print(os.getpid(), flush=True)
time.sleep(1000)
""",
    )
    by_rank, own = lines(process)
    assert process.returncode == 5
    assert own == ["Process 0 exit with status code 5", "Process 1 exit with status code -15"]
    assert not pathlib.Path(f"/proc/{by_rank[1][0]}").exists()


def test_sigterm_reaches_every_rank_and_sigkill_of_the_launcher_too(launched):
    script = """
print(os.getpid(), flush=True)
time.sleep(1000)
"""
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = launched(2, script)
        pids = [int(process.stdout.readline().split(":")[1]) for _ in range(2)]
        process.send_signal(number)
        process.wait(timeout=30)
        assert all_end(lambda: pids, 30)  # noqa: B023


def test_lines_keep_their_rank_and_stream(launched):
    process = launched(
        2,
        """
for number in range(200):
    print(ranks.rank, number, "x" * 5000, file=sys.stderr if number % 2 else sys.stdout, flush=True)
print("no end of line", end="")
""",
    )
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    for rank in range(2):
        for parity, stream in enumerate(("stdout", "stderr")):
            prefix = f"[{rank}]<{stream}>:"
            found = [line[len(prefix) :] for line in out.splitlines() if line.startswith(prefix)]
            expected = [f"{rank} {number} {'x' * 5000}" for number in range(parity, 200, 2)]
            assert found == expected + (["no end of line"] if stream == "stdout" else [])
