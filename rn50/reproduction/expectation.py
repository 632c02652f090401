"""Expectation of runs on this machine, before any is made."""

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rn50.hyperparameters.plan.images_per_second import Conditions, evaluations, minutes
from rn50.hyperparameters.plan.planner import SystemPlanner
from rn50.printed import Minutes
from rn50.reproduction.claim import Claim
from rn50.reproduction.here import Here
from rn50.results import chips, equivalence

RATE = "images/s in training"


class Expected(NamedTuple):
    """The mean of the runs in one quantity."""

    quantity: str
    """epochs, minutes, images/s, or images/s in training: without evaluations and start-up."""
    value: Minutes | None
    """Expected mean; null: not known."""
    low: Minutes | None
    """Lower end of its 95 % interval; null: not known."""
    high: Minutes | None
    """Upper end."""
    basis: str
    """Where it comes from, or why it is not known."""

    @property
    def words(self) -> str:
        """Return it in words."""
        if self.value is None:
            return f"{self.quantity}: not known, {self.basis}"
        interval = f" ({self.low:,.4g} to {self.high:,.4g})" if self.low is not None else ""
        return f"{self.quantity}: {self.value:,.4g}{interval}; {self.basis}"


def expected(claim: Claim, here: Here, runs: int) -> list[Expected]:
    """Return what to expect of so many runs."""
    epochs, rate = _epochs(claim, here, runs), _rate(claim, here, runs)
    return [epochs, rate, *_whole_runs(claim, here, runs, epochs, rate)]


def _own(quantity: str, values: Sequence[float], runs: int, value: float | None = None) -> Expected:
    """Return what the claim's own runs say, or of ``value``, which spreads as they do."""
    if len(values) < 2:
        basis = "its one run, which says nothing of the spread"
        return Expected(quantity, value or values[0], None, None, basis)
    mean, (low, high) = statistics.geometric_mean(values), equivalence.of_more_runs(values, runs)
    factor = value / mean if value else 1.0
    return Expected(quantity, mean * factor, low * factor, high * factor, f"its {len(values)} runs")


def _epochs(claim: Claim, here: Here, runs: int) -> Expected:
    if here.same_recipe:
        return _own("epochs", claim.epochs, runs)
    prediction = here.prediction
    if prediction is None or not prediction.runs:
        mean = statistics.geometric_mean(claim.epochs)
        basis = "what its runs took with their recipe; nobody published runs of the one here"
        return Expected("epochs", mean, None, None, basis)
    return Expected("epochs", prediction.mean, prediction.low, prediction.high, prediction.basis)


def _rate(claim: Claim, here: Here, runs: int) -> Expected:
    if here.same_speed and claim.training_rate:
        return _own(RATE, claim.images_per_second, runs, claim.training_rate)
    gpus, planner = here.facts.gpus, SystemPlanner()
    name = chips.among(planner.accelerators, gpus[0].name) if gpus else None
    if not name:
        return Expected(RATE, None, None, None, "nobody published a result of this machine")
    ranks = here.config.ranks
    rate = planner.throughput.predict(Conditions(name, ranks, here.config.global_batch_size / ranks))
    whole, factor = ranks * rate.images_per_second, math.exp(1.96 * rate.spread)
    basis = f"published results of {name}, of others' code"
    return Expected(RATE, whole, whole / factor, whole * factor, basis)


def _whole_runs(claim: Claim, here: Here, runs: int, epochs: Expected, rate: Expected) -> Iterator[Expected]:
    """Yield minutes and images/s of whole runs."""
    if here.same_speed:
        yield _own("minutes", claim.minutes, runs)
        yield _own("images/s", claim.images_per_second, runs)
        return
    if epochs.value and rate.value and here.config.is_imagenet:
        ranks, evaluated = here.config.ranks, evaluations(epochs.value, None, None)
        value, low, high = (
            minutes(count or epochs.value, evaluated, ranks, (speed or rate.value) / ranks)
            for count, speed in ((epochs.value, rate.value), (epochs.low, rate.high), (epochs.high, rate.low))
        )
        yield Expected("minutes", value, low, high, f"{epochs.basis}, and {rate.basis}")
    else:
        yield Expected("minutes", None, None, None, rate.basis if rate.value is None else epochs.basis)
    yield Expected("images/s", None, None, None, rate.basis)
