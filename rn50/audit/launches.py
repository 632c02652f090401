"""When and how the runs were launched: the script's own count, holes between runs, file numbers, seeds.

A script starts its runs one after the other, with nearly the same gap. A run that was left out leaves a hole
of its length and one more gap. Two explanations of the gaps are compared by their likelihood ratio, averaged
over the unknown gap of the script: runs were left out, or somebody started the script again after any time.
If nothing was left out, a ratio of x or more has a probability of at most 1/x (Markov's inequality), which is
the p-value reported.
"""

import collections
import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from rn50.audit.run_set import Evidence, RunSet, not_tested, number_of, ratio_of
from rn50.benchmark import rules
from rn50.gathered import gathered
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
OVERLAP, LEAST_HOLE, MUCH_LONGER = -0.08, 0.2, 0.5
"""Lengths of a run: a gap below which two runs were made side by side; one that is spoken of; and what an
initialisation, or what follows the end, takes more than that of another run where it stands out: of published
ones the most is 0.37."""

Trial = tuple[int, int]
"""Number of a run by the script that made it, and how many it announced."""
_Gap = tuple[ResultLog, ResultLog, float, bool]
"""Runs before and after a gap, its length in lengths of a run, and whether the script's count explains it."""


def trials(runs: RunSet) -> Evidence | None:
    """Compare with the count that a script prints, ``Beginning trial 2 of 8``; None without one. Where runs
    overlap, calls of the script cannot be told apart, but each made trial 1 before trial 2."""
    counts, often = [log.trial for log in runs.logs], collections.Counter(_counted(runs))
    if not any(counts):
        return None
    missing = _left_out(runs)
    if any(gap < OVERLAP for gap in runs.gaps):
        fewer = [(k - 1, n) for (k, n), times in sorted(often.items()) if k > 1 and times > often[k - 1, n]]
        missing = [f"trial {number} of {announced}" for number, announced in fewer]
    begun = [number for number, announced in often.elements() if announced > 1]
    if len(begun) > 1 and {*begun} == {1}:
        missing.append(f"trial 2 after each of {len(begun)} runs that are trial 1")
    text = ", ".join(f"{c[0]} of {c[1]}" if c else "-" for c in counts)
    text += f"; {rest} are not here" if (rest := not_here(runs)) else ""
    if missing:
        return Evidence("trials", True, f"missing: {'; '.join(missing)} (the logs say {text})", len(missing))
    return Evidence("trials", False, f"the script's own count: {text}", 0)


def _counted(runs: RunSet) -> list[Trial]:
    """Return the counts that all logs have, also those of unfinished runs."""
    return [run.log.trial for run in (*runs.runs, *runs.unfinished) if run.log.trial]


def _left_out(runs: RunSet) -> list[str]:
    """Return the trials that are missing before or between those of one call after the other."""
    unfinished = {run.log.trial for run in runs.unfinished}
    missing: list[str] = []
    before: ResultLog | None = None
    for log in runs.logs:
        if log.trial and (before is None or before.trial):
            numbers, where = range(1, log.trial[0]), f"before {log.path.name}"
            if before and (between := _between(before.trial, log.trial)) is not None:
                numbers, where = between, f"between {before.path.name} and {log.path.name}"
            if left_out := [number for number in numbers if (number, log.trial[1]) not in unfinished]:
                missing.append(f"trial {_listed(left_out)} of {log.trial[1]} {where}")
        before = log
    return missing


def not_here(runs: RunSet) -> str:
    """Say which trials after the last were announced and are not here; empty where all are."""
    last = {announced: number for number, announced in sorted(_counted(runs))}
    rest = {announced: range(number + 1, announced + 1) for announced, number in last.items()}
    return ", ".join(f"{_listed(numbers)} of {announced}" for announced, numbers in rest.items() if numbers)


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
        text = f"by the clock {listed}: numbered by something else than the clock"
        return Evidence("file numbers", False, text, 0)
    text = f"one script made them, but their numbers do not follow the clock: {listed}"
    return Evidence("file numbers", True, text, 1)


