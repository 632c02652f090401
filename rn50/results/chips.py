"""Names of accelerators: ``name`` turns the many spellings of submitters and ``nvidia-smi`` into one, and
``find``, ``among`` and ``nearest`` look a name up."""

import csv
import difflib
import functools
import itertools
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rn50.errors import UserError
from rn50.results.published import PublishedResult

_NOT_THE_MODEL = re.compile(
    r"\(.*?\)|\b(nvidia|tesla|geforce|amd|radeon|habana|intel|graphcore|cts|hl-205|gc200)\b", re.IGNORECASE
)
"""Parts of a spelling that are no part of the name: maker, family, watts, cooling, and part numbers of boards
of which there is only one kind."""
_SXM = re.compile(r"\b(SXM\d?|HBM3)\b", re.IGNORECASE)
"""Spellings of SXM; ``nvidia-smi`` names the memory, HBM3, instead."""
_MEMORY = re.compile(r"\d+GB", re.IGNORECASE)
"""Size of the memory, as 80GB."""
_BOARD = re.compile(rf"-(SXM|PCIe|{_MEMORY.pattern}).*")
"""End of a name, behind the model: the board or the memory, and what follows."""
_ALSO_CALLED = {
    "A100": "A100-SXM-40GB",  # in round v0.7, when there was no other A100; the system has SXM boards
    "A30-PCIe-24GB": "A30",
    "H100-PCIe": "H100-PCIe-80GB",
    "H200": "H200-SXM-141GB",  # by nvidia-smi, which calls the card an H200 NVL
    "TPU": "TPU-v4",  # according to the names of the systems
}
"""Name made from a spelling -> the one name of that accelerator."""
NOBODY = "nobody published a result with it"


class DataSheet(NamedTuple):
    """Values of NVIDIA's data sheet of an accelerator, and its compute capability, which NVIDIA lists on
    developer.nvidia.com/cuda-gpus."""

    gigabytes: int
    """Memory in GB."""
    capability: tuple[int, int]
    """Compute capability, major and minor number."""
    gigabytes_per_second: int
    """Memory bandwidth in GB/s."""


@functools.cache
def data_sheets() -> dict[str, DataSheet]:
    """Return name -> data sheet, of the NVIDIA accelerators of published results whose name says which it
    is. They are in ``chips.csv``."""
    with pathlib.Path(__file__).with_suffix(".csv").open(newline="", encoding="utf-8") as table:
        rows = [(row["name"], [int(value) for value in [*row.values()][1:]]) for row in csv.DictReader(table)]
    return {name: DataSheet(memory, (major, minor), rate) for name, (memory, major, minor, rate) in rows}


class UnknownError(UserError):
    """Error: no published result has an accelerator of this name."""


def name(model: str) -> str:
    """Return the name of an accelerator, one word, from a spelling of it: an ``accelerator_model_name`` or
    the output of ``nvidia-smi``. ``NVIDIA A100-SXM4-80GB (400W)`` becomes ``A100-SXM-80GB``, and
    ``NVIDIA A100 80GB PCIe`` becomes ``A100-PCIe-80GB``."""
    word = _word(model)
    return _ALSO_CALLED.get(word, word)


def _word(model: str) -> str:
    """Return the name of an accelerator as one word, before ``_ALSO_CALLED`` is applied."""
    # "NVIDIA A100 80GB PCIe" -> A100, 80GB, PCIe -> A100-PCIe-80GB: the memory stands last.
    words = _NOT_THE_MODEL.sub(" ", model).replace("-", " ").split()
    word = "-".join(sorted(words, key=lambda word: bool(_MEMORY.fullmatch(word))))
    # Write every SXM4 or HBM3 as SXM, and every PCIE as PCIe.
    return re.sub("PCIe", "PCIe", _SXM.sub("SXM", word), flags=re.IGNORECASE)


def is_card(accelerator: str) -> bool:
    """Return whether the accelerator of this ``name`` is a PCIe card, not a board for its maker's own
    socket."""
    return not re.search(r"SXM|TPU|Gaudi|IPU|Ascend", accelerator)


def known(results: Iterable[PublishedResult]) -> list[str]:
    """Return the names of the accelerators of ``results``, those with the most results first."""
    names = [name(result.accelerator_model) for result in results if result.accelerator_model]
    return sorted(set(names), key=lambda accelerator: (-names.count(accelerator), accelerator))


def matching(query: str, names: Iterable[str]) -> list[str]:
    """Return the names among ``names`` that equal ``query``, else those that contain all words of ``query``
    in a row. Words match as a whole, so that H20 does not match H200. Spaces, dashes, case and the unit of
    memory do not matter."""
    names = list(names)
    # An equal name is best, then a name that contains the query, then the name by ``_ALSO_CALLED``.
    sought = {_plain(query), _plain(_word(query))} - {""}
    matches = [accelerator for accelerator in names if _plain(accelerator) in sought]
    matches = matches or [accelerator for accelerator in names if sought & {*_parts(accelerator)}]
    return matches or [accelerator for accelerator in names if accelerator == name(query)]


def find(query: str, names: Iterable[str]) -> str:
    """Return the one name among ``names`` that ``matching`` finds.

    Raises:
        UnknownError: no name matches.
        UserError: several names do.
    """
    names = list(names)
    matches = matching(query, names)
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
    """Return the one of ``names`` that equals ``name(model)``, apart from case; None if none does. ``model``
    is a spelling, as of ``nvidia-smi``."""
    sought = name(model).lower()
    return next((accelerator for accelerator in names if accelerator.lower() == sought), None)


def nearest(model: str, names: Iterable[str]) -> str:
    """Return the one of ``names`` that resembles the spelling ``model`` most; "" if none resembles it. A name
    is compared in full, and without board and memory; of names that are equal without them, the first
    counts."""
    names = list(names)
    whole = {accelerator.lower(): accelerator for accelerator in names}
    # In reversed order, so that of names with the same model the first one stays.
    models = {_BOARD.sub("", accelerator).lower(): accelerator for accelerator in reversed(names)}
    near = difflib.get_close_matches(name(model).lower(), models | whole, n=1)
    return (models | whole)[near[0]] if near else ""


def _parts(accelerator: str) -> Iterator[str]:
    """Yield every sequence of consecutive words of a name, with and without the unit of memory at its end."""
    # A word ends at a character other than a letter or digit. Three letters or more before a digit are a word
    # of their own: Ascend910 is two words, A100 is one.
    words = re.findall(r"[a-z]{3,}(?=\d)|[a-z0-9]+", accelerator.lower())
    for first, last in itertools.combinations(range(len(words) + 1), 2):
        sequence = "".join(words[first:last])
        yield from (sequence, sequence.removesuffix("gb"))


def _plain(text: str) -> str:
    """Return the letters and digits of a text, in small letters."""
    return re.sub(r"[^a-z0-9]", "", text.lower())
