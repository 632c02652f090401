"""Networks that ``rn50 bench throughput`` can train: ours, and the models of the frameworks' own zoos."""

import difflib
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rn50.errors import UserError
from rn50.frameworks import module

OURS = "ours"
"""ResNet-50 v1.5 as a run trains it."""


class Network(NamedTuple):
    """Network of a framework."""

    framework: str
    model: str
    """``OURS``, or the name of the model in the framework's zoo."""
    image_size: int | None
    """Side of its input in pixels; None: that of the configuration."""


def networks(
    frameworks: Sequence[str], models: Sequence[str], image_sizes: Sequence[int | None] = (None,)
) -> list[Network]:
    """Return every model in every framework that has it, ours with each of ``image_sizes``. Names are
    compared without case and punctuation, because their spelling differs between zoos.

    Raises UserError for a model that no zoo of these frameworks has, or if a zoo is not installed.
    """
    # Framework -> its models, each with the side of its input. A zoo need not be installed for ours alone.
    only_ours = set(models) == {OURS}
    zoos = {framework: {OURS: None, **({} if only_ours else zoo(framework))} for framework in frameworks}
    available = []
    for framework, sizes in zoos.items():
        for model in models:
            same = [name for name in sizes if _bare(name) == _bare(model)]
            available += [Network(framework, name, sizes[name]) for name in same]
    for model in models:
        if _bare(model) not in (_bare(network.model) for network in available):
            problem = f"{model} is in the zoo of none of {', '.join(frameworks)}"
            raise UserError("--models", problem, _close(model, zoos.values()))
    of_ours = {OURS: image_sizes}
    return [n._replace(image_size=side) for n in available for side in of_ours.get(n.model, [n.image_size])]


def zoo(framework: str) -> dict[str, int | None]:
    """Return name -> side of the input in pixels, for the models of a framework's zoo. Raises UserError if
    the framework or its zoo is not installed."""
    return module(framework, "zoo").models()


def _bare(name: str) -> str:
    """Return a name without case and punctuation."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _close(model: str, zoos: Iterable[Iterable[str]]) -> str:
    """Return the advice of an error about ``model``, which is in none of the ``zoos``: up to five names that
    are close to it, else all names."""
    names = {_bare(name): name for name in itertools.chain(*zoos)}
    close = difflib.get_close_matches(_bare(model), names, n=5)
    if not close:
        return f"there are {', '.join(sorted(names.values()))}"
    return f"names that are close: {', '.join(names[bare] for bare in close)}"
