"""LARS and SGD with momentum in NumPy: the tests compare the optimizer of every implementation with them.

LARS: You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks" (arXiv:1708.03888), in the
form of the MLPerf reference. SGD: the form of the MLPerf reference, which is that of ``mx.optimizer.SGD``.

In both, the velocity includes the learning rate of each step, and biases and batch-norm parameters have no
weight decay. Published SGD logs do not say whether these have weight decay. SGD follows LARS here, so that
the two differ in the trust ratio only.
"""

import numpy as np


def has_weight_decay(name: str) -> bool:
    """Return whether the parameter ``name`` has weight decay and, with LARS, a trust ratio. All parameters
    have them except biases, and gammas and betas of batch norms."""
    return not name.endswith(("gamma", "beta", "bias"))


def trust_ratio(weight: np.ndarray, gradient: np.ndarray, eta: float, weight_decay: float) -> float:
    """Return ``eta * ||w|| / (||g|| + weight_decay * ||w|| + epsilon)``, with the benchmark's epsilon of 0.
    Return 1 if either norm is 0. ``weight`` and ``gradient`` are float64 of one shape."""
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
    relative_rate: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return (weight, velocity) after one step: ``v <- momentum * v + lr * r * (g + wd * w)``, then ``w <- w
    - v``.

    With ``relative_rate``, the learning rate over the highest one, which SGD alone may have, weight decay is
    decoupled from the gradient: ``v <- momentum * v + lr * g``, then ``w <- (1 - relative_rate * wd) * w -
    v`` (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", arXiv:1711.05101, algorithm 1).

    ``r`` is the trust ratio of LARS. It is 1 for a parameter without weight decay, and for SGD, which
    ``lars_eta`` None means. All arrays have the shape of the parameter; the result is float64.
    """
    weight, gradient, velocity = (np.asarray(array, np.float64) for array in (weight, gradient, velocity))
    decay, ratio = 0.0, 1.0
    if has_weight_decay(name):
        decay = weight_decay
        if lars_eta is not None:
            ratio = trust_ratio(weight, gradient, lars_eta, decay)
    if relative_rate is not None:
        weight, decay = (1 - relative_rate * decay) * weight, 0.0
    velocity = momentum * velocity + learning_rate * ratio * (gradient + decay * weight)
    return weight - velocity, velocity
