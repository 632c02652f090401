"""The open recipe in every framework that has it: sizes by epoch, averages, and what a step makes of both."""

import numpy as np
import pytest

from rn50 import frameworks
from rn50.run import checkpoint, loop
from tests.conftest import with_changes
from tests.contract.frameworks import FRAMEWORKS, installed

SIZES = {"IMAGE_SIZES": "32:1,40:2,48:3", "LOSS": "binary", "EMA_HALF_LIFE": "4"}


@pytest.fixture(params=sorted(FRAMEWORKS))
def rank(request, tiny_config):
    """A rank that trains images of 32, 40 and 48 pixels, and evaluates those of 48; through DALI, because the
    workers of a DataLoader would be forked from a process that has computed with several frameworks."""
    name = request.param
    installed(name)
    made = loop.Rank(with_changes(
        tiny_config, data={"image_size": 48, "eval_resize": 54},
        run={"framework": name, "division": "open"}, input_pipeline={"library": "dali"},
        hyperparameters={
            "image_sizes": SIZES["IMAGE_SIZES"], "loss": "binary", "ema_half_life": 4.0, "num_epochs": 3}))
    assert set(SIZES) <= set(frameworks.traits(name).open_recipe)
    made.warm_up(7)
    yield made
    made.close()


def sizes_of(rank, monkeypatch):
    """A list that gets the shape of the images of every step from now on."""
    shapes, step = [], rank.engine.step
    monkeypatch.setattr(
        rank.engine, "step", lambda batch, *more: shapes.append(batch.images.shape[2]) or step(batch, *more))
    return shapes


def test_an_epoch_has_its_size_and_so_has_a_resumed_one(rank, monkeypatch):
    shapes = sizes_of(rank, monkeypatch)
    rank.open_data()
    for size in (32, 40):
        rank.train_epoch(lambda samples, loss: None)
        assert set(shapes) == {size}
        shapes.clear()
    assert rank.evaluate()[1] == rank.config.data.eval_samples  # of 48 pixels, in between
    rank.begin_after(2, 5)
    for _ in range(2):  # the last size stays
        rank.train_epoch(lambda samples, loss: None)
    assert set(shapes) == {48}


def test_the_averages_are_those_of_the_formula(rank):
    """Copies at first, then each period what was averaged keeps half to the power of period / half-life."""
    rates, expected = loop.LearningRates(rank.config), None
    rank._rates, period = rates, loop.AVERAGE_PERIOD
    batch, kept = rank.engine.synthetic(40), 0.5 ** (period / 4)
    for step in range(1, 3 * period + 1):
        rank.engine.step(batch, rates.next(), rates.average_share)
        if step <= period or step % period == 0:
            weights = {name: array.astype(np.float64) for name, array in rank.weights().items()}
            if step > period:
                weights = {name: kept * expected[name] + (1 - kept) * weights[name] for name in weights}
            expected = weights
    trained = rank.weights()
    with rank.averaged():
        averaged = rank.weights()
    assert averaged.keys() == trained.keys() == expected.keys()
    for name, array in averaged.items():
        np.testing.assert_allclose(array, expected[name], rtol=2e-5, atol=2e-6, err_msg=name)
        np.testing.assert_array_equal(rank.weights()[name], trained[name])
    assert any((averaged[name] != trained[name]).any() for name in trained)


def test_weights_that_are_set_are_averaged_anew(rank):
    weights = {name: array + 1 for name, array in rank.weights().items()}
    rank.assign(weights)
    with rank.averaged():
        for name, array in rank.weights().items():
            np.testing.assert_array_equal(array, weights[name])


def test_a_checkpoint_has_the_averages(rank, tmp_path):
    run = {"result_file": str(tmp_path / "result_0.txt"), "checkpoint_epochs": 1, "resume": True}
    config = with_changes(rank.config, run=run)
    rank.open_data()
    rank.train_epoch(lambda samples, loss: None)
    checkpoint.write(config, rank, 7, 1)
    state = rank.state()
    rank.assign({name: np.zeros_like(array) for name, array in rank.weights().items()})
    checkpoint.restore(checkpoint.read(config), rank)
    assert sum(name.endswith("_average") for name in state) == len(rank.weights())
    for name, array in rank.state().items():
        np.testing.assert_array_equal(array, state[name], err_msg=name)
