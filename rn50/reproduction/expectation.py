"""Expectation of the runs on this machine, before any is made: epochs, minutes and images/s (``expected``).

The claim is the result that ``rn50 reproduce`` is to reproduce; ``here`` is this machine with the
configuration that repeats it. If recipe and machine are those of the claim (for epochs the recipe is enough),
the claim's own runs are the expectation. Else it comes from the models of ``rn50 plan``, which are fitted to
published results.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rn50.hyperparameters.plan import own_rates
from rn50.hyperparameters.plan.images_per_second import Conditions, evaluations, minutes
from rn50.hyperparameters.plan.planner import SystemPlanner
from rn50.printed import Minutes
from rn50.reproduction.claim import Claim
from rn50.reproduction.here import Here
from rn50.results import chips, equivalence

RATE = "images/s in training"


class Expected(NamedTuple):
    """Expectation for the mean of one quantity over the runs."""

    quantity: str
    """"epochs", "minutes", "images/s" (over the whole time), or "images/s in training" (without evaluations
    and start-up)."""
    value: Minutes | None
    """Expected mean; null: not known."""
    low: Minutes | None
    """Lower end of the 95 % interval of the mean; null: not known."""
    high: Minutes | None
    """Upper end of the interval; null: not known."""
    basis: str
    """Source of the expectation, or the reason why it is not known."""

    @property
    def words(self) -> str:
        """The expectation in words."""
        if self.value is None:
            return f"{self.quantity}: not known, {self.basis}"
        interval = f" ({self.low:,.4g} to {self.high:,.4g})" if self.low is not None else ""
        return f"{self.quantity}: {self.value:,.4g}{interval}; {self.basis}"


def expected(claim: Claim, here: Here, runs: int) -> list[Expected]:
    """Return the expectation of every quantity for the mean of so many ``runs``."""
    epochs, rate = _epochs(claim, here, runs), _rate(claim, here, runs)
    return [epochs, rate, *_whole_runs(claim, here, runs, epochs, rate)]


def _from_claim(quantity: str, values: Sequence[float], runs: int, value: float | None = None) -> Expected:
    """Return the expectation of a quantity for the mean of so many ``runs``, from its ``values`` in the
    claim's own runs. If ``value`` is not None, it is the expected mean, with the relative spread of
    ``values``."""
    if len(values) < 2:
        basis = "its one run, which says nothing of the spread"
        return Expected(quantity, value or values[0], None, None, basis)
    mean = statistics.geometric_mean(values)
    low, high = equivalence.prediction_interval(values, runs)
    factor = value / mean if value else 1.0
    return Expected(quantity, mean * factor, low * factor, high * factor, f"its {len(values)} runs")


def _epochs(claim: Claim, here: Here, runs: int) -> Expected:
    """Return the expectation of the epochs to the target."""
    if here.same_recipe:
        return _from_claim("epochs", claim.epochs, runs)
    prediction = here.prediction
    if prediction is None or not prediction.runs:
        mean = statistics.geometric_mean(claim.epochs)
        basis = "what its runs took with their recipe; nobody published runs of the one here"
        return Expected("epochs", mean, None, None, basis)
    return Expected("epochs", prediction.mean, prediction.low, prediction.high, prediction.basis)


def _rate(claim: Claim, here: Here, runs: int) -> Expected:
    """Return the expectation of the images/s in training."""
    if here.same_speed and claim.training_rate:
        return _from_claim(RATE, claim.images_per_second, runs, claim.training_rate)
    gpus, planner, ranks = here.facts.gpus, SystemPlanner(), here.config.ranks
    name = chips.among(planner.accelerators, gpus[0].name) if gpus else None
    if not name:
        return Expected(RATE, None, None, None, "nobody published a result of this machine")
    conditions = Conditions(name, ranks, here.config.global_batch_size / ranks)
    if ours := own_rates.find(conditions):
        planner = SystemPlanner(measured=(ours.conditions, ours.images_per_second))
    rate = planner.throughput.predict(conditions)
    of_all_ranks = ranks * rate.images_per_second
    # The rate's logarithm has the standard deviation ``spread``; 1.96 of them are the 95 % interval.
    factor = math.exp(1.96 * rate.spread)
    basis = f"this code, measured: {ours.words}" if ours else f"published results of {name}, of others' code"
    return Expected(RATE, of_all_ranks, of_all_ranks / factor, of_all_ranks * factor, basis)


def _whole_runs(claim: Claim, here: Here, runs: int, epochs: Expected, rate: Expected) -> Iterator[Expected]:
    """Yield the expectations of the minutes and the images/s of whole runs, given those of ``epochs`` and of
    the ``rate`` in training."""
    if here.same_speed:
        yield _from_claim("minutes", claim.minutes, runs)
        yield _from_claim("images/s", claim.images_per_second, runs)
        return
    if epochs.value and rate.value and here.config.is_imagenet:
        ranks = here.config.ranks
        # None, None: the first evaluation is after epoch 3, the next ones at the interval of the rules.
        evaluation_count = evaluations(epochs.value, None, None)
        # The least minutes come from the fewest epochs at the highest rate, the most minutes from the most
        # epochs at the lowest rate. The expected value stands in for an end that is not known.
        value, low, high = (
            minutes(count or epochs.value, evaluation_count, ranks, (speed or rate.value) / ranks)
            for count, speed in ((epochs.value, rate.value), (epochs.low, rate.high), (epochs.high, rate.low))
        )
        yield Expected("minutes", value, low, high, f"{epochs.basis}, and {rate.basis}")
    else:
        yield Expected("minutes", None, None, None, rate.basis if rate.value is None else epochs.basis)
    yield Expected("images/s", None, None, None, rate.basis)
