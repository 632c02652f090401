"""Expected epochs of recipes: suggestions are in their order, and an unknown recipe lies between points of the reference."""

import json

import pytest

from rn50.benchmark import rules
from rn50.hyperparameters import expected_epochs
from rn50.hyperparameters.borrow import origin
from rn50.results import recipe
from tests.hyperparameters.borrowing import rn50


def test_suggestions_prefer_few_epochs_to_the_nearest_batch():
    found = expected_epochs.candidates(1000, "lars")
    order = [(round(each.expected, 1), -each.prediction.runs) for each in found]
    assert order == sorted(order)
    best = found[0]
    assert best.prediction.mean < 36 and 0.5 < best.global_batch_size / 1000 < 2
    at_1000 = [each for each in found if each.global_batch_size == 1000]
    assert at_1000 and all(each.expected > best.expected + 10 for each in at_1000)  # the one that took 55 epochs
    for each in found:
        assert rules.departures("lars", each.global_batch_size, each.values["base_learning_rate"], each.values["momentum"],
                                each.values["weight_decay"], 0.1) == {}
        source = origin.find(each.name)  # every one of them can be borrowed
        assert source.global_batch_size == each.global_batch_size
    status, said = rn50("--suggest", "--gbs", "1000", "--json", "--limit", "3")
    assert status == 0 and [each["name"] for each in json.loads(said)] == [each.name for each in found[:3]]


def test_an_unknown_recipe_of_lars_is_told_by_the_reference_between_its_points():
    values = (2448, "lars", 9.0, 2.0, 37.0, 5e-5, 0.9)
    said = expected_epochs.of_recipe(values, ())
    points = [each["Epochs to converge"] for each in json.loads(recipe.reference_file("4.0.0").read_text()).values()][:2]
    assert said.mean == pytest.approx(sum(sum(each) / len(each) for each in points) / 2)
    assert expected_epochs.of_recipe((2448, "sgd", *values[2:]), ()) is None
