"""The models of Gluon's zoo in place of our ResNet-50, for ``rn50 bench throughput --models``, which times
their training step. No run trains with them."""

import inspect
from typing import Any

import mxnet as mx
from mxnet.contrib import amp
from mxnet.gluon.model_zoo import vision

from implementations.mxnet.engine import MxnetEngine
from rn50.settings.config import Config


def models() -> dict[str, int]:
    """Return a dictionary: name of a model -> side of its input in pixels, from the zoo's documentation."""
    functions = dict(inspect.getmembers(vision, inspect.isfunction))
    # A function get_... builds any model of a kind; each of the others builds one model.
    builders = (name for name in functions if not name.startswith("get_"))
    return {name: 299 if name == "inception_v3" else 224 for name in builders}


def network(model: str, classes: int, size: int, precision: str) -> Any:
    """Return a model of the zoo, which computes logits (batch, classes) from images (batch, 3, ``size``,
    ``size``). The shapes of its parameters are known, but the parameters have no values yet.

    In a precision below float32 MXNet's automatic mixed precision (AMP) inserts casts. Weights, gradients and
    update stay float32. AMP stays on in the whole process.
    """
    if precision != "float32":
        amp.init(target_dtype=precision)
    zoo_model = getattr(vision, model)(classes=classes)
    # Infer shapes without a forward pass, which could leave weights in a memory layout of oneDNN's own.
    zoo_model.infer_shape(mx.nd.zeros((1, 3, size, size)))
    return zoo_model


class ZooEngine(MxnetEngine):
    """The engine of MXNet with one of ``models`` in place of our network."""

    def __init__(self, config: Config, communicator: Any, model: str):
        super().__init__(config, communicator)
        self._model = model
        self.batch_format = self.batch_format._replace(layout="CHW")  # no model is channels-last

    def _network(self, precision: str) -> Any:
        data = self._config.data
        model = network(self._model, data.classes, data.image_size, precision)
        model.initialize(mx.init.MSRAPrelu(slope=0), self.context)
        return model


create = ZooEngine
"""Function that ``Rank`` calls for an engine with a model of the zoo."""
