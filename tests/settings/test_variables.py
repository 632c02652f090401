"""A misspelled or impossible value is refused by name, with the rule that it breaks; every published spelling
is read."""

import json

import pytest

from rn50.errors import UserError
from rn50.settings import config as configuration
from rn50.settings import fields, parsers
from tests.settings.imagenet import IMAGENET, read, refusal, states

CPU = {"DEVICE": "cpu"}
OTHER_TASKS = [
    ("NUMEXAMPLES", "1000000"), ("NUMVALEXAMPLES", "49999"), ("NUMCLASSES", "10"), ("IMAGE_SIZE", "192"),
    ("EVAL_RESIZE", "288"), ("CROP_AREA_MIN", "0.25"), ("WIDTH", "0.5"), ("BENCHMARK_STEPS", "100")]


@pytest.mark.parametrize("name, value", OTHER_TASKS)
def test_anything_but_the_whole_task_is_no_result(name, value):
    assert read().is_imagenet and read(DATADIR="/elsewhere").is_imagenet
    assert not read(**{name: value}).is_imagenet


@pytest.mark.parametrize("missing", sorted(IMAGENET))
def test_what_decides_convergence_has_no_default(missing):
    assert refusal(**{missing: ""}).startswith(f"{missing} is not set")


def test_every_problem_is_shown_in_a_line_of_its_own():
    lines = refusal(LR="1o.5", MOM="2", WARMUP_EPOCHS="37", KVSTORE="device").splitlines()
    assert [line.split("=")[0] for line in lines] == ["KVSTORE", "LR", "MOM", "WARMUP_EPOCHS"]
    assert "LR=1o.5 is not a number; for example LR=10.5" in lines[1]


@pytest.mark.parametrize("spelling", ["lars", "LARS", "sgdwfastlars", "sgdwfastlarsv2"])
def test_every_published_spelling_of_lars(spelling):
    assert read(OPTIMIZER=spelling).hyperparameters.optimizer == "lars"


def test_sgd_needs_no_trust_coefficient():
    without = {name: value for name, value in IMAGENET.items() if name != "LARSETA"}
    config = configuration.from_environment({**without, "OPTIMIZER": "SGD"})
    assert (config.hyperparameters.optimizer, config.hyperparameters.lars_eta) == ("sgd", None)
    assert configuration.from_environment(config.as_environment()) == config
    with pytest.raises(UserError, match="LARSETA is not set"):
        configuration.from_environment(without)
    row = states({**IMAGENET, "OPTIMIZER": "sgd"})["LARSETA"]
    assert (row.state, row.value, row.origin) == ("no effect", "0.001", "environment")


@pytest.mark.parametrize("value", ["0.0", "-1", "nan", "none"])
def test_a_variable_that_the_optimizer_does_not_read_is_not_refused_for_its_value(value):
    environ = {**IMAGENET, "OPTIMIZER": "sgd", "LARSETA": value}
    assert configuration.from_environment(environ).hyperparameters.lars_eta is None
    row = states(environ)["LARSETA"]
    assert (row.state, row.value, row.reason) == ("no effect", value, "OPTIMIZER=sgd has no trust ratio")


def test_epochs_may_be_broken_and_the_decay_may_end_before_the_run():
    config = read(WARMUP_EPOCHS="7.6", DECAY_EPOCHS="32.97")
    assert (config.recipe.warmup_epochs, config.recipe.decay_epochs) == (7.6, 32.97)
    assert config.hyperparameters.num_epochs == 37
    whole = read(WARMUP_EPOCHS="2.0").recipe
    assert (str(whole.warmup_epochs), str(whole.decay_epochs)) == ("2", "37")


@pytest.mark.parametrize(
    "spelling", ["resnet-v1b-fl", "resnet-v1b-stats-fl", "resnet-v1b-dbar-fl", "resnet50"])
def test_every_published_spelling_of_the_network(spelling):
    read(NETWORK=spelling)


