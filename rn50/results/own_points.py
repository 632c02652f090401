"""``rn50 rcp``: reference convergence points of one's own runs, and whether a result passes them.

Mean, deviation, bound and pruning are those of the official checker's class, to which these points are given
as one of its tables. The bound is the least mean of a result's three middle runs that a one-sided t-test at
5 % does not call faster. MLPerf measures the convergence of this benchmark in epochs.

How likely five runs pass is the share of all fives that can be drawn from the runs, with replacement. Its
interval is the percentile one of the bootstrap (B. Efron, Ann. Statist. 7, 1979), over resamples of the runs
and of what none of them showed: a run of no epochs and one that misses the target for the lower end, one of
endlessly many epochs for the upper. Without them ten equal runs would leave no doubt, and what one run in ten
does would be outside of a third of the intervals.
"""

import collections
import dataclasses
import functools
import itertools
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.printed import Share, as_json, prints
from rn50.progress import Progress, silent
from rn50.results import published, rcp, recipe, score, scoreboard
from rn50.results.report.what_ran import date
from rn50.results.run import Run
from rn50.results.score import SystemScore
from rn50.terminal import Terminal, counted, print_rows

RUNS = 2 * rules.RUNS
"""Runs of a reference convergence point: twice those of a result (MLPerf Training rules)."""
_LEAST = 3
"""Runs of which a mean without the fastest and the slowest can be taken."""
_FIVES, _RESAMPLES = 1000, 250
_DIFFERENT = 30
"""Different epochs of runs of which all fives, 278,256, are counted; those of more are drawn."""
_LATE = 1e9
"""Epochs later than any run's."""


class Chance(NamedTuple):
    """How likely five runs pass a bound."""

    probability: Share
    """Share of the fives that pass."""
    low: Share
    """Lower end of its 95 % interval."""
    high: Share
    """Upper end."""
    runs: int | None
    """Runs, made in fives, after which one five has passed with 95 %; null: none passes. The rules forbid to
    choose it."""


class Counting(NamedTuple):
    """The reference's point of a batch size."""

    mean: float
    """Mean of its epochs without the fastest and the slowest."""
    bound: float
    """Least mean of a result that passes."""


class Point(NamedTuple):
    """Reference convergence points by name, as the official tables have them, so that the official checker
    takes them (``--custom_rcps``). Fields in small letters are none of the official ones."""

    benchmark: str
    """Always resnet."""
    creator: str
    """Organisation, as logged."""
    when: str
    """Day of the last run, in UTC."""
    platform: str
    """System, as logged."""
    batch_size: int
    """Global batch size."""
    hyperparameters: Mapping[str, float | str | None]
    """As logged, under the names of the official tables."""
    epochs: Sequence[float]
    """Epochs of the runs that converged."""
    missed: int
    """Runs that did not converge, which are not in the point."""
    label: str | None
    """The label of what is not the benchmark, which is compared with no point of the reference."""
    mean: float = math.nan
    """Mean of the epochs without the fastest and the slowest."""
    deviation: float = math.nan
    """Standard deviation of all of them."""
    speedup: float = math.nan
    """Mean over bound."""
    bound: float = math.nan
    """Least mean of a result that passes."""
    pruned: bool = False
    """True if the official checker leaves the point that counts out, because other batch sizes need fewer
    epochs."""
    reference: Counting | None = None
    """The reference's point of this batch size, which counts in its place beside the official ones; null:
    there is none."""

    @property
    def chance(self) -> Chance:
        """Chance of five of these runs."""
        return likelihood((*self.epochs, *[math.inf] * self.missed), self.bound)


prints(
    Point,
    lambda r: {"Benchmark": r.benchmark, "Creator": r.creator, "When": r.when, "Platform": r.platform},
    lambda r: {"BS": r.batch_size, "Hyperparams": r.hyperparameters, "Epochs to converge": r.epochs},
    lambda r: {"RCP Mean": r.mean, "RCP Stdev": r.deviation, "Max Speedup": r.speedup, "Min Epochs": r.bound},
    lambda r: (r.missed, r.pruned, r.reference, r.label, r.chance),
)


