"""Judge a result by its rules: ``judge``. The verdict is the same for ``rn50 score``, ``check`` and
``package``, and an error makes each of these commands refuse the result.

This file has the rules about all runs together. ``log_rules``, ``clock_rules``, ``timeline_rules`` and
``sidecar_rules`` have those about one run. Only ``check`` and ``package`` also run the official checkers,
which are programs that take seconds for each log.

Source: MLPerf Training rules, sections "Hyperparameters", "Benchmark Results" and "Run Results".
"""

import json
import math
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rn50 import frameworks
from rn50.benchmark import rules
from rn50.benchmark.recipe import HYPERPARAMETERS
from rn50.gathered import gathered
from rn50.results import recipe, sidecar, tree
from rn50.results.parse import SAMPLE_ORDER, ResultLog, finite
from rn50.results.run import Run, median_set
from rn50.results.validity import clock_rules, log_rules, sidecar_rules, timeline_rules
from rn50.results.validity.findings import ERROR, WARNING, Finding
from rn50.results.validity.log_rules import finding
from rn50.settings.fields import RUNS_OWN

NOT_VALID = "NOT A VALID RESULT"
_SEEDS = "the runs of a result have different seeds, from the clock or the operating system"
_LOGGED = (
    # The log keys of each hyperparameter, one for each optimizer. Label smoothing has no log key: its
    # ``row.end``, "label_smoothing", is the name under which ``_logged`` enters it.
    *(key for row in HYPERPARAMETERS.values() for key in row.keys.values() or (row.end,)),
    *("train_samples", "eval_samples", *rules.PARALLELISM),
    *(f"submission_{name}" for name in ("division", "org", "status", "platform")),
)
"""Log keys whose values have to be equal in all runs of a result, as those of ``_OPTIMIZER_KEY`` have to."""
_OPTIMIZER_KEY = re.compile(r"(lars|sgd|opt)_.*")
"""Pattern of the log keys of optimizers, such as lars_epsilon."""
COMPUTES = "|".join([*(framework.packages for framework in frameworks.every().values()), "nvidia.*"])
"""Regular expression for the names of the packages that compute, whose versions may change a result."""
MODEL_NAMES = ("host_processor_model_name", "accelerator_model_name")
"""Fields of the machine that have to be equal in all runs of a result. Other fields of the machine may differ
if the user's file of details has them."""
_SAVED = re.compile(
    rf"config / .*|environment / .*|python|commit|packages / ({COMPUTES})"
    rf"|system / ({'|'.join(MODEL_NAMES)})"
)
"""Names of sidecar values that have to be equal in all runs of a result, such as "config / run / nodes",
except those of ``_RUNS_OWN_CONFIG``."""
_RUNS_OWN_CONFIG = {f"config / run / {name}" for name in RUNS_OWN}
_MOST_NAMED = 3
"""Most differences that a finding names."""
_TOO_SHORT = 3
"""Equal accuracies or clock events that make a copy, because fewer may be equal by chance."""
_SAME_MS = 5
"""Most milliseconds by which the scaled times of copied logs differ. The times of any two published runs
differ by 10.6 or more, and the runs have at most two accuracies in common."""


@dataclass(frozen=True)
class Judgement:
    """Judgement on the runs of a folder."""

    findings: tuple[Finding, ...]
    label: str | None
    """Label of runs that are not of the benchmark; None if they are."""
    chosen: tuple[int, ...]
    """Indices of the runs that make the score."""
    excused: pathlib.Path | None
    """Log of the run that missed the target, if exactly one did; else None."""

    @property
    def errors(self) -> list[Finding]:
        """Findings that make the result invalid."""
        return [fault for fault in self.findings if fault.severity == ERROR]

    @property
    def broken(self) -> list[Finding]:
        """The errors without those on runs that missed the target. Such runs make a score impossible, but
        their logs are sound."""
        return [error for error in self.errors if error.rule != rules.ONE_MAY_MISS]

    @property
    def refusal(self) -> str | None:
        """The verdict for verbs that compute figures from the runs, as ``rn50 compare``: the first of
        ``broken``, and the number of the others; None without any. Missing runs and runs that missed the
        target are no reason for it, because figures of the other runs are still right."""
        broken = self.broken
        more = f" ({len(broken) - 1} more, which rn50 check tells)" if len(broken) > 1 else ""
        return f"{NOT_VALID}: {broken[0].where_and_what}{more}" if broken else None


