"""The exponential moving averages of the parameters and running statistics of a network (EMA_HALF_LIFE)."""

from collections.abc import Mapping

import torch

from implementations.pytorch.model import Flat, views


class Averages:
    """Averages of ``tensors``, those of a network by name. At first they are copies. The parameters among the
    tensors are parts of ``flat``, so that one operation updates the averages of all of them."""

    def __init__(self, flat: Flat, tensors: Mapping[str, torch.Tensor]):
        names = [parameter.name for parameter in flat.parameters]
        statistics = {name: tensor for name, tensor in tensors.items() if name not in names}
        self._sources = [flat.weights, *statistics.values()]
        self._averages = [source.clone() for source in self._sources]
        of_weights, *of_statistics = self._averages
        self.tensors = dict(zip(names, views(of_weights, flat.parameters), strict=True))
        self.tensors.update(zip(statistics, of_statistics, strict=True))

    @torch.no_grad()
    def update(self, share: float) -> None:
        """Add ``share`` of the difference from its tensor to every average."""
        torch._foreach_lerp_(self._averages, self._sources, share)
