"""SGD and LARS on MXNet's multi-tensor kernels, in agreement with ``rn50/benchmark/optimizers.py``.

The kernels are those of ``mx.optimizer.LARS``, without its Python code. Under Gluon that code gives batch
norm and biases a trust ratio and weight decay, scales the momentum of only some parameters when the learning
rate changes, and takes the parameters in the order of the network, which on a CPU is several times slower
(docs/measurements.md).
"""

from collections.abc import Sequence
from typing import Any

import mxnet as mx

from rn50.benchmark import optimizers, rules
from rn50.settings.fields import Hyperparameters


class SquaredNorms:
    """Computes the squared Euclidean norm of each array; a call returns an array of shape (len(arrays),)."""

    def __init__(self, arrays: Sequence[Any]):
        self._arrays = list(arrays)
        self._vectors = [array.reshape(-1) for array in arrays]
        self._norms = mx.nd.zeros(len(arrays), arrays[0].context)
        self._parts = [self._norms[i : i + 1] for i in range(len(arrays))]

    def __call__(self) -> Any:
        if self._norms.context.device_type == "gpu":
            return mx.nd.multi_sum_sq(*self._arrays, num_arrays=len(self._arrays), out=self._norms)
        # On a CPU the kernel above runs in one thread; the dot product of BLAS is four times as fast.
        for vector, part in zip(self._vectors, self._parts, strict=False):
            mx.nd.dot(vector, vector, out=part)
        return self._norms


class Sgd:
    """Updates all parameters of a network, which are float32. The gradients are sums over samples; ``step``
    divides them."""

    def __init__(self, parameters: Sequence[Any], hyperparameters: Hyperparameters):
        self._hyperparameters = hyperparameters
        # Sorted by size, with the ones without weight decay last: a kernel takes the tensors of one launch
        # side by side, so they should be of similar size.
        ordered = sorted(parameters, key=lambda p: (not optimizers.has_weight_decay(p.name), p.data().size))
        self._weights = [parameter.data() for parameter in ordered]
        self._gradients = [parameter.grad() for parameter in ordered]
        self._velocities = [mx.nd.zeros_like(weight) for weight in self._weights]
        self._names = [parameter.name for parameter in ordered]
        self._decayed = sum(optimizers.has_weight_decay(parameter.name) for parameter in ordered)
        self._context = self._weights[0].context
        self._weight_decay = mx.nd.zeros(len(ordered), self._context)
        self._weight_decay[: self._decayed] = hyperparameters.weight_decay
        # The number of tensors in one launch, as MXNet reads it from MXNET_OPTIMIZER_AGGREGATION_SIZE.
        self._chunk = mx.optimizer.SGD().aggregate_num

    def momentum(self) -> dict[str, Any]:
        """Return the momentum by the names of the parameters."""
        return dict(zip(self._names, self._velocities, strict=False))

    def step(self, learning_rate: float, samples: int) -> None:
        """Make one update with gradients that are the sum over ``samples`` samples."""
        rates = self._rates(learning_rate, samples)
        for start in range(0, len(self._weights), self._chunk):
            chunk = slice(start, start + self._chunk)
            weights = self._weights[chunk]
            tensors = [
                array
                for triple in zip(weights, self._gradients[chunk], self._velocities[chunk], strict=False)
                for array in triple
            ]
            mx.nd.preloaded_multi_sgd_mom_update(
                *tensors,
                rates[chunk],
                self._weight_decay[chunk],
                num_weights=len(weights),
                momentum=self._hyperparameters.momentum,
                rescale_grad=1 / samples,
                out=weights,
            )

    def _rates(self, learning_rate: float, samples: int) -> Any:
        """Return the learning rate of every parameter, an array of shape (parameters,)."""
        return mx.nd.full(len(self._weights), learning_rate, self._context)


class Lars(Sgd):
    """SGD in which the trust ratio of each weight scales its learning rate."""

    def __init__(self, parameters: Sequence[Any], hyperparameters: Hyperparameters):
        super().__init__(parameters, hyperparameters)
        self._weight_norms = SquaredNorms(self._weights[: self._decayed])
        self._gradient_norms = SquaredNorms(self._gradients[: self._decayed])

    def _rates(self, learning_rate: float, samples: int) -> Any:
        rates, scaled = super()._rates(learning_rate, samples), self._decayed
        mx.nd.multi_lars(
            rates[:scaled],
            self._weight_norms(),
            self._gradient_norms(),
            self._weight_decay[:scaled],
            eta=self._hyperparameters.lars_eta,
            eps=rules.LARS_EPSILON,
            rescale_grad=1 / samples,
            out=rates[:scaled],
        )
        return rates


OPTIMIZERS = {"lars": Lars, "sgd": Sgd}
"""Value of OPTIMIZER -> class."""
