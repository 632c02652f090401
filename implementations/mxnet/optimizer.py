"""LARS on MXNet's aggregated multi-tensor kernels, mended to agree with ``rn50/lars.py``."""

from typing import Any, List, Sequence

import mxnet as mx

from rn50 import lars, rules
from rn50.config import Hyperparameters


class Lars:
    """Updates all parameters of a network, float32 all, in one call.

    ``mx.optimizer.LARS`` 1.9.1 is used with two mends. It finds out from ``idx2name`` which parameters to skip, and left to Gluon
    that table is empty, so that batch norm and biases get a trust ratio and weight decay. And its ``momentum_correction`` scales
    the momentum of the first chunk of parameters only. ``gradients`` are sums over samples; ``step`` divides.
    """

    def __init__(self, parameters: Sequence[Any], hyperparameters: Hyperparameters):
        names = {index: parameter.name for index, parameter in enumerate(parameters)}
        self._optimizer = mx.optimizer.LARS(
            momentum=hyperparameters.momentum,
            eta=hyperparameters.lars_eta,
            eps=rules.LARS_EPSILON,
            wd=hyperparameters.weight_decay,
            momentum_correction=False,
            param_idx2name=names,
        )
        self._optimizer.set_wd_mult({name: 0.0 for name in names.values() if lars.is_skipped(name)})
        self._parameters = list(parameters)
        self._states: List[Any] = []
        self._indices = list(range(len(self._parameters)))
        self.reset()

    def reset(self) -> None:
        """Forgets all momentum."""
        self._states = [self._optimizer.create_state(i, self._parameters[i].data()) for i in self._indices]

    @property
    def gradients(self) -> List[Any]:
        """The gradient arrays, last layer first: the order in which backpropagation finishes them."""
        return [parameter.grad() for parameter in reversed(self._parameters)]

    def step(self, learning_rate: float, samples: int) -> None:
        """One update with the gradients of ``samples`` samples summed."""
        self._optimizer.lr = learning_rate
        self._optimizer.rescale_grad = 1.0 / samples
        weights = [parameter.data() for parameter in self._parameters]
        gradients = [parameter.grad() for parameter in self._parameters]
        self._optimizer.update(self._indices, weights, gradients, self._states)
