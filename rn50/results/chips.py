"""Accelerator names: one spelling for the many that submitters and ``nvidia-smi`` write."""

import difflib
import itertools
import re
from collections.abc import Iterable, Iterator

from rn50.errors import UserError
from rn50.results.published import PublishedResult

_NOT_THE_MODEL = re.compile(
    r"\(.*?\)|\b(nvidia|tesla|geforce|amd|radeon|habana|intel|graphcore|cts|hl-205|gc200)\b", re.IGNORECASE
)
"""Maker, family, watts, cooling, and part numbers of boards that come in one kind only."""
_SXM = re.compile(r"\b(SXM\d?|HBM3)\b", re.IGNORECASE)
"""Boards, which ``nvidia-smi`` names by their memory."""
_MEMORY = re.compile(r"\d+GB", re.IGNORECASE)
_BOARD = re.compile(rf"-(SXM|PCIe|{_MEMORY.pattern}).*")
_ALSO_CALLED = {
    "A100": "A100-SXM-40GB",  # in round v0.7, when there was no other A100; its system has SXM boards
    "A30-PCIe-24GB": "A30",
    "H100-PCIe": "H100-PCIe-80GB",
    "H200": "H200-SXM-141GB",  # by nvidia-smi, which calls the card an H200 NVL
    "TPU": "TPU-v4",  # according to the names of the systems
}
NOBODY = "nobody published a result with it"


class UnknownError(UserError):
    """Error: no published result has an accelerator of this name."""


def name(model: str) -> str:
    """Return the one-word form of an ``accelerator_model_name``, or of what ``nvidia-smi`` says:
    ``A100-SXM-80GB`` for ``NVIDIA A100-SXM4-80GB (400W)``, ``A100-PCIe-80GB`` for ``NVIDIA A100 80GB
    PCIe``."""
    word = _word(model)
    return _ALSO_CALLED.get(word, word)


def _word(model: str) -> str:
    words = _NOT_THE_MODEL.sub(" ", model).replace("-", " ").split()
    word = "-".join(sorted(words, key=lambda word: bool(_MEMORY.fullmatch(word))))
    return re.sub("PCIe", "PCIe", _SXM.sub("SXM", word), flags=re.IGNORECASE)


def is_card(accelerator: str) -> bool:
    """Return whether an accelerator, by its ``name``, is a card in a slot, not a board of its maker's own."""
    return not re.search(r"SXM|TPU|Gaudi|IPU|Ascend", accelerator)


def known(results: Iterable[PublishedResult]) -> list[str]:
    """Return the names in ``results``, each once, those with the most results first."""
    names = [name(result.accelerator_model) for result in results if result.accelerator_model]
    return sorted(set(names), key=lambda accelerator: (-names.count(accelerator), accelerator))


def find(query: str, names: Iterable[str]) -> str:
    """Return the one of ``names`` that equals ``query`` or has its words, whole and in a row: H20 is no H200.
    Spaces, dashes, case and the unit of memory do not matter.

    Raises:
        UnknownError: none does.
        UserError: several do.
    """
    names = list(names)
    sought = {_plain(query), _plain(_word(query))} - {""}
    matches = [accelerator for accelerator in names if _plain(accelerator) in sought]
    matches = matches or [accelerator for accelerator in names if sought & {*_parts(accelerator)}]
    matches = matches or [accelerator for accelerator in names if accelerator == name(query)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UserError(f"--accelerator {query}", f"several are called so: {', '.join(matches)}", "say which")
    near = nearest(query, names)
    meant = f"did you mean {near}? " if near else ""
    measured = "of another one give what you measured, with --images-per-second"
    remedy = f"{meant}known are {', '.join(names)}; {measured}"
    raise UnknownError(f"--accelerator {query}", NOBODY, remedy)


def among(names: Iterable[str], model: str) -> str | None:
    """Return the one of ``names`` that is the ``name`` of a model, or None."""
    sought = name(model).lower()
    return next((accelerator for accelerator in names if accelerator.lower() == sought), None)


def nearest(model: str, names: Iterable[str]) -> str:
    """Return the one of ``names``, those with the most results first, whose whole name or model is most alike
    that of a model; "" if none is."""
    names = list(names)
    whole = {accelerator.lower(): accelerator for accelerator in names}
    models = {_BOARD.sub("", accelerator).lower(): accelerator for accelerator in reversed(names)}
    near = difflib.get_close_matches(name(model).lower(), models | whole, n=1)
    return (models | whole)[near[0]] if near else ""


def _parts(name: str) -> Iterator[str]:
    """Yield the words of a name, and every row of them, with and without the unit of memory at the end."""
    words = re.findall(r"[a-z]{3,}(?=\d)|[a-z0-9]+", name.lower())  # Ascend910 is two
    for first, last in itertools.combinations(range(len(words) + 1), 2):
        row = "".join(words[first:last])
        yield from (row, row.removesuffix("gb"))


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())
