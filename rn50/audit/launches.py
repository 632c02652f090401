"""When and how the runs were launched: the script's own count, holes between runs, file numbers, seeds.

A script starts its runs one after the other, with nearly the same gap. A run that was left out leaves a hole
of its length and one more gap. Two explanations of the gaps are compared by their likelihood ratio, averaged
over the unknown gap of the script: runs were left out, or somebody started the script again after any time.
If nothing was left out, a ratio of x or more has a probability of at most 1/x (Markov's inequality), which is
the p-value reported.
"""

import itertools
import math
import statistics
from collections.abc import Container, Iterator, Sequence
from typing import Any

import numpy as np

from rn50.audit.run_set import Evidence, RunSet, number_of, ratio_of
from rn50.benchmark import rules
from rn50.results import tree
from rn50.results.parse import ResultLog
from rn50.terminal import counted

GAPS = np.exp(np.arange(math.log(1e-3), math.log(60), 0.02))
"""Possible gaps of a script, in lengths of a run."""
JITTER, JITTER_S = 0.05, 1.0
"""Standard deviation of a gap, relative to it and in seconds. Gaps of scripts in published results vary by
0.1 to 8 %."""
MOST_LEFT_OUT = 5
"""Runs in one hole whose length still tells something; sums of more lie too close together."""
LEFT_OUT, STARTED_AGAIN, STARTED_AGAIN_LARGE = 0.4, 0.06, 0.5
"""Shares of gaps that are holes: where runs were left out; where none was, in published results; in those of
large systems, whose runs wait for the machine."""
LARGE = 128
"""Accelerators of a large system."""
LATER = 0.2
"""Share of runs that need one evaluation more."""
STEADIEST = 0.004
"""Standard deviation of the length of a run left out, at least, relative to it."""
SPREADS = (1, 0.5), (3, 0.3), (10, 0.2)
"""How many times larger it is, and how often: on the day of the runs that are there, on another, on another
machine."""
SHORTEST, LONGEST = 0.03, 1e4
"""Holes that a pause leaves, in lengths of a run, as likely in each octave."""
SUSPECT, SUSPECT_LARGE = 10.0, 300.0
"""Likelihood ratio from which a set stands out, chosen on rounds v0.7 to v2.1; of a large system."""
MOST_ABSENT = 100
"""Numbers absent from names, beyond which they do not count runs."""
SLOW_SCRIPT = 4.0
"""Gap of a script, in lengths of a run, from which runs were rather queued or started by hand."""

Trial = tuple[int, int]
"""Number of a run by the script that made it, and how many it announced."""


def trials(runs: RunSet) -> Evidence | None:
    """Compare with the count that a script prints, ``Beginning trial 2 of 8``; None without one."""
    counts = [log.trial for log in runs.logs]
    if not any(counts) or _overlap(runs):
        return None
    unfinished = {run.log.trial for run in runs.unfinished}
    missing: list[str] = []
    before: ResultLog | None = None
    for log in runs.logs:
        if log.trial and (before is None or before.trial):
            first, where = 1, f"before {log.path.name}"
            if before and before.trial and _goes_on(before.trial, log.trial):
                first, where = before.trial[0] + 1, f"between {before.path.name} and {log.path.name}"
            if left_out := _absent(first, log.trial, unfinished):
                missing.append(f"trial {_listed(left_out)} of {log.trial[1]} {where}")
        before = log
    text = ", ".join(f"{c[0]} of {c[1]}" if c else "-" for c in counts)
    if missing:
        return Evidence("trials", True, f"missing: {'; '.join(missing)} (the logs say {text})", len(missing))
    last, announced = counts[-1] or (0, 0)
    rest = f"; {_listed([*range(last + 1, announced + 1)])} are not here" if last < announced else ""
    return Evidence("trials", False, f"the script's own count: {text}{rest}", 0)


def numbers(runs: RunSet) -> Evidence | None:
    """Compare the numbers in the names of the files with each other and with the clock."""
    names = runs.numbers
    if len(names) < 3:
        return None
    if max(names) - min(names) + 1 - len({*names}) > MOST_ABSENT:
        return Evidence("file numbers", False, "they are no count of runs; dates, perhaps")
    present = {*names, *map(number_of, runs.unfinished)}
    if absent := sorted({*range(min(names), max(names) + 1)} - present):
        text = f"no {_listed(absent)} among the numbers {min(names)} to {max(names)}"
        return Evidence("file numbers", True, text, len(absent))
    order = [names.index(number) for number in sorted(names)]
    listed = ", ".join(map(str, names))
    steady = bool(runs.gaps) and min(runs.gaps) > 0 and max(runs.gaps) < 1.5 * min(runs.gaps)
    if order == sorted(order):
        return Evidence("file numbers", False, "in the order of the clock", 0)
    if not _is_rearranged(order) or not steady:
        return Evidence(
            "file numbers", False, f"by the clock {listed}: numbered by something else than the clock", 0
        )
    text = f"one script made them, but their numbers do not follow the clock: {listed}"
    return Evidence("file numbers", True, text, 1)


