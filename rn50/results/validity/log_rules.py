"""Check that the log of one run is complete and has allowed values: ``check`` calls a function for each rule.
``clock_rules`` checks the times of a log.

Sources: MLPerf Training rules, sections "Hyperparameters", "Quality measure" and "Run Results"; the rulesets
of the official compliance checker, except the names of tensors; and published logs that passed the official
checkers although they should not have. A run of the demo that follows the rules has no finding.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rn50.benchmark import rules
from rn50.benchmark.recipe import HYPERPARAMETERS, MOMENTUM, SMOOTHING
from rn50.errors import excerpt
from rn50.results.parse import INSTEAD, Event, ResultLog, epoch_number, finite, is_nan
from rn50.results.run import Run
from rn50.results.validity.findings import ERROR, WARNING, Finding

ROUNDING = 0.05
"""Tolerance of accuracy * samples, which is a whole number except for the rounding of the logged accuracy. In
published logs it is off by up to 0.03 because of rounding, and by 0.26 or more for other reasons."""
SKIPPED = 1
"""Images missing from every evaluation of some published logs, because their loader drops one."""
REQUIRED = "a run logs who submits what, its hyperparameters, and where it begins and ends"
ENDS = "a run logs its evaluations and its end"
VALUES = "the closed division fixes the optimizer's constants"
"""Texts of the rules that the official compliance checker checks, too."""

_SUBMISSION = tuple(f"submission_{what}" for what in ("benchmark", "org", "division", "status", "platform"))
_ALWAYS = (*_SUBMISSION, "cache_clear", "init_start", "init_stop")
_ALWAYS += ("run_start", "train_samples", "eval_samples")
"""Keys that every run logs, whatever its division and optimizer."""
_ENDS: Sequence[tuple[str, ...]] = (
    *(("run_stop",), ("eval_accuracy",)),
    *((f"block_{end}", f"{part}_{end}") for end in ("start", "stop") for part in ("epoch", "eval")),
)
"""Groups of keys of which at least one has to be logged, as ("block_start", "epoch_start")."""
_NUMBERED = {
    "block_start": ("first_epoch_num", "epoch_count"),
    "block_stop": ("first_epoch_num",),
    **dict.fromkeys(("epoch_start", "epoch_stop", "eval_start", "eval_stop"), ("epoch_num",)),
}
"""Key -> names in the metadata of its records whose values are numbers of epochs."""
_NUMBER = "number", lambda value: finite(value) is not None
"""Type, as in ``_TYPES``, of the keys for which ``_is_number`` is true."""
_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "opt_name": ("text", lambda value: isinstance(value, str)),
    "cache_clear": ("flag", lambda value: not isinstance(value, (dict, list))),
    "seed": ("whole number", lambda value: type(value) is int),
    **dict.fromkeys(rules.PARALLELISM, ("whole number from 1 on", lambda v: type(v) is int and v >= 1)),
    **dict.fromkeys(rules.LOWEST_PRECISIONS, ("precision of the rules", rules.PRECISIONS.__contains__)),
}
"""Key -> type of its values: name of the type, and a test for it. Keys of numbers are not listed."""
_MISLEADING_WORDS = ("eval_accuracy", "eval_error", "global_batch_size")
"""Words by which the checker of reference convergence points (RCP) selects lines of a log, wherever in the
line they stand."""
_SELECTED_KEYS = (*_MISLEADING_WORDS, "submission_benchmark", "run_stop")
"""Keys whose records the RCP checker is meant to select."""


def _is_count(value: float) -> bool:
    """Return whether a number is whole and at least 1."""
    return value >= 1 and value == int(value)


ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "submission_benchmark": (bool, f"log {rules.BENCHMARK}"),
    "submission_org": (bool, "log its name"),
    "submission_division": (rules.DIVISIONS.__contains__, "log closed or open, in small letters"),
    "submission_status": (rules.STATUSES.__contains__, "log cloud, onprem, preview or research"),
    "submission_platform": (bool, "log its name"),
    "global_batch_size": (_is_count, "log the global batch size as a whole number above 0"),
    "gradient_accumulation_steps": (_is_count, "log the number of steps, 1 where nothing is accumulated"),
    **{
        key: (row.closed.allows, row.closed.remedy)
        for row in HYPERPARAMETERS.values()
        if row.closed and row.closed is not MOMENTUM  # it depends on the batch size, see _momentum
        for optimizer, key in row.keys.items()
        if optimizer in (row.closed.optimizers or row.keys)
    },
}
"""Key -> test for the values that the closed division allows, and remedy for others. The keys of an optimizer
are for runs with that optimizer. The open division allows every value, except of the keys
``submission_*``."""


def check(run: Run, rulesets: tuple[str, ...]) -> Iterator[Finding]:
    """Yield every finding on the log of a run by the rules of all ``rulesets``, as "4.0.0". Only the required
    keys differ between them."""
    yield from _required(run.log, rulesets)
    yield from _seed(run.log, rulesets)
    yield from accuracies(run)
    yield from _placeholders(run.log)
    # A run with a label is not of the benchmark, as a run on another data set.
    benchmark_rules = () if run.label else (_samples, _cadence)
    of_every_run = _format, _types, _repeated, _values, _momentum, _label_smoothing, _caches, _resized, _words
    for rule in (*of_every_run, *benchmark_rules):
        yield from rule(run.log)


def finding(
    log: ResultLog, line: int | None, rule: str, message: str, remedy: str, severity: str = ERROR
) -> Finding:
    """Return a finding on a ``line`` of a log, or on the whole log for None."""
    return Finding(severity, log.path, line, rule, message, remedy)


def _format(log: ResultLog) -> Iterator[Finding]:
    """Yield the findings that ``parse.read_log`` made as it read the log, and one on accuracies that are
    NaN."""
    rule = "a record is a line of valid JSON, and a run logs each event once"
    remedy = "log through mlperf_logging.mllog, on rank 0 only, and submit the file as it was written"
    # As "line 9: eval_accuracy 75.9 is not a fraction between 0 and 1; not counted; log the fraction: 0.759".
    for text in log.findings:
        match = re.match(r"line (\d+): (.*)", text, re.DOTALL)
        line, message = (int(match.group(1)), match.group(2)) if match else (None, text)
        message, _, instead = message.partition(INSTEAD)
        yield finding(log, line, rule, message, f"log {instead}" if instead else remedy)
    nan = [event for event in log.by_key.get("eval_accuracy", ()) if is_nan(event.value)]
    if nan:
        message = f"eval_accuracy is NaN, which is below the target ({len(nan)} of "
        message += f"{len(log.by_key['eval_accuracy'])} are)"
        remedy = "log the fraction of right answers, 0 of a run that diverged"
        # A run with NaN does not reach the target. If the log says that it did, the log is wrong.
        yield finding(log, nan[0].line, rule, message, remedy, ERROR if log.reached else WARNING)


def _required(log: ResultLog, rulesets: tuple[str, ...]) -> Iterator[Finding]:
    """Yield a finding for each required key that is not logged."""
    keys = list(_ALWAYS)
    if log.division != "open":
        keys += ["opt_name", "global_batch_size"]
        # Ruleset 0.7.0 does not require this key.
        keys += ["gradient_accumulation_steps"] if set(rulesets) - {"0.7.0"} else []
        event, rows = log.first("opt_name"), HYPERPARAMETERS.values()
        optimizer = str(event.value) if event else ""
        # Add the hyperparameters whose key has the prefix of this optimizer, as sgd_opt_momentum.
        keys += [row.keys[optimizer] for row in rows if row.keys.get(optimizer, row.end) != row.end]
        keys += ["model_bn_span"] if optimizer == "sgd" else []
    ended = log.first("run_stop")
    for rule, groups in ((REQUIRED, [(key,) for key in keys]), (ENDS, _ENDS)):
        for alternatives in groups:
            if not log.first(*alternatives):
                name = " or ".join(alternatives)
                # A log without its end was perhaps cut short.
                cut = "; if the log was cut short, put it back whole" if rule == ENDS or not ended else ""
                yield finding(log, None, rule, f"{name} is not logged", f"log {name}{cut}")


def _types(log: ResultLog) -> Iterator[Finding]:
    """Yield findings on values of a wrong type, and on records without the number of their epoch."""
    rule = "every value is of the type that its key has"
    for key, events in log.by_key.items():
        kind, fits = _NUMBER if _is_number(key) else _TYPES.get(key, (None, bool))
        for event in events:
            if kind and not fits(event.value):
                message = f"{key} {excerpt(json.dumps(event.value))} is not a {kind}"
                yield finding(log, event.line, rule, message, f"log a {kind}")
    for key, names in _NUMBERED.items():
        events = log.by_key.get(key, ())
        lacking = [e for e in events if None in [epoch_number(e.metadata.get(name)) for name in names]]
        # A log whose records have a samples_count counts samples in place of epochs.
        if lacking and not all("samples_count" in event.metadata for event in lacking):
            message = f"{key} is without the number {' and '.join(names)} in its metadata ({len(lacking)} of "
            message += f"{len(events)} are)"
            yield finding(log, lacking[0].line, rule, message, "log the number of the epoch with each")


def _repeated(log: ResultLog) -> Iterator[Finding]:
    """Yield a finding for each hyperparameter that is logged with several values."""
    for key, events in log.by_key.items():
        values = list(dict.fromkeys(json.dumps(event.value) for event in events))
        if len(values) > 1 and (_is_number(key) or key in ("opt_name", "model_bn_span")):
            message = f"{key} is logged {len(events)} times with different values ({', '.join(values)[:60]})"
            yield finding(log, events[1].line, "a run logs each hyperparameter once", message, "log it once")


def _is_number(key: str) -> bool:
    """Return whether a key is of a hyperparameter whose value is a number."""
    of_optimizer = key.startswith(("lars_", "sgd_", "opt_learning_rate_")) and not key.endswith("_name")
    return of_optimizer or key in ("gradient_accumulation_steps", "label_smoothing")


def _values(log: ResultLog) -> Iterator[Finding]:
    """Yield a finding for each value that ``ALLOWED`` does not allow. Values of a wrong type are left to
    ``_types``."""
    optimizer = log.first("opt_name")
    in_use = f"{optimizer.value}_" if optimizer else "no optimizer"  # the latter begins no key
    for key, (allows, remedy) in ALLOWED.items():
        event = log.first(key)
        of_submission = key in _SUBMISSION
        unused = key.startswith(("lars_", "sgd_")) and not key.startswith(in_use)
        if event is None or unused or (log.division == "open" and not of_submission):
            continue
        is_text = of_submission or key == "opt_name"
        of_type = isinstance(event.value, str) if is_text else finite(event.value) is not None
        if of_type and not allows(event.value):
            yield finding(log, event.line, VALUES, f"{key} is {excerpt(json.dumps(event.value))}", remedy)


def _placeholders(log: ResultLog) -> Iterator[Finding]:
    """Yield a warning for each name that is still the placeholder of a vendor's script."""
    for key in ("submission_org", "submission_platform"):
        event = log.first(key)
        if event and rules.PLACEHOLDER in str(event.value):
            message = f"{key} is {excerpt(json.dumps(event.value))}, a placeholder"
            yield finding(log, event.line, REQUIRED, message, "set the name where the script starts", WARNING)


