"""paddle.vision's models in the form that our training step wants."""

import numpy as np
import pytest

pytest.importorskip("paddle")

from implementations.paddle import model, paddle, zoo
from rn50.benchmark import optimizers
from rn50.errors import UserError


def test_the_zoo_is_listed():
    assert {"resnet50", "vgg16", "mobilenet_v2", "googlenet", "alexnet"} <= set(zoo.models())
    assert {name for name, size in zoo.models().items() if size != 224} == {"inception_v3"}


@pytest.mark.parametrize("name", ["googlenet", "squeezenet1_1", "resnet18"])
def test_a_model_gives_logits_and_names_its_parameters(name):
    network = zoo.ZooNetwork(name, 7, "float32")
    network.initialize(1)
    network.eval()
    logits = network(paddle.zeros([2, 3, 224, 224]))
    assert logits.shape == [2, 7] and bool(logits.isfinite().all())
    named = model.trainable(network)
    assert {id(each.tensor) for each in named} == {
        id(each) for each in network.parameters() if not each.stop_gradient}
    assert len({each.name for each in named}) == len(named)
    for each in named:  # biases and batch norm have no weight decay
        assert optimizers.has_weight_decay(each.name) == (each.tensor.ndim > 1)
    first = [each.tensor.numpy() for each in named]
    network.initialize(1)
    assert all((before == each.tensor.numpy()).all() for before, each in zip(first, named, strict=False))
    network.initialize(2)
    assert any((before != each.tensor.numpy()).any() for before, each in zip(first, named, strict=False))
    assert np.isfinite(first[0]).all()


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_a_precision_that_would_silently_be_float32_is_refused(half):
    with pytest.raises(
        UserError, match=f"PRECISION={half}: auto_cast of PaddlePaddle computes in float32 on this device"
    ):
        zoo.ZooNetwork("resnet18", 10, half)
