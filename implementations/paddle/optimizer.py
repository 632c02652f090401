"""SGD and LARS, both by PaddlePaddle's LarsMomentumOptimizer: the equations of
``rn50/benchmark/optimizers.py``, which tests compare them with.

With a weight decay of 0 LarsMomentumOptimizer applies no trust ratios: it is SGD. ``Sgd`` adds the weight
decay to the gradients before each update. ``paddle.optimizer.Momentum`` has another equation: it applies the
learning rate after the momentum, which gives other updates when the learning rate changes.
"""

from collections.abc import Sequence
from typing import Any

from paddle.incubate.optimizer import LarsMomentumOptimizer

from implementations.paddle import paddle
from implementations.paddle.model import NamedParameter
from rn50.benchmark import optimizers, rules
from rn50.settings.fields import Hyperparameters

SMALLEST_DECAY = 1e-30
"""Weight decay in place of 0 for LARS: it is too small to change a weight, but with 0 the kernel would apply
no trust ratio."""


class Sgd:
    """Updates all parameters of a network. The gradients are sums over samples; ``step`` divides them by the
    number of samples.

    ``gradients`` is the result of ``model.flatten_gradients`` for ``parameters``.
    """

    def __init__(
        self, parameters: Sequence[NamedParameter], gradients: paddle.Tensor, hyperparameters: Hyperparameters
    ):
        self._hyperparameters, self._gradients = hyperparameters, gradients
        for name, tensor in parameters:
            tensor.name = name  # the optimizer identifies parameters without weight decay by name
        self._tensors = [parameter.tensor for parameter in parameters]
        self._decayed = [tensor for name, tensor in parameters if optimizers.has_weight_decay(name)]
        self._optimizer = LarsMomentumOptimizer(
            learning_rate=0.0,
            momentum=self._hyperparameters.momentum,
            parameter_list=self._tensors,
            epsilon=rules.LARS_EPSILON,
            **self._decay_arguments(),
        )

    def momentum(self) -> dict[str, paddle.Tensor]:
        """Return the momentum of every parameter, by the name of the parameter; empty before the first
        step."""
        # Not from ``state_dict()``, which has other names for every object.
        return dict(self._optimizer._accumulators["velocity"])

    def _decay_arguments(self) -> dict[str, Any]:
        """Return the arguments of LarsMomentumOptimizer for weight decay and trust ratios."""
        return {"lars_weight_decay": 0.0}

    @paddle.no_grad()
    def step(self, learning_rate: float, samples: int) -> None:
        """Make one update with gradients that are sums over ``samples`` samples. The update overwrites the
        gradients."""
        self._gradients.scale_(1 / samples)
        self._add_decay()
        self._optimizer.set_lr(learning_rate)
        self._optimizer.step()

    def _add_decay(self) -> None:
        """Add the weight decay to the gradients."""
        if self._hyperparameters.weight_decay:
            for tensor in self._decayed:
                tensor.grad.add_(tensor * self._hyperparameters.weight_decay)


class Lars(Sgd):
    """SGD with one learning rate for each weight: the schedule's, times the trust ratio of the weight.

    Biases and the parameters of batch norm, which have no weight decay, have no trust ratio either.
    """

    def _decay_arguments(self) -> dict[str, Any]:
        names: list[str] = [tensor.name for tensor in self._tensors]
        excluded = [name for name in names if not optimizers.has_weight_decay(name)]
        return {
            "lars_coeff": self._hyperparameters.lars_eta,
            "exclude_from_weight_decay": excluded,
            "lars_weight_decay": max(self._hyperparameters.weight_decay, SMALLEST_DECAY),
        }

    def _add_decay(self) -> None:
        """Do nothing: LarsMomentumOptimizer adds the weight decay itself."""


OPTIMIZERS = {"lars": Lars, "sgd": Sgd}
"""Value of the variable OPTIMIZER -> class."""
