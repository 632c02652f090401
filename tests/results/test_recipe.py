"""Every hyperparameter that a run logs is known wherever hyperparameters are read, judged or displayed."""

import csv
import dataclasses
import json
import pathlib

import mlperf_logging
import pytest

from rn50.benchmark import rules
from rn50.benchmark.recipe import COLUMN_OF, FIXED, HYPERPARAMETERS, SHARED, departures
from rn50.errors import UserError
from rn50.hyperparameters.borrow import origin
from rn50.results import compare, published, recipe, run, score
from rn50.results.parse import read_log
from rn50.results.report import recipes
from rn50.results.validity import log_rules, sidecar_rules
from rn50.run import provenance
from rn50.settings.fields import VARIABLE_OF
from tests.results import scored
from tests.results.mutations import delete, value
from tests.support import imagenet_run

SGD = {"OPTIMIZER": "sgd", "LR": "6", "WARMUP_EPOCHS": "5", "NUMEPOCHS": "42", "WD": "2.5e-05"}
CONFIGURED = {"lars": {}, "sgd": SGD}
NOT_LOGGED = {"batch_size", "num_epochs", "lars_eta", "eval_offset", "eval_period", "bn_gamma_zero"}
"""Hyperparameters that MLPerf has no key for, or that a run logs in another one's value."""
OF_EVERY_RUN = {"global_batch_size", "model_bn_span", "gradient_accumulation_steps"}
"""Logged values that follow from the number of ranks."""
UNLOGGED = [name for name, row in HYPERPARAMETERS.items() if not row.keys]
"""Those of a recipe that MLPerf has no key for: label smoothing, and the open recipe's."""
LOGGED = [(optimizer, name) for name, row in HYPERPARAMETERS.items() for optimizer in row.keys]


def other(name, logged):
    """Another value; where the closed division has a rule, one that it does not allow."""
    if isinstance(logged, str) and name != "optimizer":
        return f"another {logged}"
    if name == "optimizer":
        return {"lars": "sgd", "sgd": "lars"}[logged]
    return logged * 3 + (1 if name in OF_EVERY_RUN else 1.0149)


@pytest.fixture
def log(tmp_path):
    """A function that writes a log of an optimizer, with another value of the hyperparameter named."""

    def write(optimizer, name=None, file="result_0.txt"):
        config = imagenet_run.configured(**CONFIGURED[optimizer])
        file = imagenet_run.write(tmp_path / file, config=config)
        if name:
            new = value(HYPERPARAMETERS[name].keys[optimizer], other(name, getattr(config.recipe, name)))
            file.write_text(new(file.read_text()))
        return file

    return write


def test_every_hyperparameter_of_a_configuration_is_in_a_recipe_or_named_here():
    assert set(VARIABLE_OF) - set(HYPERPARAMETERS) == NOT_LOGGED
    assert set(HYPERPARAMETERS) - set(VARIABLE_OF) == OF_EVERY_RUN | set(FIXED)


def test_every_row_with_a_column_is_in_the_published_table():
    with published.TABLE.open(newline="") as table:
        columns = set(next(csv.reader(table)))
    assert set(COLUMN_OF.values()) <= columns == set(published.COLUMNS)
    assert set(SHARED) | set(recipes._NOT_SHARED) == set(COLUMN_OF)


@pytest.mark.parametrize("optimizer", rules.OPTIMIZERS)
def test_a_log_says_what_its_configuration_says(log, optimizer):
    config = imagenet_run.configured(**CONFIGURED[optimizer])
    told = recipe.of_log(read_log(log(optimizer)))
    unsaid = {name: None for name, row in HYPERPARAMETERS.items() if optimizer not in row.keys}
    assert told == dataclasses.replace(config.recipe, **unsaid)
    assert [*unsaid] == {"lars": [], "sgd": ["epsilon"]}[optimizer] + UNLOGGED


@pytest.mark.parametrize("optimizer", rules.OPTIMIZERS)
def test_the_official_checker_and_ours_want_every_key(log, optimizer):
    folder = pathlib.Path(mlperf_logging.__file__).parent / "compliance_checker" / "training_4.0.0"
    official = "".join(file.read_text() for file in folder.glob("*.yaml"))
    file = log(optimizer)
    text = file.read_text()
    for row in HYPERPARAMETERS.values():
        key = row.keys.get(optimizer)
        if key and (key, optimizer) != ("model_bn_span", "lars"):
            file.write_text(delete(key)(text))
            said = [fault.message for fault in log_rules.check(run.read_run(file), ("4.0.0",))]
            assert f"{key} is not logged" in said
            assert key in official or key == "model_bn_span"


@pytest.mark.parametrize("optimizer, name", LOGGED)
def test_another_value_is_a_difference_for_all_who_compare(log, optimizer, name):
    first, second = (run.read_run(file) for file in (log(optimizer), log(optimizer, name, "result_1.txt")))
    shown = HYPERPARAMETERS[name].shown
    assert shown in [setting for setting, *_ in compare.settings([first], [second])]
    with pytest.raises(UserError, match=f"{shown} (is|differs)|differs from|global batch size"):
        origin.find(str(first.file.parent))
    table = recipes.read([first], "4.0.0", None)
    assert shown in [row.name for row in table.rows]


