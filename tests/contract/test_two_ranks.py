"""Two processes at half the batch, however their gradients are summed, follow one process at the same global
batch.

Processes: two ranks are two processes; make test has one case, of MXNet.
"""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tests.contract.frameworks import WITH_TOY, installed

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOY = ROOT / "tests" / "toy"
SCRIPT = str(pathlib.Path(__file__).with_name("two_ranks.py"))


def train(framework, environment, folder, ranks, batch_size, launcher=()):
    """The weights that each of ``ranks`` ranks ends with that ``launcher`` starts."""
    environment = {
        **os.environ, **environment, "DGXNGPU": str(ranks), "BATCHSIZE": str(batch_size),
        "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:{TOY}", "FRAMEWORK": framework}
    command = [*launcher, sys.executable, SCRIPT, str(folder / f"{ranks}_RANK.npz")]
    done = subprocess.run(
        command, cwd=str(ROOT), env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return [np.load(folder / f"{ranks}_{rank}.npz") for rank in range(ranks)]


@pytest.mark.parametrize(
    "framework, sums",
    [pytest.param(name, sums, marks=() if name == "mxnet" else pytest.mark.slow)
     for name, each in WITH_TOY.items() for sums in each.two_ranks])
def test_two_ranks_follow_one(tiny_environment, tmp_path, framework, sums):
    launcher = installed(framework).two_ranks[sums]
    if sums == "Horovod":
        pytest.importorskip("horovod.mxnet", reason="Horovod is not built for MXNet; make test-all does it")
    (alone,) = train(framework, tiny_environment, tmp_path, 1, 24)
    first, second = train(framework, tiny_environment, tmp_path, 2, 12, launcher)
    assert len(alone.files) == WITH_TOY[framework].tensors
    for name in alone.files:
        np.testing.assert_array_equal(first[name], second[name])  # the ranks never drift apart
        difference = np.linalg.norm(first[name] - alone[name]) / np.linalg.norm(alone[name])
        assert difference < 1e-5, (name, difference)