class Comparable(NamedTuple):
    """Published results of the same optimizer, the nearest in batch size: rounds may refuse a result that
    fails by comparison with them."""

    name: str
    """Result."""
    batch_size: int | None
    """Global batch size."""
    mean: float | None
    """Mean of its epochs, as ``mean`` of the result."""


class Passing(NamedTuple):
    """Verdict on a result by the point of its batch size."""

    system: str
    """Result."""
    mean: float | None
    """Mean of its epochs without the fastest and the slowest; null: several runs did not converge."""
    bound: float
    """Least mean that passes."""
    verdict: rcp.Convergence
    """Verdict of the official checker with these points."""
    chance: Chance
    """Chance of another five like its own."""
    published: Sequence[Comparable]
    """At most three; none for what is not the benchmark."""


prints(
    Passing,
    lambda r: (r.system, r.verdict.passed, r.verdict.message, r.verdict.factor, r.verdict.scaled_minutes),
    lambda r: (r.mean, r.bound, r.chance, r.published),
)


def points(paths: Sequence[pathlib.Path], progress: Progress = silent) -> dict[str, Point]:
    """Return the points of result files and folders by name: one of each global batch size, whose runs may
    be in several folders. ``progress(done, total)`` counts the files read, as ``score.score`` does.

    Raises:
        UserError: a file is not the log of a run, breaks a rule of a result or is of another configuration
            than the others of its batch size, or fewer than three of them converged.
    """
    by_size: dict[int, list[Run]] = {}
    for system in score.score(paths, progress=progress):
        by_size.setdefault(_batch_size(system), []).extend(system.runs)
    pools = (score.score_runs(runs[0].file.parent, runs) for _, runs in sorted(by_size.items()))
    bare = {f"{rules.BENCHMARK}_own_{point.batch_size}": point for point in map(_point, pools)}
    labelled = any(point.label for point in bare.values())
    return measured(bare, {} if labelled else recipe.convergence_points(rules.RULESETS[-1]))


def measured(bare: Mapping[str, Point], beside: Mapping[str, Any]) -> dict[str, Point]:
    """Return points with what the official checker computes of them ``beside`` others of a table."""
    checker = rcp.reference(json.dumps({**beside, **as_json(bare)}))
    every = checker.rcp_data
    official = {every[name]["BS"]: every[name] for name in beside}
    # Of two points of a batch size the checker finds the first, and they confuse what prunes them.
    checker.rcp_data = {n: point for n, point in every.items() if n in beside or point["BS"] not in official}
    checker._prune_rcps()
    kept = {point["BS"] for point in checker.pruned_rcp_data.values()}
    keys = {"mean": "RCP Mean", "deviation": "RCP Stdev", "speedup": "Max Speedup", "bound": "Min Epochs"}
    whole = {}
    for name, point in bare.items():
        computed: dict[str, Any] = {field: float(every[name][key]) for field, key in keys.items()}
        counts = official.get(point.batch_size)
        reference = Counting(float(counts["RCP Mean"]), float(counts["Min Epochs"])) if counts else None
        pruned = point.batch_size not in kept
        whole[name] = point._replace(**computed, pruned=pruned, reference=reference)
    return whole


def _batch_size(system: SystemScore) -> int:
    """Return the global batch size of runs that keep the rules of a result. What a run that did not converge
    lacks is no matter: it is not in the point."""
    missed = [run.file for run in system.runs if not run.converged]
    for error in system.errors:
        if error.file not in missed:
            where = error.file if error.line is None else f"{error.file}, line {error.line}"
            raise UserError(where, error.message, error.remedy)
    size = system.runs[0].log.global_batch_size
    if not size or size < 1:
        raise UserError(system.runs[0].file, "no global_batch_size is logged", "leave this file out")
    return size


def _epochs(runs: Sequence[Run]) -> tuple[float, ...]:
    """Return the epochs to target in ascending order; infinity for a run that did not converge."""
    reached = (run.log.reached if run.converged else None for run in runs)
    return tuple(sorted(evaluation.epoch if evaluation else math.inf for evaluation in reached))


