"""SGD with momentum in NumPy: the oracle that every implementation's optimizer is tested against.

In the form of the MLPerf reference, which is that of ``mx.optimizer.SGD`` too: the learning rate stands inside the momentum
buffer, and batch-norm parameters and biases have no weight decay. What published logs say of a result does not include the last
point, so here it is the same as under LARS: the two optimizers then differ in the trust ratio alone.
"""

from typing import Tuple

import numpy as np


def is_skipped(name: str) -> bool:
    """Whether a parameter has no weight decay, and no trust ratio under LARS: batch-norm gamma and beta, and biases."""
    return name.endswith(("gamma", "beta", "bias"))


def update(
    name: str,
    weight: np.ndarray,
    gradient: np.ndarray,
    velocity: np.ndarray,
    learning_rate: float,
    momentum: float,
    weight_decay: float,
) -> Tuple[np.ndarray, np.ndarray]:
    """One step of one parameter: ``v <- momentum * v + lr * (g + wd * w)`` and ``w <- w - v``.

    All arrays have the parameter's shape and are taken as float64; returns the new (weight, velocity).
    """
    weight, gradient, velocity = (np.asarray(array, dtype=np.float64) for array in (weight, gradient, velocity))
    decay = 0.0 if is_skipped(name) else weight_decay
    velocity = momentum * velocity + learning_rate * (gradient + decay * weight)
    return weight - velocity, velocity
