"""Gluon's model zoo, used only to time the training step of its models (``rn50 bench throughput
--models``)."""

import inspect
from typing import Any

import mxnet as mx
from mxnet.contrib import amp
from mxnet.gluon.model_zoo import vision

from implementations.mxnet.engine import MxnetEngine
from rn50.settings.config import Config


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
    network = getattr(vision, model)(classes=classes)
    # Infer shapes without a forward pass, which may leave weights in a layout of oneDNN's.
    network.infer_shape(mx.nd.zeros((1, 3, size, size)))
    return network


class ZooEngine(MxnetEngine):
    """An engine of one of ``models`` in place of ours."""

    def __init__(self, config: Config, communicator: Any, model: str):
        super().__init__(config, communicator)
        self._model = model
        self.batch_format = self.batch_format._replace(layout="CHW")  # no model is channels-last

    def _network(self, precision: str) -> Any:
        initialised = network(self._model, self._config.data.classes, self._config.data.image_size, precision)
        initialised.initialize(mx.init.MSRAPrelu(slope=0), self.context)
        return initialised


create = ZooEngine