def _samples(log: ResultLog) -> Iterator[Finding]:
    """Yield findings on numbers of training and validation images other than ImageNet's."""
    event, trained = log.first("train_samples"), log.train_samples
    if event and trained is not None and trained != rules.TRAIN_SAMPLES:
        # Some submissions count whole batches only, or pad the last batch.
        within_a_batch = abs(trained - rules.TRAIN_SAMPLES) < (log.global_batch_size or 0)
        rule = f"a result is of training on all {rules.TRAIN_SAMPLES:,} images of ImageNet"
        message = f"train_samples is {trained:,}, not {rules.TRAIN_SAMPLES:,}"
        remedy = f"train on every image, and log {rules.TRAIN_SAMPLES}"
        yield finding(log, event.line, rule, message, remedy, WARNING if within_a_batch else ERROR)
    event, evaluated = log.first("eval_samples"), log.eval_samples
    if event and evaluated is not None and evaluated != rules.EVAL_SAMPLES:
        # Some submissions log the number of batches as eval_samples. If the accuracies are multiples of
        # 1 / 50,000 and not of 1 / eval_samples, all images were counted.
        fractions_of_logged = evaluated > 0 and not _not_multiples(log, evaluated)
        all_counted = not _not_multiples(log, rules.EVAL_SAMPLES) and not fractions_of_logged
        accepted = all_counted or _almost_all(evaluated)
        rule = f"every evaluation counts the {rules.EVAL_SAMPLES:,} validation images"
        message = f"eval_samples is {evaluated:,}, not {rules.EVAL_SAMPLES:,}"
        remedy = "evaluate every image of the validation set exactly once, and log that number"
        yield finding(log, event.line, rule, message, remedy, WARNING if accepted else ERROR)


