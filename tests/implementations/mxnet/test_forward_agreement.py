"""The forward pass agrees with an independent ResNet-50 v1.5: PaddlePaddle's, with our random weights copied
into it."""

import re

import numpy as np
import pytest

from rn50 import frameworks
from rn50.machine import hardware

pytest.importorskip("implementations.mxnet")
mx = pytest.importorskip("implementations.mxnet").mx
paddle = pytest.importorskip("paddle")

from implementations.mxnet.model import Layout, ResNet50  # noqa: E402

PARTS = {
    "weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias", "running_mean": "_mean",
    "running_var": "_variance"}


def their_name(name):
    """PaddlePaddle's name of our tensor: stage2_unit1_bn3_gamma -> layer2.0.bn3.weight, conv1sc ->
    downsample.0."""
    match = re.fullmatch(
        r"(?:stage(\d)_unit(\d)_)?(conv|bn|fc)(\w*?)_(weight|bias|gamma|beta|running_mean|running_var)", name)
    stage, unit, kind, index, part = match.groups()
    if kind == "fc":
        return f"fc.{part}"
    shortcut = f"downsample.{0 if kind == 'conv' else 1}"
    layer = shortcut if index.endswith("sc") else f"{kind}{index if stage else 1}"
    return (f"layer{stage}.{int(unit) - 1}." if stage else "") + f"{layer}.{PARTS[part]}"


@pytest.fixture(scope="module")
def networks():
    """The same weights in both; batch-norm statistics and biases random too, so that none of them can
    hide."""
    random = np.random.RandomState(0)
    ours = ResNet50(1000, 1.0, False, Layout("NCHW", "float32", fused_relu=True))
    ours.initialize()
    state = {}
    for name, parameter in ours.collect_params().items():
        value = parameter.data().asnumpy()
        if not name.endswith("_weight"):
            positive = name.endswith(("gamma", "var"))
            value = random.uniform(0.5, 1.5, value.shape) if positive else random.normal(0, 0.1, value.shape)
            parameter.set_data(mx.nd.array(value))
        state[their_name(name)] = (value.T if name == "fc1_weight" else value).astype(np.float32)
    theirs = paddle.vision.models.resnet50(pretrained=False, num_classes=1000)
    assert set(state) == set(theirs.state_dict())
    theirs.set_state_dict(state)
    theirs.eval()
    return ours, theirs


@pytest.mark.parametrize("size", [64, 224])
def test_logits_agree(networks, size):
    ours, theirs = networks
    images = np.random.RandomState(size).standard_normal((2, 3, size, size)).astype(np.float32)
    left = ours(mx.nd.array(images)).asnumpy()
    right = theirs(paddle.to_tensor(images)).numpy()
    assert left.std() > 0.01
    assert np.linalg.norm(left - right) / np.linalg.norm(right) < 1e-4


@pytest.mark.skipif(
    not frameworks.traits("mxnet").bfloat16_flags <= hardware.cpu_flags(),
    reason="MXNet computes in bfloat16 with AVX-512 alone")
def test_bfloat16_is_the_same_network(networks):
    ours, _ = networks
    low = ResNet50(1000, 1.0, False, Layout("NCHW", "bfloat16", fused_relu=False))
    low.initialize()
    for name, parameter in low.collect_params().items():
        parameter.set_data(ours.collect_params()[name].data())
    low.hybridize()
    images = mx.nd.array(np.random.RandomState(1).standard_normal((2, 3, 64, 64)))
    left, right = low(images).asnumpy(), ours(images).asnumpy()
    assert left.dtype == np.float32
    assert (
        np.linalg.norm(left - right) / np.linalg.norm(right) < 0.03
    )  # bfloat16 has 8 bits: 0.4 % a rounding
