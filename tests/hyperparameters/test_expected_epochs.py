"""Expected epochs of recipes: suggestions are in their order, and an unknown recipe lies between points of
the reference."""

import dataclasses
import io
import json

import pytest

from rn50.benchmark.recipe import departures
from rn50.hyperparameters import expected_epochs
from rn50.hyperparameters.borrow import display, origin
from rn50.results import recipe
from rn50.terminal import UNFOLDED, Terminal
from tests.hyperparameters.borrowing import recipe_of, rn50


def test_suggestions_prefer_few_epochs_to_the_nearest_batch():
    found = expected_epochs.candidates(1000, "lars")
    order = [(round(each.expected(1000), 1), -each.prediction.runs) for each in found]
    assert order == sorted(order)
    best = found[0]
    assert best.prediction.mean < 36 and 0.5 < best.values.global_batch_size / 1000 < 2
    at_1000 = [each for each in found if each.values.global_batch_size == 1000]
    assert at_1000 and all(
        each.expected(1000) > best.expected(1000) + 10 for each in at_1000
    )  # the one that took 55 epochs
    for each in found:
        assert departures(each.values) == {}
        source = origin.find(each.name)  # every one of them can be borrowed
        assert source.global_batch_size == each.values.global_batch_size
    status, said = rn50("--suggest", "--gbs", "1000", "--json", "--limit", "3")
    assert status == 0 and [each["name"] for each in json.loads(said)] == [each.name for each in found[:3]]


def suggested(size, columns, limit=10):
    """The lines of the suggestions on something of so many columns."""
    out = io.StringIO()
    console = Terminal(file=out)
    console.width = columns
    display.print_suggestions(expected_epochs.candidates(size, "lars")[:limit], size, console)
    return out.getvalue().splitlines()


def test_suggestions_have_a_column_for_what_differs_and_say_once_what_does_not():
    lines = suggested(3264, UNFOLDED)
    heading = next(line for line in lines if "source" in line)
    assert heading.split() == [
        "batch", "learning", "rate", "warm-up", "decay", "epochs", "missed", "expected", "source"]
    assert "All have weight decay 5e-05, momentum 0.9." in lines
    assert "warm-up" not in next(line for line in suggested(1000, UNFOLDED) if "source" in line)
    assert "All have" not in "".join(suggested(3264, UNFOLDED, limit=1)), "one alone differs from nothing"


def test_a_source_is_never_broken():
    names = [each.name for each in expected_epochs.candidates(3264, "lars")[:10]]
    assert max(map(len, names)) > 60
    narrow = suggested(3264, 80)
    assert [line.strip() for line in narrow if line.strip() in names] == names
    assert all(len(line) <= 80 for line in narrow[: narrow.index("", 4)])
    assert [
        line.split()[-1] for line in suggested(3264, 160) if line.split()[-1:] and line.split()[-1] in names
    ] == names


def test_suggestions_end_with_the_command_that_borrows_the_first(monkeypatch):
    for name in ("DGXSYSTEM", "CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert suggested(3264, 80)[-1] == "rn50 borrow v0.7/Inspur/nf5488_mxnet CONFIG -o config_MINE.sh"
    monkeypatch.setenv("DGXSYSTEM", "DGXA100")
    found = expected_epochs.candidates(1000, "lars")[0]
    assert found.values.global_batch_size != 1000
    assert (
        suggested(1000, 80)[-1]
        == f"rn50 borrow {found.name} DGXA100 --global-batch-size 1000 -o config_MINE.sh")
    monkeypatch.setenv("CONFIG_FILE", "my files/config_X.sh")
    assert " 'my files/config_X.sh' " in suggested(1000, 80)[-1]


def test_an_unknown_recipe_of_lars_is_told_by_the_reference_between_its_points():
    values = recipe_of(2448)
    said = expected_epochs.of_recipe(values, ())
    points = [
        each["Epochs to converge"] for each in json.loads(recipe.reference_file("4.0.0").read_text()).values()
    ][:2]
    assert said.mean == pytest.approx(sum(sum(each) / len(each) for each in points) / 2)
    assert expected_epochs.of_recipe(dataclasses.replace(values, optimizer="sgd"), ()) is None
