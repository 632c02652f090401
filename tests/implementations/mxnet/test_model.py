"""The real network: its size, where its strides are, its loss, and one step at full size."""

import json
import math

import numpy as np
import pytest

pytest.importorskip("implementations.mxnet")
mx = pytest.importorskip("implementations.mxnet").mx

from implementations.mxnet.device import image_layout  # noqa: E402
from implementations.mxnet.model import Bottleneck, Layout, ResNet50, TrainingLoss, trainable  # noqa: E402
from rn50.benchmark import rules  # noqa: E402
from rn50.data.pipeline.batches import BatchFormat  # noqa: E402
from rn50.run.loop import Rank  # noqa: E402
from tests.conftest import with_changes  # noqa: E402

LAYOUT = Layout("NCHW", "float32", fused_relu=True)


@pytest.fixture(scope="module")
def network():
    network = ResNet50(1000, 1.0, False, LAYOUT)
    network.initialize()
    return network


def test_size(network):
    parameters = trainable(network)
    assert len(parameters) == 161
    assert sum(p.data().size for p in parameters) == rules.PARAMETERS == 25557032


def test_stride_is_in_the_3x3_convolution(network):
    blocks = [layer for layer in network.features if isinstance(layer, Bottleneck)]
    assert len(blocks) == 16
    strided = [b for b in blocks if any(c._convolution["stride"] == (2, 2) for c in b.body)]
    assert len(strided) == 3
    for block in strided:
        assert [(c._convolution["kernel"], c._convolution["stride"]) for c in block.body] == [
            ((1, 1), (1, 1)), ((3, 3), (2, 2)), ((1, 1), (1, 1))]
        assert block.shortcut._convolution["stride"] == (2, 2)


@pytest.mark.parametrize("image_size, picks", [(48, 1), (40, 2), (32, 0), (224, 0)])
def test_a_shortcut_from_an_odd_side_picks_pixels_and_computes_the_same(image_size, picks):
    images = mx.nd.random.normal(shape=(2, 3, min(image_size, 48), min(image_size, 48)))
    outcomes = []
    for size in (rules.IMAGE_SIZE, image_size):
        mx.random.seed(1)
        network = ResNet50(10, 0.125, False, LAYOUT._replace(image_size=size))
        network.initialize()
        with mx.autograd.record():
            logits = network(images)
        logits.backward()
        outcomes.append([logits.asnumpy(), *(p.grad().asnumpy() for p in trainable(network))])
    assert sum(layer._picks for layer in network.features if isinstance(layer, Bottleneck)) == picks
    for strided, picked in zip(*outcomes, strict=True):
        assert np.allclose(strided, picked, rtol=1e-3, atol=1e-4 * abs(strided).max())


def test_initial_weights(network):
    for parameter in trainable(network):
        weight = parameter.data().asnumpy()
        if parameter.name == "fc1_weight":
            assert weight.std() == pytest.approx(0.01, rel=0.02)
        elif parameter.name.endswith("weight"):  # He normal, fan in
            assert weight.std() == pytest.approx(np.sqrt(2 / np.prod(weight.shape[1:])), rel=0.1)
            assert abs(weight.mean()) < 0.1 * weight.std()
        else:
            assert (weight == (1 if parameter.name.endswith("gamma") else 0)).all()


def test_gamma_zero_makes_every_block_its_shortcut():
    network = ResNet50(10, 0.125, True, LAYOUT)
    network.initialize()
    zero = [p.name for p in trainable(network) if p.name.endswith("gamma") and not p.data().asnumpy().any()]
    assert len(zero) == 16 and all(name.endswith("bn3_gamma") for name in zero)


