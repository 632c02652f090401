"""The training step learns, and a fault in another rank is named.

Processes: the order in which libraries load is that of a process.
"""

import itertools
import subprocess
import sys
import types

import numpy as np
import pytest

pytest.importorskip("implementations.mxnet")
mx = pytest.importorskip("implementations.mxnet").mx

from implementations.mxnet import device  # noqa: E402
from implementations.mxnet.communicator import Distributed  # noqa: E402
from rn50.errors import RankLostError, UserError  # noqa: E402
from rn50.files import ROOT  # noqa: E402
from rn50.run.loop import Rank  # noqa: E402
from tests.conftest import with_changes  # noqa: E402


def test_dali_is_loaded_before_mxnet_computes():
    """Else DALI's first batch ends in a crash of libmxnet."""
    code = "import sys, implementations.mxnet.engine; sys.exit('nvidia.dali.backend' not in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=str(ROOT)).returncode == 0


def test_one_batch_is_learned_by_heart(tiny_config):
    rank = Rank(tiny_config)
    rank.warm_up(1)
    losses = [
        float(rank.engine.step(batch, 2.0).mean().asscalar())
        for batch in itertools.repeat(rank.engine.synthetic(rank.config.data.image_size), 40)]
    floor = -(
        0.91 * np.log(0.91) + 0.09 * np.log(0.01)
    )  # smoothing 0.1 over 10 classes: the loss of a perfect prediction
    assert losses[0] == pytest.approx(np.log(10), rel=0.2)
    assert floor <= losses[-1] < (losses[0] + floor) / 2
    rank.close()


@pytest.mark.parametrize(
    "capability, container, taken",
    [((9, 0), "", False), ((8, 0), "", True), ((9, 0), "23.10", True), (None, "", True)])
def test_the_wheel_refuses_a_gpu_that_it_has_no_code_for(
    tiny_config, monkeypatch, capability, container, taken
):
    gpu = types.SimpleNamespace(capability=capability)
    monkeypatch.setattr(device.hardware, "read", lambda: types.SimpleNamespace(gpus=(gpu,)))
    config = with_changes(tiny_config, {"NVIDIA_MXNET_VERSION": container}, run={"device": "gpu"})
    if taken:
        assert device.of_rank(config, 0) == mx.gpu(0)
        return
    with pytest.raises(UserError, match="^DEVICE=gpu: MXNet has code for .* this GPU has 9.0; take another"):
        device.of_rank(config, 0)


@pytest.mark.parametrize(
    "said",
    [
        "Horovod has been shut down. This was caused by an exception on one of the ranks",
        # MXNet takes Gloo's "[pair.cc:598] Read error [127.0.0.1]:35726: Connection reset by peer" for a
        # place in a source file.
        'Traceback (most recent call last):\n  File "Read error [127.0.0.1]", line 35726\nMXNetError: '
        "Connection reset by peer",
    ],
)
def test_what_horovod_reports_of_a_lost_rank_is_named(said):
    with pytest.raises(RankLostError), Distributed.lost_rank_named():
        raise mx.base.MXNetError(said)


def test_another_error_is_no_lost_rank():
    with pytest.raises(mx.base.MXNetError), Distributed.lost_rank_named():
        raise mx.base.MXNetError("out of memory")
