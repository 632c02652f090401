"""LARS by two Triton kernels: see ``kernels/lars.py``."""

from collections.abc import Sequence

import torch
import triton

from implementations.pytorch.kernels import lars
from implementations.pytorch.model import Named, starts
from implementations.pytorch.optimizer import Sgd
from rn50.benchmark import rules
from rn50.settings.config import Hyperparameters


class FusedLars(Sgd):
    """See ``optimizer.Lars``."""

    def __init__(
        self,
        parameters: Sequence[Named],
        weights: torch.Tensor,
        gradients: torch.Tensor,
        hyperparameters: Hyperparameters,
    ):
        super().__init__(parameters, weights, gradients, hyperparameters)
        begins, end = starts([each.tensor.numel() for each in parameters])
        table: list[list[int]] = []
        most = 0
        for place, (begin, stop) in enumerate(zip(begins, [*begins[1:], end], strict=False)):
            chunks = range(begin, stop, lars.CHUNK)
            first, last = len(table), len(table) + len(chunks)
            table += [
                [each, min(each + lars.CHUNK, stop), first, last, int(place < self._decayed)]
                for each in chunks
            ]
            most = max(most, len(chunks))
        self._chunks = torch.tensor(table, dtype=torch.int32, device=weights.device)
        self._most = triton.next_power_of_2(most)
        self._of_weights = gradients
        self._squares = torch.empty(2, len(table), device=weights.device)

    def gradients_of_weights(self, precision: torch.dtype) -> torch.Tensor:
        """Return a tensor in ``precision``, from which ``step`` now reads the gradients of weights."""
        self._of_weights = torch.zeros_like(self._of_weights, dtype=precision)
        return self._of_weights

    @torch.no_grad()
    def step(self, learning_rate: float, samples: int) -> None:
        """Make one update with gradients that are the sum over ``samples`` samples."""
        h, count = self._hyperparameters, len(self._chunks)
        how = {"CHUNK": lars.CHUNK, "num_warps": lars.WARPS}
        read = self._weights, self._of_weights, self._gradients
        lars.squares_of_chunks[(count,)](*read, self._chunks, self._squares, count, **how)
        lars.update[(count,)](
            *read,
            self._velocities,
            self._chunks,
            self._squares,
            count,
            learning_rate,
            float(samples),
            h.lars_eta,
            h.momentum,
            h.weight_decay,
            rules.LARS_EPSILON,
            MOST=self._most,
            **how,
        )
