"""SGD and LARS in PyTorch, in agreement with ``rn50/benchmark/optimizers.py``.

All parameters are one tensor, and so are their gradients and their momentum (``model.Flat``). So one
operation updates them all. Learning rate and number of samples are written to tensors on the device,
so that the host waits for nothing and the update can be a CUDA graph.
"""

from collections.abc import Callable

import torch

from implementations.pytorch.model import ALIGNMENT, Flat, starts, views
from rn50.benchmark import optimizers, rules
from rn50.settings.fields import Hyperparameters


class Sgd:
    """Updates all parameters of a network. The gradients are sums over samples; ``step`` divides them."""

    def __init__(self, flat: Flat, hyperparameters: Hyperparameters):
        parameters, weights, gradients = flat
        self._hyperparameters, self._parameters, self._count = hyperparameters, parameters, len(parameters)
        self._decayed = sum(optimizers.has_weight_decay(parameter.name) for parameter in parameters)
        # Each row belongs to one parameter, so that a value per parameter becomes a column.
        self._weights, self._gradients = weights.view(-1, ALIGNMENT), gradients.view(-1, ALIGNMENT)
        self._velocities = torch.zeros_like(self._weights)
        begins, end = starts(parameters)
        rows = torch.tensor([*begins, end], device=weights.device).diff() // ALIGNMENT
        self._owner = torch.repeat_interleave(rows)
        decay = torch.zeros(self._count, device=weights.device)
        decay[: self._decayed] = hyperparameters.weight_decay
        self._weight_decay = decay[self._owner].unsqueeze(1)
        self._learning_rate, self._samples = (
            torch.full((), value, device=weights.device) for value in (0.0, 1.0)
        )
        self.run: Callable[[], None] = self.update
        """Makes an update: ``update``, or what replays it."""

    def momentum(self) -> dict[str, torch.Tensor]:
        """Return the momentum by the names of the parameters."""
        of_each = views(self._velocities.view(-1), self._parameters)
        return {name: view for (name, _), view in zip(self._parameters, of_each, strict=True)}

    @torch.no_grad()
    def step(self, learning_rate: float, samples: int) -> None:
        """Make one update with gradients that are the sum over ``samples`` samples. It overwrites the
        gradients."""
        self._learning_rate.fill_(learning_rate)
        self._samples.fill_(samples)
        self.run()

    @torch.no_grad()
    def update(self) -> None:
        """Make one update with the learning rate and the number of samples on the device."""
        rates = self._rates()[self._owner].unsqueeze(1)
        change = self._gradients.div_(self._samples).addcmul_(self._weight_decay, self._weights)
        self._velocities.mul_(self._hyperparameters.momentum).addcmul_(rates, change)
        self._weights.sub_(self._velocities)

    def _rates(self) -> torch.Tensor:
        """Return the learning rate of every parameter, of shape (parameters,)."""
        return self._learning_rate.repeat(self._count)


class Lars(Sgd):
    """SGD in which the trust ratio of each weight scales its learning rate."""

    def __init__(self, flat: Flat, hyperparameters: Hyperparameters):
        super().__init__(flat, hyperparameters)
        begins, _ = starts(flat.parameters)
        ends = [begin + p.tensor.numel() for begin, p in zip(begins, flat.parameters, strict=True)]
        spans = [slice(*span) for span in zip(begins, ends, strict=True)][: self._decayed]
        self._scaled_weights = [flat.weights[span] for span in spans]
        self._scaled_gradients = [flat.gradients[span] for span in spans]

    def _rates(self) -> torch.Tensor:
        h, rates = self._hyperparameters, super()._rates()
        # PyTorch has no public function for the norms of many tensors at once; torch.nn.utils.clip_grad_norm_
        # uses this one.
        both = (self._scaled_weights, self._scaled_gradients)
        weights, gradients = (torch.stack(torch._foreach_norm(tensors)) for tensors in both)
        gradients = gradients / self._samples
        ratios = h.lars_eta * weights / (gradients + h.weight_decay * weights + rules.LARS_EPSILON)
        rates[: self._decayed] *= torch.where((weights > 0) & (gradients > 0), ratios, 1.0)
        return rates


OPTIMIZERS = {"lars": Lars, "sgd": Sgd}
"""Value of OPTIMIZER -> class."""
