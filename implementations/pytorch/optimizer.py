"""SGD and LARS in PyTorch. Tests compare them with the equations of ``rn50/benchmark/optimizers.py``.

All parameters are parts of one flat tensor (``model.Flat``), all gradients of another and the momentum of a
third, so that each operation of an update works on all parameters at once. Learning rate and number of
samples are tensors on the device: the host then waits for nothing, and a CUDA graph of the update can read
new values.
"""

from collections.abc import Callable

import torch

from implementations.pytorch.model import ALIGNMENT, Flat, starts, views
from rn50.benchmark import optimizers, rules
from rn50.settings.fields import Hyperparameters


class Sgd:
    """SGD for all parameters of a network. The gradients are sums over samples; ``step`` divides them by the
    number of samples."""

    def __init__(self, flat: Flat, hyperparameters: Hyperparameters):
        device = flat.weights.device
        self._hyperparameters = hyperparameters
        self._parameters = flat.parameters
        # In ``Flat`` the parameters with weight decay come first, so that slices select them.
        self._decayed_count = sum(optimizers.has_weight_decay(name) for name, _ in flat.parameters)
        # The flat tensors as matrices of ALIGNMENT columns. In ``Flat`` each parameter begins at a multiple
        # of ALIGNMENT, so every row belongs to one parameter.
        self._weights = flat.weights.view(-1, ALIGNMENT)
        self._gradients = flat.gradients.view(-1, ALIGNMENT)
        self._velocities = torch.zeros_like(self._weights)
        begins, end = starts(flat.parameters)
        rows_of_each = torch.tensor([*begins, end], device=device).diff() // ALIGNMENT
        # Index of the parameter of each row. A vector with one value for each parameter, indexed by it, has
        # one value for each row.
        self._owner = torch.repeat_interleave(rows_of_each)
        decay = torch.zeros(len(flat.parameters), device=device)
        decay[: self._decayed_count] = hyperparameters.weight_decay
        self._weight_decay = decay[self._owner].unsqueeze(1)
        self._learning_rate = torch.full((), 0.0, device=device)
        self._samples = torch.full((), 1.0, device=device)
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
        change = self._gradients.div_(self._samples)
        if self._hyperparameters.decoupled_weight_decay:
            relative_rate = self._learning_rate / self._hyperparameters.learning_rate
            self._weights.mul_(1 - relative_rate * self._weight_decay)
        else:
            change.addcmul_(self._weight_decay, self._weights)
        self._velocities.mul_(self._hyperparameters.momentum).addcmul_(rates, change)
        self._weights.sub_(self._velocities)

    def _rates(self) -> torch.Tensor:
        """Return the learning rate of every parameter, shape (parameters,)."""
        return self._learning_rate.repeat(len(self._parameters))


class Lars(Sgd):
    """SGD with one learning rate for each weight: the schedule's, times the trust ratio of the weight.

    Biases and the parameters of batch norm, which have no weight decay, have no trust ratio either.
    """

    def __init__(self, flat: Flat, hyperparameters: Hyperparameters):
        super().__init__(flat, hyperparameters)
        begins, _ = starts(flat.parameters)
        decayed = list(zip(begins, flat.parameters, strict=True))[: self._decayed_count]
        # Without the zeros in the gaps behind the parameters.
        slices = [slice(begin, begin + parameter.tensor.numel()) for begin, parameter in decayed]
        self._scaled_weights = [flat.weights[part] for part in slices]
        self._scaled_gradients = [flat.gradients[part] for part in slices]

    def _rates(self) -> torch.Tensor:
        h, rates = self._hyperparameters, super()._rates()
        # PyTorch has no public function for the norms of many tensors at once. torch.nn.utils.clip_grad_norm_
        # uses the same private one.
        weight_norms = torch.stack(torch._foreach_norm(self._scaled_weights))
        gradient_norms = torch.stack(torch._foreach_norm(self._scaled_gradients)) / self._samples
        decay_norms = h.weight_decay * weight_norms
        ratios = h.lars_eta * weight_norms / (gradient_norms + decay_norms + rules.LARS_EPSILON)
        rates[: self._decayed_count] *= torch.where((weight_norms > 0) & (gradient_norms > 0), ratios, 1.0)
        return rates


OPTIMIZERS = {"lars": Lars, "sgd": Sgd}
"""Value of the variable OPTIMIZER -> class."""
