"""However a step is executed, it trains as plain execution does: full and ragged batches, changing learning
rates."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from implementations.pytorch.layers import layers_of  # noqa: E402
from implementations.pytorch.model import Bottleneck, flatten, trainable  # noqa: E402
from implementations.pytorch.step import Eager, Graph, full_batch_step  # noqa: E402
from rn50.benchmark.network import Convolution, Unit  # noqa: E402
from rn50.errors import UserError  # noqa: E402
from rn50.run.loop import Rank  # noqa: E402
from rn50.settings.libraries import is_passed_through  # noqa: E402
from tests.conftest import HAS_GPU, ON_GPU, with_changes  # noqa: E402

RATES = (0.5, 1.0, 2.0, 1.5, 0.1, 0.7)
RAGGED = (2, 5)
"""Steps, beginning at 0, whose batch is not full."""


def flat(parameters):
    """All weights in one tensor of their own."""
    return torch.cat([parameter.tensor.detach().flatten() for parameter in parameters])


def trained(config):
    """(losses of every step, change of the weights, running statistics, correct predictions) after a few
    steps."""
    rank = Rank(config)
    rank.warm_up(3)
    network = rank.engine.network
    before = flat(trainable(network))
    batch = rank.engine.synthetic(rank.config.data.image_size)
    losses = []
    for step, rate in enumerate(RATES):
        samples = 11 if step in RAGGED else batch.samples
        # Other images in every step, in other memory than the last ones.
        shifted = batch._replace(
            images=batch.images.roll(step, 0), labels=batch.labels.roll(step), samples=samples)
        losses.append(rank.engine.step(shifted._replace(global_samples=samples), rate))
    correct = rank.engine.logits(batch.images).argmax(dim=1) == batch.labels
    change, statistics = flat(trainable(network)) - before, torch.cat(list(network.buffers()))
    rank.close()
    return losses, change, statistics, correct


@pytest.mark.parametrize(
    "mode",
    [pytest.param("compile", marks=(*ON_GPU, pytest.mark.minute_on_gpu)),
     *(pytest.param(mode, marks=ON_GPU) for mode in ("graph", "fused"))])
@pytest.mark.usefixtures("comparable_convolutions")
def test_every_mode_trains_as_eager_does(tiny_config, mode):
    def run(how):
        return trained(
            with_changes(tiny_config, run={"framework": "pytorch", "device": "gpu", "step_mode": how}))

    expected, found = run("eager"), run(mode)
    # Other kernels round otherwise, and so many layers make much of it; what a wrong step would do is larger.
    for one, other in zip(expected[0], found[0], strict=False):
        torch.testing.assert_close(other, one, rtol=1e-2, atol=1e-3)
    for one, other, tolerance in zip(expected[1:3], found[1:3], (0.1, 1e-2), strict=False):
        assert (one - other).norm() < tolerance * one.norm()
    assert (expected[3] == found[3]).float().mean() > 0.8


@pytest.mark.skipif(HAS_GPU, reason="Triton compiles here")
def test_kernels_that_cannot_be_compiled_are_named_with_what_runs_without_them():
    with pytest.raises(UserError, match=r"STEP_MODE=fused: Triton cannot compile \(.+\); .* STEP_MODE=graph"):
        layers_of("fused", torch.device("cuda"), 4)
    assert layers_of("graph", torch.device("cuda"), 4) == layers_of("fused", torch.device("cpu"), 4) == {}


def test_compiled_losses_gradients_and_statistics_are_those_of_eager():
    def run(compiled):
        # A block of the network is enough: a CPU needs seconds to compile each kernel of it.
        body = Convolution("conv1", "bn1", 8, 4, 1, 1), Convolution("conv2", "bn2", 4, 4, 3, 2)
        body += (Convolution("conv3", "bn3", 4, 16, 1, 1),)
        block = Bottleneck(Unit(body, (Convolution("conv1sc", "bnsc", 8, 16, 1, 2),)), 1.0)
        network = torch.nn.Sequential(block, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
        gradients = flatten(trainable(network), torch.zeros).gradients
        step = Eager(network, gradients, 0.1)
        if compiled:  # by a step on a batch of the shape of those that follow; values are set after it
            images = torch.ones(4, 8, 6, 6).to(memory_format=torch.channels_last)
            step = full_batch_step("compile", step, images, torch.zeros(4, dtype=torch.int64))
        random = torch.Generator().manual_seed(0)
        for module in network.modules():
            if hasattr(module, "names"):
                module.initialize(random)
        random, found = torch.Generator().manual_seed(1), []
        for _ in range(3):  # the gradients of a step do not add to those of the last
            images = torch.randn(4, 8, 6, 6, generator=random).to(memory_format=torch.channels_last)
            losses = step(images, torch.randint(16, (4,), generator=random))
            found += [losses, gradients.clone(), *(buffer.clone() for buffer in network.buffers())]
        return found

    for one, other in zip(run(False), run(True), strict=False):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)


def test_max_autotune_is_chosen_by_pytorchs_own_variable():
    name = "TORCHINDUCTOR_MAX_AUTOTUNE"
    assert is_passed_through(name)
    code = (
        "import importlib, os, sys\n" "for value in ('', '1'):\n" f"    os.environ['{name}'] = value\n"
        "    sys.modules.pop('torch._inductor.config', None)\n"
        "    print(importlib.import_module('torch._inductor.config').max_autotune)")
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=ON_GPU)])
def test_a_ragged_batch_never_meets_what_is_made_for_full_ones(tiny_config, device):
    rank = Rank(
        with_changes(tiny_config, run={"framework": "pytorch", "device": device, "step_mode": "graph"}))
    rank.warm_up(1)

    def refuse(images, labels):
        raise AssertionError(f"{len(labels)} samples")

    rank.engine._full_step = refuse
    batch = rank.engine.synthetic(rank.config.data.image_size)
    assert rank.engine.step(batch._replace(samples=3), 0.1).shape == (3,)
    with pytest.raises(AssertionError, match="16 samples"):
        rank.engine.step(batch, 0.1)
    rank.close()


@pytest.mark.parametrize("device", [pytest.param("gpu", marks=ON_GPU)])
def test_algorithms_are_tried_but_none_for_a_ragged_batch(tiny_config, device):
    rank = Rank(with_changes(tiny_config, run={"framework": "pytorch", "device": device}))
    rank.warm_up(1)
    tried, ragged_step = [], rank.engine._ragged_step

    def step(images, labels):
        tried.append(torch.backends.cudnn.benchmark)
        return ragged_step(images, labels)

    rank.engine._ragged_step = step
    rank.engine.step(rank.engine.synthetic(rank.config.data.image_size)._replace(samples=3), 0.1)
    assert tried == [False] and torch.backends.cudnn.benchmark
    assert torch.backends.cudnn.benchmark_limit == 10  # all would cost a minute or two in every process
    rank.close()


@pytest.mark.parametrize("mode", ["eager", "graph", "fused"])
def test_without_a_gpu_nothing_is_captured(mode):
    step = Eager(torch.nn.Flatten(), torch.zeros(1), 0.0)
    assert full_batch_step(mode, step, torch.zeros(2, 3, 4, 4), torch.zeros(2)) is step


@pytest.mark.parametrize("device", [pytest.param("gpu", marks=ON_GPU)])
@pytest.mark.usefixtures("comparable_convolutions")
def test_a_graph_gives_what_its_step_gives(tiny_config, device):
    rank = Rank(
        with_changes(tiny_config, run={"framework": "pytorch", "device": device, "step_mode": "graph"}))
    rank.warm_up(1)
    assert [type(step) for step in rank.engine._full_steps.values()] == [Graph]
    batch = rank.engine.synthetic(rank.config.data.image_size)
    images, labels = batch.images, batch.labels
    first = rank.engine._full_step(images, labels)
    kept = first.clone()
    gradients = rank.engine._gradients.clone()
    second = rank.engine._full_step(images.flip(0) * 0.5, labels.flip(0))
    assert torch.equal(first, kept) and not torch.equal(first, second)  # losses of a step stay what they were
    torch.testing.assert_close(rank.engine._ragged_step(images, labels), kept, rtol=1e-3, atol=1e-4)
    # Another algorithm for a convolution would round otherwise, which the layers above enlarge to some
    # hundredths.
    assert (rank.engine._gradients - gradients).norm() < 0.1 * gradients.norm()
    rank.close()
