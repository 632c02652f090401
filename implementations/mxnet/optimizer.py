"""LARS on MXNet's aggregated multi-tensor kernels, mended to agree with ``rn50/lars.py``."""

from typing import Any, List, Sequence

import mxnet as mx

from rn50 import lars, rules
from rn50.config import Hyperparameters


class Lars:
    """Updates all parameters of a network in one call per data type.

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
            multi_precision=True,
            param_idx2name=names,
        )
        self._optimizer.set_wd_mult({name: 0.0 for name in names.values() if lars.is_skipped(name)})
        self._parameters = list(parameters)
        self._states: List[Any] = []
        # The multi-tensor kernels take arrays of one type at a time.
        kinds = sorted({str(parameter.dtype) for parameter in parameters})
        self._groups = [[i for i, p in enumerate(parameters) if str(p.dtype) == kind] for kind in kinds]
        self.reset()

    def reset(self) -> None:
        """Forgets all momentum and takes the float32 master copies anew from the weights."""
        self._states = [
            self._optimizer.create_state_multi_precision(index, parameter.data()) for index, parameter in enumerate(self._parameters)
        ]

    @property
    def gradients(self) -> List[Any]:
        """The gradient arrays, last layer first: the order in which backpropagation finishes them."""
        return [parameter.grad() for parameter in reversed(self._parameters)]

    def step(self, learning_rate: float, samples: int) -> None:
        """One update with the gradients of ``samples`` samples summed."""
        self._optimizer.lr = learning_rate
        self._optimizer.rescale_grad = 1.0 / samples
        for group in self._groups:
            self._optimizer.update_multi_precision(
                group,
                [self._parameters[i].data() for i in group],
                [self._parameters[i].grad() for i in group],
                [self._states[i] for i in group],
            )
