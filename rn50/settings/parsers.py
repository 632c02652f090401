"""Parsers and ranges for the variables that ``fields.py`` defines.

A parser takes the text of a variable and returns its value. It raises ValueError if the text is not allowed;
the message is the end of a sentence that begins with "NAME=value ".
"""

import itertools
import math
import re
from collections.abc import Callable
from typing import NamedTuple

from rn50 import frameworks
from rn50.benchmark import recipe

_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?(?:nan|inf|infinity)", re.IGNORECASE)
"""Texts that are refused because they are not finite, and not because they are no numbers."""


class Range(NamedTuple):
    """The numbers from ``least`` to ``most``. ``above`` excludes ``least`` itself, ``below`` excludes
    ``most`` itself."""

    least: float
    most: float
    above: bool = False
    below: bool = False

    def holds(self, value: float) -> bool:
        """Return True if ``value`` lies within the range."""
        is_large_enough = self.least < value if self.above else self.least <= value
        is_small_enough = value < self.most if self.below else value <= self.most
        return is_large_enough and is_small_enough

    @property
    def text(self) -> str:
        """The range in words, as the end of a sentence that begins with "NAME=value "."""
        lower = "above" if self.above else "at least"
        upper = "below" if self.below else "at most"
        return f"must be {lower} {self.least:,} and {upper} {self.most:,}"


SMALLEST_IMAGE = 32
"""Smallest side of training images, in pixels. The last stage of the network then has 1x1 pixel."""
SEED = Range(0, 2**31 - 1)
EPOCHS = Range(1, 10_000)
MACHINE = Range(1, 1_024)
"""Devices, cores or ranks of a machine."""


def text(value: str) -> str:
    """Return ``value`` with its bytes decoded as UTF-8. Raises ValueError if they are not UTF-8.

    Python decodes the environment by the encoding of the locale, and makes a lone surrogate of every byte
    that this encoding lacks. In an ASCII locale these are all bytes of a non-ASCII character in UTF-8.
    """
    try:
        return value.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        raise ValueError("is not UTF-8") from None


def path(value: str) -> str:
    """Return a path unchanged, because ``open`` takes it with its surrogates. Raises ValueError if it is not
    UTF-8."""
    text(value)
    return value


def integer(value: str) -> int:
    """Return a whole number. "2.0" is accepted."""
    result = number(value)
    if result != int(result):
        raise ValueError("is not a whole number")
    return int(result)


def number(value: str) -> float:
    """Return a finite number, written in ASCII digits with or without an exponent. A pattern checks the text
    first, because ``float`` also accepts "1_0", full-width digits and "nan"."""
    if not _NUMBER.fullmatch(value) and not _NOT_FINITE.fullmatch(value):
        raise ValueError("is not a number")
    result = float(value)
    if not math.isfinite(result):
        raise ValueError("is not a finite number")
    return result


def flag(value: str) -> bool:
    """Return True for "1", False for "0"."""
    if value not in ("0", "1"):
        raise ValueError("is neither 0 nor 1")
    return value == "1"


def framework(value: str) -> str:
    """Return the name of an implementation."""
    if value not in frameworks.names():
        raise ValueError(f"is not an implementation (choose from {', '.join(frameworks.names())})")
    return value


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a parser that accepts ``choices`` in any case, and returns them in lower case."""

    def parse(value: str) -> str:
        if value.lower() not in choices:
            raise ValueError("is not one of " + ", ".join(choices))
        return value.lower()

    return parse


def epochs(value: str) -> float:
    """Return a number of epochs: an int if it is whole, because published logs have 2 and not 2.0."""
    result = number(value)
    return int(result) if result == int(result) else result


def target(value: str) -> str:
    """Return "none", or an accuracy, a fraction in (0, 1], as Python writes it: "0.7590" becomes "0.759"."""
    if value.lower() == "none":
        return "none"
    if not _NUMBER.fullmatch(value) or not 0 < float(value) <= 1:
        raise ValueError("is neither none nor a fraction above 0 and at most 1")
    return str(float(value))


def power(value: str) -> str:
    """Return auto, nvml, rapl, off, or ``file:PATH`` or ``file:PATH,SECONDS`` unchanged."""
    if value.lower() in ("auto", "nvml", "rapl", "off"):
        return value.lower()
    if not value.startswith("file:") or value == "file:":
        raise ValueError("is not one of auto, nvml, rapl, file:PATH, off")
    return path(value)


def threads(value: str) -> tuple[int, ...]:
    """Return the value of OMP_NUM_THREADS: the number of threads at each level of nested parallel regions,
    the outermost first."""
    counts = tuple(integer(level.strip()) for level in value.split(","))
    if not all(map(MACHINE.holds, counts)):
        raise ValueError(MACHINE.text)
    return counts


def image_sizes(value: str) -> str:
    """Return the text of sizes by epoch, such as "96:1,128:12": 96 pixels from epoch 1 on, 128 from epoch 12
    on. The first epoch is 1, and each later epoch is above the one before it."""
    entries = value.replace(" ", "").split(",")
    if not all(re.fullmatch(r"\d{1,5}:\d{1,5}", entry, re.ASCII) for entry in entries):
        raise ValueError("is not SIZE:EPOCH,SIZE:EPOCH,..., such as 96:1,128:12")
    sizes, first_epochs = zip(*(map(int, entry.split(":")) for entry in entries), strict=True)
    if min(sizes) < SMALLEST_IMAGE:
        raise ValueError(f"has a size below {SMALLEST_IMAGE} pixels, which the network divides by 32")
    if first_epochs[0] != 1 or any(later <= epoch for epoch, later in itertools.pairwise(first_epochs)):
        raise ValueError("must begin with epoch 1, and every later epoch must be above the one before it")
    return ",".join(f"{size}:{epoch}" for size, epoch in zip(sizes, first_epochs, strict=True))


def optimizer(value: str) -> str:
    """Return the name of an optimizer, which is "lars" for every spelling of it in published files: lars,
    sgdwlars, sgdwfastlars, sgdwfastlarsv2."""
    if re.fullmatch(r"lars|sgdw(fast)?lars(v2)?", value.lower()):
        return "lars"
    if value.lower() in recipe.OPTIMIZERS:
        return value.lower()
    raise ValueError(f"is not a known optimizer, {' and '.join(recipe.OPTIMIZERS)} are")
