"""The list of figures: pages and picture have them, and those that no longer hold are named."""

import re
import statistics

import pytest

from docs import figures, h200
from rn50.files import ROOT

EVERY = figures.figures()


@pytest.mark.parametrize("figure", EVERY, ids=lambda figure: figure["what"])
def test_the_pages_have_it_and_its_code_is_there(figure):
    for page in figure["pages"]:
        assert figure["text"] in (ROOT / page).read_text(encoding="utf-8")
    assert figure["date"] and figure["machine"]
    if "by_hand" not in figure:
        assert figure["values"] and re.fullmatch("[0-9a-f]{40}", figure["commit"])
        assert figure["rooms"] and all((ROOT / room).exists() for room in figure["rooms"])


@pytest.mark.parametrize("panel, bars", h200.panels().items())
def test_the_picture_and_the_measurements_have_every_bar(panel, bars):
    drawn = h200.PICTURE.read_text(encoding="utf-8")
    measurements = (ROOT / "docs" / "measurements.md").read_text(encoding="utf-8")
    assert len(bars) == {"synthetic batch": 4, "real data": 3}[panel] and f">{panel}<" in drawn
    for label, values in bars.items():
        assert f">{statistics.median(values):,.0f}<" in drawn, "make h200-picture"
        assert all(f">{line}<" in drawn for line in label.splitlines()), "make h200-picture"
        assert f"{max(values):,}" in measurements


def test_a_picture_of_other_figures_is_another(tmp_path, monkeypatch):
    monkeypatch.setattr(h200, "panels", lambda: dict.fromkeys(("one", "other"), {"quick": [1, 3000, 9000]}))
    h200.draw(tmp_path / "it.svg")
    drawn = (tmp_path / "it.svg").read_text(encoding="utf-8")
    assert drawn.count(">3,000<") == drawn.count(">quick<") == 2 and ">9,398<" not in drawn


FIGURE = {"what": "it", "machine": "M", "date": "then", "margin": 0.1, "values": [1.0, 1.02, 0.99]}


@pytest.mark.parametrize(
    "changes, found, here, says",
    [({}, [1.01, 1.0, 0.98], "M", "yes: "), ({}, [1.51, 1.5, 1.48], "M", "no: "),
     ({}, [1.2, 1.0, 0.8], "M", "these runs cannot tell: "),
     ({}, [1.51], "other", "repeated, not judged: it was measured on M, then"),
     ({"values": [2.7]}, [2.8], "M", "yes"),
     ({"values": [2.7], "machine": "any"}, [3.1], "other", "no: 2.7 before"),
     ({}, [], "M", "no: nothing was found")])
def test_what_holds(changes, found, here, says):
    assert figures.judged({**FIGURE, **changes}, found, here).startswith(says)


def test_values_are_what_the_pattern_finds():
    output = '{"minutes": 1.5, "x": 2, "minutes": 3}'
    assert figures.values({"pattern": '"minutes": ([0-9.]+)'}, output) == [1.5, 3]


def test_a_figure_by_hand_is_listed_and_not_repeated(capsys):
    by_hand = [figure for figure in EVERY if "by_hand" in figure]
    assert by_hand and figures.repeat(by_hand)
    assert str(by_hand[0]["date"]) in capsys.readouterr().out
    assert not any(map(figures.stale, by_hand))


def test_a_figure_is_repeated(capsys):
    figure = {**FIGURE, "text": "1.0", "pages": ["it.md"], "pattern": r"(\d\.\d)", "machine": "any"}
    assert figures.repeat([{**figure, "run": "echo 1.0 >$FOLDER/it", "read": "cat $FOLDER/it"}])
    assert "it: 1.0 in it.md; now 1: yes" in capsys.readouterr().out
    assert not figures.repeat([{**figure, "run": "exit 3", "read": "echo 1.0"}])
    assert "no: its command ended with 3" in capsys.readouterr().out


def test_a_figure_whose_code_has_changed_is_named():
    old = {"what": "it", "commit": "0" * 40, "rooms": ["rn50"]}
    assert "is not in this checkout" in figures.stale(old)


def test_a_word_that_names_none():
    with pytest.raises(SystemExit, match="none has nothing in its name; there are\n.*score of the demo"):
        figures.main(["run", "nothing"])