def _point(pool: SystemScore) -> Point:
    """Return what a point has of its runs, without what the official checker computes."""
    size, log = _batch_size(pool), pool.runs[0].log
    epochs = [epochs for epochs in _epochs(pool.runs) if 0 < epochs < math.inf]
    if len(epochs) < _LEAST:
        problem = f"{counted(len(epochs), 'run')} of {len(pool.runs)} converged at batch size {size:,}"
        remedy = f"a reference convergence point takes {RUNS}, make {RUNS - len(epochs)} more"
        raise UserError(log.path.parent, problem, remedy)
    of_log = recipe.of_log(log)
    logged = dataclasses.replace(of_log, decay_epochs=of_log.decay_steps or of_log.decay_epochs).logged()
    values = {key.removeprefix(f"{of_log.optimizer}_"): value for key, value in logged.items()}
    values["optimizer"] = values.pop("opt_name", None)
    return Point(
        benchmark=rules.BENCHMARK,
        creator=log.org or "",
        when=max(map(date, pool.runs)),
        platform=pool.system,
        batch_size=size,
        hyperparameters=values,
        epochs=epochs,
        missed=len(pool.runs) - len(epochs),
        label=pool.label,
    )


@functools.cache
def likelihood(epochs: tuple[float, ...], bound: float) -> Chance:
    """Return how likely five of runs like those that needed ``epochs`` pass. Infinity is a run that did not
    converge, of which a five may have one."""
    import numpy as np

    random = np.random.default_rng(0)

    def passes(fives: Any) -> Any:
        """Return which of the fives pass."""
        means = np.sort(fives)[..., 1:-1].mean(axis=-1)
        return (means >= bound) & np.isfinite(means)

    def shares(*more: float) -> Any:
        """Return the share of fives that pass, of each resample of the runs and ``more``."""
        runs = (*epochs, *more)
        drawn = random.integers(0, len(runs), (_RESAMPLES, _FIVES * rules.RUNS))
        fives = np.take_along_axis(random.choice(runs, (_RESAMPLES, len(runs))), drawn, axis=1)
        return passes(fives.reshape(_RESAMPLES, _FIVES, rules.RUNS)).mean(axis=-1)

    values, counts = np.unique(epochs, return_counts=True)
    if len(values) > _DIFFERENT:
        share = float(passes(random.choice(epochs, (10 * _FIVES, rules.RUNS))).mean())
    else:
        chosen = np.array([*itertools.combinations_with_replacement(range(len(values)), rules.RUNS)])
        # The ways to draw a five: of each of its values one of the runs, in 5! orders, which all fives share,
        # over those of equal values.
        orders = np.tril(chosen[:, :, None] == chosen[:, None, :]).sum(axis=-1).prod(axis=-1)
        ways = counts[chosen].prod(axis=-1, dtype=float) / orders
        share = float(np.average(passes(values[chosen]), weights=ways))
    low, high = np.percentile(shares(0, math.inf), 2.5), np.percentile(shares(_LATE), 97.5)
    # Fives needed until one has passed: all of them pass, or none, or (1 - share) ** fives is 5 %.
    fives = math.log(0.05) / math.log1p(-share) if 0 < share < 1 else share
    runs = rules.RUNS * math.ceil(fives) or None
    return Chance(share, min(float(low), share), max(float(high), share), runs)


def passing(result: pathlib.Path, by_name: Mapping[str, Point]) -> Passing:
    """Return whether a result passes the point of its batch size among one's own.

    Raises:
        UserError: ``result`` is not one result of five runs, breaks a rule of a result, or is of another task
            or batch size than the points.
    """
    system, *others = score.score([result])
    size, epochs = _batch_size(system), _epochs([run for run in system.runs if run.in_set])
    if others or len(epochs) != rules.RUNS:
        problem = f"{len(others) + 1} results" if others else counted(len(epochs), "run")
        raise UserError(result, problem, f"give one result of {rules.RUNS} runs")
    of_task = [point for point in by_name.values() if (point.batch_size, point.label) == (size, system.label)]
    if not of_task:
        problem = f"no point is of its batch size {size:,}" + f" ({system.label})" * bool(system.label)
        sizes = ", ".join(f"{point.batch_size:,}" for point in by_name.values())
        raise UserError(result, f"{problem}, but of {sizes}", "give runs of the same task and batch size")
    judged = tuple(of_run if math.isfinite(of_run) else None for of_run in epochs)
    verdict = rcp.judge(rules.RULESETS[-1], size, judged, json.dumps(as_json(by_name)))
    if verdict.passed and system.olympic_minutes:
        verdict = dataclasses.replace(verdict, scaled_minutes=system.olympic_minutes * verdict.factor)
    chance = likelihood(epochs, of_task[0].bound)
    return Passing(system.name, _mean(epochs), of_task[0].bound, verdict, chance, _comparable(system))


