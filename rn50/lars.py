"""LARS in NumPy: the oracle that every implementation's optimizer is tested against.

Source: You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks" (arXiv:1708.03888), in the form of the MLPerf
reference: the learning rate stands inside the momentum buffer, and batch-norm parameters and biases are skipped.
"""

from typing import Tuple

import numpy as np


def is_skipped(name: str) -> bool:
    """Whether LARS skips a parameter: batch-norm gamma and beta, and biases, get no trust ratio and no weight decay."""
    return name.endswith(("gamma", "beta", "bias"))


def trust_ratio(weight: np.ndarray, gradient: np.ndarray, eta: float, weight_decay: float, epsilon: float = 0.0) -> float:
    """``eta * ||w|| / (||g|| + weight_decay * ||w|| + epsilon)``, or 1 where either norm is 0. Any shape, float64."""
    weight_norm = float(np.linalg.norm(weight))
    gradient_norm = float(np.linalg.norm(gradient))
    if weight_norm == 0 or gradient_norm == 0:
        return 1.0
    return eta * weight_norm / (gradient_norm + weight_decay * weight_norm + epsilon)


def update(
    name: str,
    weight: np.ndarray,
    gradient: np.ndarray,
    velocity: np.ndarray,
    learning_rate: float,
    eta: float,
    momentum: float,
    weight_decay: float,
) -> Tuple[np.ndarray, np.ndarray]:
    """One step of one parameter: ``v <- momentum * v + lr * r * (g + wd * w)`` and ``w <- w - v``.

    All arrays have the parameter's shape and are taken as float64; returns the new (weight, velocity).
    """
    weight, gradient, velocity = (np.asarray(array, dtype=np.float64) for array in (weight, gradient, velocity))
    if is_skipped(name):
        ratio, weight_decay = 1.0, 0.0
    else:
        ratio = trust_ratio(weight, gradient, eta, weight_decay)
    velocity = momentum * velocity + learning_rate * ratio * (gradient + weight_decay * weight)
    return weight - velocity, velocity
