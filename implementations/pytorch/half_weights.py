"""A step that casts all weights to half precision in one kernel, and their gradients back to float32 in few.

Autocast casts the weights of each layer by a kernel of its own. Autograd casts every gradient back to float32
and adds it to one that was set to 0. The values are the same: a layer has rounded its gradient to half
precision before autograd casts it.
"""

import functools

import torch
from torch import nn
from torch.func import functional_call

from implementations.pytorch.model import Flat, starts, training_loss, views
from implementations.pytorch.step import Eager
from rn50.benchmark import optimizers


class HalfWeights(Eager):
    """Runs a step operation by operation, with the weights of convolutions and classifier in ``precision``.

    These weights, which have weight decay, are the first of ``flat``.
    """

    def __init__(self, network: nn.Module, flat: Flat, label_smoothing: float, precision: torch.dtype):
        parameters, weights, gradients = flat
        super().__init__(network, gradients, label_smoothing)
        decayed = [parameter for parameter in parameters if optimizers.has_weight_decay(parameter.name)]
        self._count, (_, end) = len(decayed), starts(decayed)
        self._weights = weights[:end]
        self._half = torch.empty_like(self._weights, dtype=precision)
        halves = [view.requires_grad_() for view in views(self._half, decayed)]
        self._read = [*halves, *(parameter.tensor for parameter in parameters[self._count :])]
        self._to = views(gradients, parameters)
        path = {tensor: name for name, tensor in network.named_parameters()}
        self._network_in_half = functools.partial(
            functional_call,
            network,
            {path[parameter.tensor]: half for parameter, half in zip(decayed, halves, strict=False)},
        )

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """See ``Step``."""
        self._network.train()
        self._half.copy_(self._weights)
        losses = training_loss(self._network_in_half, images, labels, self._label_smoothing)
        grads = torch.autograd.grad(losses.sum(), self._read)
        # PyTorch has no public function that copies many tensors at once. In one call all gradients have one
        # type.
        torch._foreach_copy_(self._to[: self._count], grads[: self._count])
        torch._foreach_copy_(self._to[self._count :], grads[self._count :])
        return losses.detach()
