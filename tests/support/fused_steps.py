"""Convolutions of ResNet-50, and small steps with them, for the tests of ``convolution_statistics``."""

import functools

import torch

from implementations.pytorch import convolution_statistics, fused_norm, model
from implementations.pytorch.half_weights import HalfWeights


def given_to(layer, batch, device="meta", dtype=torch.float16):
    """Input as after ReLU, weight, stride and padding of a convolution."""
    inputs, outputs, kernel, stride, side = layer
    torch.manual_seed(0)
    x, weight = (
        torch.randn(size, device=device)
        for size in ((batch, inputs, side, side), (outputs, inputs, kernel, kernel)))
    x, weight = (
        each.to(dtype).contiguous(memory_format=torch.channels_last)
        for each in (x.relu(), weight * (2 / (inputs * kernel**2)) ** 0.5))
    return x, weight, stride, kernel // 2


def summing(images):
    """The convolution of STEP_MODE=fused with plans for batches of ``images``."""
    compute = functools.partial(convolution_statistics.convolve, images=images)
    return functools.partial(fused_norm.convolve, compute=compute)


def network_of(convolution, precision, width, device):
    network = model.ResNet50(10, width, False, precision, fused_norm.normalise, convolve=convolution)
    network.to(device).initialize(0)
    flat = model.flatten(model.trainable(network), lambda count: torch.zeros(count, device=device))
    step = HalfWeights(network, flat, 0.1, model.PRECISIONS[precision], False)
    return network, step, flat.gradients


def images_of(batch, side, device):
    random = torch.Generator().manual_seed(0)
    images = torch.randn(batch, 3, side, side, generator=random).to(device, memory_format=torch.channels_last)
    return images, torch.arange(batch, device=device) % 10
