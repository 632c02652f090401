"""The network in PaddlePaddle: gradients in one memory, initial values, the layout of GPUs, and what its
import leaves."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("paddle")

from implementations.paddle import paddle
from implementations.paddle.model import ResNet50, flatten_gradients, trainable, training_loss
from rn50.benchmark import rules
from rn50.files import ROOT


def network(layout="NCHW", seed=0):
    made = ResNet50(10, 0.125, True, "float32", layout)
    made.initialize(seed)
    return made


def step(of, images, labels):
    losses = training_loss(of, images, labels, 0.1)
    losses.sum().backward()
    return losses


@pytest.fixture
def batch():
    random = np.random.RandomState(0)
    images = random.standard_normal((4, 3, 32, 32)).astype(np.float32)
    return paddle.to_tensor(images), paddle.to_tensor(random.randint(10, size=4))


def test_backpropagation_goes_on_writing_to_the_flat_gradients(batch):
    separate, flattened = network(), network()
    step(separate, *batch)
    parameters = trainable(flattened)
    flat = flatten_gradients(parameters, lambda values: paddle.zeros([values]))
    for _ in range(3):
        flat.zero_()
        step(flattened, *batch)
        for one, other in zip(trainable(separate), parameters, strict=False):
            begin = (other.tensor.grad.data_ptr() - flat.data_ptr()) // 4
            assert begin % 64 == 0
            within = flat.numpy()[begin : begin + other.tensor.size].reshape(other.tensor.shape)
            np.testing.assert_array_equal(within, one.tensor.grad.numpy())
    assert np.abs(flat.numpy()).sum() > 0


def test_initial_values():
    values = {each.name: each.tensor.numpy() for each in trainable(network())}
    for name, array in values.items():
        if name.startswith("stage4") and name.endswith("weight"):
            fan_in = np.prod(array.shape[1:])
            assert abs(array.std() / (2 / fan_in) ** 0.5 - 1) < 0.05 and abs(array.mean()) < 0.01
        if name.endswith("gamma"):
            assert (array == (0 if name.endswith("bn3_gamma") else 1)).all()
        if name.endswith(("beta", "bias")):
            assert not array.any()
    assert abs(values["fc1_weight"].std() / 0.01 - 1) < 0.05
    again, other = (
        {each.name: each.tensor.numpy() for each in trainable(network(seed=seed))} for seed in (0, 1))
    assert all((values[name] == again[name]).all() for name in values)
    assert (values["conv0_weight"] != other["conv0_weight"]).any()


def test_the_layout_changes_nothing_but_the_order(batch):
    images, labels = batch
    one, other = network("NCHW"), network("NHWC")
    left = step(one, images, labels).numpy()
    right = step(other, images.transpose([0, 2, 3, 1]), labels).numpy()
    np.testing.assert_allclose(left, right, rtol=1e-5)
    for mine, theirs in zip(trainable(one), trainable(other), strict=False):
        difference = np.linalg.norm(mine.tensor.grad.numpy() - theirs.tensor.grad.numpy())
        assert difference <= 1e-4 * np.linalg.norm(theirs.tensor.grad.numpy()), mine.name


def test_running_statistics(batch):
    images, labels = batch
    made = network()
    training_loss(made, images, labels, 0.1)
    first = made.features[0]
    expected = paddle.nn.functional.conv2d(images, first.weight, stride=2, padding=3).mean(axis=[0, 2, 3])
    expected = (1 - rules.BATCH_NORM_MOMENTUM) * expected.numpy()
    np.testing.assert_allclose(first.running_mean.numpy(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_handlers_of_before_its_import_are_called(number):
    code = (
        f"import os, signal, sys, time; signal.signal({int(number)}, lambda *_: sys.exit(7)); "
        f"import implementations.paddle; os.kill(os.getpid(), {int(number)}); time.sleep(30)")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=str(ROOT), capture_output=True, text=True, timeout=120)
    assert done.returncode == 7, done.stderr


def test_a_crash_ends_it_at_once_and_threads_are_no_warning():
    code = "import implementations.paddle, os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=str(ROOT), env={**os.environ, "OMP_NUM_THREADS": "2"},
        capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGSEGV and done.stderr == ""


def test_cudnn_is_asked_for_its_fast_batch_norm():
    flags = ("cudnn_batchnorm_spatial_persistent", "cudnn_exhaustive_search", "conv_workspace_size_limit")
    assert [os.environ[f"FLAGS_{flag}"] for flag in flags] == ["1", "1", "4000"]