def _is_rearranged(order: Sequence[int]) -> bool:
    """True where ``order`` is none that a rotation, a reversal of one, or moving one run makes."""
    n = len(order)
    steps = {(b - a) % n for a, b in zip(order, [*order[1:], order[0]], strict=True)}
    rests = ([number for number in order if number != moved] for moved in order)
    return steps not in ({1}, {n - 1}) and not any(sorted(rest) == rest for rest in rests)


def seeds(runs: RunSet) -> Evidence | None:
    """Look for a seed used twice, and for one missing in seeds that count up."""
    if len(runs.logs) < 3:
        return None
    logged = [(log.seed, log.path.name) for log in runs.logs if log.seed is not None]
    # Libraries take the lower 32 bits; some submissions set the upper ones alone.
    for same in gathered((seed % 2**32 or seed, (seed, name)) for seed, name in logged).values():
        if len(same) > 1:
            text = f"seed {same[0][0]} in {' and '.join(name for _, name in same)}"
            return Evidence("seeds", True, text, 1)
    if without := [log.path.name for log in runs.logs if log.seed is None]:
        return not_tested("seeds", f"{without[0]} has no number as its seed")
    in_order = sorted(seed for seed, _ in logged)
    steps = [after - before for before, after in itertools.pairwise(in_order)]
    if steps.count(1) == len(steps) - 1 > 1 and max(steps) <= MOST_LEFT_OUT:
        absent = in_order[steps.index(max(steps))] + 1
        return Evidence("seeds", True, f"they count up by 1, and {absent} is not there", 1)
    return Evidence("seeds", False, f"count up by {steps[0]}" if len({*steps}) == 1 else "all differ", 0)


def holes(runs: RunSet) -> Evidence | None:
    """Look for holes of the length of whole runs, and for runs that say that they lasted through one; None
    with fewer than three runs."""
    if len(runs.logs) < 3:
        return None
    long, beside, apart = _long(runs), [], []
    ends = [
        (run.file.name, run.log.events[0].time_ms / 1000, run.log.events[-1].time_ms / 1000)
        for run in runs.unfinished
    ]
    pairs = itertools.pairwise(zip(runs.logs, runs.spans, strict=True))
    for ((before, (_, end)), (after, (begin, _))), gap, is_explained in zip(
        pairs, runs.gaps, _explained(runs), strict=True
    ):
        inside = [(name, min(last, begin) - first) for name, first, last in ends if end <= first <= begin]
        beside += [f"{name} is unfinished: it lasted {s:,.0f} of {begin - end:,.0f} s" for name, s in inside]
        lasted = sum(lasted for _, lasted in inside) / runs.length
        if gap >= OVERLAP:
            apart.append((before, after, max(gap - lasted, GAPS[0]), is_explained))
        else:
            beside.append(f"{before.path.name} and {after.path.name} overlap")
    stands_out, text, *figures = _weighed(runs, apart)
    text = "; ".join([*long, text, *beside])
    figures = figures if stands_out or not long else []
    return Evidence("launch gaps", bool(long) or stands_out, text, *figures)


def _weighed(runs: RunSet, apart: Sequence[_Gap]) -> tuple[Any, ...]:
    """Return whether gaps are holes, in words, the likelihood ratio and its p-value."""
    gaps, explained = [gap for _, _, gap, _ in apart], [is_explained for *_, is_explained in apart]
    if 2 * len(apart) < len(runs.gaps):
        return False, "most runs were made side by side: gaps say nothing"
    if all(explained) or min(gaps) > SLOW_SCRIPT:
        what = "the script's count tells of each" if all(explained) else "runs were started one by one"
        return False, f"{what}: gaps say nothing"
    paused, left_out, number = _likelihoods(runs, gaps, explained)
    ratio = ratio_of(_log_mean(left_out) - _log_mean(paused))
    likeliest = int(np.argmax(left_out))
    holes = [(*gap, n[likeliest]) for gap, n in zip(apart, number, strict=True) if n[likeliest]]
    if not holes or ratio < (SUSPECT_LARGE if _is_large(runs) else SUSPECT):
        usual = statistics.median(gaps)
        longest = max(gap for _, _, gap, is_explained in apart if not is_explained)
        text = "no hole of a run"
        if longest > max(1.5 * usual, LEAST_HOLE):
            fits = "may be a pause" if holes else "fits no whole number of runs"
            text = f"the longest, {longest * runs.length:,.0f} s, {fits}"
        return False, f"{usual * runs.length:,.0f} s between runs; {text}", ratio, min(1.0, 1 / ratio)
    where = [
        f"{gap * runs.length / 60:.1f} minutes between {before.path.name} and {after.path.name} "
        f"have room for {_runs(n)}"
        for before, after, gap, _, n in holes
    ]
    return True, "; ".join(where), ratio, 1 / ratio


