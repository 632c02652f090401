"""SGD and LARS by PaddlePaddle's LarsMomentumOptimizer, in agreement with ``rn50/benchmark/optimizers.py``.

SGD is its LARS without weight decay, and so without trust ratios; the decay is added to the gradients
beforehand. ``paddle.optimizer.Momentum`` would not do: its learning rate is outside the momentum, which
differs where the rate changes.
"""

from collections.abc import Sequence
from typing import Any

from paddle.incubate.optimizer import LarsMomentumOptimizer

from implementations.paddle import paddle
from implementations.paddle.model import Named
from rn50.benchmark import optimizers, rules
from rn50.settings.fields import Hyperparameters

SMALLEST_DECAY = 1e-30
"""Weight decay that changes no float32 number. With 0 the kernel drops the trust ratio too."""


class Sgd:
    """Updates all parameters of a network. The gradients are sums over samples; ``step`` divides them.

    ``gradients`` is the result of ``model.flatten_gradients`` for ``parameters``.
    """

    def __init__(
        self, parameters: Sequence[Named], gradients: paddle.Tensor, hyperparameters: Hyperparameters
    ):
        self._hyperparameters, self._gradients = hyperparameters, gradients
        for name, tensor in parameters:
            tensor.name = name  # by which the optimizer knows those without weight decay
        self._tensors = [parameter.tensor for parameter in parameters]
        self._decayed = [
            parameter.tensor for parameter in parameters if optimizers.has_weight_decay(parameter.name)
        ]
        self._optimizer = LarsMomentumOptimizer(
            learning_rate=0.0,
            momentum=self._hyperparameters.momentum,
            parameter_list=self._tensors,
            epsilon=rules.LARS_EPSILON,
            **self._decay(),
        )

    def momentum(self) -> dict[str, paddle.Tensor]:
        """Return the momentum by the names of the parameters; empty before the first step."""
        return dict(
            self._optimizer._accumulators["velocity"]
        )  # the names of its state_dict() change from object to object

    def _decay(self) -> dict[str, Any]:
        """Return the optimizer's arguments on weight decay and trust ratio."""
        return {"lars_weight_decay": 0.0}

    @paddle.no_grad()
    def step(self, learning_rate: float, samples: int) -> None:
        """Make one update with gradients that are the sum over ``samples`` samples. It overwrites the
        gradients."""
        self._gradients.scale_(1 / samples)
        self._add_decay()
        self._optimizer.set_lr(learning_rate)
        self._optimizer.step()

    def _add_decay(self) -> None:
        """Add to the gradients the weight decay that the optimizer does not."""
        if self._hyperparameters.weight_decay:
            for tensor in self._decayed:
                tensor.grad.add_(tensor * self._hyperparameters.weight_decay)


class Lars(Sgd):
    """SGD in which the trust ratio of each weight scales its learning rate."""

    def _decay(self) -> dict[str, Any]:
        excluded: list[str] = [
            tensor.name for tensor in self._tensors if not optimizers.has_weight_decay(tensor.name)
        ]
        return {
            "lars_coeff": self._hyperparameters.lars_eta,
            "exclude_from_weight_decay": excluded,
            "lars_weight_decay": max(self._hyperparameters.weight_decay, SMALLEST_DECAY),
        }

    def _add_decay(self) -> None:
        """Do nothing: the optimizer adds all weight decay."""


OPTIMIZERS = {"lars": Lars, "sgd": Sgd}
"""Value of OPTIMIZER -> class."""
