"""The training step learns, and a fault in another rank is named."""

import itertools

import numpy as np
import pytest

pytest.importorskip("implementations.mxnet")
mx = pytest.importorskip("mxnet")

from implementations.mxnet.communicator import lost_rank_named  # noqa: E402
from implementations.mxnet.train import create  # noqa: E402
from rn50.errors import RankLostError  # noqa: E402


def test_one_batch_is_learned_by_heart(tiny_config):
    rank = create(tiny_config)
    rank.warm_up(1)
    losses = [
        float(rank._train_step(batch, 2.0).mean().asscalar())
        for batch in itertools.islice(rank._synthetic().epoch(), 40)
    ]
    floor = -(
        0.91 * np.log(0.91) + 0.09 * np.log(0.01)
    )  # smoothing 0.1 over 10 classes: the loss of a perfect prediction
    assert losses[0] == pytest.approx(np.log(10), rel=0.2)
    assert floor <= losses[-1] < (losses[0] + floor) / 2
    rank.close()


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
    with pytest.raises(RankLostError), lost_rank_named():
        raise mx.base.MXNetError(said)


def test_another_error_is_no_lost_rank():
    with pytest.raises(mx.base.MXNetError), lost_rank_named():
        raise mx.base.MXNetError("out of memory")