@pytest.mark.parametrize("optimizer, name", [each for each in LOGGED if each[1] in VARIABLE_OF])
def test_another_value_is_borrowed(log, optimizer, name):
    values = imagenet_run.configured(**CONFIGURED[optimizer]).as_environment()
    borrowed = origin.find(str(log(optimizer, name))).values
    assert borrowed[VARIABLE_OF[name]] != values.get(VARIABLE_OF[name])


@pytest.mark.parametrize("name", [name for name in VARIABLE_OF if name in HYPERPARAMETERS])
def test_another_value_beside_the_log_is_a_contradiction(log, name):
    file = log("lars")
    provenance.save(imagenet_run.configured(), 1, file)
    saved = json.loads(file.with_suffix(".json").read_text())
    hyperparameters = saved["config"]["hyperparameters"]
    hyperparameters[name] = other(name, hyperparameters[name] or 37)
    file.with_suffix(".json").write_text(json.dumps(saved))
    said = " ".join(fault.message for fault in sidecar_rules.check(run.read_run(file)))
    row = HYPERPARAMETERS[name]
    assert (f"{row.shown} is " in said) == bool(row.keys or row.closed)


@pytest.mark.parametrize("optimizer, name", LOGGED)
def test_what_departs_from_the_closed_rules_is_an_error_in_a_log(log, optimizer, name):
    row = HYPERPARAMETERS[name]
    file = log(optimizer, name)
    if name == "optimizer":  # the rules allow the other one
        file.write_text(value("opt_name", "adamw")(file.read_text()))
    broken = departures(recipe.of_log(read_log(file))).get(name)
    remedies = [fault.remedy for fault in log_rules.check(run.read_run(file), ("4.0.0",))]
    applies = row.closed is not None and optimizer in (row.closed.optimizers or row.keys)
    assert (row.closed is not None and row.closed.remedy in remedies) == applies == bool(broken)


@pytest.mark.parametrize("name", FIXED)
def test_a_value_that_the_rules_fix_is_not_borrowed_otherwise(log, name):
    with pytest.raises(UserError, match=f"{HYPERPARAMETERS[name].shown} is .*, and only {FIXED[name]} is"):
        origin.find(str(log("lars", name)))


@pytest.mark.parametrize(
    "batch_size, steps, epochs, equal",
    [(3264, 14504, 37, True), (3264, 14523, 37, True), (3264, 14700, 37, False), (32768, 2400, 60, True)])
def test_a_decay_in_steps_is_that_in_epochs_wherever_recipes_are_compared(
    tmp_path, batch_size, steps, epochs, equal
):
    """392, 392.5 or 393 steps an epoch of 3,264 images, 40 of 32,768: one of two programs logs them."""
    for name, decay in (("epochs", epochs), ("steps", steps)):
        scored.write_runs(tmp_path / name, 100, 101, 102, global_batch_size=batch_size)
        for log in (tmp_path / name).glob("*.txt"):
            log.write_text(value("lars_opt_learning_rate_decay_steps", decay)(log.read_text()))
    mixed = tmp_path / "mixed"
    for number, source in enumerate(("epochs", "steps")):
        mixed.mkdir(exist_ok=True)
        (mixed / f"result_{number}.txt").write_text((tmp_path / source / f"result_{number}.txt").read_text())
    systems = score.score([tmp_path / "epochs", tmp_path / "steps"])
    [found] = compare.compare(systems)
    assert ("decay" in {name for name, *_ in found.settings}) is not equal
    for log in mixed.glob("*.txt"):  # what is null in both is no decay
        log.write_text(value("cache_clear", None)(value("submission_org", None)(log.read_text())))
    [together] = score.score([mixed])
    assert any("not of one configuration" in reason for reason in together.reasons) is not equal
    if equal:
        assert origin.find(str(mixed)).values["NUMEPOCHS"] == str(epochs)
    else:
        with pytest.raises(UserError, match="decay differs"):
            origin.find(str(mixed))


def test_a_decay_beyond_all_numbers_is_read():
    logged = dict.fromkeys(HYPERPARAMETERS) | {"decay_epochs": 1e308, "global_batch_size": 2**60}
    assert recipe._in_epochs(logged, rules.TRAIN_SAMPLES).decay_steps == 1e308


def test_a_published_decay_in_steps_is_that_of_logs_in_epochs(tmp_path):
    scored.write_runs(tmp_path / "mine", 100, 101, 102, global_batch_size=2048)
    for log in (tmp_path / "mine").glob("*.txt"):
        log.write_text(value("lars_opt_learning_rate_decay_steps", 33)(log.read_text()))
    name = pathlib.Path("v3.1/Intel-HabanaLabs/HLS-Gaudi2-PT")
    [found] = compare.compare(compare.compared_results([tmp_path / "mine", name]))
    assert "decay" not in {setting for setting, *_ in found.settings}
