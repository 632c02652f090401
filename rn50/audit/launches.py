"""Tests of how the runs were launched: the count of the script that made them (``trials``), the times between
runs (``holes``), the numbers of the files (``numbers``) and the seeds (``seeds``).

A script starts its runs one after the other, with nearly the same gap between them. A run that was left out
leaves a hole: its length and one more gap. Two explanations of the gaps are compared by their likelihood
ratio: runs were left out, or somebody started the script again after a pause of any length. The likelihoods
are averaged over the gap of the script, which is not known. If nothing was left out, a ratio of x or more has
a probability of at most 1/x (Markov's inequality), which is the p-value reported.
"""

import collections
import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from rn50.audit.run_set import FEWER_THAN_3, Evidence, RunSet, not_tested, number_of, ratio_of
from rn50.benchmark import rules
from rn50.gathered import gathered
from rn50.results import tree
from rn50.results.parse import ResultLog
from rn50.terminal import counted

GAPS = np.exp(np.arange(math.log(1e-3), math.log(60), 0.02))
"""Possible gaps of a script, in lengths of a run: from 0.001 to 60, each 2 % above the one before.
Likelihoods are arrays with an entry for each of these gaps."""
JITTER, JITTER_S = 0.05, 1.0
"""Two parts of the standard deviation of a script's gaps: one as a fraction of the gap, one in seconds.
``_jitter`` adds their squares. Gaps of scripts in published results vary by 0.1 to 8 %."""
MOST_LEFT_OUT = 5
"""Most runs in one hole that its length can tell; holes of more runs differ too little in length."""
LEFT_OUT = 0.4
"""Probability that a run is missing in a gap, if runs were left out; also that a second is missing after the
first, a third after the second, and so on."""
STARTED_AGAIN, STARTED_AGAIN_LARGE = 0.06, 0.5
"""Probability that a gap is a pause: in published results, and in those of large systems, whose runs wait for
the machine."""
LARGE = 128
"""Fewest accelerators of a large system."""
LATER = 0.2
"""Probability that a run needs one evaluation more than usual."""
STEADIEST = 0.004
"""Smallest standard deviation of the length of a run that was left out, as a fraction of the length."""
SPREADS = (1, 0.5), (3, 0.3), (10, 0.2)
"""(factor of the standard deviation of the length, probability) of a run that was left out: made on the day
of the other runs, on another day, or on another machine."""
SHORTEST, LONGEST = 0.03, 1e4
"""Shortest and longest pause, in lengths of a run. The logarithm of a pause is uniformly distributed between
the logarithms of these two."""
SUSPECT, SUSPECT_LARGE = 10.0, 300.0
"""Likelihood ratio from which a set stands out, and from which that of a large system does. Both were chosen
on rounds v0.7 to v2.1."""
MOST_ABSENT = 100
"""Most numbers that may be absent among those of the file names; with more they may be dates."""
SLOW_SCRIPT = 4.0
"""Gap, in lengths of a run, from which the runs were rather queued or started by hand than by a script."""
OVERLAP = -0.08
"""Gap, in lengths of a run, below which two runs were made side by side."""
LEAST_HOLE = 0.2
"""Shortest gap, in lengths of a run, that the text calls the longest gap."""
MUCH_LONGER = 0.5
"""An initialisation or ending stands out if it exceeds the shortest of the set by more than so many lengths
of a run. In published results the largest excess is 0.37."""

Trial = tuple[int, int]
"""Number of a run as counted by the script that made it, and number of runs that the script announced."""


class _Gap(NamedTuple):
    """Gap between two runs that do not overlap."""

    before: ResultLog
    after: ResultLog
    length: float
    """Length of the gap without the unfinished runs in it, in lengths of a run."""
    is_explained: bool
    """True if the script's count of its runs shows that no run was left out in the gap."""


