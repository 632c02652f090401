"""Numbers that options take: finite, in ASCII digits, within limits, as in a configuration."""

from typing import Any

import click

from rn50.settings.parsers import integer, number

MOST_WORKERS = 100_000
MOST_IMAGES = 100_000_000
LONGEST_S = 1_000_000.0
"""About eleven days."""


class _Range:
    """Range, formatted for help and errors."""

    min: float | None
    max: float | None

    def _describe_range(self) -> str:
        return f"{self.min:,.10g} to {self.max:,.10g}"


class Whole(_Range, click.IntRange):
    """A whole number from ``low`` to ``high``."""

    def __init__(self, low: int, high: int) -> None:
        super().__init__(low, high)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(integer(value) if isinstance(value, str) else value, param, ctx)
        except ValueError as error:
            self.fail(f"{value} {error}", param, ctx)


class Number(_Range, click.FloatRange):
    """A number from ``low`` to ``high``."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__(low, high)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(number(value) if isinstance(value, str) else value, param, ctx)
        except ValueError as error:
            self.fail(f"{value} {error}", param, ctx)