def judge_in(folder: pathlib.Path, runs: Sequence[Run], ruleset: str | None = None) -> Judgement:
    """Judge the runs in a folder by ``ruleset``. If that is None, take the ruleset of the round that the
    folder names, else the newest."""
    return judge(runs, (ruleset or tree.ruleset(folder),), tree.accelerators(folder))


def judge(runs: Sequence[Run], rulesets: Sequence[str], accelerators: int | None = None) -> Judgement:
    """Judge the runs of a result by one or several rulesets. ``accelerators`` is their number according to
    the description of the system; None if there is no description."""
    chosen = median_set(runs)
    # One of the runs that make the score may miss the target. A miss of a further run is only a warning.
    missed = [runs[i].log.path for i in chosen if not runs[i].converged]
    findings: list[Finding] = []
    for run in runs:
        run_findings = [
            *log_rules.check(run, tuple(rulesets)),
            *clock_rules.check(run.log),
            *timeline_rules.check(run, accelerators or run.accelerators),
            *sidecar_rules.check(run),
        ]
        if not run.converged:
            severity = ERROR if len(missed) > 1 and run.log.path in missed else WARNING
            run_findings.append(_missed(run.log, severity))
            # The one run of several that may miss the target may also lack its end.
            if missed == [run.log.path] and len(runs) > 1:
                for i, fault in enumerate(run_findings):
                    if fault.rule == log_rules.ENDS:
                        run_findings[i] = replace(fault, severity=WARNING)
        findings += sorted(run_findings, key=lambda fault: fault.line or 0)
    findings += [*_seeds(runs), *_orders(runs), *_copies(runs), *configuration(runs), *labels(runs)]
    label = next((run.label for run in runs if run.label), None)
    return Judgement(tuple(findings), label, tuple(chosen), excused=missed[0] if len(missed) == 1 else None)


def _missed(log: ResultLog, severity: str) -> Finding:
    """Return the finding on a run that did not converge."""
    best = max(log.evaluations, key=lambda evaluation: evaluation.accuracy, default=None)
    line = None
    if best is None:
        message = f"the run missed the target: no evaluation is at {log.target}"
    elif log.reached or math.isinf(log.target):  # infinity: a run with TARGET=none
        message = f"the run did not end as one that reached the target: its status is {log.status!r}"
    else:
        events = log.by_key["eval_accuracy"]
        line = next((event.line for event in events if event.value == best.accuracy), None)
        message = f"the run missed the target: its best accuracy is {best.accuracy:.5f}, after epoch "
        message += f"{best.epoch:g}, and the target {log.target}"
    return finding(log, line, rules.ONE_MAY_MISS, message, "if there are more, run again", severity)


def _seeds(runs: Sequence[Run]) -> Iterator[Finding]:
    """Yield findings on seeds that two runs share, and a warning if five seeds follow each other."""
    seen: dict[int, ResultLog] = {}
    for log in (run.log for run in runs):
        event = log.first("seed")
        if event is None or log.seed is None:
            continue
        if log.seed in seen:
            message = f"seed {log.seed} is that of {seen[log.seed].path.name} too"
            remedy = "leave SEED unset, so that every run draws its own, and run this one again"
            yield finding(log, event.line, _SEEDS, message, remedy)
        seen.setdefault(log.seed, log)
    seeds = sorted(seen)
    if len(seeds) == rules.RUNS and seeds[-1] - seeds[0] == rules.RUNS - 1:
        message = f"the seeds are {seeds[0]} to {seeds[-1]}, as if they had been chosen"
        remedy = "draw them from the clock or the operating system"
        yield finding(runs[0].log, None, _SEEDS, message, remedy, WARNING)


