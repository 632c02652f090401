"""LARS in NumPy: the oracle that every implementation's optimizer is tested against.

Source: You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks" (arXiv:1708.03888), in the form of the MLPerf
reference: the learning rate stands inside the momentum buffer, and batch-norm parameters and biases are skipped.
"""

from typing import Tuple

import numpy as np

from rn50 import sgd


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
    ratio = 1.0 if sgd.is_skipped(name) else trust_ratio(weight, gradient, eta, weight_decay)
    return sgd.update(name, weight, gradient, velocity, learning_rate * ratio, momentum, weight_decay)
