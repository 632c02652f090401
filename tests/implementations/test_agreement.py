"""The implementations are one submission: from equal weights and equal batches they come to equal weights."""

import itertools

import numpy as np
import pytest

from rn50.benchmark import schedule
from rn50.run import loop
from tests.conftest import with_changes
from tests.contract.frameworks import FRAMEWORKS, installed

STEPS = 12


@pytest.fixture(params=itertools.combinations(sorted(FRAMEWORKS, reverse=True), 2), ids=" and ".join)
def pair(request):
    """A function that returns (framework, warmed-up rank) of two frameworks."""
    frameworks, ranks, named = [installed(name) for name in request.param], [], []

    def warm_up(config):
        for name, seed in zip(request.param, (3, 4), strict=False):
            ranks.append(loop.Rank(with_changes(config, run={"framework": name})))
            named.append(ranks[-1].warm_up(seed))
        assert named[0] == named[1]
        return zip(frameworks, ranks, strict=False)

    yield warm_up
    for rank in ranks:
        rank.close()


OPEN = {"loss": "binary", "lr_decay": "cosine", "label_smoothing": 0.1, "ema_half_life": 5.0}


@pytest.mark.parametrize(
    "optimizer, learning_rate, recipe", [("lars", 1.0, {}), ("sgd", 0.2, {}), ("lars", 1.0, OPEN)])
def test_steps_agree(pair, tiny_config, optimizer, learning_rate, recipe):
    """Each step begins with equal weights, and carries on the momentum of those before.

    Losses are continuous in what is rounded, so those of every step agree. Gradients are not: a value that is
    rounded to the other side of 0 gets a gradient through ReLU or gets none. On some processor that happens
    in some step, and weights that go on from there part: by up to 3e-2 of the way after 20 steps, if they
    begin 1e-6 apart. So three of the steps agree to rounding, and any other nearly. A wrong decay or trust
    ratio spoils every step, and a wrong momentum all but the first. A momentum of 0.5 soon forgets a value on
    the other side. The weight decay is so large that each step needs it.
    """
    h = {"optimizer": optimizer, "learning_rate": learning_rate, "batch_size": 32}
    h.update(momentum=0.5, weight_decay=5e-3, warmup_epochs=5, decay_epochs=STEPS, **recipe)
    config = with_changes(tiny_config, hyperparameters=h)
    (one, ours), (other, theirs) = pair(config)
    begin = before = one.weights(ours)
    shapes = [
        {name: value.shape for name, value in each.weights(rank).items()}
        for each, rank in ((one, ours), (other, theirs))]
    assert shapes[0] == shapes[1]
    random, apart = np.random.RandomState(0), []
    for step in range(1, STEPS + 1):
        theirs.assign(before)
        samples = 32 if step % 4 else 20  # now and then a ragged batch
        images = random.standard_normal((32, 3, 32, 32)).astype(np.float32)
        labels = random.randint(10, size=32)
        rate = schedule.learning_rate(step, config.recipe, 1)
        losses = [
            each.array(rank.engine.step(each.batch(images, labels, samples, samples), rate, 0.3))
            for each, rank in ((one, ours), (other, theirs))]
        np.testing.assert_allclose(*losses, rtol=1e-4)
        after, others = one.weights(ours), other.weights(theirs)
        for name, mine in after.items():
            if name.endswith("weight"):
                assert np.linalg.norm(mine - others[name]) < 1e-4 * np.linalg.norm(mine), name
        apart.append(distance(after, others) / distance(after, before))
        before = after
    assert sorted(apart)[2] < 1e-4 and max(apart) < 0.05, apart
    assert [name for name in begin if (before[name] == begin[name]).all()] == []


def distance(some, others):
    """The norm of the difference of all weights."""
    return np.linalg.norm([np.linalg.norm(some[name] - others[name]) for name in some])


def test_their_evaluations_agree(pair, tiny_config):
    (one, ours), (other, theirs) = pair(tiny_config)
    random = np.random.RandomState(1)
    values = {
        name: random.uniform(0.5, 1.5, each.shape) if name.endswith("gamma") else each
        for name, each in one.weights(ours).items()}
    kinds = {"mean": random.standard_normal, "var": lambda shape: random.uniform(0.5, 2, shape)}
    found = [each.running_statistics(rank) for each, rank in ((one, ours), (other, theirs))]
    for statistics in found:
        assert [name.rsplit("_", 1)[1] for name in statistics] == ["mean", "var"] * 53
    values.update((name, kinds[name.rsplit("_", 1)[1]](each.shape)) for name, each in found[0].items())
    values = {name: np.asarray(each, np.float32) for name, each in values.items()}
    images = random.standard_normal((16, 3, 32, 32)).astype(np.float32)
    logits = []
    for each, rank in ((one, ours), (other, theirs)):
        rank.assign(values)
        logits.append(each.logits(rank, images))
    np.testing.assert_allclose(*logits, rtol=1e-4, atol=1e-4 * np.abs(logits[0]).max())