def trials(runs: RunSet) -> Evidence:
    """Test "trials": look for runs that are missing in the count that a script prints, ``Beginning trial 2 of
    8``. Not possible without a count.

    If runs overlap, several calls of the script ran at once, and nothing tells which call made a run. But
    each call makes trial 1 before trial 2, so a trial 1 is missing if there are more runs that are trial 2
    than runs that are trial 1."""
    counts = [log.trial for log in runs.logs]
    if not any(counts):
        return not_tested("trials", "no log has the count of its script")
    missing = list(_missing_trials(runs))
    tally = collections.Counter(_all_trials(runs))  # (k, n), which is trial k of n -> number of such runs
    if any(gap < OVERLAP for gap in runs.gaps):
        rarer = [(k - 1, n) for (k, n), count in sorted(tally.items()) if k > 1 and count > tally[k - 1, n]]
        missing = [f"trial {k} of {n}" for k, n in rarer]
    # If all runs are the first of several announced, each call of the script lacks its second.
    numbers = [k for k, n in tally.elements() if n > 1]
    if len(numbers) > 1 and set(numbers) == {1}:
        missing.append(f"trial 2 after each of {len(numbers)} runs that are trial 1")
    text = ", ".join(f"{trial[0]} of {trial[1]}" if trial else "-" for trial in counts)
    # Trials after the last run are only mentioned: nothing says that they were made.
    if rest := not_here(runs):
        text += f"; {rest} are not here"
    if missing:
        return Evidence("trials", True, f"missing: {'; '.join(missing)} (the logs say {text})", len(missing))
    return Evidence("trials", False, f"the script's own count: {text}", 0)


def _all_trials(runs: RunSet) -> list[Trial]:
    """Return the trials that the logs of all runs have, unfinished runs included."""
    return [run.log.trial for run in (*runs.runs, *runs.unfinished) if run.log.trial]


def _missing_trials(runs: RunSet) -> Iterator[str]:
    """Yield phrases on the trials that are missing before or between the runs. They are right only if no two
    runs overlap."""
    unfinished = {run.log.trial for run in runs.unfinished}
    before: ResultLog | None = None  # log of the run before, None for the first run
    for log in runs.logs:
        # After a run without a count nothing tells which trials are missing.
        if log.trial and (before is None or before.trial):
            # If this is the first run of its call of the script, the call made trials 1, 2, ... before it.
            numbers, where = range(1, log.trial[0]), f"before {log.path.name}"
            # If the run before is of the same call, only the trials between the two can be missing.
            if before and (between := _between(before.trial, log.trial)) is not None:
                numbers, where = between, f"between {before.path.name} and {log.path.name}"
            if left_out := [number for number in numbers if (number, log.trial[1]) not in unfinished]:
                yield f"trial {_listed(left_out)} of {log.trial[1]} {where}"
        before = log


def not_here(runs: RunSet) -> str:
    """Return a phrase on the trials after the last run that its script announced; empty if there are none."""
    # number of runs announced -> highest trial of them, which comes last and replaces the lower ones
    last = {announced: number for number, announced in sorted(_all_trials(runs))}
    rest = {announced: range(number + 1, announced + 1) for announced, number in last.items()}
    return ", ".join(f"{_listed(numbers)} of {announced}" for announced, numbers in rest.items() if numbers)


def numbers(runs: RunSet) -> Evidence:
    """Test "file numbers": compare the numbers in the names of the files with each other (is one absent?) and
    with the clock (do they rise with it?). Not possible for fewer than three runs, or without numbers."""
    by_clock = runs.numbers
    if len(by_clock) < 3:
        return not_tested("file numbers", "a file has no number" if len(runs.logs) >= 3 else FEWER_THAN_3)
    lowest, highest = min(by_clock), max(by_clock)
    if highest - lowest + 1 - len({*by_clock}) > MOST_ABSENT:
        return not_tested("file numbers", "the files are numbered by no count of runs; by dates, perhaps")
    if absent := sorted({*range(lowest, highest + 1)} - {*by_clock, *map(number_of, runs.unfinished)}):
        text = f"no {_listed(absent)} among the numbers {lowest} to {highest}"
        return Evidence("file numbers", True, text, len(absent))
    # For each number, in ascending order: the place of its run by the clock, from 0.
    order = [by_clock.index(number) for number in sorted(by_clock)]
    if order == sorted(order):
        return Evidence("file numbers", False, "in the order of the clock", 0)
    listed = ", ".join(map(str, by_clock))
    # If no two runs overlap, and the gaps are nearly equal, one script made the runs.
    by_one_script = bool(runs.gaps) and min(runs.gaps) > 0 and max(runs.gaps) < 1.5 * min(runs.gaps)
    if not _is_rearranged(order) or not by_one_script:
        text = f"by the clock {listed}: numbered by something else than the clock"
        return Evidence("file numbers", False, text, 0)
    text = f"one script made them, but their numbers do not follow the clock: {listed}"
    return Evidence("file numbers", True, text, 1)


