"""Fake quantisation to int8: a layer's weights and input are rounded as in an int8 model but stay float32.

Quantisation-aware training uses the rounded values in forward passes, and passes gradients as if nothing were
rounded (Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference", arXiv:1712.05877). Ranges are those of the tensor itself, so training keeps no extra state. Every
convolution and the classifier are quantised. A batch-norm gamma scales an output channel, so folding it into
a convolution afterwards does not change the rounding.
"""

import numpy as np

NAME = "int8"
"""Value of QUANTIZATION."""
WEIGHT_LEVELS, INPUT_LEVELS = 127, 255
"""Largest magnitude of a weight, which is signed, and of an input, which is not."""
SMALLEST = 1e-12
"""Smallest range, because a range of 0 cannot be a divisor."""


def rounded_weight(weight: np.ndarray) -> np.ndarray:
    """Return a weight (outputs, ...), rounded with a symmetric scale for each output."""
    others = tuple(range(1, weight.ndim))
    scale = np.maximum(np.abs(weight).max(axis=others, keepdims=True), SMALLEST) / WEIGHT_LEVELS
    return np.rint(weight / scale) * scale


def rounded_input(x: np.ndarray) -> np.ndarray:
    """Return the input of a layer, rounded with one scale and a zero point, so that 0 stays 0."""
    low, high = min(x.min(), 0.0), max(x.max(), 0.0)
    scale = max(high - low, SMALLEST) / INPUT_LEVELS
    zero_point = np.rint(-low / scale)
    return (np.clip(np.rint(x / scale) + zero_point, 0, INPUT_LEVELS) - zero_point) * scale