def accuracies(run: Run) -> Iterator[Finding]:
    """Yield a finding on accuracies that are no whole number of right answers, divided by the samples."""
    log = run.log
    logged = log.eval_samples or 0
    # Take the logged number of samples if it can be right: with a label any number, else about ImageNet's.
    samples = logged if logged > 0 and (run.label or _almost_all(logged)) else rules.EVAL_SAMPLES
    wrong = _not_multiples(log, samples)
    # In the benchmark, fractions of all 50,000 validation images are right, whatever eval_samples is.
    if wrong and (run.label or _not_multiples(log, rules.EVAL_SAMPLES)):
        rule = "an accuracy is a number of right answers over the number of samples"
        message = f"eval_accuracy {wrong[0].value!r} is not a multiple of 1/{samples:,} ({len(wrong)} of "
        message += f"{len(log.by_key['eval_accuracy'])} are not)"
        remedy = f"sum the right answers over the ranks and divide once, by {samples:,}"
        yield finding(log, wrong[0].line, rule, message, remedy)


def _almost_all(samples: int) -> bool:
    """Return whether a number of samples is that of ImageNet's validation set, or differs by at most
    ``SKIPPED``."""
    return abs(samples - rules.EVAL_SAMPLES) <= SKIPPED


def _not_multiples(log: ResultLog, samples: int) -> list[Event]:
    """Return the events of accuracies that are not multiples of 1 / ``samples``."""
    events = log.by_key.get("eval_accuracy", ())
    numbers = [event for event in events if finite(event.value) is not None and 0 <= event.value <= 1]
    return [event for event in numbers if abs(math.remainder(event.value * samples, 1)) > ROUNDING]


