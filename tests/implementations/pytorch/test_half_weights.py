"""Weights cast at once, and their gradients too, train as autocast does, operation by operation and
captured."""

import pytest

torch = pytest.importorskip("torch")

from implementations.pytorch.half_weights import HalfWeights  # noqa: E402
from implementations.pytorch.model import PRECISIONS, ResNet50, flatten, trainable  # noqa: E402
from implementations.pytorch.optimizer import Lars  # noqa: E402
from implementations.pytorch.step import Eager, Graph  # noqa: E402
from rn50.run.loop import Rank  # noqa: E402
from tests.conftest import ON_GPU, with_changes  # noqa: E402

STEPS, SAMPLES, SIDE = 20, 8, 32
DEVICES = ["cpu", pytest.param("cuda", marks=ON_GPU)]


class Trained:
    """A network of an eighth of the width, in its first state."""

    def __init__(self, precision, device):
        self.network = ResNet50(10, 0.125, False, precision).to(device)
        self.network.initialize(0)
        self.flat = flatten(trainable(self.network), lambda count: torch.zeros(count, device=device))
        self.parameters, self.weights, self.gradients = self.flat
        self.dtype = PRECISIONS[precision]

    def eager(self):
        return Eager(self.network, self.gradients, 0.1)

    def half_weights(self):
        return HalfWeights(self.network, self.flat, 0.1, self.dtype, False)


def batches(device, count):
    """Other images in every step."""
    random = torch.Generator().manual_seed(1)
    for _ in range(count):
        images = torch.randn(SAMPLES, 3, SIDE, SIDE, generator=random).to(
            device, memory_format=torch.channels_last)
        yield images, torch.randint(10, (SAMPLES,), generator=random).to(device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["bfloat16", "float16", "float32"])
@pytest.mark.usefixtures("comparable_convolutions")
def test_losses_and_weights_of_20_steps_are_those_of_autocast(tiny_config, precision, device):
    def run(how):
        trained = Trained(precision, device)
        step = how(trained)
        optimizer = Lars(trained.flat, tiny_config.hyperparameters)
        before, losses = trained.weights.clone(), []
        if device == "cuda":
            step = Graph(step, *next(batches(device, 1)))
        for number, batch in enumerate(batches(device, STEPS)):
            losses.append(step(*batch))
            optimizer.step(0.5 + number / 10, SAMPLES)
        return torch.stack(losses), trained.weights - before

    (expected, changed), (found, change) = (run(Trained.eager), run(Trained.half_weights))
    # Every kernel computes what it computed before, of the same values.
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    assert (change - changed).norm() < 1e-3 * changed.norm() and changed.norm() > 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.usefixtures("comparable_convolutions")
def test_gradients_are_those_of_autocast_and_replace_the_last_ones(precision, device):
    trained, batch = Trained(precision, device), next(batches(device, 1))
    trained.eager()(*batch)
    expected = [tensor.grad.clone() for _, tensor in trained.parameters]
    trained.gradients.fill_(7.0)
    trained.half_weights()(*batch)
    for (name, tensor), other in zip(trained.parameters, expected, strict=True):
        torch.testing.assert_close(tensor.grad, other, rtol=1e-3, atol=1e-3, msg=name)
        assert other.any(), name


@pytest.mark.parametrize("device", [pytest.param("gpu", marks=ON_GPU)])
@pytest.mark.parametrize("optimizer", ["lars", "sgd"])
def test_either_optimizer_takes_them(tiny_config, optimizer, device):
    run = {"framework": "pytorch", "device": device, "step_mode": "fused", "precision": "float16"}
    rank = Rank(with_changes(tiny_config, run=run, hyperparameters={"optimizer": optimizer}))
    rank.warm_up(1)
    steps = [*rank.engine._full_steps.values(), rank.engine._ragged_step]
    assert [type(step) for step in steps] == [Graph, HalfWeights]
    before = rank.engine.optimizer._weights.clone()
    rank.engine.step(rank.engine.synthetic(rank.config.data.image_size), 0.1)
    change = rank.engine.optimizer._weights - before
    assert change.isfinite().all() and change.any()
    rank.close()