def _explained(runs: RunSet) -> list[bool]:
    """Return for each gap whether the script's count tells what it is: it goes on after the gap, or begins
    anew there and goes on before or after it. One that begins anew with every run tells nothing."""
    unfinished, goes_on, anew = {run.log.trial for run in runs.unfinished}, [False], []
    for before, after in itertools.pairwise(log.trial for log in runs.logs):
        between, announced = _between(before, after), after[1] if before and after else 0
        goes_on.append(between is not None and all((trial, announced) in unfinished for trial in between))
        anew.append(between is None and announced > 1)
    return [goes_on[i + 1] or (new and any(goes_on[i : i + 3])) for i, new in enumerate(anew)]


def _long(runs: RunSet) -> list[str]:
    """Say which runs have an initialisation, or records after their end, that are longer than those of
    another by the length of a run or nearly."""
    texts, ends = [], ("before run_start", "after run_stop")
    for log, beside in zip(runs.logs, runs.beside, strict=True):
        for end, took, least in zip(ends, beside, runs.least, strict=True):
            if took - least > MUCH_LONGER * runs.length:
                minutes = f"{took / 60:.1f} minutes {end}, another run {least / 60:.1f}"
                texts.append(f"{log.path.name} has {minutes}")
    return texts


def _likelihoods(
    runs: RunSet, gaps: Sequence[float], explained: Sequence[bool]
) -> tuple[Any, Any, list[Any]]:
    """Return the logarithms of the likelihood of ``gaps`` without and with runs left out, and for each gap
    the likeliest number of these, each by ``GAPS``. An ``explained`` gap tells of the script's gap alone."""
    again = STARTED_AGAIN_LARGE if _is_large(runs) else STARTED_AGAIN
    paused, left_out, numbers = np.zeros(len(GAPS)), np.zeros(len(GAPS)), []
    for gap, is_explained in zip(gaps, explained, strict=True):
        regular = _normal(gap, GAPS, _jitter(runs))
        pause = np.where(gap > 1.2 * GAPS, 1 / (gap * math.log(LONGEST / SHORTEST)), 1e-9)
        by_number = [_density(runs, gap, number) for number in range(1, MOST_LEFT_OUT + 1)]
        more = gap > (MOST_LEFT_OUT + 1) * (1 + GAPS)
        by_number.append(LEFT_OUT**MOST_LEFT_OUT * np.where(more, 4 * pause, 0))
        without = np.log((1 - again) * regular + again * pause)
        none = (1 - LEFT_OUT) * regular + 3e-3 * pause
        paused += without
        left_out += without if is_explained else np.log(none + LEFT_OUT * sum(by_number))
        some = (LEFT_OUT * (not is_explained) * likelihood for likelihood in by_number)
        numbers.append(np.argmax([none, *some], axis=0))
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
    return float(np.logaddexp.reduce(logarithms) - math.log(len(logarithms)))


def _between(before: Trial | None, after: Trial | None) -> range | None:
    """Return the numbers between two trials of one call of a script; None where they are of none."""
    if before and after and before[1] == after[1] and before[0] < after[0]:
        return range(before[0] + 1, after[0])
    return None


def _runs(number: int) -> str:
    return counted(number, "run") if number <= MOST_LEFT_OUT else f"{number} runs or more"


def _listed(numbers: Sequence[int]) -> str:
    """Say numbers, which ascend: 3, 3 to 5, or the first few."""
    first, last = numbers[0], numbers[-1]
    if last - first == len(numbers) - 1:
        return str(first) if first == last else f"{first} to {last}"
    return ", ".join([*map(str, numbers[:10]), *(["..."] if len(numbers) > 10 else [])])


TESTS = trials, holes, numbers, seeds
