"""What every implementation owes the timed run, on the tiny set. One suite for all frameworks."""

import dataclasses
import math
import pathlib
import re

import mlperf_logging
import numpy as np
import pytest

from rn50 import frameworks
from rn50.benchmark import rules
from rn50.benchmark.recipe import FIXED, HYPERPARAMETERS, Recipe
from rn50.errors import UserError
from rn50.results import parse, recipe
from rn50.run import loop, timed_run
from rn50.settings import config as configuration
from rn50.settings.fields import VARIABLE_OF
from rn50.speed import measured_steps
from tests.conftest import EVAL_SAMPLES, HAS_GPU, TRAIN_SAMPLES, with_changes
from tests.contract.frameworks import WITH_TOY, installed


@pytest.fixture(params=sorted(WITH_TOY))
def framework(request):
    """A framework that is installed."""
    return installed(request.param)


@pytest.fixture
def tiny_config(request, framework, tiny_config):
    """The tiny configuration, of that framework."""
    return with_changes(tiny_config, run={"framework": request.node.callspec.params["framework"]})


@pytest.fixture
def create(framework):
    """The class of a rank, for one framework."""
    return loop.Rank


@pytest.fixture
def trainer(create, tiny_config):
    """One rank, warmed up with seed 5."""
    rank = create(tiny_config)
    rank.warm_up(5)
    yield rank
    rank.close()


def names_in_ruleset(version):
    """The tensors that the official ruleset expects to see initialised."""
    folder = pathlib.Path(mlperf_logging.__file__).parent / "compliance_checker" / f"training_{version}"
    return re.findall(r'"(\w+_(?:weight|bias|gamma|beta))"', (folder / "closed_resnet.yaml").read_text())


@pytest.mark.parametrize("version", ["1.1.0", "2.0.0", "2.1.0"])
def test_tensors_carry_the_names_of_the_rulesets(create, framework, tiny_config, tmp_path, version):
    rank = create(
        with_changes(tiny_config, data={"folder": str(tmp_path / "absent")})
    )  # and no data set is needed
    tensors = rank.warm_up(5)
    rank.close()
    assert len(tensors) == len(set(tensors)) == framework.tensors
    expected = names_in_ruleset(version)
    assert set(tensors) <= set(expected) and len(expected) == 161


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
def test_ranks_without_a_gpu_end_before_they_connect(request, create, tiny_config):
    name = request.node.callspec.params["framework"]
    if "gpu" not in frameworks.traits(name).precisions:
        pytest.skip("runs on CPUs alone")
    config = with_changes(tiny_config, run={"framework": name, "device": "gpu", "ranks_per_node": 2})
    with pytest.raises(
        UserError, match="^DEVICE=gpu: .* sees 0 GPUs, DGXNGPU=2 asks for more; set DEVICE=cpu, or "
    ):
        create(config)


def test_warm_up_leaves_the_weights_to_the_seed(create, framework, tiny_config):
    ranks = [create(tiny_config) for _ in range(3)]
    for rank, seed in zip(ranks, (5, 5, 6), strict=False):
        rank.warm_up(seed)
    first, same, other = (framework.weights(rank) for rank in ranks)
    for name in first:
        np.testing.assert_array_equal(first[name], same[name])
    assert any((first[name] != other[name]).any() for name in first)
    running = framework.running_statistics(ranks[0])
    assert len(running) == framework.statistics
    for name, statistic in running.items():  # as if no batch had ever passed
        assert (statistic == (1 if "var" in name else 0)).all()
    for rank in ranks:
        rank.close()


def test_warm_up_meets_every_batch_size_of_a_run(create, tiny_config, monkeypatch):
    rank, sizes = create(tiny_config), []
    step = rank.engine.step
    monkeypatch.setattr(
        rank.engine, "step",
        lambda batch, *numbers: sizes.append(batch.samples) or step(batch, *numbers))
    rank.warm_up(5)
    warmed_up = set(sizes)
    sizes.clear()
    rank.open_data()
    rank.train_epoch(lambda samples, loss: None)
    assert set(sizes) == warmed_up == {16, TRAIN_SAMPLES % 16}
    rank.close()


def test_an_epoch_trains_on_every_sample_and_evaluation_counts_every_sample(trainer, framework):
    trainer.open_data()
    before = framework.weights(trainer)
    result = trainer.train_epoch(lambda samples, loss: None)
    assert result.samples == TRAIN_SAMPLES
    assert 0 <= result.data_wait_seconds <= result.seconds
    after = framework.weights(trainer)
    assert any((before[name] != after[name]).any() for name in before)
    first, second = trainer.evaluate(), trainer.evaluate()
    assert first == second  # evaluation changes nothing
    assert first[1] == EVAL_SAMPLES and 0 <= first[0] <= first[1]


