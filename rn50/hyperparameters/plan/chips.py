"""Accelerator names: one spelling for the many that submitters write."""

import re
from collections.abc import Iterable

from rn50.errors import UserError
from rn50.results.published import PublishedResult

_NOT_THE_MODEL = re.compile(
    r"\(.*?\)|\b(nvidia|tesla|habana|intel|graphcore|cts|hl-205|gc200)\b", re.IGNORECASE
)
"""Maker, watts, cooling, and part numbers of boards that come in one kind only."""
_HBM3 = re.compile(r"\bHBM3\b")
"""Memory type by which ``nvidia-smi`` names the SXM boards of the H100."""
_ALSO_CALLED = {
    "A100": "A100-SXM-40GB",  # in round v0.7, when there was no other A100; its system has SXM boards
    "A30-PCIe-24GB": "A30",
    "H100-PCIe": "H100-PCIe-80GB",
    "TPU": "TPU-v4",  # according to the names of the systems
}


class UnknownError(UserError):
    """Error: no published result has an accelerator of this name."""


def name(model: str) -> str:
    """Return the one-word form of an ``accelerator_model_name``: ``A100-SXM-80GB`` for ``NVIDIA
    A100-SXM4-80GB (400W)``."""
    word = _word(model)
    return _ALSO_CALLED.get(word, word)


def _word(model: str) -> str:
    words = _NOT_THE_MODEL.sub(" ", model).split()
    word = re.sub(r"SXM\d?", "SXM", "-".join(words), flags=re.IGNORECASE)
    return re.sub("PCIe", "PCIe", word, flags=re.IGNORECASE)


def is_card(accelerator: str) -> bool:
    """Return whether an accelerator, by its ``name``, is a card in a slot, not a board of its maker's own."""
    return not re.search(r"SXM|TPU|Gaudi|IPU|Ascend", accelerator)


def known(results: Iterable[PublishedResult]) -> list[str]:
    """Return the names in ``results``, each once, those with the most results first."""
    names = [name(result.accelerator_model) for result in results if result.accelerator_model]
    return sorted(set(names), key=lambda accelerator: (-names.count(accelerator), accelerator))


def find(query: str, names: Iterable[str]) -> str:
    """Return the one of ``names`` that equals or contains ``query``; spaces, dashes and case do not matter.

    Raises:
        UnknownError: none does.
        UserError: several do.
    """
    names = list(names)
    sought = {_plain(query), _plain(_word(query))} - {""}
    matches = [accelerator for accelerator in names if _plain(accelerator) in sought]
    matches = matches or [
        accelerator for accelerator in names if any(part in _plain(accelerator) for part in sought)
    ]
    matches = matches or [accelerator for accelerator in names if accelerator == name(query)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UserError(f"--accelerator {query}", f"several are called so: {', '.join(matches)}", "say which")
    remedy = f"known are {', '.join(names)}; of another one give what you measured, with --images-per-second"
    raise UnknownError(f"--accelerator {query}", "nobody published a result with it", remedy)


def of_gpu(gpu: str, names: Iterable[str]) -> str | None:
    """Return the one of ``names`` that ``nvidia-smi`` calls ``gpu``, or None.

    The order of the words differs: ``NVIDIA A100 80GB PCIe`` is ``A100-PCIe-80GB``.
    """
    words = sorted(name(_HBM3.sub("SXM", gpu)).lower().split("-"))
    return next(
        (accelerator for accelerator in names if sorted(accelerator.lower().split("-")) == words), None
    )


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())
