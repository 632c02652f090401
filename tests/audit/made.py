"""Sets of made-up runs, as a script makes them: one after the other, with nearly the same gap."""

import json
import math
import random

from click.testing import CliRunner

from rn50.audit import audit
from rn50.benchmark import rules
from rn50.cli import main
from rn50.results.validity.result_rules import NOT_VALID

FIRST_MS = 1_700_000_000_000
EPOCHS = (3, 7, 11, 15, 19, 23, 27, 31, 35)
TOP_1 = (0.31, 0.46, 0.53, 0.58, 0.62, 0.66, 0.7, 0.74, 0.7605)
SPREAD = (0.017, 0.019, 0.017, 0.013, 0.009, 0.006, 0.003, 0.001, 0.0004)
RUN_S, INIT_S, GAP_S = 1600.0, 30.0, 20.0


def run(number, **changes):
    """One run: where it stands in its campaign, its seed and its curve; ``changes`` replace them. ``begun``
    is when it says that it began, and ``trailing`` how long after its end it says something, in seconds."""
    generator = random.Random(number)
    curve = [top_1 + generator.gauss(0, spread) for top_1, spread in zip(TOP_1, SPREAD, strict=True)]
    made = {
        "seconds": RUN_S * (1 + generator.gauss(0, 0.001)),
        "curve": [round(50_000 * top_1) / 50_000 for top_1 in curve],
        "late": [0.0, *(generator.gauss(0, 0.1) for _ in range(EPOCHS[-1] - 1)), 0.0],
        "seed": generator.randrange(32768), "epochs": EPOCHS, "trial": None, "stated": None,
        "optimizer": "lars", "batch": 3264, "division": "closed", "platform": "8xBox", "rate": 10.5,
        "begun": 0.0, "trailing": 0.0}
    return {**made, **changes}


def campaign(length, **changes):
    """The runs of a script with the seconds at which each begins."""
    placed, at = [], 0.0
    for number in range(length):
        made = run(number, **changes)
        placed.append((at, made))
        at += INIT_S + made["seconds"] + GAP_S * (1 + random.Random(-number).gauss(0, 0.02))
    return placed


def write(folder, placed, numbers=None):
    """Write runs as ``result_N.txt``; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (at, made) in zip(numbers or range(len(placed)), placed, strict=True):
        lines = [f"Beginning trial {made['trial']}"] if made["trial"] else []
        (folder / f"result_{number}.txt").write_text("\n".join([*lines, *_records(at, made)]) + "\n")
    return folder


def _records(at, made):
    def record(key, value=None, after=0.0, **metadata):
        time_ms = round(FIRST_MS + 1000 * (at + after))
        fields = {"time_ms": time_ms, "key": key, "value": value, "metadata": metadata}
        return f":::MLLOG {json.dumps(fields)}"

    yield record("submission_benchmark", rules.BENCHMARK)
    yield record("submission_division", made["division"])
    yield record("submission_platform", made["platform"])
    yield record("init_start", after=made["begun"])
    yield record("seed", made["seed"])
    yield record("global_batch_size", made["batch"])
    yield record("opt_name", made["optimizer"])
    yield record("lars_opt_base_learning_rate", made["rate"])
    yield record("run_start", after=INIT_S)
    yield record("train_samples", rules.TRAIN_SAMPLES, INIT_S)
    last = made["epochs"][-1]
    accuracies = dict(zip(made["epochs"], made["curve"], strict=True))
    for epoch in range(1, last + 1):
        begin, end = (
            INIT_S + made["seconds"] * part / last + made["late"][part % last] for part in (epoch - 1, epoch))
        yield record("epoch_start", None, begin, epoch_num=epoch)
        yield record("epoch_stop", None, end, epoch_num=epoch)
        if made["stated"]:
            yield record("throughput", made["stated"] * rules.TRAIN_SAMPLES * last / made["seconds"], end)
        if epoch in accuracies:
            yield record("eval_accuracy", accuracies[epoch], end, epoch_num=epoch)
    reached = math.isfinite(made["curve"][-1]) and made["curve"][-1] >= rules.TARGET_ACCURACY
    status = "success" if reached else "aborted"
    yield record("run_stop", None, INIT_S + made["seconds"], status=status)
    if made["trailing"]:
        yield record("weights_saved", None, INIT_S + made["seconds"] + made["trailing"])


def typed(*arguments):
    """The command, in this process."""
    return CliRunner(mix_stderr=False).invoke(main, [*map(str, arguments)])


def found(folder):
    """The only audit, and its evidence that stands out by test."""
    (one,) = audit.audit([folder]).audits
    return one, {evidence.test: evidence.found for evidence in one.stands_out}


def notes(one):
    """The notes of an audit, without the verdict of the rules: made-up logs have the records alone that an
    audit looks at."""
    return tuple(note for note in one.notes if not note.startswith(NOT_VALID))
