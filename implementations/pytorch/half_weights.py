"""A step with few kernels for casts: one casts all weights to half precision, and few cast their gradients
back to float32. STEP_MODE=fused on a GPU uses it.

With autocast, which the other modes use, one kernel for each layer casts its weights, one casts its gradient
back, and one more adds that to a gradient that was set to 0. Both ways give equal values: a layer computes
its gradient in half precision, and the cast to float32 changes no value.
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

    These weights are the parameters with weight decay, and come first in ``flat``.
    """

    def __init__(
        self, network: nn.Module, flat: Flat, label_smoothing: float, precision: torch.dtype, binary: bool
    ):
        parameters, weights, gradients = flat
        super().__init__(network, gradients, label_smoothing, binary)
        decayed = [parameter for parameter in parameters if optimizers.has_weight_decay(parameter.name)]
        self._count = len(decayed)
        # The values of these parameters lie before index ``end`` of the flat tensors.
        _, end = starts(decayed)
        self._weights = weights[:end]
        self._half = torch.empty_like(self._weights, dtype=precision)
        halves = [view.requires_grad_() for view in views(self._half, decayed)]
        # The tensors whose gradients a step computes, in the order of ``parameters``.
        self._inputs = [*halves, *(parameter.tensor for parameter in parameters[self._count :])]
        self._gradient_views = views(gradients, parameters)
        # ``functional_call`` takes path of a parameter, as "features.0.weight" -> tensor to use instead.
        path = {tensor: name for name, tensor in network.named_parameters()}
        replaced = {path[parameter.tensor]: half for parameter, half in zip(decayed, halves, strict=False)}
        self._network_in_half = functools.partial(functional_call, network, replaced)

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Run a step; see ``Step``."""
        self._network.train()
        self._half.copy_(self._weights)
        losses = training_loss(self._network_in_half, images, labels, *self._target)
        grads = torch.autograd.grad(losses.sum(), self._inputs)
        # PyTorch has no public function that copies many tensors at once. This one needs gradients of one
        # type: those of the weights are in half precision, the others in float32.
        torch._foreach_copy_(self._gradient_views[: self._count], grads[: self._count])
        torch._foreach_copy_(self._gradient_views[self._count :], grads[self._count :])
        return losses.detach()
