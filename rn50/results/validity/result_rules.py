"""Judge a result by its rules, the same for ``rn50 score``, ``check`` and ``package``.

An error here makes each of these commands refuse the result. ``log_rules`` and ``clock_rules`` have the rules
of one log; the rules of all runs together are here. Only ``check`` and ``package`` also run the official
checkers, which are programs.

Source: MLPerf Training rules, sections "Hyperparameters", "Benchmark Results" and "Run Results".
"""

import itertools
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
    *(key for row in HYPERPARAMETERS.values() for key in row.keys.values() or (row.end,)),
    *("train_samples", "eval_samples", *rules.PARALLELISM),
    *(f"submission_{name}" for name in ("division", "org", "status", "platform")),
)
_OF_OPTIMIZER = re.compile(r"(lars|sgd|opt)_.*")
"""Log keys whose values are the same in all runs of a result."""
COMPUTES = "|".join([*(framework.packages for framework in frameworks.every().values()), "nvidia.*"])
"""Packages whose versions may change a result, as a regular expression."""
MODELS = ("host_processor_model_name", "accelerator_model_name")
"""Fields of the machine that are the same in all runs of a result, whatever the user says."""
_SAVED = re.compile(
    rf"config / .*|environment / .*|python|commit|packages / ({COMPUTES})"
    rf"|system / ({'|'.join(MODELS)})"
)
"""Names of sidecar values that are the same in all runs of a result; of the packages, those that compute."""
_OF_A_RUN = {f"config / run / {name}" for name in RUNS_OWN}
_MOST_NAMED = 3
_TOO_SHORT = 3
"""Equal accuracies or clock events below which two runs are not compared, because so few may be equal by
chance."""
_SAME_MS = 5
"""Milliseconds by which the scaled times of copied logs differ at most. Those of published runs differ by
10.6 or more, and have at most two accuracies in common."""


@dataclass(frozen=True)
class Judgement:
    """Judgement on the runs of a folder. ``chosen`` are the indices of the runs that make the score.
    ``excused`` is the log of the one run that missed the target, where exactly one did."""

    findings: tuple[Finding, ...]
    label: str | None
    chosen: tuple[int, ...]
    excused: pathlib.Path | None

    @property
    def errors(self) -> list[Finding]:
        """Findings that make the result invalid."""
        return [fault for fault in self.findings if fault.severity == ERROR]

    @property
    def broken(self) -> list[Finding]:
        """The errors but for runs that missed the target: where several did there is no score."""
        return [error for error in self.errors if error.rule != rules.ONE_MAY_MISS]

    @property
    def refusal(self) -> str | None:
        """The verdict that every verb gives which computes with the runs: the first rule that their logs
        break, and how many more; None where they break none. Missing runs, and runs that missed the target,
        are no such rule: what can be computed of the others holds."""
        first, *others = [*self.broken, None]
        more = f" ({len(others) - 1} more, which rn50 check tells)" if len(others) > 1 else ""
        return f"{NOT_VALID}: {first.where_and_what}{more}" if first else None


def judge_in(folder: pathlib.Path, runs: Sequence[Run], ruleset: str | None = None) -> Judgement:
    """Judge the runs of a folder by the rules of the round that it names, or of ``ruleset``."""
    return judge(runs, (ruleset or tree.ruleset(folder),), tree.accelerators(folder))


def judge(runs: Sequence[Run], rulesets: Sequence[str], accelerators: int | None = None) -> Judgement:
    """Judge runs by the rules of one or several rounds. ``accelerators`` is their number in the system
    description."""
    chosen = median_set(runs)
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
            if missed == [run.log.path] and len(runs) > 1:
                for at, fault in enumerate(run_findings):
                    if fault.rule == log_rules.ENDS:
                        run_findings[at] = replace(fault, severity=WARNING)
        findings += sorted(run_findings, key=lambda fault: fault.line or 0)
    findings += [*_seeds(runs), *_orders(runs), *_copies(runs), *configuration(runs), *labels(runs)]
    labelled = next((run.label for run in runs if run.label), None)
    excused = missed[0] if len(missed) == 1 else None
    return Judgement(tuple(findings), labelled, tuple(chosen), excused=excused)


def _missed(log: ResultLog, severity: str) -> Finding:
    best = max(log.evaluations, key=lambda evaluation: evaluation.accuracy, default=None)
    line, remedy = None, "if there are more, run again"
    if best is None:
        message = f"the run missed the target: no evaluation is at {log.target}"
    elif log.reached or math.isinf(log.target):
        message = f"the run did not end as one that reached the target: its status is {log.status!r}"
    else:
        events = log.by_key["eval_accuracy"]
        line = next((event.line for event in events if event.value == best.accuracy), None)
        message = f"the run missed the target: its best accuracy is {best.accuracy:.5f}, after epoch "
        message += f"{best.epoch:g}, and the target {log.target}"
    return finding(log, line, rules.ONE_MAY_MISS, message, remedy, severity)


def _seeds(runs: Sequence[Run]) -> Iterator[Finding]:
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
    """Yield the first epoch of each run that had its samples in the order of an epoch before or of another
    run."""
    rule, remedy = "each epoch has its own order of the samples", "shuffle by the seed and the epoch"
    seen: dict[str, str] = {}
    for log in (run.log for run in runs):
        for event in log.by_key.get("tracked_stats", ()):
            order, place = json.dumps(event.metadata.get(SAMPLE_ORDER)), f"{log.path.name}:{event.line}"
            if SAMPLE_ORDER in event.metadata and seen.setdefault(order, place) != place:
                message = f"the order of the samples is that of {seen[order]} too"
                yield finding(log, event.line, rule, message, remedy)
                break


