"""The list of figures: its pages have them, and those that no longer hold are named."""

import re

import pytest

from docs import figures
from rn50.files import ROOT

EVERY = figures.figures()


@pytest.mark.parametrize("figure", EVERY, ids=lambda figure: figure["what"])
def test_the_pages_have_it_and_its_code_is_there(figure):
    for page in figure["pages"]:
        assert figure["text"] in (ROOT / page).read_text(encoding="utf-8")
    assert figure["date"] and figure["machine"] and ("values" in figure) <= ("commit" in figure)
    if "by_hand" not in figure:
        assert figure["rooms"] and all((ROOT / room).exists() for room in figure["rooms"])


@pytest.mark.parametrize("figure", EVERY, ids=lambda figure: figure["what"])
def test_what_needs_a_gpu_says_where_it_was_measured_and_how(figure):
    if "needs a GPU" not in figure.get("by_hand", ""):
        return
    assert re.fullmatch("[0-9a-f]{40}", figure["commit"]) and figure["command"] and figure["values"]
    assert "H200" in figure["machine"] and "PyTorch" in figure["machine"]


def test_all_of_them_take_less_than_ninety_minutes():
    assert figures.minutes(EVERY) <= 90


FIGURE = {"what": "it", "machine": "M", "date": "then", "margin": 0.1, "values": [1.0, 1.02, 0.99]}


@pytest.mark.parametrize(
    "changes, found, here, says",
    [
        ({}, [1.01, 1.0, 0.98], "M", "yes: "),
        ({}, [1.51, 1.5, 1.48], "M", "no: "),
        ({}, [1.2, 1.0, 0.8], "M", "these runs cannot tell: "),
        ({}, [1.51], "other", "repeated, not judged: it was measured on M, then"),
        ({"values": [2.7]}, [2.8], "M", "yes"),
        ({"values": [2.7], "machine": "any"}, [3.1], "other", "no: 2.7 before"),
        ({}, [], "M", "no: nothing was found"),
    ],
)
def test_what_holds(changes, found, here, says):
    assert figures.judged({**FIGURE, **changes}, found, here).startswith(says)


def test_values_are_what_the_pattern_finds():
    assert figures.values({"pattern": '"minutes": ([0-9.]+)'}, '{"minutes": 1.5, "x": 2, "minutes": 3}') == [
        1.5,
        3,
    ]


def test_a_figure_by_hand_is_listed_and_not_repeated(capsys):
    by_hand = [figure for figure in EVERY if "by_hand" in figure]
    assert by_hand and figures.repeat(by_hand)
    assert str(by_hand[0]["date"]) in capsys.readouterr().out
    assert not any(map(figures.stale, by_hand))


def test_a_figure_whose_code_has_changed_is_named():
    old = {"what": "it", "commit": "0" * 40, "rooms": ["rn50"], "date": "then"}
    assert "is not in this checkout" in figures.stale(old)
    del old["commit"]
    assert figures.stale(old) == "it: measured then, at no commit that is known"


def test_a_word_that_names_none():
    with pytest.raises(SystemExit, match="none has nothing in its name; there are\n.*score of the demo"):
        figures.main(["run", "nothing"])