def _is_rearranged(order: Sequence[int]) -> bool:
    """Return True unless ``order``, a permutation of 0 to n - 1, is a rotation of the ascending order, a
    reversal of a rotation, or the ascending order with one number moved. Harmless files are numbered in these
    ways too."""
    n = len(order)
    # Differences modulo n of neighbours in a circle of the numbers: all 1 in a rotation, all n - 1 reversed.
    steps = {(b - a) % n for a, b in zip(order, [*order[1:], order[0]], strict=True)}
    # The order without each of its numbers: ascending if only that number was moved.
    rests = ([number for number in order if number != moved] for moved in order)
    is_one_moved = any(sorted(rest) == rest for rest in rests)
    return steps not in ({1}, {n - 1}) and not is_one_moved


def seeds(runs: RunSet) -> Evidence:
    """Test "seeds": look for a seed used twice, and for one missing in seeds that count up by one. Not
    possible for fewer than three runs."""
    if len(runs.logs) < 3:
        return not_tested("seeds", FEWER_THAN_3)
    logged = [(log.seed, log.path.name) for log in runs.logs if log.seed is not None]
    # Seeds are equal if their lower 32 bits are, because libraries use only these. Some submissions set only
    # bits above them: if the lower 32 bits are 0, the whole seeds are compared.
    by_seed = gathered((seed % 2**32 or seed, (seed, name)) for seed, name in logged)
    for same in by_seed.values():
        if len(same) > 1:
            return Evidence("seeds", True, f"seed {same[0][0]} in {' and '.join(n for _, n in same)}", 1)
    if without := [log.path.name for log in runs.logs if log.seed is None]:
        return not_tested("seeds", f"{without[0]} has no number as its seed")
    in_order = sorted(seed for seed, _ in logged)
    steps = [after - before for before, after in itertools.pairwise(in_order)]
    # At least two steps, all but one, are 1. The other step leaves out a few seeds.
    if steps.count(1) == len(steps) - 1 > 1 and max(steps) <= MOST_LEFT_OUT:
        absent = in_order[steps.index(max(steps))] + 1
        return Evidence("seeds", True, f"they count up by 1, and {absent} is not there", 1)
    return Evidence("seeds", False, f"count up by {steps[0]}" if len({*steps}) == 1 else "all differ", 0)


def holes(runs: RunSet) -> Evidence:
    """Test "launch gaps": look for gaps as long as one or more whole runs, and for runs whose own log lasts
    so much longer than the others' that it may hide a run. Not possible for fewer than three runs."""
    if len(runs.logs) < 3:
        return not_tested("launch gaps", FEWER_THAN_3)
    long_runs = list(_phrases_on_long_runs(runs))
    remarks: list[str] = []  # phrases that explain gaps, and do not stand out
    gaps: list[_Gap] = []
    logs = [run.log for run in runs.unfinished]
    # (file, first second, last second) of each unfinished run, by its records
    others = [(log.path.name, log.events[0].time_ms / 1000, log.events[-1].time_ms / 1000) for log in logs]
    explained = _explained(runs)
    for i, (before, after) in enumerate(itertools.pairwise(runs.logs)):
        # Seconds at which the run before the gap ended and the run after it began.
        end, begin = runs.spans[i][1], runs.spans[i + 1][0]
        # (file, seconds) of each unfinished run that began in this gap: no hole is left where it ran.
        inside = [(name, min(last, begin) - first) for name, first, last in others if end <= first <= begin]
        remarks += [f"{name} is unfinished: it lasted {s:,.0f} of {begin - end:,.0f} s" for name, s in inside]
        filled = sum(seconds for _, seconds in inside) / runs.length
        # The gap without the time of unfinished runs, at least the shortest of ``GAPS``.
        if runs.gaps[i] >= OVERLAP:
            gaps.append(_Gap(before, after, max(runs.gaps[i] - filled, GAPS[0]), explained[i]))
        else:
            remarks.append(f"{before.path.name} and {after.path.name} overlap")
    by_gaps = _compare_explanations(runs, gaps)
    text = "; ".join([*long_runs, by_gaps.found, *remarks])
    if long_runs and not by_gaps.stands_out:  # the statistic, which is that of the gaps, is left out
        return Evidence("launch gaps", True, text)
    return dataclasses.replace(by_gaps, found=text)