def _copies(runs: Sequence[Run]) -> Iterator[Finding]:
    """Yield findings on copied logs, also where a copy's times are moved a little or scaled."""
    rule, remedy = "every run of a result is a run of its own", "put the log of another run in its place"
    logs = [run.log for run in runs]
    for i, log in enumerate(logs):
        texts = (f"{text} those of {other.path.name}" for other in logs[:i] for text in alike(log, other))
        yield from (finding(log, None, rule, text, remedy) for text in itertools.islice(texts, 1))


def alike(log: ResultLog, other: ResultLog) -> Iterator[str]:
    """Yield what two logs share that no two separate runs do. Equal accuracies count once: one that learns
    nothing has the same after every epoch."""
    accuracies = list(zip(log.evaluations, other.evaluations, strict=False))
    same = len({first.accuracy for first, second in accuracies if first.accuracy == second.accuracy})
    if same >= _TOO_SHORT and 2 * same > len(accuracies):
        yield f"{same} of its {len(log.evaluations)} accuracies are"
    course, others = _course(log), _course(other)
    if len(course) >= _TOO_SHORT and [key for key, _ in course] == [key for key, _ in others]:
        last, others_last = course[-1][1], others[-1][1]
        scale = last / others_last if last and others_last else 1
        times = ((at, at_other) for (_, at), (_, at_other) in zip(course, others, strict=True))
        if all(abs(at - scale * at_other) <= _SAME_MS for at, at_other in times):
            yield f"the times of its {len(course)} events are, but for a factor and {_SAME_MS} ms,"


def _course(log: ResultLog) -> list[tuple[str, int]]:
    """Return key and milliseconds since the first of every clock event."""
    events = [event for event in log.events if event.key in clock_rules.COURSE]
    return [(event.key, event.time_ms - events[0].time_ms) for event in events]


def configuration(runs: Sequence[Run]) -> Iterator[Finding]:
    """Yield findings on settings that differ between the runs, as logged or as saved beside the logs."""
    rule = "the runs of a result are of one configuration"
    remedy = "make all of them with one, or leave out the others"
    logged = [_logged(run.log) for run in runs]
    recipes = [recipe.of_log(run.log) for run in runs]
    # One program logged steps, another epochs.
    if len({of_run.decay_steps is None for of_run in recipes}) > 1:
        decay = HYPERPARAMETERS["decay_epochs"].end
        for values, of_run in zip(logged, recipes, strict=True):
            values.update({key: of_run.decay_epochs for key in values if key.endswith(decay)})
    in_all = set(logged[0]).intersection(*logged)
    common = [{key: value for key, value in values.items() if key in in_all} for values in logged]
    files = [run.log.path for run in runs]
    several = len({file.parent for file in files}) > 1
    names = [str(file.parent) if several else file.name for file in files]
    for facts in (common, [_saved(run) for run in runs]):
        different = differences(names, facts)
        if different:
            message = f"the runs are not of one configuration: {different}"
            yield Finding(ERROR, runs[0].log.path.parent, None, rule, message, remedy)


def _saved(run: Run) -> dict[str, str]:
    if not sidecar.is_whole(run.saved):
        return {}
    saved = dict(sidecar.flat(run.saved))
    return {name: saved[name] for name in saved if _SAVED.fullmatch(name) and name not in _OF_A_RUN}


def _logged(log: ResultLog) -> dict[str, Any]:
    logged: dict[str, Any] = {}
    for key, events in log.by_key.items():
        if key in _LOGGED or _OF_OPTIMIZER.fullmatch(key):
            distinct = list(dict.fromkeys(_comparable(event.value) for event in events))
            logged[key] = distinct[0] if len(distinct) == 1 else " and ".join(map(str, distinct))
    if log.label_smoothing:
        logged.setdefault("label_smoothing", log.label_smoothing[1])
    return logged


def _comparable(value: Any) -> Any:
    """Return a value to compare between logs. Numbers stay numbers, because some programs log 37 and others
    37.0. Labels are compared by ``labels``."""
    if isinstance(value, str):
        return rules.without_labels(value)
    return value if finite(value) is not None else json.dumps(value)


def differences(names: Sequence[str], facts: Sequence[Mapping[str, Any]]) -> str:
    """Return a text on the keys whose values differ in ``facts``, which has one mapping for each of the runs
    ``names``; empty where none differ. A run without any facts is left out; a single missing fact is a
    difference."""
    telling = [(name, fact) for name, fact in zip(names, facts, strict=False) if fact]
    everything = dict.fromkeys(key for _, fact in telling for key in fact)
    different = [key for key in everything if len({fact.get(key) for _, fact in telling}) > 1]
    shown = []
    for key in different[:_MOST_NAMED]:
        by_value = gathered((fact.get(key, "not there"), name) for name, fact in telling)
        values = (f"{value} in {', '.join(dict.fromkeys(those))}" for value, those in by_value.items())
        shown.append(f"{key} is {', '.join(values)}")
    if len(different) > _MOST_NAMED:
        shown.append(f"{len(different) - _MOST_NAMED} more differ")
    return "; ".join(shown)


def labels(runs: Sequence[Run]) -> Iterator[Finding]:
    """Yield findings on runs that are labelled in one place and not in another."""
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
