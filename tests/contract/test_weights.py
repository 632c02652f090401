"""Weights go from one framework to another: by the names of the network, and to the same predictions."""

import itertools

import numpy as np
import pytest

from rn50.benchmark import network, quantization, rules, sparsity
from rn50.run import loop
from tests.conftest import EVAL_SAMPLES, with_changes
from tests.contract.frameworks import FRAMEWORKS, WITH_TOY, installed


@pytest.fixture
def ranks(tiny_config):
    """A function that returns a warmed-up rank of a framework."""
    made = []

    def rank(name, seed=5):
        installed(name)
        made.append(loop.Rank(with_changes(tiny_config, run={"framework": name})))
        made[-1].warm_up(seed)
        return made[-1]

    yield rank
    for each in made:
        each.close()


def drawn(shapes, seed):
    """Random weights of these shapes, with variances and gammas above 0."""
    random = np.random.default_rng(seed)
    return {
        name: (
            random.uniform(0.5, 1.5, shape) if name.endswith(("gamma", "var"))
            else random.standard_normal(shape) * 0.1).astype(np.float32)
        for name, shape in shapes.items()}


@pytest.mark.parametrize("name", sorted(FRAMEWORKS))
def test_weights_have_names_and_shapes_of_the_network(ranks, tiny_config, name):
    found = ranks(name).weights()
    assert {name: array.shape for name, array in found.items()} == network.shapes(10, tiny_config.data.width)
    assert {array.dtype for array in found.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize("name", sorted(WITH_TOY))
def test_what_is_assigned_is_what_the_network_has_and_trains_on(ranks, name):
    begun, fresh = ranks(name), ranks(name, seed=6)
    begun.open_data()
    begun.train_epoch(lambda samples, loss: None)
    before = begun.weights()
    begun.evaluate()  # in MXNet it reorders weights in memory
    random = drawn({name: array.shape for name, array in before.items()}, 1)
    assert any((before[name] != random[name]).any() for name in before)
    for rank in (begun, fresh):
        rank.assign(random)
        for each, array in rank.weights().items():
            np.testing.assert_array_equal(array, random[each])
            array[:] = 0  # it is a copy
    ours, theirs = (rank.predictions() for rank in (begun, fresh))
    for (logits, labels), (others, _) in itertools.zip_longest(ours, theirs):
        np.testing.assert_array_equal(logits, others)
        assert logits.dtype == np.float32 and logits.shape == (len(labels), 10)
    begun.assign_state({name: np.zeros_like(array) for name, array in begun.state().items()})
    random_batch = fresh.engine.synthetic(fresh.config.data.image_size)
    for rank in (begun, fresh):
        rank.engine.step(random_batch, 0.1)
    ours, theirs = begun.weights(), fresh.weights()
    for each in ours:
        np.testing.assert_array_equal(ours[each], theirs[each])
        assert "beta" in each or "running" in each or (ours[each] != random[each]).any(), each


@pytest.mark.parametrize("one, other", [*itertools.permutations(sorted(FRAMEWORKS), 2)])
def test_weights_of_one_framework_evaluate_in_another(ranks, one, other):
    ours, theirs = ranks(one), ranks(other)
    ours.open_data()
    ours.train_epoch(lambda samples, loss: None)
    theirs.assign(ours.weights())
    correct, total = ours.evaluate()
    predicted = [
        [(logits.argmax(axis=1) == labels).sum() for logits, labels in rank.predictions()]
        for rank in (ours, theirs)]
    assert total == EVAL_SAMPLES and predicted[0] == predicted[1] and sum(predicted[0]) == correct
    theirs.open_data()
    assert theirs.evaluate() == (correct, total)


@pytest.mark.parametrize("optimizer", rules.OPTIMIZERS)
@pytest.mark.parametrize("name", sorted(FRAMEWORKS))
def test_pruned_weights_stay_pruned_whatever_the_optimizer_does(tiny_config, name, optimizer):
    installed(name)
    h = {"optimizer": optimizer, "learning_rate": 0.05}
    rank = loop.Rank(with_changes(tiny_config, run={"framework": name}, hyperparameters=h))
    rank.warm_up(5)
    begun = drawn(network.shapes(10, tiny_config.data.width), 2)
    masks = sparsity.masks(begun)
    rank.engine.keep(masks)
    rank.assign({name: array * masks.get(name, np.float32(1)) for name, array in begun.items()})
    rank.open_data()
    rank.train_epoch(lambda samples, loss: None)
    rank.evaluate()
    ended = rank.weights()
    rank.close()
    for each, mask in masks.items():
        np.testing.assert_array_equal(ended[each] != 0, mask == 1, err_msg=each)
        assert (ended[each] != begun[each] * mask).any()
    assert sparsity.holds(ended) and set(sparsity.densities(ended).values()) == {0.5}
    assert (ended["conv0_weight"] != 0).all()


def of_weights(name, config, begun):
    """Logits of a rank with these weights, and its weights after an epoch that began with them."""
    rank = loop.Rank(with_changes(config, run={"framework": name}))
    rank.warm_up(5)
    rank.assign(begun)
    logits = np.concatenate([logits for logits, _ in rank.predictions()])
    rank.open_data()
    rank.train_epoch(lambda samples, loss: None)
    ended, precision = rank.weights(), rank.precision
    rank.close()
    return logits, ended, precision


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FRAMEWORKS))
def test_rounded_as_in_int8(tiny_config, name):
    installed(name)
    begun = drawn(network.shapes(10, tiny_config.data.width), 2)
    plain, _, _ = of_weights(name, tiny_config, begun)
    rounds = with_changes(tiny_config, run={"quantization": "int8", "precision": "auto"})
    logits, ended, precision = of_weights(name, rounds, begun)
    rounded = {
        each: quantization.rounded_weight(array) if each.endswith("_weight") else array
        for each, array in begun.items()}
    weights_alone, _, _ = of_weights(name, tiny_config, rounded)
    scale = np.abs(plain).max()
    assert precision.name == "float32" and "QUANTIZATION=int8" in precision.reason
    assert 1e-4 < np.abs(logits - plain).max() / scale < 0.1
    assert np.abs(logits - weights_alone).max() / scale > 1e-4  # inputs are rounded too
    for each in sparsity.pruned(ended):
        assert (ended[each] != begun[each]).any() and np.abs(
            ended[each] - quantization.rounded_weight(ended[each])).max() > 0
