"""LARS and SGD with momentum in NumPy: the reference that every implementation's optimizer is tested against.

LARS: You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks" (arXiv:1708.03888), in the
form of the MLPerf reference. SGD: the form of the MLPerf reference, which ``mx.optimizer.SGD`` has too. In
both the learning rate is inside the momentum buffer, and biases and batch-norm parameters have no weight
decay. Published SGD logs do not record the latter; SGD follows LARS here, so that only the trust ratio
differs.
"""

import numpy as np


def has_weight_decay(name: str) -> bool:
    """Return whether a parameter has weight decay, and under LARS a trust ratio: all but batch-norm gamma,
    beta and biases."""
    return not name.endswith(("gamma", "beta", "bias"))


def trust_ratio(weight: np.ndarray, gradient: np.ndarray, eta: float, weight_decay: float) -> float:
    """Return ``eta * ||w|| / (||g|| + weight_decay * ||w|| + epsilon)`` with the benchmark's epsilon of 0, or
    1 if either norm is 0. Any shape, float64."""
    weight_norm, gradient_norm = (float(np.linalg.norm(array)) for array in (weight, gradient))
    if weight_norm == 0 or gradient_norm == 0:
        return 1.0
    return eta * weight_norm / (gradient_norm + weight_decay * weight_norm)


def update(
    name: str,
    weight: np.ndarray,
    gradient: np.ndarray,
    velocity: np.ndarray,
    learning_rate: float,
    momentum: float,
    weight_decay: float,
    lars_eta: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return (weight, velocity) after one step: ``v <- momentum * v + lr * r * (g + wd * w)``, then ``w <- w
    - v``.

    ``r`` is the trust ratio of LARS; 1 without weight decay, and under SGD, where ``lars_eta`` is None. All
    arrays have the parameter's shape and are taken as float64.
    """
    weight, gradient, velocity = (np.asarray(array, np.float64) for array in (weight, gradient, velocity))
    decay, ratio = 0.0, 1.0
    if has_weight_decay(name):
        decay = weight_decay
        if lars_eta is not None:
            ratio = trust_ratio(weight, gradient, lars_eta, decay)
    velocity = momentum * velocity + learning_rate * ratio * (gradient + decay * weight)
    return weight - velocity, velocity
