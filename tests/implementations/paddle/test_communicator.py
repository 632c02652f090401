"""How the ranks of paddle.distributed meet and sum, for real processes over Gloo, whoever starts them."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("paddle")

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = """
import numpy as np
from implementations.paddle import paddle
from implementations.paddle.communicator import Distributed
from rn50.process import environment
ranks = Distributed(False, environment())
total = ranks.all_reduce(np.array([1, 10 ** 15 + ranks.rank]))
assert ranks.shared(1000) is None
gradients = paddle.zeros([1000])
gradients += ranks.rank + 1
ranks.all_reduce_gradients(gradients)
seconds = ranks.all_reduce_seconds(1000, 3)
ranks.barrier()
place = (ranks.rank, ranks.local_rank, ranks.size, ranks.library)
told = ("said", *place, *total, gradients.unique().tolist(), len(seconds))
print(*told, flush=True)
ranks.close()
ranks.close()
"""
OURS = [sys.executable, "-m", "rn50.launch.local_launcher", "3"]
GLOO = [sys.executable, "-m", "tests.support.gloo_ranks", "3"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("launcher", [OURS, GLOO], ids=["ours", "torch.distributed"])
def test_ranks_meet_and_sum(launcher):
    done = subprocess.run(
        [*launcher, sys.executable, "-c", SCRIPT], cwd=str(ROOT), capture_output=True, text=True, timeout=120,
        env=ENVIRONMENT)
    assert done.returncode == 0, done.stdout + done.stderr
    said = sorted(line[line.index("said") :] for line in done.stdout.splitlines() if "said" in line)
    assert said == [f"said {rank} {rank} 3 Gloo 3 {3 * 10**15 + 3} [6.0] 3" for rank in range(3)]