IMPOSSIBLE = [
    ("OPTIMIZER", "adam", "not a known optimizer"), ("NETWORK", "vgg16", "not ResNet-50"),
    ("NETWORK", "resnet-v2-fl", "not ResNet-50"), ("LRSCHED", "30,60,80", "pow2"),
    ("KVSTORE", "device", "KVSTORE=horovod"), ("BN_GROUP", "2", "BN_GROUP=1"),
    ("BATCHSIZE", "0", "at least 1"), ("BATCHSIZE", "-408", "at least 1"),
    ("BATCHSIZE", "408.5", "whole number"), ("BATCHSIZE", "1e999", "finite"), ("LR", "0", "above 0"),
    ("LR", "-10.5", "above 0"), ("LR", "nan", "finite"), ("LR", "1o.5", "not a number"),
    ("WARMUP_EPOCHS", "-1", "at least 0"), ("WARMUP_EPOCHS", "37", "shorter than the schedule"),
    ("NUMEPOCHS", "0", "at least 1"), ("DECAY_EPOCHS", "0", "above 0"),
    ("DECAY_EPOCHS", "2", "raise DECAY_EPOCHS"), ("MOM", "1", "below 1"), ("MOM", "-0.1", "at least 0"),
    ("WD", "-1e-4", "at least 0"), ("LARSETA", "0.0", "above 0"), ("LABELSMOOTHING", "1", "below 1"),
    ("EVAL_OFFSET", "-1", "at least 0"), ("EVAL_OFFSET", "37", "no epoch would be evaluated"),
    ("EVAL_PERIOD", "0", "at least 1"), ("BN_GAMMA_ZERO", "yes", "neither 0 nor 1"),
    ("DGXNGPU", "0", "at least 1"), ("DGXNNODES", "0", "at least 1"),
    ("DGXNNODES", "1000", "more than the data set has"), ("DEVICE", "tpu", "gpu, cpu"),
    ("PRECISION", "float8", "float16"), ("SUBMISSION_DIVISION", "Closed division", "closed, open"),
    ("SUBMISSION_STATUS", "finished", "onprem"), ("SEED", "-1", "at least 0"),
    ("SEED", "4294967296", "at most 2,147,483,647"), ("BENCHMARK_STEPS", "0", "at least 1"),
    ("NUMEXAMPLES", "0", "at least 1"), ("NUMEXAMPLES", "3000", "more than the data set has"),
    ("NUMVALEXAMPLES", "0", "at least 1"), ("NUMCLASSES", "1", "at least 2"),
    ("IMAGE_SIZE", "0", "at least 1"), ("IMAGE_SIZE", "288", "raise EVAL_RESIZE"),
    ("CROP_AREA_MIN", "0", "above 0"), ("CROP_AREA_MIN", "1.5", "at most 1"),
    ("WIDTH", "0", "at least 0.01 and at most 16"), ("DALI_THREADS", "-1", "at least 0"),
    ("DALI_PREFETCH_QUEUE", "0", "at least 1"), ("DALI_HW_DECODER_LOAD", "1.1", "at most 1"),
    ("DALI_ROI_DECODE", "true", "neither 0 nor 1"), ("DALI_CACHE_SIZE", "-1", "at least 0"),
    ("LR", "1_0", "not a number"), ("LR", "\uff11\uff10", "not a number"), ("LR", "0x10", "not a number"),
    ("LR", "-Infinity", "not a finite number"), ("NUMEPOCHS", "1e300", "at most 10,000"),
    ("WARMUP_EPOCHS", "1e300", "at most 10,000"), ("WIDTH", "0.0001", "no channel"),
    ("WIDTH", "1e9", "at least 0.01 and at most 16"), ("NUMCLASSES", "1e12", "at most 1,000,000"),
    ("DALI_THREADS", "1e9", "at most 1,024"), ("DALI_PREFETCH_QUEUE", "1e18", "at most 1,024"),
    ("OMP_NUM_THREADS", "abc", "not a number"), ("OMP_NUM_THREADS", "100000", "at most 1,024"),
    ("OMP_NUM_THREADS", "4,0", "at least 1"), ("SUBMISSION_ORG", "caf\udce9", "is not UTF-8"),
    ("DATADIR", "/data/\udcff", "is not UTF-8")]


@pytest.mark.parametrize("name, value, rule", IMPOSSIBLE)
def test_an_impossible_value_is_refused_with_the_rule_it_breaks(name, value, rule):
    message = refusal(**{name: value})
    assert f"{name}={value}" in message
    assert rule in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    "variable", [variable for _, _, variable in fields.variables()], ids=lambda each: each.name)
def test_no_number_is_accepted_whatever_its_size(variable):
    if variable.parse in (parsers.integer, parsers.number, parsers.epochs):
        assert f"{variable.name}=1e300" in refusal(**{variable.name: "1e300"})


def test_batches_that_no_memory_holds_are_refused():
    assert "more than a tebibyte; lower BATCHSIZE" in refusal(
        BATCHSIZE="100000", DALI_PREFETCH_QUEUE="1000", DGXNGPU="1")


def test_a_very_long_value_is_shown_by_its_beginning():
    assert len(refusal(LR="1" * 100_000 + "x")) < 500


