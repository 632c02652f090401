"""torchvision's models in place of our ResNet-50, for ``rn50 bench throughput --models``, which times their
training step. No run trains with them."""

from typing import Any

import torch
from torch import nn

from implementations.pytorch.engine import PytorchEngine
from implementations.pytorch.model import PRECISIONS
from rn50.errors import UserError
from rn50.settings.config import Config

# aux_logits: the networks have no auxiliary heads; Gluon's Inception-v3 has none either. init_weights:
# torchvision draws no initial values, which takes long, because ``initialize`` replaces them.
PLAIN: dict[str, Any] = {"aux_logits": False, "init_weights": False}
ARGUMENTS = {"googlenet": PLAIN, "inception_v3": PLAIN}
"""Model -> arguments of its builder beyond the number of classes."""


def models() -> dict[str, int]:
    """Return name of a model -> side of its input in pixels: the smallest side at which torchvision evaluates
    its published weights of the model. Raises UserError if torchvision is not installed."""
    zoo = _torchvision()
    weights = {name: zoo.get_model_weights(name) for name in zoo.list_models(module=zoo)}
    return {name: min(entry.transforms().crop_size[0] for entry in weights[name]) for name in weights}


def _torchvision() -> Any:
    """Return torchvision's models. Raises UserError if it is missing, or does not fit PyTorch."""
    try:
        from torchvision import models as package
    except (ImportError, RuntimeError) as error:  # RuntimeError: it was built for another PyTorch
        remedy = f"install the torchvision that is made for PyTorch {torch.__version__}"
        raise UserError("--models", f"torchvision cannot be imported ({error})", remedy) from error
    return package


class ZooNetwork(nn.Module):
    """Computes logits (batch, ``classes``) in float32 from images (batch, 3, S, S), by a model of
    torchvision."""

    def __init__(self, model: str, classes: int, precision: str):
        super().__init__()
        more = ARGUMENTS.get(model, {})
        network = _torchvision().get_model(model, weights=None, num_classes=classes, **more)
        self.network = network.to(memory_format=torch.channels_last)
        for path, module in self.network.named_modules():
            # ``model.trainable`` finds the parameters of a module by its attribute ``names``: attribute of
            # the parameter -> name. The optimizer applies no weight decay to names that end in "_bias", so
            # parameters of one dimension get such names.
            parameters = module.named_parameters(recurse=False)
            names = {name: f"{path}.{name}{'' if value.ndim > 1 else '_bias'}" for name, value in parameters}
            if names:
                module.names = names
        self._precision = PRECISIONS[precision]

    def initialize(self, seed: int) -> None:
        """Draw the initial values of all layers, by PyTorch's defaults. A seed gives equal values on every
        rank."""
        torch.manual_seed(seed)
        for module in self.network.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, self._precision, enabled=self._precision != torch.float32):
            return self.network(x).float()


class ZooEngine(PytorchEngine):
    """The engine of PyTorch with one of ``models`` in place of our network."""

    def __init__(self, config: Config, communicator: Any, model: str):
        super().__init__(config, communicator)
        self._model = model
        # Our own network may take a fourth channel of zeros; these models do not.
        self.batch_format = self.batch_format._replace(channels=3)

    def _network(self, precision: str) -> ZooNetwork:
        return ZooNetwork(self._model, self._config.data.classes, precision)


create = ZooEngine
