"""Gluon's models in the form that our training step wants."""

import pytest

pytest.importorskip("implementations.mxnet")

from implementations.mxnet import model, mx, zoo
from rn50.benchmark import optimizers


def test_every_name_is_a_model_of_the_zoo():
    known = zoo.models()
    assert {"alexnet", "resnet50_v1", "inception_v3", "mobilenet_v2_0_25"} < set(known)
    assert [name for name, size in known.items() if size != 224] == ["inception_v3"] and known[
        "inception_v3"] == 299


@pytest.mark.parametrize("name, size", [("squeezenet1_1", 224), ("mobilenet0_25", 224)])
def test_a_model_knows_its_shapes_and_gives_logits(name, size):
    network = zoo.network(name, 7, size, "float32")
    network.initialize(mx.init.MSRAPrelu(slope=0))
    parameters = model.trainable(network)
    assert all(0 not in parameter.data().shape for parameter in parameters)
    logits = network(mx.nd.ones((2, 3, size, size)))
    assert logits.shape == (2, 7) and abs(logits.asnumpy()).max() < float("inf")
    for parameter in parameters:  # biases and batch norm have no weight decay
        assert optimizers.has_weight_decay(parameter.name) == (parameter.data().ndim > 1)
