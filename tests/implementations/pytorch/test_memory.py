"""The memory that rn50 config new reckons with for an image holds what PyTorch keeps for the backward pass,
with a margin."""

import pytest

torch = pytest.importorskip("torch")

from implementations.pytorch.model import ResNet50, training_loss  # noqa: E402
from rn50.benchmark.network import training_mib  # noqa: E402


@pytest.mark.parametrize(
    "precision, halves, blur", [("bfloat16", 1, False), ("float32", 2, False), ("bfloat16", 1, True)])
def test_memory_of_an_image(precision, halves, blur):
    network = ResNet50(1000, 1.0, False, precision, blur=blur)
    network.initialize(0)
    few, more = (kept(network, images) for images in (2, 3))
    mib, counted = (more - few) / 2**20, training_mib(224, 1.0, halves == 2, blur)
    assert 0.5 * counted < mib < counted / 1.3


def kept(network, images):
    """Bytes of tensors, each counted once, that the backward pass of a step will read."""
    held = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        held[storage.data_ptr()] = storage  # kept alive, so that no other one gets its place
        return tensor

    network.train()
    batch = torch.zeros(images, 3, 224, 224).contiguous(memory_format=torch.channels_last)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        training_loss(network, batch, torch.zeros(images, dtype=torch.long), 0.1)
    return sum(storage.nbytes() for storage in held.values())
