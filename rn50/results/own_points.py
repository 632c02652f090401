"""``rn50 rcp``: make reference convergence points (RCP) of the user's own runs, and judge a result by them.

``points`` makes the points, ``passing`` judges a result, ``print_points`` prints both. MLPerf measures the
convergence of this benchmark in epochs to the target. A result passes if its three middle runs need, in the
mean, at least the bound of the point: below the bound, a one-sided t-test at 5 % calls the result faster than
the point. The official checker reads our points as one of its tables. It computes their means, deviations and
bounds, and prunes the table.

The probability that five runs pass is estimated as the share of passing fives among all fives that can be
drawn from the runs, with replacement. Its 95 % interval is the percentile interval of the bootstrap (B.
Efron, Ann. Statist. 7, 1979), which repeats the estimate for random resamples of the runs. Imagined extreme
runs, which a longer campaign might have shown, are resampled with them: for the lower end of the interval a
run of 0 epochs and a run that misses the target, for the upper end a run of very many epochs. Without them,
ten equal runs would leave no doubt. But an event that happens in one run of ten is absent from a third of all
campaigns of ten runs.
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
"""Number of runs of a reference convergence point: twice that of a result (MLPerf Training rules)."""
_LEAST = 3
"""Fewest runs of which a mean without the fastest and the slowest can be taken."""
_FIVES, _RESAMPLES = 1000, 250
"""Number of fives (sets of five runs) drawn from each resample, and number of resamples of the bootstrap."""
_DIFFERENT = 30
"""Every possible five is counted if the runs have at most this many different numbers of epochs: 30 make
278,256 fives. With more, fives are drawn at random."""
_LATE = 1e9
"""Epochs of the imagined run of very many epochs."""


class Chance(NamedTuple):
    """Probability that five runs pass a bound."""

    probability: Share
    """Estimated probability: the share of all fives that pass."""
    low: Share
    """Lower end of the 95 % interval of the probability."""
    high: Share
    """Upper end of the interval."""
    runs: int | None
    """Number of runs, made in fives, after which at least one five has passed with a probability of 95 %;
    null: no five passes. The rules forbid to submit a five that was chosen so."""


class OfficialPoint(NamedTuple):
    """Point of the official reference for a batch size."""

    mean: float
    """Mean of its epochs without the fastest and the slowest run."""
    bound: float
    """Smallest mean of a result that passes."""


class Point(NamedTuple):
    """Reference convergence point of one batch size. In JSON it is an entry of the official tables, so that
    the official checker reads it (``--custom_rcps``); keys in small letters are additions to these tables.
    """

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
    """Number of runs that did not converge. The point is made without them."""
    label: str | None
    """Label of runs that are not the benchmark. Their point is not compared with the official reference."""
    mean: float = math.nan
    """Mean of the epochs without the fastest and the slowest run."""
    deviation: float = math.nan
    """Standard deviation of the epochs of all runs."""
    speedup: float = math.nan
    """Mean divided by bound: how much faster a result may be."""
    bound: float = math.nan
    """Smallest mean of a result that passes."""
    pruned: bool = False
    """True if the official checker does not use the point of this batch size, because other batch sizes need
    fewer epochs."""
    reference: OfficialPoint | None = None
    """The official reference's point of this batch size. In a table that has both, the checker uses this one
    alone; null: the reference has none of this batch size."""

    @property
    def chance(self) -> Chance:
        """Chance that five runs like these pass the bound."""
        return likelihood((*self.epochs, *[math.inf] * self.missed), self.bound)


# The fields of its JSON, in this order: attributes, or dictionaries name in the official tables -> attribute.
prints(
    Point,
    lambda r: {"Benchmark": r.benchmark, "Creator": r.creator, "When": r.when, "Platform": r.platform},
    lambda r: {"BS": r.batch_size, "Hyperparams": r.hyperparameters, "Epochs to converge": r.epochs},
    lambda r: {"RCP Mean": r.mean, "RCP Stdev": r.deviation, "Max Speedup": r.speedup, "Min Epochs": r.bound},
    lambda r: (r.missed, r.pruned, r.reference, r.label, r.chance),
)


class Comparable(NamedTuple):
    """A published result with the optimizer of a result and a batch size near it. Reviewers of a round
    compare a result that fails with such published results."""

    name: str
    """Name of the published result."""
    batch_size: int | None
    """Global batch size."""
    mean: float | None
    """Mean of its epochs without the fastest and the slowest run; null: several runs did not converge."""


class Passing(NamedTuple):
    """Verdict on a result by the point of its batch size."""

    system: str
    """Name of the result."""
    mean: float | None
    """Mean of its epochs without the fastest and the slowest run; null: several runs did not converge."""
    bound: float
    """Smallest mean that passes."""
    verdict: rcp.Convergence
    """Verdict of the official checker with these points."""
    chance: Chance
    """Chance that another five runs like its own pass."""
    published: Sequence[Comparable]
    """At most three published results to compare with; none if the result is not of the benchmark."""


# The fields of its JSON, in this order.
prints(
    Passing,
    lambda r: (r.system, r.verdict.passed, r.verdict.message, r.verdict.factor, r.verdict.scaled_minutes),
    lambda r: (r.mean, r.bound, r.chance, r.published),
)


def points(paths: Sequence[pathlib.Path], progress: Progress = silent) -> dict[str, Point]:
    """Return the points of result files and folders by name: one point for each global batch size. The runs
    of a point may lie in several folders. ``progress(done, total)`` counts the files read, as ``score.score``
    does.

    Raises:
        UserError: a file is not the log of a run, breaks a rule of a result or is of another configuration
            than the others of its batch size, or fewer than three of them converged.
    """
    by_size: dict[int, list[Run]] = {}
    for system in score.score(paths, progress=progress):
        by_size.setdefault(_batch_size(system), []).extend(system.runs)
    # Score the runs of a batch size together, as if all lay in the folder of the first.
    pools = (score.score_runs(runs[0].file.parent, runs) for _, runs in sorted(by_size.items()))
    by_name = {f"{rules.BENCHMARK}_own_{point.batch_size}": point for point in map(_point, pools)}
    # Runs with a label are not the benchmark, so the official points do not count for them.
    labelled = any(point.label for point in by_name.values())
    return with_statistics(by_name, {} if labelled else recipe.convergence_points(rules.RULESETS[-1]))


def with_statistics(by_name: Mapping[str, Point], official: Mapping[str, Any]) -> dict[str, Point]:
    """Return the points ``by_name`` with the statistics that the official checker computes for them in one
    table with the ``official`` points, which are entries of its tables by name."""
    checker = rcp.reference(json.dumps({**official, **as_json(by_name)}))
    rows = checker.rcp_data  # name -> entry of the table, with the statistics that the checker has added
    by_size = {rows[name]["BS"]: rows[name] for name in official}  # batch size -> entry of the official point
    # The checker has pruned already, but its pruning goes wrong if two points have the same batch size. Prune
    # again without our point where there is an official one, which comes first and so is the one it uses.
    checker.rcp_data = {key: row for key, row in rows.items() if key in official or row["BS"] not in by_size}
    checker._prune_rcps()
    sizes_used = {point["BS"] for point in checker.pruned_rcp_data.values()}
    keys = {"mean": "RCP Mean", "deviation": "RCP Stdev", "speedup": "Max Speedup", "bound": "Min Epochs"}
    result = {}
    for name, point in by_name.items():
        statistics: dict[str, Any] = {field: float(rows[name][key]) for field, key in keys.items()}
        row = by_size.get(point.batch_size)
        reference = OfficialPoint(float(row["RCP Mean"]), float(row["Min Epochs"])) if row else None
        pruned = point.batch_size not in sizes_used
        result[name] = point._replace(**statistics, pruned=pruned, reference=reference)
    return result


def _batch_size(system: SystemScore) -> int:
    """Return the global batch size of the runs of a result. Raise UserError if no batch size is logged, or a
    run that converged breaks a rule of a result. The point is made without the other runs, so they may break
    rules."""
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
    """Return the point of runs of one batch size, without the statistics of the official checker."""
    size, log = _batch_size(pool), pool.runs[0].log
    # A run that logs the target at epoch 0, before it has trained, counts as missed too.
    epochs = [epoch for epoch in _epochs(pool.runs) if 0 < epoch < math.inf]
    if len(epochs) < _LEAST:
        problem = f"{counted(len(epochs), 'run')} of {len(pool.runs)} converged at batch size {size:,}"
        remedy = f"a reference convergence point takes {RUNS}, make {RUNS - len(epochs)} more"
        raise UserError(log.path.parent, problem, remedy)
    trained = recipe.of_log(log)
    # The length of the decay in steps, as the official tables have it, if it was logged in steps.
    logged = dataclasses.replace(trained, decay_epochs=trained.decay_steps or trained.decay_epochs).logged()
    # The tables leave out a prefix: "opt_momentum" for "lars_opt_momentum". Their "optimizer" is "opt_name".
    values = {key.removeprefix(f"{trained.optimizer}_"): value for key, value in logged.items()}
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
    """Return the chance that five runs pass the ``bound`` if they are like the runs that needed ``epochs``.
    Infinity stands for a run that did not converge. A five with one such run may pass."""
    import numpy as np

    random = np.random.default_rng(0)

    def passes(fives: Any) -> Any:
        """Return which of the fives, an array (..., 5) of epochs, pass."""
        # Two runs that missed the target leave an infinite mean, with which a five does not pass.
        means = np.sort(fives)[..., 1:-1].mean(axis=-1)
        return (means >= bound) & np.isfinite(means)

    def shares(*imagined: float) -> Any:
        """Return the share of fives that pass, for each resample of the runs and the ``imagined`` ones."""
        runs = (*epochs, *imagined)
        # Draw the places of the runs of each five in a resample, then the resamples, each of as many runs as
        # ``runs`` has.
        indices = random.integers(0, len(runs), (_RESAMPLES, _FIVES * rules.RUNS))
        fives = np.take_along_axis(random.choice(runs, (_RESAMPLES, len(runs))), indices, axis=1)
        return passes(fives.reshape(_RESAMPLES, _FIVES, rules.RUNS)).mean(axis=-1)

    values, counts = np.unique(epochs, return_counts=True)
    if len(values) > _DIFFERENT:
        share = float(passes(random.choice(epochs, (10 * _FIVES, rules.RUNS))).mean())
    else:
        # Every five of values, as a row of five ascending indices into ``values``.
        chosen = np.array([*itertools.combinations_with_replacement(range(len(values)), rules.RUNS)])
        # Each five is weighted by the number of ways to draw it: the product of the counts of its values,
        # divided by m! for each value that it has m times. The factor 5! is the same for all fives. The sums
        # over the lower triangle count 1 to m at the m places of a value, and so multiply to m!.
        orders = np.tril(chosen[:, :, None] == chosen[:, None, :]).sum(axis=-1).prod(axis=-1)
        ways = counts[chosen].prod(axis=-1, dtype=float) / orders
        share = float(np.average(passes(values[chosen]), weights=ways))
    # The imagined runs are those that the docstring of this file explains.
    low, high = np.percentile(shares(0, math.inf), 2.5), np.percentile(shares(_LATE), 97.5)
    # None of n fives passes with the probability (1 - share) ** n. Take the n that makes it 5 %. If every
    # five passes, one is enough; if no five passes, no number is.
    fives_needed = math.log(0.05) / math.log1p(-share) if 0 < share < 1 else share
    runs = rules.RUNS * math.ceil(fives_needed) if fives_needed else None
    # The ends come from random resamples, so the estimate might lie outside: move the end to it then.
    return Chance(share, min(float(low), share), max(float(high), share), runs)


def passing(result: pathlib.Path, by_name: Mapping[str, Point]) -> Passing:
    """Judge a result by the point of its batch size among the points ``by_name``.

    Raises:
        UserError: ``result`` is not one result of five runs, breaks a rule of a result, or is of another task
            or batch size than the points.
    """
    system, *others = score.score([result])
    # A folder may have more runs than the five consecutive ones that make the result; only these count.
    size, epochs = _batch_size(system), _epochs([run for run in system.runs if run.in_set])
    if others or len(epochs) != rules.RUNS:
        problem = f"{len(others) + 1} results" if others else counted(len(epochs), "run")
        raise UserError(result, problem, f"give one result of {rules.RUNS} runs")
    matches = [point for point in by_name.values() if (point.batch_size, point.label) == (size, system.label)]
    if not matches:
        problem = f"no point is of its batch size {size:,}" + (f" ({system.label})" if system.label else "")
        sizes = ", ".join(f"{point.batch_size:,}" for point in by_name.values())
        raise UserError(result, f"{problem}, but of {sizes}", "give runs of the same task and batch size")
    epochs_or_none = tuple(epoch if math.isfinite(epoch) else None for epoch in epochs)
    verdict = rcp.judge(rules.RULESETS[-1], size, epochs_or_none, json.dumps(as_json(by_name)))
    if verdict.passed and system.olympic_minutes:
        verdict = dataclasses.replace(verdict, scaled_minutes=system.olympic_minutes * verdict.factor)
    bound = matches[0].bound
    return Passing(system.name, _mean(epochs), bound, verdict, likelihood(epochs, bound), _comparable(system))


def _mean(epochs: Sequence[float]) -> float | None:
    """Return the mean of ascending epochs of five runs without the first and the last; None if more than one
    run missed the target."""
    return sum(epochs[1:-1]) / (rules.RUNS - 2) if math.isfinite(epochs[-2]) else None


def _comparable(system: SystemScore) -> list[Comparable]:
    """Return the three published results nearest in batch size, without the result itself if it was
    published. Return none for runs with a label, which are not the benchmark."""
    times = [run.log.minutes for run in system.runs]
    optimizer = recipe.of_log(system.runs[0].log).optimizer or ""
    nearest = published.nearest(_batch_size(system), optimizer, system.accelerators, 9)
    others = [row for row in nearest if not system.label and not row.is_of(times)]
    comparable = []
    for row in others[:3]:
        epochs = sorted(epoch or math.inf for epoch in row.runs)  # None: the run missed the target
        comparable.append(Comparable(row.name, row.recipe.global_batch_size, _mean(epochs)))
    return comparable


def print_points(by_name: Mapping[str, Point], outcome: Passing | None, console: Terminal) -> None:
    """Print a few lines on each point, and whether a result passes where ``outcome`` is its verdict."""
    rows = []
    for point in by_name.values():
        runs = len(point.epochs)
        frequencies = sorted(collections.Counter(point.epochs).items())
        needed = ", ".join(f"{epochs:g} in {counted(times, 'run')}" for epochs, times in frequencies)
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
        rows += [(f"batch {point.batch_size:,}", line) for line in lines]
    if outcome:
        mean = f" with a mean of {outcome.mean:.2f}" if outcome.mean is not None else ""
        passes = "passes" if outcome.verdict.passed else "FAILS"
        # A text that says by how much the epochs of the point change the score, if they do.
        changed = f", {scoreboard.scaled(outcome.verdict, 'the point')}" if outcome.verdict.passed else ""
        rows += [("result", f"{outcome.system}: {passes}{mean} ({outcome.verdict.message}){changed}")]
        rows += [("result", _likely(outcome.chance))]
        for result in outcome.published:
            rows += [("published", f"{result.name}: {result.mean:.2f} epochs, batch {result.batch_size:,}")]
    print_rows(rows, console)


def _likely(chance: Chance) -> str:
    """Return a chance in words."""
    fives = counted((chance.runs or 0) // rules.RUNS, "five")
    number = f"{chance.runs} runs ({fives}) are needed for a passing five with a probability of 95 %"
    interval = f"95 % interval {chance.low:.1%} to {chance.high:.1%}"
    likely = f"another five runs pass with a probability of {chance.probability:.1%} ({interval})"
    return f"{likely}; {number if chance.runs else 'no five of such runs passes'}"