def _cadence(log: ResultLog) -> Iterator[Finding]:
    """Yield a finding on the first evaluation that does not come four epochs after the one before."""
    rule = f"ResNet is evaluated every {rules.EVAL_PERIOD_EPOCHS} epochs with an offset of 0 to 3"
    events = log.by_key.get("eval_accuracy", ())
    epochs = [evaluation.epoch for evaluation in log.evaluations]
    if len(events) != len(epochs) or not epochs:
        return  # the format is broken, which another finding reports
    before = 0.0
    for event, epoch in zip(events, epochs, strict=False):
        # The first evaluation comes after epoch 1 to 4, or before all training, which is epoch 0.
        first = before == 0
        allowed = range(rules.EVAL_PERIOD_EPOCHS + 1) if first else (before + rules.EVAL_PERIOD_EPOCHS,)
        if epoch not in allowed:
            after = "as the first" if first else f"after that of epoch {before:g}"
            message = f"an evaluation of epoch {epoch:g} comes {after}"
            remedy = "evaluate at the same distance from the first epochs on (EVAL_OFFSET, EVAL_PERIOD=4)"
            yield finding(log, event.line, rule, message, remedy)
            return
        before = epoch


def _momentum(log: ResultLog) -> Iterator[Finding]:
    """Yield a finding on a momentum that the closed division does not allow at the batch size."""
    event, size = log.first(*HYPERPARAMETERS["momentum"].keys.values()), log.global_batch_size
    if not event or not size or size >= MOMENTUM.below or log.division == "open":
        return
    if not MOMENTUM.allows(event.value):
        rule = f"momentum is {rules.MOMENTUM_BELOW_32K} below a global batch size of 32k, whether that is "
        rule += f"{rules.LARGE_BATCH_IN_THOUSANDS:,} or {rules.LARGE_BATCH:,}"
        message = f"{event.key} is {excerpt(json.dumps(event.value))} at a global batch size of {size:,}"
        # From 32,000 to 32,767 the rules do not say whether the batch is below "32k".
        severity = ERROR if size < rules.LARGE_BATCH_IN_THOUSANDS else WARNING
        yield finding(log, event.line, rule, message, MOMENTUM.remedy, severity)