def _compare_explanations(runs: RunSet, gaps: Sequence[_Gap]) -> Evidence:
    """Return the evidence of the gaps alone: it stands out if runs were probably left out in some of them."""
    lengths = [gap.length for gap in gaps]
    if 2 * len(gaps) < len(runs.gaps):
        return not_tested("launch gaps", "most runs were made side by side: gaps say nothing")
    if all(gap.is_explained for gap in gaps):
        return not_tested("launch gaps", "the script's count tells of each: gaps say nothing")
    if min(lengths) > SLOW_SCRIPT:
        return not_tested("launch gaps", "runs were started one by one: gaps say nothing")
    paused, left_out, numbers = _likelihoods(runs, gaps)
    ratio = ratio_of(_log_mean(left_out) - _log_mean(paused))
    likeliest = int(np.argmax(left_out))  # index in GAPS of the gap of the script
    # (gap, number of runs left out in it) of each gap in which at least one was left out
    holes = [(gap, n[likeliest]) for gap, n in zip(gaps, numbers, strict=True) if n[likeliest]]
    if not holes or ratio < (SUSPECT_LARGE if _is_large(runs) else SUSPECT):
        usual = statistics.median(lengths)
        longest = max(gap.length for gap in gaps if not gap.is_explained)
        text = "no hole of a run"
        if longest > max(1.5 * usual, LEAST_HOLE):
            fits = "may be a pause" if holes else "fits no whole number of runs"
            text = f"the longest, {longest * runs.length:,.0f} s, {fits}"
        text = f"{usual * runs.length:,.0f} s between runs; {text}"
        return Evidence("launch gaps", False, text, ratio, min(1.0, 1 / ratio))
    texts = []
    for gap, n in holes:
        where = f"between {gap.before.path.name} and {gap.after.path.name}"
        room = counted(n, "run") if n <= MOST_LEFT_OUT else f"{n} runs or more"
        texts.append(f"{gap.length * runs.length / 60:.1f} minutes {where} have room for {room}")
    return Evidence("launch gaps", True, "; ".join(texts), ratio, 1 / ratio)


def _explained(runs: RunSet) -> list[bool]:
    """Return for each gap True if the script's count explains it: no run can have been left out in the gap.

    The count explains a gap within a call of the script: one between trials 2 and 3, or between trials 2 and
    4 if trial 3 is an unfinished run. It also explains a gap between two calls, if the gap before or after
    this one lies within a call. A count that begins anew with every run explains nothing."""
    unfinished = {run.log.trial for run in runs.unfinished}
    goes_on = [False]  # for each gap, after one False that stands for the time before the first run
    begins_anew = []
    for before, after in itertools.pairwise(log.trial for log in runs.logs):
        between = _between(before, after)
        announced = after[1] if before and after else 0
        goes_on.append(between is not None and all((trial, announced) in unfinished for trial in between))
        begins_anew.append(between is None and announced > 1)
    # Gap i stands at i + 1 in ``goes_on``: the slice has the gap before it, the gap, and the one after it.
    return [goes_on[i + 1] or (anew and any(goes_on[i : i + 3])) for i, anew in enumerate(begins_anew)]


def _phrases_on_long_runs(runs: RunSet) -> Iterator[str]:
    """Yield phrases on the runs whose initialisation or ending exceeds the shortest of the set by more than
    ``MUCH_LONGER`` lengths of a run, so that a run that was left out may hide in it."""
    for log, outside in zip(runs.logs, runs.outside_clock, strict=True):
        for i, where in enumerate(("before run_start", "after run_stop")):
            seconds, shortest = outside[i], runs.shortest_outside[i]
            if seconds - shortest > MUCH_LONGER * runs.length:
                minutes = f"{seconds / 60:.1f} minutes {where}, another run {shortest / 60:.1f}"
                yield f"{log.path.name} has {minutes}"


def _likelihoods(runs: RunSet, gaps: Sequence[_Gap]) -> tuple[Any, Any, Any]:
    """Return (log-likelihood of the gaps if no run was left out, log-likelihood if runs were left out,
    numbers). ``numbers`` lists for each gap the likeliest number of runs left out in it, where
    ``MOST_LEFT_OUT`` + 1 stands for more runs. Both log-likelihoods, and each item of ``numbers``, are arrays
    with an entry for each of ``GAPS``.

    A gap is regular (that of the script), a pause (the script was started again), or the hole of a number of
    runs."""
    again = STARTED_AGAIN_LARGE if _is_large(runs) else STARTED_AGAIN
    paused, left_out, numbers = np.zeros(len(GAPS)), np.zeros(len(GAPS)), []
    for _, _, gap, is_explained in gaps:
        regular = _normal(gap, GAPS, _jitter(runs))
        # The density of a pause, whose logarithm is uniform. A gap not clearly longer than that of the script
        # is no pause: 1e-9 is nearly 0, and still has a logarithm.
        pause = np.where(gap > 1.2 * GAPS, 1 / (gap * math.log(LONGEST / SHORTEST)), 1e-9)
        # The densities of a hole of 1, 2, ... ``MOST_LEFT_OUT`` runs, and last of more runs: four times that
        # of a pause, if the gap is long enough for them.
        by_number = [_density(runs, gap, number) for number in range(1, MOST_LEFT_OUT + 1)]
        has_room = gap > (MOST_LEFT_OUT + 1) * (1 + GAPS)
        by_number.append(LEFT_OUT**MOST_LEFT_OUT * np.where(has_room, 4 * pause, 0))
        # If no run was left out, a gap is regular or a pause.
        without = np.log((1 - again) * regular + again * pause)
        # If runs were left out, a gap without a hole is regular, and a pause with probability 0.003 only.
        none = (1 - LEFT_OUT) * regular + 3e-3 * pause
        paused += without
        left_out += without if is_explained else np.log(none + LEFT_OUT * sum(by_number))
        # Index 0 of the list is the likelihood of no run, index n that of n runs.
        some = (LEFT_OUT * (not is_explained) * likelihood for likelihood in by_number)
        numbers.append(np.argmax([none, *some], axis=0))
    return paused, left_out, numbers


