"""Numbers that the command line refuses, given to the Python API."""

import math

import pytest

from rn50.errors import UserError
from rn50.hyperparameters import expected_epochs
from rn50.hyperparameters.borrow import borrow, origin
from rn50.hyperparameters.plan.planner import SystemPlanner, planner_for
from rn50.settings.document import Document
from tests.hyperparameters.borrowing import EIGHT

NAME = "A100-SXM-80GB"


@pytest.fixture(scope="module")
def planner():
    return SystemPlanner()


@pytest.mark.parametrize("number", [0, -8, 1.5, math.nan, math.inf])
def test_numbers_that_are_no_counts_are_refused_from_python_too(planner, number):
    for call in (
        lambda: planner.best(NAME, number), lambda: planner.candidates(NAME, number),
        lambda: planner.plan(NAME, number, 3264), lambda: planner.plan(NAME, 8, number),
        lambda: planner.predict(NAME, number, 3264), lambda: planner.predict(NAME, 8, number),
        lambda: planner_for(NAME, 3000.0, 8, number or -1),
        lambda: expected_epochs.candidates(number, "lars"),
    ):
        with pytest.raises(UserError, match="no whole number from 1 on|choose one up to that"):
            call()


@pytest.mark.parametrize("batch", [0, -8, 1.5])
def test_a_batch_that_is_no_count_is_refused_from_python_too(batch):
    with pytest.raises(UserError, match=f"--gbs {batch}: no whole number from 1 on"):
        borrow.borrow(origin.find("v1.0/Inspur/nf5688m6_mxnet"), Document(EIGHT), batch)
