"""JSON of a record: its fields, or chosen attributes, rounded as their types say."""

import math
import pathlib
from typing import NamedTuple

from rn50.printed import Hidden, IfKnown, Inline, Minutes, as_json, paths, prints


class Inner(NamedTuple):
    low: float
    name: str | None = None


class Plain(NamedTuple):
    minutes: Minutes
    inner: Inline[Inner]
    file: pathlib.Path
    secret: Hidden[int]
    note: IfKnown[str] = None


class Chosen(NamedTuple):
    inner: Inner | None
    runs: int

    @property
    def twice(self) -> Minutes:
        return 2 * self.runs / 3


prints(
    Chosen, lambda r: (r.twice, {"number": r.runs}), lambda r: r.inner and r.inner.low,
    lambda r: {"inside.name": r.inner and r.inner.name})


def test_all_fields_but_the_hidden_in_their_order():
    printed = as_json(Plain(1 / 3, Inner(math.nan), pathlib.Path("a"), 1))
    assert list(printed.items()) == [("minutes", 0.3333), ("low", None), ("name", None), ("file", "a")]


def test_chosen_attributes_under_their_names_or_others():
    assert paths(Chosen) == {
        "twice": ("twice",), "number": ("runs",), "low": ("inner", "low"), "inside.name": ("inner", "name")}
    assert as_json(Chosen(Inner(1.5, "x"), 1)) == {
        "twice": 0.6667, "number": 1, "low": 1.5, "inside": {"name": "x"}}


def test_what_is_inside_of_none_is_null():
    assert as_json(Chosen(None, 3)) == {"twice": 2, "number": 3, "low": None, "inside": {"name": None}}
