"""Fake quantisation to int8 in NumPy: weights and inputs of a layer are rounded as in an int8 model, but stay
float32. The tests compare the implementations of QUANTIZATION=int8 with it.

Quantisation-aware training computes forward passes with the rounded values, and gradients as if nothing were
rounded (Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference", arXiv:1712.05877). The range of a tensor is taken from the tensor itself, so training keeps no
extra state. All convolutions and the classifier are quantised.

Weights are rounded before batch norms are folded into the convolutions. This makes no difference: a gamma
multiplies all weights of an output channel, and each output channel has a scale of its own.
"""

import numpy as np

NAME = "int8"
"""The value of QUANTIZATION that turns it on."""
WEIGHT_LEVELS, INPUT_LEVELS = 127, 255
"""Largest magnitude of a quantised weight, which is signed, and of a quantised input, which is unsigned."""
SMALLEST = 1e-12
"""Smallest range: a range of 0 would make the scale 0, by which values are divided."""


def rounded_weight(weight: np.ndarray) -> np.ndarray:
    """Return a weight of shape (outputs, ...), rounded to multiples of a scale for each output."""
    other_axes = tuple(range(1, weight.ndim))
    scale = np.maximum(np.abs(weight).max(axis=other_axes, keepdims=True), SMALLEST) / WEIGHT_LEVELS
    return np.rint(weight / scale) * scale


def rounded_input(x: np.ndarray) -> np.ndarray:
    """Return the input of a layer, rounded with one scale for all of it. The zero point is a whole number of
    levels, so that 0 stays 0."""
    low, high = min(x.min(), 0.0), max(x.max(), 0.0)
    scale = max(high - low, SMALLEST) / INPUT_LEVELS
    zero_point = np.rint(-low / scale)
    return (np.clip(np.rint(x / scale) + zero_point, 0, INPUT_LEVELS) - zero_point) * scale
