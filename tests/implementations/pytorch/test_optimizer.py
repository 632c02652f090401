"""LARS and SGD on joined tensors against the NumPy oracles, every kind of parameter, 20 steps of changing
learning rate; the optimizer that the documentation adds against PyTorch's own."""

import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from implementations.pytorch import optimizer as module  # noqa: E402
from implementations.pytorch.model import ResNet50, flatten, trainable  # noqa: E402
from implementations.pytorch.optimizer import OPTIMIZERS, Lars  # noqa: E402
from rn50.benchmark import optimizers, schedule  # noqa: E402
from rn50.files import ROOT  # noqa: E402
from rn50.run.loop import Rank  # noqa: E402
from tests.conftest import ON_GPU, with_changes  # noqa: E402

STEPS, SAMPLES = 20, 32
DECAY = {"warmup_epochs": 5, "decay_epochs": STEPS}  # an epoch a step
DEVICES = ["cpu", pytest.param("cuda", marks=ON_GPU)]


def made(name, h, device="cpu", gamma_zero=True):
    """(parameters, gradients by name, optimizer) of a network of an eighth of the width."""
    network = ResNet50(10, 0.125, gamma_zero, "float32").to(device)
    network.initialize(0)
    flat = flatten(trainable(network), lambda values: torch.zeros(values, device=device))
    return flat.parameters, OPTIMIZERS[name](flat, h)


def value(parameter):
    return parameter.tensor.detach().cpu().numpy().astype(np.float64)


def oracle(h):
    """(name, weight, gradient, velocity, learning rate) -> (weight, velocity) of the optimizer that ``h``
    names."""
    eta = h.lars_eta if h.optimizer == "lars" else None
    decoupled = h.decoupled_weight_decay

    def update(*args):
        relative_rate = args[-1] / h.learning_rate if decoupled else None
        return optimizers.update(*args, h.momentum, h.weight_decay, eta, relative_rate)

    return update


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "name, weight_decay, decoupled", [("lars", 5e-5, False), ("sgd", 0.01, False), ("sgd", 0.01, True)]
)  # a decay that 20 steps of SGD show
def test_agrees_with_the_oracle(tiny_config, name, weight_decay, decoupled, device):
    values = {
        "optimizer": name, "weight_decay": weight_decay, "decoupled_weight_decay": decoupled, **DECAY}
    config = with_changes(tiny_config, hyperparameters=values)
    h = config.hyperparameters
    random = np.random.RandomState(0)
    parameters, optimizer = made(name, h, device)  # a gamma of 0: a norm of 0
    assert {p.name.rsplit("_", 1)[1] for p in parameters} == {"weight", "gamma", "beta", "bias"}
    update = oracle(h)
    expected = {p.name: (value(p), np.zeros(p.tensor.shape)) for p in parameters}
    for step in range(1, STEPS + 1):
        learning_rate = schedule.learning_rate(step, config.recipe, 1)
        for parameter in parameters:
            gradient = random.standard_normal(parameter.tensor.shape) * 10.0 ** random.uniform(-3, 1)
            parameter.tensor.grad.copy_(
                torch.from_numpy(gradient * SAMPLES)
            )  # they arrive summed over the samples
            weight, velocity = expected[parameter.name]
            expected[parameter.name] = update(parameter.name, weight, gradient, velocity, learning_rate)
        optimizer.step(learning_rate, SAMPLES)
    for parameter in parameters:
        weight = expected[parameter.name][0]
        error = np.linalg.norm(value(parameter) - weight) / np.linalg.norm(weight)
        assert error < 1e-5, parameter.name


def test_zero_gradients_leave_a_weight_to_its_decay(tiny_config):
    parameters, optimizer = made("lars", tiny_config.hyperparameters, gamma_zero=False)
    weight = next(p for p in parameters if p.name == "fc1_weight")
    before = value(weight)
    optimizer.step(2.0, SAMPLES)
    decay = 2.0 * tiny_config.hyperparameters.weight_decay  # trust ratio 1, for the gradient's norm is 0
    np.testing.assert_allclose(value(weight), before * (1 - decay), rtol=1e-6)


def test_what_lies_between_the_parameters_stays_zero(tiny_config):
    network = ResNet50(10, 0.125, True, "float32")
    network.initialize(0)
    flat = flatten(trainable(network), torch.zeros)
    optimizer, (parameters, weights, _) = Lars(flat, tiny_config.hyperparameters), flat
    used = torch.zeros_like(weights, dtype=torch.bool)
    for parameter in parameters:
        begin = (parameter.tensor.data_ptr() - weights.data_ptr()) // 4
        assert begin % 64 == 0 and not used[begin : begin + parameter.tensor.numel()].any()
        used[begin : begin + parameter.tensor.numel()] = True
        parameter.tensor.grad.fill_(1.0)
    optimizer.step(2.0, 1)
    assert (~used).any() and not weights[~used].any()


@pytest.fixture
def of_the_page(monkeypatch):
    """The optimizer of docs/architecture.md, added to the module as the page says."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    monkeypatch.setattr(module, "OPTIMIZERS", dict(OPTIMIZERS))
    exec(compile(block, "architecture.md", "exec"), {**vars(module)})
    return module.OPTIMIZERS["adamw"]


def test_the_optimizer_of_the_page_is_that_of_pytorch(of_the_page, tiny_config):
    config = with_changes(
        tiny_config, hyperparameters={"weight_decay": 0.1, "learning_rate": 0.01, **DECAY})
    h = config.hyperparameters
    network = ResNet50(10, 0.125, False, "float32")
    network.initialize(0)
    flat, random = flatten(trainable(network), torch.zeros), np.random.RandomState(0)
    optimizer, copies = of_the_page(flat, h), {p.name: p.tensor.detach().clone() for p in flat.parameters}
    theirs = torch.optim.AdamW(
        {"params": [copy], "weight_decay": h.weight_decay * optimizers.has_weight_decay(name)}
        for name, copy in copies.items())
    for step in range(1, STEPS + 1):
        rate = schedule.learning_rate(step, config.recipe, 1)
        for name, tensor in flat.parameters:
            gradient = torch.from_numpy(random.standard_normal(tensor.shape).astype(np.float32))
            tensor.grad.copy_(gradient * SAMPLES)
            copies[name].grad = gradient
        for group in theirs.param_groups:
            group["lr"] = rate
        optimizer.step(rate, SAMPLES)
        theirs.step()
    for name, tensor in flat.parameters:
        torch.testing.assert_close(tensor.detach(), copies[name], rtol=1e-4, atol=1e-6)


def test_the_optimizer_of_the_page_trains(of_the_page, tiny_config, monkeypatch):
    monkeypatch.setattr("implementations.pytorch.engine.OPTIMIZERS", module.OPTIMIZERS)
    values = {"optimizer": "adamw", "learning_rate": 0.002}
    rank = Rank(with_changes(tiny_config, run={"framework": "pytorch"}, hyperparameters=values))
    try:
        rank.warm_up(5)
        assert not any(array.any() for array in rank.state().values())
        losses = []
        for steps in (2, 30):  # the loss of the step before the latest comes last
            rank.train(rank.synthetic(), steps, lambda: 0.002, lambda samples, loss: losses.append(loss))
        assert rank.state()["steps_momentum"] == 32 and losses[-1] < losses[0] / 2
    finally:
        rank.close()
