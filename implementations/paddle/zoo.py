"""paddle.vision's models, used only to time their training step (``rn50 bench throughput --models``)."""

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
    """Return name -> side of the input in pixels, from the documentation of paddle.vision."""
    builders = (name for name, member in vars(vision).items() if inspect.isfunction(member))
    return {name: 299 if name == "inception_v3" else 224 for name in builders}


class ZooNetwork(nn.Layer):
    """Logits of shape (batch, ``classes``) in float32 from images (batch, 3, S, S), by a model of
    paddle.vision."""

    def __init__(self, model: str, classes: int, precision: str):
        super().__init__()
        refuse_silent_float32(precision)
        self._model, self._classes, self._precision = model, classes, precision
        self.network = self._drawn()
        for path, layer in self.network.named_sublayers():
            # model.trainable finds parameters by these names, and the optimizer those without weight decay.
            named = layer.named_parameters(include_sublayers=False)
            endings = {
                kind: "" if value.ndim > 1 else "_bias" for kind, value in named if not value.stop_gradient
            }
            if endings:
                layer.names = {kind: f"{path}.{kind}{ending}" for kind, ending in endings.items()}

    def _drawn(self) -> Any:
        return getattr(vision, self._model)(num_classes=self._classes)

    def initialize(self, seed: int) -> None:
        """Draw the values of the layers with PaddlePaddle's defaults, the same on every rank."""
        paddle.seed(seed)
        self.network.set_state_dict(self._drawn().state_dict())  # a layer draws them only when it is built

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        if self._precision == "float32":
            return self._logits(x)
        with paddle.amp.auto_cast(level="O1", dtype=self._precision):
            return self._logits(x).astype("float32")

    def _logits(self, x: paddle.Tensor) -> paddle.Tensor:
        logits = self.network(x)
        # Of GoogLeNet's, the others are those of its auxiliary heads.
        return logits[0] if isinstance(logits, (list, tuple)) else logits


def refuse_silent_float32(precision: str) -> None:
    """Raise UserError if auto_cast computes in float32 here in place of ``precision``, after no more than a
    warning."""
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
    """An engine of one of ``models`` in place of ours."""

    def __init__(self, config: Config, communicator: Any, model: str):
        super().__init__(config, communicator)
        self._model = model
        self.batch_format = self.batch_format._replace(layout="CHW")  # no model is channels-last

    def _network(self, precision: str) -> ZooNetwork:
        return ZooNetwork(self._model, self._config.data.classes, precision)


create = ZooEngine
