"""Shares of the groups in the difference of minutes, with intervals.

Minutes of training are epochs times the time of an epoch, so their logarithms add up. At each point of the
way the epochs are known from runs of fresh seeds, the time of an epoch from rounds in which all points are
timed in turn. A group's part is the mean over both orders of what its step changes; the sum over the groups
is the difference of the ends, whatever the orders. Minutes and percents are given to the parts in proportion,
as in ``rn50 compare`` (B. W. Ang, Energy Policy 32, 2004).
"""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rn50.attribution.steps import CHANGE_EPOCHS, Point, Way
from rn50.printed import Hundredths, Minutes
from rn50.results.compare import log_mean
from rn50.results.significance import CONFIDENCE


class Measured(NamedTuple):
    """Measurements of the points of a way."""

    epochs: Mapping[Point, Sequence[float]]
    """Groups of ``CHANGE_EPOCHS`` in a point -> epochs of its runs."""
    seconds: Mapping[Point, Sequence[float]]
    """Point -> seconds of training an epoch, one for each round."""


class Part(NamedTuple):
    """The part of a group in the difference."""

    group: str
    """Group of settings."""
    minutes: Minutes
    """Minutes that it adds; negative: saves."""
    percent: Hundredths
    """The same in percent of the first configuration's minutes."""
    low: Hundredths
    """Lower end of the 95 % interval, in percent."""
    high: Hundredths
    """Upper end."""
    orders: list[float]
    """Percent in each of the orders; they differ by what is interaction with the other groups."""
    settings: list[str]
    """NAME before -> after."""

    @property
    def is_noise(self) -> bool:
        """True if the interval holds 0."""
        return self.low <= 0 <= self.high


class Attribution(NamedTuple):
    """Parts of the difference between two configurations."""

    first: Minutes
    """Minutes of training to the target of the first configuration."""
    second: Minutes
    """Minutes of training to the target of the second."""
    percent: Hundredths
    """Their difference, in percent of the first."""
    low: Hundredths
    """Lower end of its 95 % interval."""
    high: Hundredths
    """Upper end."""
    interaction: Hundredths
    """Largest difference between the orders in the part of a group, in percent."""
    parts: list[Part]


def of(way: Way, measured: Measured) -> Attribution:
    """Return the attribution of what was measured of a way's points."""
    ends: tuple[Point, Point] = (frozenset(), frozenset(way.groups))
    first, second = (_minutes(measured, end) for end in ends)
    unit = log_mean(first, second)
    percent_of = 100 * unit / first
    parts = []
    for group in way.groups:
        steps = [_step(order, group) for order in way.orders]
        values, variances, freedom = zip(*(_change(measured, *step) for step in steps), strict=True)
        mean = statistics.mean(values)
        # The orders share measurements at the ends: their errors may add up.
        error = statistics.mean(math.sqrt(variance) for variance in variances)
        reach = _t(min(freedom)) * error
        low, high = (percent_of * (mean + sign * reach) for sign in (-1, 1))
        orders = [percent_of * value for value in values]
        parts.append(Part(group, unit * mean, percent_of * mean, low, high, orders, way.settings(group)))
    change, variance, freedom_of_total = _change(measured, *ends)
    reach = _t(freedom_of_total) * math.sqrt(variance)
    interaction = max(max(part.orders) - min(part.orders) for part in parts)
    low, high = (100 * (math.exp(change + sign * reach) - 1) for sign in (-1, 1))
    return Attribution(first, second, 100 * (second / first - 1), low, high, interaction, parts)


def _step(order: Sequence[str], group: str) -> tuple[Point, Point]:
    """Return the points before and after a group's step."""
    at = order.index(group)
    return frozenset(order[:at]), frozenset(order[: at + 1])


def epochs_key(point: Point) -> Point:
    """Return the groups of a point on which its epochs depend."""
    return point & CHANGE_EPOCHS


def _minutes(measured: Measured, point: Point) -> float:
    epochs = statistics.geometric_mean(measured.epochs[epochs_key(point)])
    return epochs * statistics.geometric_mean(measured.seconds[point]) / 60


def _change(measured: Measured, before: Point, after: Point) -> tuple[float, float, int]:
    """Return the change of the logarithm of the minutes, the variance of that, and its degrees of freedom.
    Rounds are compared in pairs, because other load slows neighbours in time alike."""
    pairs = zip(measured.seconds[before], measured.seconds[after], strict=False)
    ratios = [math.log(later / earlier) for earlier, later in pairs]
    change, variance = statistics.mean(ratios), _variance(ratios)
    freedom = len(ratios) - 1
    keys = epochs_key(before), epochs_key(after)
    if keys[0] != keys[1]:
        sides = [[math.log(epoch) for epoch in measured.epochs[key]] for key in keys]
        change += statistics.mean(sides[1]) - statistics.mean(sides[0])
        variance += sum(map(_variance, sides))
        freedom = min([freedom, *(len(side) - 1 for side in sides)])
    return change, variance, freedom


def _variance(values: Sequence[float]) -> float:
    """Return the variance of the mean."""
    return statistics.variance(values) / len(values)


def _t(freedom: int) -> float:
    from scipy import stats  # takes a second to load

    return float(stats.t.ppf((1 + CONFIDENCE) / 2, max(1, freedom)))


def waterfall(attribution: Attribution) -> list[tuple[str, float, float]]:
    """Return (group, minutes before, minutes after) of each bar, which add up to the difference."""
    ends = list(itertools.accumulate((part.minutes for part in attribution.parts), initial=attribution.first))
    groups = [part.group for part in attribution.parts]
    return list(zip(groups, ends, ends[1:], strict=False))
