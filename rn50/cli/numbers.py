"""Types of options that take a number. The number has to be finite, in ASCII digits, and within two limits,
as in a configuration."""

from collections.abc import Callable
from typing import Any

import click

from rn50.settings.parsers import integer, number

# Limits that only keep out mistakes: no real number is near them.
MOST_WORKERS = 100_000
MOST_IMAGES = 100_000_000
LONGEST_S = 1_000_000.0  # about eleven days


class _Range(click.ParamType):
    """A number from ``min`` to ``max``, which help and errors show with thousands separators. A subclass has
    ``read``, the parser of its text."""

    min: float | None
    max: float | None
    read: Callable[[str], float]

    def _describe_range(self) -> str:
        """Return the limits in words, which click adds to the help of the option."""
        return f"{self.min:,.10g} to {self.max:,.10g}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(self.read(value) if isinstance(value, str) else value, param, ctx)
        except ValueError as error:
            self.fail(f"{value} {error}; give {self._describe_range()}", param, ctx)


class Whole(_Range, click.IntRange):
    """A whole number from the first to the second limit."""

    read = staticmethod(integer)


class Number(_Range, click.FloatRange):
    """A number from the first to the second limit."""

    read = staticmethod(number)


class RatesBySize(Number):
    """A number of images/s, or one for each size of the images: 224:9424,160:16873,input:22720. The value of
    the latter is a dictionary of size, as text, to number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if ":" not in value:
            return super().convert(value, param, ctx)
        pairs = [entry.rpartition(":")[::2] for entry in value.replace(" ", "").split(",")]
        for size in {size for size, _ in pairs} - {"input"}:
            Whole(1, 8_192).convert(size, param, ctx)
        return {size: Number.convert(self, rate, param, ctx) for size, rate in pairs}


class Percent(Number):
    """A number of per cent from the first to the second limit, with or without % behind it. Its value is a
    fraction: "3%" and "3" are 0.03."""

    def _describe_range(self) -> str:
        return f"{super()._describe_range()}, with % behind it or nothing"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(value.removesuffix("%").rstrip(), param, ctx) * 0.01
