"""The implementations are one submission: from equal weights and equal batches they come to equal weights."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
mx = pytest.importorskip("implementations.mxnet").mx

from implementations.mxnet import train as mxnet_train  # noqa: E402
from implementations.pytorch import train as pytorch_train  # noqa: E402
from rn50.benchmark import schedule  # noqa: E402
from rn50.data.pipeline.batches import Batch  # noqa: E402
from tests.conftest import with_changes  # noqa: E402

STEPS = 20


@pytest.mark.parametrize("optimizer, learning_rate", [("lars", 0.25), ("sgd", 0.05)])
def test_twenty_steps_agree(tiny_config, optimizer, learning_rate):
    # What is to be learned is noise, on which rounding errors grow with the learning rate: LARS at 0.5 ends 1e-4 apart on one
    # processor and 4e-4 on another (AMD with AVX-512).
    h = {"optimizer": optimizer, "learning_rate": learning_rate, "batch_size": 32}
    config = with_changes(tiny_config, hyperparameters=h)
    ours, theirs = pytorch_train.create(config), mxnet_train.create(config)
    assert ours.warm_up(3) == theirs.warm_up(4)
    for one, other in zip(ours.parameters, theirs.parameters):
        assert tuple(one.tensor.shape) == other.shape
        other.set_data(mx.nd.array(one.tensor.detach().numpy()))
    begin = {each.name: each.tensor.detach().numpy().copy() for each in ours.parameters}
    random = np.random.RandomState(0)
    losses = []
    for step in range(1, STEPS + 1):
        samples = 32 if step % 4 else 20  # now and then a ragged batch
        images = random.standard_normal((32, 3, 32, 32)).astype(np.float32)
        labels = random.randint(10, size=32)
        rate = schedule.learning_rate(step, learning_rate, warmup_steps=5, total_steps=STEPS)
        one = ours._train_step(Batch(torch.from_numpy(images), torch.from_numpy(labels), samples, samples), rate)
        other = theirs._train_step(Batch(mx.nd.array(images), mx.nd.array(labels), samples, samples), rate)
        losses.append((one.numpy(), other.asnumpy()))
    for one, other in losses:
        np.testing.assert_allclose(one, other, rtol=1e-4)
    moved, apart = [], []
    for one, other in zip(ours.parameters, theirs.parameters):
        mine, mxnets = one.tensor.detach().numpy(), other.data().asnumpy()
        moved.append(np.linalg.norm(mine - begin[one.name]))
        apart.append(np.linalg.norm(mine - mxnets))
        assert moved[-1] > 0, one.name
        if one.name.endswith("weight"):
            assert apart[-1] < 1e-4 * np.linalg.norm(mxnets), one.name
    assert np.linalg.norm(apart) < 1e-4 * np.linalg.norm(moved)
    for rank in (ours, theirs):
        rank.close()


def test_their_evaluations_agree(tiny_config):
    ours, theirs = pytorch_train.create(tiny_config), mxnet_train.create(tiny_config)
    ours.warm_up(3), theirs.warm_up(4)
    random = np.random.RandomState(1)
    statistics = dict(ours.network.named_buffers())
    for one, other in zip(ours.parameters, theirs.parameters):
        values = random.uniform(0.5, 1.5, other.shape) if other.name.endswith("gamma") else one.tensor.detach().numpy()
        one.tensor.data.copy_(torch.from_numpy(np.asarray(values, np.float32)))
        other.set_data(mx.nd.array(values))
    kinds = {"mean": lambda shape: random.standard_normal(shape), "var": lambda shape: random.uniform(0.5, 2, shape)}
    theirs_running = [p for p in theirs.network.collect_params().values() if "running" in p.name]
    assert len(statistics) == len(theirs_running) == 106
    for (name, buffer), other in zip(statistics.items(), theirs_running):
        kind = name.rsplit("_", 1)[1]
        assert other.name.endswith(kind)
        values = kinds[kind](other.shape).astype(np.float32)
        buffer.copy_(torch.from_numpy(values))
        other.set_data(mx.nd.array(values))
    images = random.standard_normal((16, 3, 32, 32)).astype(np.float32)
    ours.network.eval()
    with torch.no_grad():
        logits = ours.network(torch.from_numpy(images)).numpy()
    np.testing.assert_allclose(logits, theirs.network(mx.nd.array(images)).asnumpy(), rtol=1e-4, atol=1e-4 * np.abs(logits).max())
    for rank in (ours, theirs):
        rank.close()