def _orders(runs: Sequence[Run]) -> Iterator[Finding]:
    """Yield a finding on the first epoch of each run whose order of samples is that of an earlier epoch, of
    the same run or of a run before it. Only logs of rn50 have the order, as a hash."""
    rule, remedy = "each epoch has its own order of the samples", "shuffle by the seed and the epoch"
    place_of_order: dict[str, str] = {}
    for log in (run.log for run in runs):
        events = log.by_key.get("tracked_stats", ())
        for event in (event for event in events if SAMPLE_ORDER in event.metadata):
            order = json.dumps(event.metadata[SAMPLE_ORDER])  # a stranger's log may have any JSON value
            if order in place_of_order:
                message = f"the order of the samples is that of {place_of_order[order]} too"
                yield finding(log, event.line, rule, message, remedy)
                break
            place_of_order[order] = f"{log.path.name}:{event.line}"


def _copies(runs: Sequence[Run]) -> Iterator[Finding]:
    """Yield a finding for each log that is a copy of one before it (see ``alike``)."""
    rule, remedy = "every run of a result is a run of its own", "put the log of another run in its place"
    logs = [run.log for run in runs]
    for i, log in enumerate(logs):
        texts = (f"{text} those of {other.path.name}" for other in logs[:i] for text in alike(log, other))
        if first_text := next(texts, ""):
            yield finding(log, None, rule, first_text, remedy)


def alike(log: ResultLog, other: ResultLog) -> Iterator[str]:
    """Yield phrases on what two logs share that two separate runs would not share: accuracies, or the times
    of their events after a shift and a scaling. The caller completes a phrase by "those of" and a name.

    Equal accuracies count only once, because a run that learns nothing has the same accuracy after every
    epoch.
    """
    # Evaluation by evaluation, as far as the shorter log goes.
    pairs = list(zip(log.evaluations, other.evaluations, strict=False))
    same = len({first.accuracy for first, second in pairs if first.accuracy == second.accuracy})
    if same >= _TOO_SHORT and 2 * same > len(pairs):  # more than half of them
        yield f"{same} of its {len(log.evaluations)} accuracies are"
    keys, times = _clock_events(log)
    other_keys, other_times = _clock_events(other)
    if len(keys) >= _TOO_SHORT and keys == other_keys:
        scale = times[-1] / other_times[-1] if times[-1] and other_times[-1] else 1
        if all(abs(a - scale * b) <= _SAME_MS for a, b in zip(times, other_times, strict=True)):
            yield f"the times of its {len(keys)} events are, but for a factor and {_SAME_MS} ms,"


def _clock_events(log: ResultLog) -> tuple[list[str], list[int]]:
    """Return the keys of all clock events of a log, and their times in milliseconds since the first."""
    events = [event for event in log.events if event.key in clock_rules.COURSE]
    return [event.key for event in events], [event.time_ms - events[0].time_ms for event in events]


def configuration(runs: Sequence[Run]) -> Iterator[Finding]:
    """Yield at most two findings on settings that differ between the runs: on those in the logs, and on those
    in the sidecar files."""
    rule = "the runs of a result are of one configuration"
    remedy = "make all of them with one, or leave out the others"
    logged = [_logged(run.log) for run in runs]
    recipes = [recipe.of_log(run.log) for run in runs]
    # If one run logged its decay in steps and another in epochs, compare the epochs of both. The key of the
    # decay is the same in both units; ``decay_steps`` is None if a log has epochs.
    if len({run_recipe.decay_steps is None for run_recipe in recipes}) > 1:
        end = HYPERPARAMETERS["decay_epochs"].end
        for values, run_recipe in zip(logged, recipes, strict=True):
            values.update({key: run_recipe.decay_epochs for key in values if key.endswith(end)})
    keys_in_all = set(logged[0]).intersection(*logged)
    common = [{key: value for key, value in values.items() if key in keys_in_all} for values in logged]
    files = [run.log.path for run in runs]
    several_folders = len({file.parent for file in files}) > 1
    names = [str(file.parent) if several_folders else file.name for file in files]
    saved = [_saved(run) for run in runs]
    name_data_sets(saved, [run.saved for run in runs], "config / data / folder")
    for facts in (common, saved):
        different = differences(names, facts)
        if different:
            message = f"the runs are not of one configuration: {different}"
            yield Finding(ERROR, runs[0].log.path.parent, None, rule, message, remedy)