def _label_smoothing(log: ResultLog) -> Iterator[Finding]:
    """Yield a finding on a label smoothing that the closed division does not allow. It may be logged under a
    key, or printed between the records. ``sidecar_rules`` judges that of the sidecar file."""
    event = log.first("label_smoothing")
    line, value = (event.line, event.value) if event else log.label_smoothing or (None, None)
    if value is not None and not SMOOTHING.allows(value) and log.division != "open":
        message = f"label smoothing is {excerpt(json.dumps(value))}"
        yield finding(log, line, "label smoothing is 0 or 0.1", message, SMOOTHING.remedy)


def _resized(log: ResultLog) -> Iterator[Finding]:
    """Yield a finding on images that were resized before the clock in the closed division."""
    event = log.first("train_samples")
    if event and (pixels := event.metadata.get("short_side")) and log.division != "open":
        message = f"images were resized to a shorter side of {excerpt(json.dumps(pixels))}"
        remedy = "run with SUBMISSION_DIVISION=open, or on images packed without --short-side"
        yield finding(log, event.line, rules.UNRESIZED, message, remedy)


def _words(log: ResultLog) -> Iterator[Finding]:
    """Yield a finding on the first record that would mislead the RCP checker by a word in it."""
    rule = "the RCP checker takes every record with the word eval_accuracy, eval_error or "
    rule += "global_batch_size in it for that event"
    for event in log.events:
        # Leave out the records that the checker is meant to select, and those without value and metadata.
        if event.key in _SELECTED_KEYS or (event.value is None and not event.metadata):
            continue
        text = repr((event.key, event.value, event.metadata))
        word = next((word for word in _MISLEADING_WORDS if word in text), None)
        if word:
            message = f"the record of {event.key} contains the word {word}"
            yield finding(log, event.line, rule, message, "choose another name for it")
            return


def _seed(log: ResultLog, rulesets: tuple[str, ...]) -> Iterator[Finding]:
    """Yield a finding on a seed that is missing or logged several times."""
    rule = "a run logs its seed once, from the clock or the operating system"
    seeds = log.by_key.get("seed", ())
    if not seeds and log.division != "open" and set(rulesets) - {"0.7.0"}:
        since = "the closed division logs its seeds, by the rules from v4.1 on"
        yield finding(log, None, since, "no seed is logged", "log the seed of the run, on rank 0", WARNING)
    elif len(seeds) > 1:
        yield finding(log, seeds[1].line, rule, f"seed is logged {len(seeds)} times", "log it on rank 0 only")


def _caches(log: ResultLog) -> Iterator[Finding]:
    """Yield a warning if the caches were not cleared."""
    event = log.first("cache_clear")
    if event and event.value in (False, 0):
        message = f"cache_clear is {json.dumps(event.value)}"
        remedy = "clear the caches of the system before every run, as root"
        yield finding(log, event.line, "caches are cleared before a run", message, remedy, WARNING)
