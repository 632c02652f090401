"""SGD and LARS in MXNet. Tests compare them with the equations of ``rn50/benchmark/optimizers.py``.

The engine calls ``create``. On a CPU ``OnCpu`` computes both optimizers by NumPy. On a GPU ``Sgd`` and
``Lars`` start the multi-tensor kernels of ``mx.optimizer.LARS``, but not by its Python code: under Gluon that
gives batch norm and biases a trust ratio and weight decay, and when the learning rate changes it scales the
momentum of only some parameters.
"""

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any

import mxnet as mx
import numpy as np

from rn50.benchmark import optimizers, rules
from rn50.settings.fields import Hyperparameters


class SquaredNorms:
    """The squared Euclidean norm of each of several arrays on a GPU. A call computes the norms and returns
    them as an array of shape (len(arrays),)."""

    def __init__(self, arrays: Sequence[Any]):
        self._arrays = list(arrays)
        self._norms = mx.nd.zeros(len(arrays), arrays[0].context)

    def __call__(self) -> Any:
        return mx.nd.multi_sum_sq(*self._arrays, num_arrays=len(self._arrays), out=self._norms)


class Memory:
    """The memory of float32 arrays of MXNet on a CPU, as NumPy arrays of one dimension, which a call
    returns."""

    def __init__(self, arrays: Sequence[Any]):
        self._arrays = [(array, array.size) for array in arrays]
        self._views: dict[tuple[int, int], np.ndarray] = {}

    def __call__(self) -> list[np.ndarray]:
        """Return a NumPy array for each array of MXNet, on the same memory. No operation that MXNet has
        queued may be using these arrays.

        An evaluation leaves the weights of convolutions in a memory layout of oneDNN's own. When MXNet is
        asked for the address of an array, it converts the array to the usual layout, which may move it. So
        the address is asked for in every call, and the NumPy arrays are kept by address.
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
    """SGD or LARS for float32 parameters on a CPU. The gradients are sums over samples; ``step`` divides them
    by the number of samples.

    On a CPU MXNet's kernels are not vectorised: with the Python code that starts them, they take three times
    as long as one thread of NumPy (docs/measurements.md).
    """

    def __init__(self, parameters: Sequence[Any], hyperparameters: Hyperparameters):
        self._h = hyperparameters
        self._names = [parameter.name for parameter in parameters]
        self._velocities = [mx.nd.zeros_like(parameter.data()) for parameter in parameters]
        self._weight_memory = Memory([parameter.data() for parameter in parameters])
        self._gradient_memory = Memory([parameter.grad() for parameter in parameters])
        self._velocity_memory = Memory(self._velocities)
        self._scratch = np.empty(max(velocity.size for velocity in self._velocities), np.float32)

    def momentum(self) -> dict[str, Any]:
        """Return the momentum of every parameter, by the name of the parameter."""
        return dict(zip(self._names, self._velocities, strict=True))

    def step(self, learning_rate: float, samples: int) -> None:
        """Make one update with gradients that are sums over ``samples`` samples."""
        mx.nd.waitall()  # a queued operation might use the memory that NumPy writes
        memory = self._weight_memory(), self._gradient_memory(), self._velocity_memory()
        for name, w, g, v in zip(self._names, *memory, strict=True):
            decay = self._h.weight_decay if optimizers.has_weight_decay(name) else 0.0
            rate = learning_rate
            scratch = self._scratch[: len(w)]  # for intermediate results, so that nothing is allocated
            # Biases and the parameters of batch norm, which have no weight decay, have no trust ratio either.
            if decay and self._h.optimizer == "lars":
                rate *= self._trust_ratio(w, g, samples)
            v *= self._h.momentum
            v -= np.multiply(g, np.float32(rate / samples), out=scratch)
            if decay:
                v -= np.multiply(w, np.float32(rate * decay), out=scratch)
            w += v

    def _trust_ratio(self, weight: np.ndarray, gradient: np.ndarray, samples: int) -> float:
        """Return the trust ratio of a weight, 1 if a norm is 0; ``gradient`` is the sum over ``samples``
        samples."""
        weight_norm, gradient_norm = (float(np.dot(array, array)) ** 0.5 for array in (weight, gradient))
        if weight_norm == 0 or gradient_norm == 0:
            return 1.0
        divisor = gradient_norm / samples + self._h.weight_decay * weight_norm + rules.LARS_EPSILON
        return self._h.lars_eta * weight_norm / divisor


class Sgd:
    """SGD for float32 parameters on a GPU. The gradients are sums over samples; ``step`` divides them by the
    number of samples."""

    def __init__(self, parameters: Sequence[Any], hyperparameters: Hyperparameters):
        self._hyperparameters = hyperparameters
        # Parameters with weight decay come first, because Lars scales them alone. Both kinds are sorted by
        # size: a kernel works on the tensors of one launch at the same time, so their sizes should be alike.
        ordered = sorted(parameters, key=lambda p: (not optimizers.has_weight_decay(p.name), p.data().size))
        self._weights = [parameter.data() for parameter in ordered]
        self._gradients = [parameter.grad() for parameter in ordered]
        self._velocities = [mx.nd.zeros_like(weight) for weight in self._weights]
        self._names = [parameter.name for parameter in ordered]
        self._decayed_count = sum(optimizers.has_weight_decay(name) for name in self._names)
        self._context = self._weights[0].context
        self._weight_decay = mx.nd.zeros(len(ordered), self._context)
        self._weight_decay[: self._decayed_count] = hyperparameters.weight_decay
        # Most tensors in one launch; MXNet reads the number from MXNET_OPTIMIZER_AGGREGATION_SIZE.
        self._chunk_size = mx.optimizer.SGD().aggregate_num

    def momentum(self) -> dict[str, Any]:
        """Return the momentum of every parameter, by the name of the parameter."""
        return dict(zip(self._names, self._velocities, strict=False))

    def step(self, learning_rate: float, samples: int) -> None:
        """Make one update with gradients that are sums over ``samples`` samples."""
        rates = self._rates(learning_rate, samples)
        for start in range(0, len(self._weights), self._chunk_size):
            chunk = slice(start, start + self._chunk_size)
            weights = self._weights[chunk]
            triples = zip(weights, self._gradients[chunk], self._velocities[chunk], strict=False)
            mx.nd.preloaded_multi_sgd_mom_update(
                *itertools.chain.from_iterable(triples),
                rates[chunk],
                self._weight_decay[chunk],
                num_weights=len(weights),
                momentum=self._hyperparameters.momentum,
                rescale_grad=1 / samples,
                out=weights,
            )

    def _rates(self, learning_rate: float, samples: int) -> Any:
        """Return the learning rate of every parameter, shape (parameters,). Only ``Lars`` uses ``samples``,
        to scale the norms of the gradients."""
        return mx.nd.full(len(self._weights), learning_rate, self._context)


class Lars(Sgd):
    """SGD with one learning rate for each weight: the schedule's, times the trust ratio of the weight.

    Biases and the parameters of batch norm, which have no weight decay, have no trust ratio either.
    """

    def __init__(self, parameters: Sequence[Any], hyperparameters: Hyperparameters):
        super().__init__(parameters, hyperparameters)
        self._weight_norms = SquaredNorms(self._weights[: self._decayed_count])
        self._gradient_norms = SquaredNorms(self._gradients[: self._decayed_count])

    def _rates(self, learning_rate: float, samples: int) -> Any:
        rates = super()._rates(learning_rate, samples)
        scaled_rates = rates[: self._decayed_count]  # a view: what the kernel writes to it, ``rates`` has
        mx.nd.multi_lars(
            scaled_rates,
            self._weight_norms(),
            self._gradient_norms(),
            self._weight_decay[: self._decayed_count],
            eta=self._hyperparameters.lars_eta,
            eps=rules.LARS_EPSILON,
            rescale_grad=1 / samples,
            out=scaled_rates,
        )
        return rates


KERNELS = {"lars": Lars, "sgd": Sgd}
"""Value of the variable OPTIMIZER -> class of the optimizer on a GPU."""


def create(parameters: Sequence[Any], hyperparameters: Hyperparameters) -> OnCpu | Sgd:
    """Return the optimizer that ``hyperparameters`` names, for the device on which the parameters are."""
    if parameters[0].data().context.device_type == "cpu":
        return OnCpu(parameters, hyperparameters)
    return KERNELS[hyperparameters.optimizer](parameters, hyperparameters)