def test_steps_that_only_measure_leave_the_weights_as_they_are(trainer, framework, tiny_config):
    before, batch = framework.weights(trainer), tiny_config.hyperparameters.batch_size
    settings = tiny_config.input_pipeline
    deeper = dataclasses.replace(settings, roi_decode=not settings.roi_decode, prefetch_queue_depth=4)
    for batches in [
        measured_steps.open_input(trainer, each) for each in (None, settings, deeper)
    ]:  # several are open at a time
        for _ in range(2):
            begun = trainer.steps
            result = measured_steps.train(trainer, batches, 2, 5)
            assert (result.samples, trainer.steps - begun) == (5 * batch, 7)
            alone = measured_steps.take(batches, 2, 5)
            assert (alone.samples, trainer.steps - begun) == (5 * batch, 7)
            assert 0 <= result.data_wait_seconds <= result.seconds
    for name, weight in framework.weights(trainer).items():
        np.testing.assert_array_equal(weight, before[name])
    alone = measured_steps.train(trainer, measured_steps.open_input(trainer, None), 0, 2)
    assert alone.data_wait_seconds == 0
    assert trainer.engine.batch_format.device_id is None and not trainer.engine.batch_format.half_precision
    trainer.close()


def test_another_thread_can_see_whether_a_rank_goes_on(create, tiny_config):
    rank = create(tiny_config)
    assert (rank.steps, rank.waits_for_data) == (0, False)
    rank.warm_up(5)
    after_warm_up = rank.steps
    assert after_warm_up > 0
    assert 0 < rank.forward_seconds < 60
    rank.open_data()
    seen = []
    rank.train_epoch(lambda samples, loss: seen.append((rank.steps, samples, loss)))
    steps = -(-TRAIN_SAMPLES // tiny_config.hyperparameters.batch_size)
    assert rank.steps == after_warm_up + steps
    rank.evaluate()
    assert rank.steps == after_warm_up + steps + -(-EVAL_SAMPLES // tiny_config.hyperparameters.batch_size)
    assert not rank.waits_for_data
    # The first loss, at once: that of a classifier that guesses.
    assert seen[0][0] == after_warm_up + 2 and abs(seen[0][2] - math.log(tiny_config.data.classes)) < 0.3
    rank.close()


@pytest.mark.parametrize("optimizer", rules.OPTIMIZERS)
def test_a_run_of_either_optimizer_trains_and_logs_exactly_its_values(
    create, tiny_config, tiny_environment, tmp_path, optimizer
):
    values = {
        "OPTIMIZER": optimizer, "LR": "0.125", "WARMUP_EPOCHS": "0.5", "DECAY_EPOCHS": "1.7", "WD": "2.5e-05"}
    file = tmp_path / "result_0.txt"
    config = configuration.from_environment({**tiny_environment, **values, "RESULT_FILE": str(file)})
    config = with_changes(config, run={"framework": tiny_config.run.framework})
    assert timed_run.run(config, create, timed_run.Display()).epoch == 2
    said = recipe.of_log(parse.read_log(file))
    assert said.shared == Recipe(
        global_batch_size=16, optimizer=optimizer, learning_rate=0.125, warmup_epochs=0.5, decay_epochs=1.7,
        weight_decay=2.5e-05, momentum=0.9)
    assert {f"{optimizer}_opt_base_learning_rate"} == {
        event.key for event in parse.read_log(file).events if event.key.endswith("opt_base_learning_rate")}


SET_AS = {"global_batch_size": "batch_size", "model_bn_span": "batch_size"}
"""Hyperparameters of the log that follow from one of the configuration."""


OTHER_TEXTS = {"optimizer": "sgd", "lr_decay": "cosine", "loss": "binary"}
"""Other values of hyperparameters that are texts."""
ELSEWHERE = {"image_sizes", "ema_half_life"}
"""Hyperparameters that change no step on a synthetic batch; test_open_recipe.py is of them."""


def trained(create, config):
    """Bytes of the weights after three steps of the second epoch, at the rates of the configuration."""
    rank, rates = create(config), loop.LearningRates(config)
    try:
        rank.engine.build(5, "float32")
        rates.go_on_after(1)
        rank.train(rank.synthetic(), 3, rates.next)
        return b"".join(array.tobytes() for array in rank.weights().values())
    finally:
        rank.close()


def test_every_hyperparameter_of_the_log_is_trained_with_or_cannot_be_set(create, tiny_config):
    """Else the log would state what was not trained. A new row of ``Recipe`` is tried too."""
    before, without_effect = trained(create, tiny_config), []
    implemented = frameworks.traits(tiny_config.run.framework).open_recipe
    unimplemented = set(frameworks.values("open_recipe")) - set(implemented)
    lacking = {field for field, variable in VARIABLE_OF.items() if variable in unimplemented}
    for name in (name for name in HYPERPARAMETERS if name not in ELSEWHERE | lacking):
        field = SET_AS.get(name, name)
        value = getattr(tiny_config.hyperparameters, field, None)
        half = type(value or 1.7)((value or 1.7) / 2) if not isinstance(value, str | bool) else True
        other = OTHER_TEXTS.get(name, half)
        try:
            config = with_changes(tiny_config, hyperparameters={field: other})
        except TypeError:  # no field, so that no configuration can set it
            assert name in FIXED or getattr(tiny_config.recipe, name) == 1
            continue
        assert getattr(config.recipe, name) != getattr(tiny_config.recipe, name), name
        without_effect += [name] if trained(create, config) == before else []
    assert without_effect == []


def test_one_process_has_nothing_to_send(create, tiny_config):
    rank = create(tiny_config)
    assert rank.communicator.library == ""
    assert rank.communicator.all_reduce_seconds(1000, 3) == [0.0] * 3
    rank.close()


def test_close_twice_and_before_the_data_is_opened(create, tiny_config):
    rank = create(tiny_config)
    rank.close()
    rank.close()
