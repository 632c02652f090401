"""torchvision's models in the form that our training step wants; what is said where they are not
installed."""

import sys

import pytest

torch = pytest.importorskip("torch")

from implementations.pytorch import model, zoo  # noqa: E402
from rn50.benchmark import optimizers  # noqa: E402
from rn50.errors import UserError  # noqa: E402


def test_torchvision_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(
        UserError, match=r"^--models: torchvision cannot be imported .*; install the torchvision .*PyTorch 2"
    ):
        zoo.models()


@pytest.mark.parametrize("name, size", [("inception_v3", 299), ("squeezenet1_1", 224)])
def test_a_model_gives_logits_and_names_its_parameters(name, size):
    try:
        assert zoo.models()[name] == size
    except UserError as error:
        pytest.skip(str(error))
    network = zoo.ZooNetwork(name, 7, "bfloat16")
    network.initialize(1)
    logits = network(torch.zeros(2, 3, size, size).contiguous(memory_format=torch.channels_last))
    assert logits.shape == (2, 7) and logits.dtype == torch.float32 and logits.isfinite().all()
    named = model.trainable(network)
    assert {id(each.tensor) for each in named} == {id(each) for each in network.parameters()}
    assert len({each.name for each in named}) == len(named)
    for each in named:  # biases and batch norm have no weight decay
        assert optimizers.has_weight_decay(each.name) == (each.tensor.ndim > 1)
    first = [each.tensor.clone() for each in named]
    network.initialize(1)
    assert all((before == each.tensor).all() for before, each in zip(first, named, strict=False))
    network.initialize(2)
    assert any((before != each.tensor).any() for before, each in zip(first, named, strict=False))
