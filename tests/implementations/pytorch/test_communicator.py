"""How the ranks of torch.distributed meet and sum, for real processes over Gloo."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = """
import os
import numpy as np
import torch
from implementations.pytorch.communicator import Distributed
from rn50.process import environment
ranks = Distributed(False, environment())
total = ranks.all_reduce(np.array([1, 10 ** 15 + ranks.rank]))
assert ranks.shared(1000) is None
gradients = torch.zeros(1000)
gradients += ranks.rank + 1
ranks.all_reduce_gradients(gradients)
seconds = ranks.all_reduce_seconds(1000, 3)
ranks.barrier()
place = (ranks.rank, ranks.local_rank, ranks.size, ranks.library)
told = ("said", *place, *total, gradients.unique().tolist(), len(seconds))
# In one piece: torchrun lets all write to one stream.
os.write(1, (" ".join(map(str, told)) + "\\n").encode())
ranks.close()
ranks.close()
"""
OURS = [sys.executable, "-m", "rn50.launch.local_launcher", "3"]
TORCHRUN = [
    sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", "--no-python"]


@pytest.mark.parametrize("launcher", [OURS, TORCHRUN], ids=["ours", "torchrun"])
def test_ranks_meet_and_sum(launcher):
    done = subprocess.run(
        [*launcher, sys.executable, "-c", SCRIPT], cwd=str(ROOT), capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout + done.stderr
    said = sorted(line[line.index("said") :] for line in done.stdout.splitlines() if "said" in line)
    assert said == [f"said {rank} {rank} 3 Gloo 3 {3 * 10**15 + 3} [6.0] 3" for rank in range(3)]
