"""SGD and LARS in agreement with ``rn50/benchmark/optimizers.py``: on a GPU by MXNet's multi-tensor kernels,
on a CPU by NumPy.

The kernels are those of ``mx.optimizer.LARS``, without its Python code. Under Gluon that code gives batch
norm and biases a trust ratio and weight decay, and scales the momentum of only some parameters when the
learning rate changes.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import mxnet as mx
import numpy as np

from rn50.benchmark import optimizers, rules
from rn50.settings.fields import Hyperparameters


class SquaredNorms:
    """Computes the squared Euclidean norm of each array; a call returns an array of shape (len(arrays),)."""

    def __init__(self, arrays: Sequence[Any]):
        self._arrays = list(arrays)
        self._norms = mx.nd.zeros(len(arrays), arrays[0].context)

    def __call__(self) -> Any:
        return mx.nd.multi_sum_sq(*self._arrays, num_arrays=len(self._arrays), out=self._norms)


class Memory:
    """The values of arrays of MXNet on a CPU, as NumPy arrays of one dimension that share their memory."""

    def __init__(self, arrays: Sequence[Any]):
        self._arrays = [(array, array.size) for array in arrays]
        self._views: dict[tuple[int, int], np.ndarray] = {}

    def __call__(self) -> list[np.ndarray]:
        """Return the values. Nothing that MXNet has queued may be using them.

        An inference pass leaves the weights of convolutions in a layout of oneDNN's own. Asking for the
        address brings them back to MXNet's, which may lie elsewhere.
        """
        pointer, views = ctypes.c_void_p(), []
        for array, size in self._arrays:
            mx.base.check_call(mx.base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(pointer)))
            address = pointer.value or 0
            if (address, size) not in self._views:
                values = (ctypes.c_float * size).from_address(address)
                self._views[address, size] = np.frombuffer(values, np.float32)
            views.append(self._views[address, size])
        return views


class OnCpu:
    """SGD, or LARS, of float32 parameters on a CPU. The gradients are sums over samples; ``step`` divides
    them.

    One thread of NumPy takes a third of the time of MXNet's kernels, which are not vectorised, and of the
    Python code that launches them (docs/measurements.md).
    """

    def __init__(self, parameters: Sequence[Any], hyperparameters: Hyperparameters):
        self._h = hyperparameters
        self._names = [parameter.name for parameter in parameters]
        self._velocities = [mx.nd.zeros_like(parameter.data()) for parameter in parameters]
        self._weights = Memory([parameter.data() for parameter in parameters])
        self._others = Memory([parameter.grad() for parameter in parameters]), Memory(self._velocities)
        self._scratch = np.empty(max(velocity.size for velocity in self._velocities), np.float32)

    def momentum(self) -> dict[str, Any]:
        """Return the momentum by the names of the parameters."""
        return dict(zip(self._names, self._velocities, strict=True))

    def step(self, learning_rate: float, samples: int) -> None:
        """Make one update with gradients that are the sum over ``samples`` samples."""
        mx.nd.waitall()
        gradients, velocities = (memory() for memory in self._others)
        for name, w, g, v in zip(self._names, self._weights(), gradients, velocities, strict=True):
            decay = self._h.weight_decay if optimizers.has_weight_decay(name) else 0.0
            rate, scratch = learning_rate, self._scratch[: len(w)]
            if decay and self._h.optimizer == "lars":
                rate *= self._trust_ratio(w, g, samples)
            v *= self._h.momentum
            v -= np.multiply(g, np.float32(rate / samples), out=scratch)
            if decay:
                v -= np.multiply(w, np.float32(rate * decay), out=scratch)
            w += v

    def _trust_ratio(self, weight: np.ndarray, gradient: np.ndarray, samples: int) -> float:
        weight_norm, gradient_norm = (float(np.dot(array, array)) ** 0.5 for array in (weight, gradient))
        if weight_norm == 0 or gradient_norm == 0:
            return 1.0
        decayed = gradient_norm / samples + self._h.weight_decay * weight_norm + rules.LARS_EPSILON
        return self._h.lars_eta * weight_norm / decayed


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


KERNELS = {"lars": Lars, "sgd": Sgd}
"""Value of OPTIMIZER -> class on a GPU."""


def create(parameters: Sequence[Any], hyperparameters: Hyperparameters) -> OnCpu | Sgd:
    """Return the optimizer of ``hyperparameters`` for the device that the parameters are on."""
    on_cpu = parameters[0].data().context.device_type == "cpu"
    return (OnCpu if on_cpu else KERNELS[hyperparameters.optimizer])(parameters, hyperparameters)