def _mean(epochs: Sequence[float]) -> float | None:
    """Return the mean of ascending epochs without the first and the last; None if several runs missed."""
    return sum(epochs[1:-1]) / (rules.RUNS - 2) if math.isfinite(epochs[-2]) else None


def _comparable(system: SystemScore) -> list[Comparable]:
    """Return the published results to compare with, without the one whose logs these are."""
    times, optimizer = [run.log.minutes for run in system.runs], recipe.of_log(system.runs[0].log).optimizer
    nearest = published.nearest(_batch_size(system), optimizer or "", system.accelerators, 9)
    others = [result for result in nearest if not system.label and not result.is_of(times)][:3]
    runs = [sorted(epochs or math.inf for epochs in result.runs) for result in others]
    pairs = zip(others, runs, strict=True)
    return [Comparable(row.name, row.recipe.global_batch_size, _mean(epochs)) for row, epochs in pairs]


def print_points(by_name: Mapping[str, Point], outcome: Passing | None, console: Terminal) -> None:
    """Print a few lines of each point, and whether a result passes."""
    rows = []
    for point in by_name.values():
        name, runs = f"batch {point.batch_size:,}", len(point.epochs)
        often = sorted(collections.Counter(point.epochs).items())
        needed = ", ".join(f"{epochs:g} in {counted(times, 'run')}" for epochs, times in often)
        too_few = f"no point yet: {RUNS} runs are wanted, make {RUNS - runs} more"
        lines = [
            f"{point.platform}: {counted(runs, 'run')} converged, {point.missed} did not",
            f"epochs: {needed}; deviation {point.deviation:.2f}",
            f"mean without the fastest and the slowest: {point.mean:.2f}; a result passes with "
            f"{point.bound:.2f} or more, at most {point.speedup:.3f} times as fast",
            _likely(point.chance) if runs >= RUNS else too_few,
        ]
        if point.reference:
            counts = f"mean {point.reference.mean:.2f}, bound {point.reference.bound:.2f}"
            lines += [f"the reference has a point of this batch size, which counts in its place: {counts}"]
        lines += ["pruned: other batch sizes need fewer epochs; the checker leaves it out"] * point.pruned
        rows += [(name, line) for line in lines]
    if outcome:
        mean = f" with a mean of {outcome.mean:.2f}" if outcome.mean is not None else ""
        passes = "passes" if outcome.verdict.passed else "FAILS"
        changed = f", {scoreboard.scaled(outcome.verdict, 'the point')}" * outcome.verdict.passed
        rows += [("result", f"{outcome.system}: {passes}{mean} ({outcome.verdict.message}){changed}")]
        rows += [("result", _likely(outcome.chance))]
        rows += [
            ("published", f"{result.name}: {result.mean:.2f} epochs, batch {result.batch_size:,}")
            for result in outcome.published
        ]
    print_rows(rows, console)


def _likely(chance: Chance) -> str:
    fives = counted((chance.runs or 0) // rules.RUNS, "five")
    number = f"{chance.runs} runs ({fives}) are needed for a passing five with a probability of 95 %"
    interval = f"95 % interval {chance.low:.1%} to {chance.high:.1%}"
    likely = f"another five runs pass with a probability of {chance.probability:.1%} ({interval})"
    return f"{likely}; {number if chance.runs else 'no five of such runs passes'}"