def test_utf_8_in_a_locale_that_is_ascii():
    arrives = "caf\udcc3\udca9"
    read_ = read(SUBMISSION_ORG=arrives, DATADIR=f"/{arrives}")
    assert (read_.run.organisation, read_.data.folder) == ("café", f"/{arrives}")


def test_numbers_of_threads_as_openmp_reads_them():
    assert (
        read(OMP_NUM_THREADS="4").ranks == read(OMP_NUM_THREADS="4,2").ranks == read(OMP_NUM_THREADS="").ranks
        == 8)


def test_float16_needs_a_gpu():
    assert read(DEVICE="gpu", PRECISION="float16").run.precision == "float16"
    assert "DEVICE=cpu PRECISION=float16" in refusal(DEVICE="cpu", PRECISION="float16")
    assert "DEVICE=gpu PRECISION=bfloat16" in refusal(DEVICE="gpu", PRECISION="bfloat16")


def test_an_epoch_that_leaves_samples_out_is_refused():
    # 10 samples on 4 ranks are shards of 2, 2, 3 and 3; one step of batch 2 would leave the third samples
    # unseen.
    samples = {"NUMEXAMPLES": "10", "DGXNGPU": "4"}
    assert "leave out 2 samples" in refusal(BATCHSIZE="2", **samples)
    # Batch 1 needs three steps for a shard of 3, and the formula gives two.
    assert "leave out 2 samples" in refusal(BATCHSIZE="1", **samples)
    read(BATCHSIZE="2", NUMEXAMPLES="8", DGXNGPU="4")
    read(BATCHSIZE="2", NUMEXAMPLES="15", DGXNGPU="4")


def test_the_environment_of_a_configuration_reads_back_as_itself():
    config = read(SEED="7", DALI_ROI_DECODE="1", RESULT_FILE="results/a b.txt", DEVICE="cpu", WIDTH="0.25")
    assert configuration.from_environment(config.as_environment()) == config
    assert json.loads(json.dumps(config.to_dict()))["run"]["seed"] == 7


def test_a_replaced_value_is_checked_and_reaches_what_the_configuration_starts():
    config = read(NCCL_DEBUG="INFO", SEED="7")
    changed = config.replaced(LR=1, DALI_ROI_DECODE=True, NCCL_DEBUG="WARN", SEED=None)
    assert (changed.hyperparameters.learning_rate, changed.run.seed) == (1, None)
    assert changed.environ() == {**IMAGENET, "LR": "1", "DALI_ROI_DECODE": "1", "NCCL_DEBUG": "WARN"}
    assert config.environ()["NCCL_DEBUG"] == "INFO" and config == read(SEED="7")
    with pytest.raises(UserError, match="LR=-1 must be above 0"):
        config.replaced(LR=-1)


def test_the_environment_is_neither_shown_nor_saved_nor_compared():
    config = read(SECRET_TOKEN="abc123")
    assert "abc123" not in repr(config) and "abc123" not in json.dumps(config.to_dict())
    assert config == read() and config.sha256 == read().sha256 and hash(config) == hash(read())


def test_names_of_other_makers():
    environ = {name: value for name, value in IMAGENET.items() if not name.startswith("DGX")}
    config = configuration.from_environment({**environ, "PGNGPU": "4", "PGNNODES": "2", "PGSYSTEM": "PG"})
    assert (config.run.ranks_per_node, config.run.nodes, config.run.system) == (4, 2, "PG")
    with pytest.raises(UserError, match="PGNGPU=0"):
        configuration.from_environment({**environ, "PGNGPU": "0", "PGNNODES": "1"})


@pytest.mark.parametrize(
    "changes, says",
    [({"FRAMEWORK": "abacus"},
      r"FRAMEWORK=abacus is not an implementation \(choose from mxnet, paddle, pytorch\)"),
     ({"INPUT_LIBRARY": "dataloader"},
      "with FRAMEWORK=mxnet INPUT_LIBRARY is auto or dali; use one of these"),
     ({"STEP_MODE": "compile"},
      "with FRAMEWORK=mxnet STEP_MODE is eager; use one of these, or add --set FRAMEWORK=pytorch"),
     ({"PRECISION": "bfloat16"},
      "with FRAMEWORK=mxnet and DEVICE=gpu PRECISION is auto or float32 or float16"),
     ({"FRAMEWORK": "pytorch", "PRECISION": "float16", **CPU},
      "FRAMEWORK=pytorch and DEVICE=cpu PRECISION is auto or float32")])
def test_what_a_framework_does_not_have_is_refused(changes, says):
    with pytest.raises(UserError, match=says):
        configuration.from_environment({**IMAGENET, **changes})