def _density(runs: RunSet, hole: float, number: int) -> Any:
    """Return the density of a ``hole``, in lengths of a run, where ``number`` runs are missing, times the
    probability that just so many are missing in a hole: an array with an entry for each of ``GAPS``.

    The density is a mixture over the number of these runs that needed one evaluation more, the time up to
    that evaluation (a usual step between evaluations, or half of it), and ``SPREADS``."""
    step, spread = _evaluation_step(runs), _spread(runs)
    density = np.zeros(len(GAPS))
    for later, steps in itertools.product(range(number + 1), (step, step / 2)):
        probability = math.comb(number, later) * LATER**later * (1 - LATER) ** (number - later) / 2
        # The runs, a gap of the script behind each and one before them, and the additional evaluations.
        mean = number * (1 + GAPS) + GAPS + later * steps
        # Each run adds the variance of its length, and twice that of a gap.
        for factor, weight in SPREADS:
            deviation = math.sqrt(number) * np.hypot(factor * spread, math.sqrt(2) * _jitter(runs))
            density += probability * weight * _normal(hole, mean, deviation)
    return (1 - LEFT_OUT) * LEFT_OUT ** (number - 1) * density


def _evaluation_step(runs: RunSet) -> float:
    """Return the epochs from one evaluation to the next as a fraction of the epochs of a run; 4 / 35, as in
    most published runs, if the first log does not tell."""
    epochs = [evaluation.epoch for evaluation in runs.logs[0].evaluations]
    in_order = len(epochs) > 1 and 0 < epochs[-2] < epochs[-1]
    return (epochs[-1] - epochs[-2]) / epochs[-1] if in_order else rules.EVAL_PERIOD_EPOCHS / 35


def _spread(runs: RunSet) -> float:
    """Return the standard deviation of the length of a run, as a fraction of it. It is 1.48 times the median
    absolute deviation, as in a normal distribution; a single run with one evaluation more hardly changes
    that."""
    deviations = [abs((end - begin) / runs.length - 1) for begin, end in runs.spans]
    return max(STEADIEST, 1.48 * statistics.median(deviations))


def _jitter(runs: RunSet) -> Any:
    """Return the standard deviation of a gap in lengths of a run: an array with an entry for each of
    ``GAPS``."""
    return np.hypot(JITTER * GAPS, JITTER_S / runs.length)


def _is_large(runs: RunSet) -> bool:
    """Return whether the runs are those of a large system."""
    return (tree.accelerators(runs.folder) or 0) >= LARGE


def _normal(value: float, mean: Any, deviation: Any) -> Any:
    """Return the density of a normal distribution."""
    return np.exp(-(((value - mean) / deviation) ** 2) / 2) / (deviation * math.sqrt(2 * math.pi))


def _log_mean(logarithms: Any) -> float:
    """Return the logarithm of the mean of the numbers whose logarithms these are."""
    return float(np.logaddexp.reduce(logarithms) - math.log(len(logarithms)))


def _between(before: Trial | None, after: Trial | None) -> range | None:
    """Return the numbers between two trials of one call of a script, empty if they follow each other; None if
    they cannot be of one call."""
    if before and after and before[1] == after[1] and before[0] < after[0]:
        return range(before[0] + 1, after[0])
    return None


def _listed(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text: "3", "3 to 5" if none is missing between them, or up to ten of
    them."""
    first, last = numbers[0], numbers[-1]
    if last - first == len(numbers) - 1:
        return str(first) if first == last else f"{first} to {last}"
    return ", ".join(map(str, numbers[:10])) + (", ..." if len(numbers) > 10 else "")


TESTS = trials, holes, numbers, seeds
"""Tests of this file, which ``audit`` makes."""