@pytest.mark.parametrize("precision, uncast", [("float16", {"FullyConnected"}), ("float32", set())])
def test_in_float16_images_parameters_and_logits_are_cast_and_no_activation(precision, uncast):
    network = ResNet50(10, 0.125, False, Layout("NHWC", precision, fused_relu=False))
    logits = network(mx.sym.var("images"))
    nodes = json.loads(logits.tojson(remove_amp_cast=False))["nodes"]
    cast = [nodes[node["inputs"][0][0]] for node in nodes if node["op"] == "amp_cast"]
    assert {node["op"] for node in cast} - {"null"} == uncast
    variables = [node["name"] for node in cast if node["op"] == "null"]
    assert len(variables) == (1 + 53 + 2 if uncast else 0) and ("images" in variables) == bool(uncast)
    arguments, (result,), _ = logits.infer_type(images="float32")
    assert {np.dtype(each).name for each in [*arguments, result]} == {"float32"}


def test_label_smoothing_by_hand():
    logits = np.log([[0.7, 0.2, 0.1]])
    loss = TrainingLoss(mx.gluon.nn.HybridLambda(lambda F, x: x), 3, 0.3)
    # Target 0.7 * (1, 0, 0) + 0.1 each
    expected = -(0.8 * np.log(0.7) + 0.1 * np.log(0.2) + 0.1 * np.log(0.1))
    assert float(loss(mx.nd.array(logits), mx.nd.array([0])).asscalar()) == pytest.approx(expected, rel=1e-5)


def test_binary_cross_entropy_by_hand():
    logits, target = np.array([[1.5, -2.0, 0.25]]), 0.7 * np.array([1, 0, 0]) + 0.1
    loss = TrainingLoss(mx.gluon.nn.HybridLambda(lambda F, x: x), 3, 0.3, binary=True)
    chances = 1 / (1 + np.exp(-logits))
    expected = -(target * np.log(chances) + (1 - target) * np.log(1 - chances)).sum()
    assert float(loss(mx.nd.array(logits), mx.nd.array([0])).asscalar()) == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_one_step_at_full_size(tiny_config):
    config = with_changes(
        tiny_config, hyperparameters={"batch_size": 4, "bn_gamma_zero": False},
        data={"image_size": 224, "classes": 1000, "width": 1.0})
    rank = Rank(config)
    assert len(rank.warm_up(1)) == 161
    batch = rank.engine.synthetic(rank.config.data.image_size)
    parameters = trainable(rank.engine.network)
    before = [p.data().asnumpy() for p in parameters]
    loss = rank.engine.step(batch, 0.1).asnumpy()
    assert loss.shape == (4,)
    # 1000 classes, a classifier that knows nothing: the cross entropy begins near ln 1000
    assert loss.mean() == pytest.approx(np.log(1000), rel=0.1)
    changed = [(old != p.data().asnumpy()).any() for old, p in zip(before, parameters, strict=False)]
    assert all(changed)
    rank.close()


@pytest.mark.parametrize(
    "device, environ, layout",
    [("cpu", {}, "CHW"), ("gpu", {}, "CHW"), ("gpu", {"NVIDIA_MXNET_VERSION": "23.10"}, "HWC")])
def test_images_are_channels_last_in_nvidias_container_alone(tiny_config, device, environ, layout):
    assert image_layout(with_changes(tiny_config, environ, run={"device": device})) == layout


def test_cudnn_takes_every_batch_norm(tiny_config):
    """In the shape in which MXNet's CUDA build describes it to cuDNN, with the batch of NF5688M6."""
    layout = image_layout(with_changes(tiny_config, {}, run={"device": "gpu"}))
    network = ResNet50(1000, 1.0, True, Layout(f"N{layout}", "float16", False))
    symbol = network(mx.sym.var("data"))
    internals = symbol.get_internals()
    _, shapes, _ = internals.infer_shape(data=BatchFormat(0, layout, True).shape(408, 224))
    shape_of = dict(zip(internals.list_outputs(), shapes, strict=True))
    nodes = json.loads(symbol.tojson())["nodes"]
    norms = [node for node in nodes if node["op"] == "BatchNorm"]
    assert len(norms) == 53
    for norm in norms:
        shape = shape_of[f"{nodes[norm['inputs'][0][0]]['name']}_output"]
        axis = int(norm["attrs"]["axis"])
        first = shape[0] if axis == 1 else math.prod(shape[:axis])
        assert first <= 65_535, "cuDNN refuses more in inference, and more than 880,801 in training"
