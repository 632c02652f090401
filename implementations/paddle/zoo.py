"""The models of paddle.vision in place of our ResNet-50, for ``rn50 bench throughput --models``, which times
their training step. No run trains with them."""

import inspect
import warnings
from typing import Any

from paddle import nn
from paddle.vision import models as vision

from implementations.paddle import paddle
from implementations.paddle.engine import PaddleEngine
from rn50.errors import UserError
from rn50.settings.config import Config


def models() -> dict[str, int]:
    """Return name of a model -> side of its input in pixels. Every function in ``paddle.vision.models`` makes
    the model of its name; the sides are from PaddlePaddle's documentation."""
    builders = (name for name, member in vars(vision).items() if inspect.isfunction(member))
    return {name: 299 if name == "inception_v3" else 224 for name in builders}


class ZooNetwork(nn.Layer):
    """Computes logits (batch, ``classes``) in float32 from images (batch, 3, S, S), by a model of
    paddle.vision."""

    def __init__(self, model: str, classes: int, precision: str):
        super().__init__()
        refuse_silent_float32(precision)
        self._model, self._classes, self._precision = model, classes, precision
        self.network = self._new_network()
        for path, layer in self.network.named_sublayers():
            # ``model.trainable`` finds the trainable parameters of a layer by its attribute ``names``:
            # attribute of the parameter -> name. The optimizer applies no weight decay to names that end in
            # "_bias", so parameters of one dimension get such names.
            parameters = layer.named_parameters(include_sublayers=False)
            trainable = [(name, value) for name, value in parameters if not value.stop_gradient]
            names = {name: f"{path}.{name}{'' if value.ndim > 1 else '_bias'}" for name, value in trainable}
            if names:
                layer.names = names

    def _new_network(self) -> Any:
        """Return the model with new initial values, which its layers draw as they are built."""
        return getattr(vision, self._model)(num_classes=self._classes)

    def initialize(self, seed: int) -> None:
        """Draw the initial values of all layers, by PaddlePaddle's defaults. A seed gives equal values on
        every rank."""
        paddle.seed(seed)
        # A layer draws values only when it is built, so copy the values of a new network.
        self.network.set_state_dict(self._new_network().state_dict())

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        if self._precision == "float32":
            return self._logits(x)
        with paddle.amp.auto_cast(level="O1", dtype=self._precision):
            return self._logits(x).astype("float32")

    def _logits(self, x: paddle.Tensor) -> paddle.Tensor:
        """Return the logits of the model. GoogLeNet also returns those of its auxiliary heads, as a list."""
        logits = self.network(x)
        return logits[0] if isinstance(logits, (list, tuple)) else logits


def refuse_silent_float32(precision: str) -> None:
    """Raise UserError if auto_cast cannot compute in ``precision`` on this device. PaddlePaddle itself would
    only warn and compute in float32."""
    if precision == "float32":
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with paddle.amp.auto_cast(level="O1", dtype=precision):
            product = paddle.matmul(paddle.ones([8, 8]), paddle.ones([8, 8]))
    if product.dtype != getattr(paddle, precision):
        problem = "auto_cast of PaddlePaddle computes in float32 on this device"
        raise UserError(f"PRECISION={precision}", problem, "use float32")


class ZooEngine(PaddleEngine):
    """The engine of PaddlePaddle with one of ``models`` in place of our network."""

    def __init__(self, config: Config, communicator: Any, model: str):
        super().__init__(config, communicator)
        self._model = model
        self.batch_format = self.batch_format._replace(layout="CHW")  # no model is channels-last

    def _network(self, precision: str) -> ZooNetwork:
        return ZooNetwork(self._model, self._config.data.classes, precision)


create = ZooEngine
"""Function that makes the engine: for a model of the zoo ``rn50/run/loop.py`` calls this one, not that of
``engine.py``."""