def _saved(run: Run) -> dict[str, str]:
    """Return the sidecar values of a run that have to be equal in all runs of a result; empty if the sidecar
    file is missing or incomplete."""
    if not sidecar.is_whole(run.saved):
        return {}
    saved = dict(sidecar.flat(run.saved))
    return {name: saved[name] for name in saved if _SAVED.fullmatch(name) and name not in _RUNS_OWN_CONFIG}


def _logged(log: ResultLog) -> dict[str, Any]:
    """Return the logged values that have to be equal in all runs of a result, by key."""
    logged: dict[str, Any] = {}
    for key, events in log.by_key.items():
        if key in _LOGGED or _OPTIMIZER_KEY.fullmatch(key):
            distinct = list(dict.fromkeys(_comparable(event.value) for event in events))
            logged[key] = distinct[0] if len(distinct) == 1 else " and ".join(map(str, distinct))
    if log.label_smoothing:
        logged.setdefault("label_smoothing", log.label_smoothing[1])
    return logged


def _comparable(value: Any) -> Any:
    """Return a form of a logged value that can be compared with other logs. Numbers stay numbers, because
    some programs log 37 and others 37.0. Texts lose the labels, which ``labels`` compares. Lists become
    texts."""
    if isinstance(value, str):
        return rules.without_labels(value)
    return value if finite(value) is not None else json.dumps(value)


def name_data_sets(facts: Sequence[dict[str, Any]], sidecars: Sequence[Mapping[str, Any]], key: str) -> None:
    """Replace the folder of the data set, ``key`` of each run's ``facts``, by a text that is equal for equal
    data in several folders, and different for other data in one folder. ``sidecars`` are the contents of the
    runs' sidecar files. Leave all folders as they are if a run with facts has saved no hash of its data."""
    pairs = [(sidecar.data_set(saved), run) for saved, run in zip(sidecars, facts, strict=True) if run]
    folders: dict[str, str] = {}  # hash -> folder of the first run with these data
    if all(digest for digest, _ in pairs):
        for digest, values in pairs:
            values[key] = f"{folders.setdefault(digest, values.get(key, ''))} (data set {digest[:8]})"


def differences(names: Sequence[str], facts: Sequence[Mapping[str, Any]]) -> str:
    """Return a text on the keys whose values differ between runs; empty if none differ. ``facts`` has the
    values of each run by key, ``names`` the name of each run. A run without any value is left out. A key that
    only some of the other runs have counts as a difference."""
    named = [(name, values) for name, values in zip(names, facts, strict=False) if values]
    keys = dict.fromkeys(key for _, values in named for key in values)
    different = [key for key in keys if len({values.get(key) for _, values in named}) > 1]
    phrases = []
    for key in different[:_MOST_NAMED]:
        by_value = gathered((values.get(key, "not there"), name) for name, values in named)
        places = (f"{value} in {', '.join(dict.fromkeys(runs))}" for value, runs in by_value.items())
        phrases.append(f"{key} is {', '.join(places)}")
    if len(different) > _MOST_NAMED:
        phrases.append(f"{len(different) - _MOST_NAMED} more differ")
    return "; ".join(phrases)


def labels(runs: Sequence[Run]) -> Iterator[Finding]:
    """Yield findings on runs that are labelled by their sidecar file but not by their log, and on a result of
    which only some runs are labelled."""
    rule = "a run that is not a result of the benchmark says so in its log"
    labelled = [run for run in runs if run.label]
    for run in labelled:
        if "; ".join(run.logged_labels) != run.label:
            message = f"what was saved beside the log says {run.label}, and the log does not"
            yield finding(run.log, None, rule, message, "submit the log as it was written")
    if labelled and len(labelled) < len(runs):
        others = ", ".join(run.log.path.name for run in runs if not run.label)
        message = f"the run is labelled, but not {others}"
        yield finding(labelled[0].log, None, rule, message, "make all runs with one task")
