"""Gluon's model zoo, used only to time the training step of its models (``rn50 bench throughput
--models``)."""

import inspect
from typing import Any

import mxnet as mx
from mxnet.contrib import amp
from mxnet.gluon.model_zoo import vision


def models() -> dict[str, int]:
    """Return name -> side of the input in pixels, from the zoo's documentation."""
    functions = dict(inspect.getmembers(vision, inspect.isfunction))
    builders = (name for name in functions if not name.startswith("get_"))
    return {name: 299 if name == "inception_v3" else 224 for name in builders}


def network(model: str, classes: int, size: int, precision: str) -> Any:
    """Return a model of the zoo: logits of shape (batch, classes) from images (batch, 3, ``size``, ``size``).

    Its shapes are known, but it has no values yet. For a precision below float32, MXNet's AMP casts: in the
    whole process, and with weights, gradients and update in float32.
    """
    if precision != "float32":
        amp.init(target_dtype=precision)
    made = getattr(vision, model)(classes=classes)
    # Infer shapes without a forward pass, which may leave weights in a layout of oneDNN's.
    made.infer_shape(mx.nd.zeros((1, 3, size, size)))
    return made
