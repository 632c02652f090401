"""SGD and LARS in PyTorch: the equations of ``rn50/benchmark/optimizers.py``, which tests compare them with.

All parameters are parts of one tensor, and so are their gradients and their momentum (``model.Flat``), so
that each operation of an update works on all parameters at once. Learning rate and number of samples are
tensors on the device: the host then waits for nothing, and a CUDA graph of the update can read new values.
"""

from collections.abc import Callable

import torch

from implementations.pytorch.model import ALIGNMENT, Flat, starts, views
from rn50.benchmark import optimizers, rules
from rn50.settings.fields import Hyperparameters


class Sgd:
    """Updates all parameters of a network. The gradients are sums over samples; ``step`` divides them by the
    number of samples."""

    def __init__(self, flat: Flat, hyperparameters: Hyperparameters):
        parameters, weights, gradients = flat
        self._hyperparameters, self._parameters, self._count = hyperparameters, parameters, len(parameters)
        self._decayed = sum(optimizers.has_weight_decay(parameter.name) for parameter in parameters)
        # As matrices of ALIGNMENT columns, every row of which belongs to one parameter. A vector with one
        # value for each parameter, indexed by ``_owner``, then has one value for each row.
        self._weights, self._gradients = weights.view(-1, ALIGNMENT), gradients.view(-1, ALIGNMENT)
        self._velocities = torch.zeros_like(self._weights)
        begins, end = starts(parameters)
        # Number of rows of each parameter.
        rows = torch.tensor([*begins, end], device=weights.device).diff() // ALIGNMENT
        self._owner = torch.repeat_interleave(rows)  # index of the parameter of each row
        decay = torch.zeros(self._count, device=weights.device)
        # In ``Flat`` the parameters with weight decay come first, so that slices select them.
        decay[: self._decayed] = hyperparameters.weight_decay
        self._weight_decay = decay[self._owner].unsqueeze(1)
        self._learning_rate, self._samples = (
            torch.full((), value, device=weights.device) for value in (0.0, 1.0)
        )
        self.run: Callable[[], None] = self.update
        """The function that ``step`` calls: ``update``, or a function that replays it as a CUDA graph."""

    def momentum(self) -> dict[str, torch.Tensor]:
        """Return the momentum of every parameter, by the name of the parameter."""
        velocities = views(self._velocities.view(-1), self._parameters)
        return {name: velocity for (name, _), velocity in zip(self._parameters, velocities, strict=True)}

    @torch.no_grad()
    def step(self, learning_rate: float, samples: int) -> None:
        """Make one update with gradients that are sums over ``samples`` samples. The update overwrites the
        gradients."""
        self._learning_rate.fill_(learning_rate)
        self._samples.fill_(samples)
        self.run()

    @torch.no_grad()
    def update(self) -> None:
        """Make one update with the learning rate and the number of samples that ``step`` has written to the
        device."""
        rates = self._rates()[self._owner].unsqueeze(1)
        change = self._gradients.div_(self._samples).addcmul_(self._weight_decay, self._weights)
        self._velocities.mul_(self._hyperparameters.momentum).addcmul_(rates, change)
        self._weights.sub_(self._velocities)

    def _rates(self) -> torch.Tensor:
        """Return the learning rate of every parameter, shape (parameters,)."""
        return self._learning_rate.repeat(self._count)


class Lars(Sgd):
    """SGD with one learning rate for each weight: the schedule's, times the trust ratio of the weight.

    Biases and the parameters of batch norm, which have no weight decay, have no trust ratio either.
    """

    def __init__(self, flat: Flat, hyperparameters: Hyperparameters):
        super().__init__(flat, hyperparameters)
        begins, _ = starts(flat.parameters)
        decayed = list(zip(begins, flat.parameters, strict=True))[: self._decayed]
        slices = [slice(begin, begin + parameter.tensor.numel()) for begin, parameter in decayed]
        self._scaled_weights = [flat.weights[part] for part in slices]
        self._scaled_gradients = [flat.gradients[part] for part in slices]

    def _rates(self) -> torch.Tensor:
        h, rates = self._hyperparameters, super()._rates()
        # PyTorch has no public function for the norms of many tensors at once; torch.nn.utils.clip_grad_norm_
        # uses this one.
        weight_norms = torch.stack(torch._foreach_norm(self._scaled_weights))
        gradient_norms = torch.stack(torch._foreach_norm(self._scaled_gradients)) / self._samples
        decay_norms = h.weight_decay * weight_norms
        ratios = h.lars_eta * weight_norms / (gradient_norms + decay_norms + rules.LARS_EPSILON)
        rates[: self._decayed] *= torch.where((weight_norms > 0) & (gradient_norms > 0), ratios, 1.0)
        return rates


OPTIMIZERS = {"lars": Lars, "sgd": Sgd}
"""Value of the variable OPTIMIZER -> class."""
