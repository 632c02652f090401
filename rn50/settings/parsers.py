"""Parsers and ranges of what variables hold. A parser raises ValueError with a message that follows
"NAME=value "."""

import math
import re
from collections.abc import Callable
from typing import NamedTuple

from rn50 import frameworks

_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?(?:nan|inf|infinity)", re.IGNORECASE)


class Range(NamedTuple):
    """A range with both ends, or without them where ``above`` or ``below`` is true."""

    least: float
    most: float
    above: bool = False
    below: bool = False

    def holds(self, value: float) -> bool:
        """Return True if a number lies within."""
        begins = self.least < value if self.above else self.least <= value
        return begins and (value < self.most if self.below else value <= self.most)

    @property
    def text(self) -> str:
        """The rule, which follows "NAME=value "."""
        begin, end = "above" if self.above else "at least", "below" if self.below else "at most"
        return f"must be {begin} {self.least:,} and {end} {self.most:,}"


SEED = Range(0, 2**31 - 1)
EPOCHS = Range(1, 10_000)
MACHINE = Range(1, 1_024)
"""Devices, cores or ranks of a machine."""


def text(value: str) -> str:
    """Return the value as UTF-8. Raises ValueError for other bytes.

    Python hands over what the locale cannot decode as lone surrogates: in an ASCII locale, UTF-8 too.
    """
    try:
        return value.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        raise ValueError("is not UTF-8") from None


def path(value: str) -> str:
    """Return a path unchanged, as ``open`` takes it. Raises as ``text`` does."""
    text(value)
    return value


def integer(value: str) -> int:
    """Return a whole number. "2.0" is accepted."""
    number_ = number(value)
    if number_ != int(number_):
        raise ValueError("is not a whole number")
    return int(number_)


def number(value: str) -> float:
    """Return a finite number in ASCII digits, plain or scientific. ``float`` also accepts "1_0", full-width
    digits and "nan", hence the pattern."""
    if not _NUMBER.fullmatch(value) and not _NOT_FINITE.fullmatch(value):
        raise ValueError("is not a number")
    result = float(value)
    if not math.isfinite(result):
        raise ValueError("is not a finite number")
    return result


def flag(value: str) -> bool:
    if value not in ("0", "1"):
        raise ValueError("is neither 0 nor 1")
    return value == "1"


def framework(value: str) -> str:
    """Return the name of an implementation."""
    if value not in frameworks.names():
        raise ValueError(f"is not an implementation (choose from {', '.join(frameworks.names())})")
    return value


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.lower() not in choices:
            raise ValueError("is not one of " + ", ".join(choices))
        return value.lower()

    return parse


def epochs(value: str) -> float:
    """Return a number of epochs, as an int if it is whole, as in published logs."""
    number_ = number(value)
    return int(number_) if number_ == int(number_) else number_


def target(value: str) -> str:
    """Return the text of a fraction, or "none"."""
    if value.lower() == "none":
        return "none"
    if not _NUMBER.fullmatch(value) or not 0 < float(value) <= 1:
        raise ValueError("is neither none nor a fraction above 0 and at most 1")
    return str(float(value))


def power(value: str) -> str:
    """Return auto, nvml, rapl, off, or ``file:`` and the path of a meter's file."""
    if value.lower() in ("auto", "nvml", "rapl", "off"):
        return value.lower()
    if not value.startswith("file:") or value == "file:":
        raise ValueError("is not one of auto, nvml, rapl, file:PATH, off")
    return path(value)


def threads(value: str) -> tuple[int, ...]:
    """Return the numbers of threads, one per level of nested parallel regions, as OpenMP reads them."""
    counts = tuple(integer(level.strip()) for level in value.split(","))
    if not all(map(MACHINE.holds, counts)):
        raise ValueError(MACHINE.text)
    return counts


def optimizer(value: str) -> str:
    """Return "sgd", or "lars" for its spellings in published files: lars, sgdwlars, sgdwfastlars,
    sgdwfastlarsv2."""
    if re.fullmatch(r"lars|sgdw(fast)?lars(v2)?", value.lower()):
        return "lars"
    if value.lower() == "sgd":
        return "sgd"
    raise ValueError("is not a known optimizer, lars and sgd are")