def _is_rearranged(order: Sequence[int]) -> bool:
    """True where ``order`` is none that a rotation, a reversal of one, or moving one run makes."""
    n = len(order)
    steps = {(b - a) % n for a, b in zip(order, [*order[1:], order[0]], strict=True)}
    moved = any(sorted(rest) == rest for rest in ([x for x in order if x != one] for one in order))
    return steps not in ({1}, {n - 1}) and not moved


def seeds(runs: RunSet) -> Evidence | None:
    """Look for a seed used twice, and for one missing in seeds that count up."""
    logged = [log.seed for log in runs.logs if log.seed is not None]
    if len(logged) < 3 or len(logged) < len(runs.logs):
        return None
    if len({*logged}) < len(logged):
        twice = next(seed for seed in logged if logged.count(seed) > 1)
        names = [log.path.name for log in runs.logs if log.seed == twice]
        return Evidence("seeds", True, f"seed {twice} in {' and '.join(names)}", 1)
    steps = [b - a for a, b in itertools.pairwise(sorted(logged))]
    step = min(steps)
    counted_up = steps.count(step) >= max(2, len(steps) // 2) and all(0 < one / step <= 5 for one in steps)
    if counted_up and any(one % step == 0 and one > step for one in steps):
        left = [a for a, one in zip(sorted(logged), steps, strict=False) if one > step]
        return Evidence("seeds", True, f"they count up by {step}, and {left[0] + step} is not there", 1)
    return Evidence("seeds", False, f"count up by {step}" if {*steps} == {step} else "all differ", 0)


def holes(runs: RunSet) -> Evidence | None:
    """Look for holes of the length of whole runs; None with fewer than three runs."""
    if len(runs.logs) < 3:
        return None
    if _overlap(runs):
        return Evidence("launch gaps", False, "runs were made side by side: gaps say nothing")
    pairs = list(itertools.pairwise(runs.logs))
    gaps = [max(gap, GAPS[0]) for gap in runs.gaps]
    known = [_is_known(runs, a, b) for a, b in pairs]
    if all(known) or min(gaps) > SLOW_SCRIPT:
        what = "the script's count tells of each" if all(known) else "runs were started one by one"
        return Evidence("launch gaps", False, f"{what}: gaps say nothing")
    paused, left_out, number = _likelihoods(runs, gaps, known)
    ratio = ratio_of(_log_mean(left_out) - _log_mean(paused))
    gap = int(np.argmax(left_out))
    usual = f"{statistics.median(gaps) * runs.length:,.0f} s between runs"
    holes = [(pair, length, n[gap]) for pair, length, n in zip(pairs, gaps, number, strict=True) if n[gap]]
    if not holes or ratio < (SUSPECT_LARGE if _is_large(runs) else SUSPECT):
        return Evidence("launch gaps", False, f"{usual}; no hole of a run", ratio, min(1.0, 1 / ratio))
    where = [
        f"{length * runs.length / 60:.1f} minutes between {a.path.name} and {b.path.name} "
        f"have room for {_runs(n)}"
        for (a, b), length, n in holes
    ]
    return Evidence("launch gaps", True, "; ".join(where), ratio, 1 / ratio)


def _is_known(runs: RunSet, before: ResultLog, after: ResultLog) -> bool:
    """Return whether it is known what a gap is: the script counts on or anew after it, or an unfinished run
    lies in it. Scripts that announce one run are called by others."""
    first, then = before.trial, after.trial
    if first and then and then[1] > 1 and (not _goes_on(first, then) or then[0] == first[0] + 1):
        return True
    start, end = before.run_stop_ms or 0, after.run_start_ms or 0
    return any(start <= run.log.events[0].time_ms < end for run in runs.unfinished if run.log.events)


def _likelihoods(runs: RunSet, gaps: Sequence[float], known: Sequence[bool]) -> tuple[Any, Any, list[Any]]:
    """Return the logarithms of the likelihood of ``gaps`` without and with runs left out, and for each gap
    the likeliest number of these, each by ``GAPS``. A ``known`` gap tells of the script's gap alone."""
    again = STARTED_AGAIN_LARGE if _is_large(runs) else STARTED_AGAIN
    paused, left_out, numbers = np.zeros(len(GAPS)), np.zeros(len(GAPS)), []
    for gap, is_known in zip(gaps, known, strict=True):
        regular = _normal(gap, GAPS, _jitter(runs))
        pause = np.where(gap > 1.2 * GAPS, 1 / (gap * math.log(LONGEST / SHORTEST)), 1e-9)
        by_number = [_density(runs, gap, number) for number in range(1, MOST_LEFT_OUT + 1)]
        more = gap > (MOST_LEFT_OUT + 1) * (1 + GAPS)
        by_number.append(LEFT_OUT**MOST_LEFT_OUT * np.where(more, 4 * pause, 0))
        without = np.log((1 - again) * regular + again * pause)
        none = (1 - LEFT_OUT) * regular + 3e-3 * pause
        paused += without
        left_out += without if is_known else np.log(none + LEFT_OUT * sum(by_number))
        numbers.append(np.argmax([none, *(LEFT_OUT * (not is_known) * one for one in by_number)], axis=0))
    return paused, left_out, numbers


def _density(runs: RunSet, hole: float, number: int) -> Any:
    """Return the density of a hole of ``number`` runs, by ``GAPS``."""
    total, step, spread = np.zeros(len(GAPS)), _evaluation_step(runs), _spread(runs)
    for later, steps in itertools.product(range(number + 1), (step, step / 2)):
        share = math.comb(number, later) * LATER**later * (1 - LATER) ** (number - later) / 2
        mean = number * (1 + GAPS) + GAPS + later * steps
        for times, weight in SPREADS:
            deviation = math.sqrt(number) * np.hypot(times * spread, math.sqrt(2) * _jitter(runs))
            total += share * weight * _normal(hole, mean, deviation)
    return (1 - LEFT_OUT) * LEFT_OUT ** (number - 1) * total


def _evaluation_step(runs: RunSet) -> float:
    """Return the epochs from one evaluation to the next, in those of a run; 4 of 35, as in most published
    runs, where a log does not tell."""
    epochs = [evaluation.epoch for evaluation in runs.logs[0].evaluations]
    in_order = len(epochs) > 1 and 0 < epochs[-2] < epochs[-1]
    return (epochs[-1] - epochs[-2]) / epochs[-1] if in_order else rules.EVAL_PERIOD_EPOCHS / 35


def _spread(runs: RunSet) -> float:
    """Return the standard deviation of the length of a run, estimated so that a run of more evaluations does
    not matter."""
    apart = [abs((end - begin) / runs.length - 1) for begin, end in runs.spans]
    return max(STEADIEST, 1.48 * statistics.median(apart))


def _jitter(runs: RunSet) -> Any:
    """Return the standard deviation of a gap, by ``GAPS``."""
    return np.hypot(JITTER * GAPS, JITTER_S / runs.length)


def _is_large(runs: RunSet) -> bool:
    return (tree.accelerators(runs.folder) or 0) >= LARGE


def _normal(value: float, mean: Any, deviation: Any) -> Any:
    return np.exp(-(((value - mean) / deviation) ** 2) / 2) / (deviation * math.sqrt(2 * math.pi))


def _log_mean(logarithms: Any) -> float:
    return float(logarithms.max() + np.log(np.exp(logarithms - logarithms.max()).mean()))


def _overlap(runs: RunSet) -> bool:
    return any(gap < -0.08 for gap in runs.gaps)


def _goes_on(before: Trial, after: Trial) -> bool:
    """Return whether one call of a script counted both."""
    return before[1] == after[1] and before[0] < after[0]


def _absent(first: int, end: Trial, present: Container[Trial | None]) -> list[int]:
    """Return the trials from ``first`` to before ``end`` that are not ``present``."""
    return [number for number in range(first, end[0]) if (number, end[1]) not in present]


def _runs(number: int) -> str:
    return counted(number, "run") if number <= MOST_LEFT_OUT else f"{number} runs or more"


def _listed(numbers: Sequence[int]) -> str:
    """Say numbers, which ascend: 3, 3 to 5, or the first few."""
    first, last = numbers[0], numbers[-1]
    if last - first == len(numbers) - 1:
        return str(first) if first == last else f"{first} to {last}"
    return ", ".join([*map(str, numbers[:10]), *(["..."] if len(numbers) > 10 else [])])


def tests(runs: RunSet) -> Iterator[Evidence]:
    """Yield what the tests of the launches found."""
    yield from filter(None, (trials(runs), holes(runs), numbers(runs), seeds(runs)))
