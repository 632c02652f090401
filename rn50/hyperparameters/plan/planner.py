"""``rn50 plan``: the minutes to the target to expect of a system, and the best batch size and recipe for it.

``SystemPlanner`` predicts minutes from epochs (``epochs.py``) and images/s (``images_per_second.py``), and
makes a ``Plan`` at one batch size, at the best one, or at the best one for each number of accelerators.
``rn50 config new`` uses it too. ``with_this_code`` adds the minutes of this code, from the rates that it was
measured at (``own_rates.py``). ``benchmarks/predictions.py`` measures the errors of the predictions on
held-out published results.
"""

import contextlib
import dataclasses
import math
import operator
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rn50.benchmark import network, rules
from rn50.benchmark.recipe import SHARED
from rn50.errors import UserError
from rn50.hyperparameters import expected_epochs
from rn50.hyperparameters.borrow.borrow import command
from rn50.hyperparameters.plan import images_per_second, own_rates
from rn50.hyperparameters.plan.epochs import CONFIDENCE, EpochModel
from rn50.hyperparameters.plan.images_per_second import Conditions, Measurement, Spread, ThroughputModel
from rn50.printed import Hidden, Hundredths, Inline, Minutes, Tenths, prints
from rn50.results import chips, published
from rn50.results.published import PublishedResult

OPTIMIZER = "lars"
"""The models of epochs and of images/s are made of results with this optimizer."""
_REPORTED = (*SHARED, "label_smoothing", "first_evaluation_epoch", "evaluation_interval")
"""Fields of a published result or of its recipe that a plan reports."""
BORROWED = {
    column: operator.attrgetter(attribute)
    for column, attribute in published.COLUMNS.items()
    if attribute.removeprefix("recipe.") in _REPORTED
}
"""Column of the table of published results -> function that returns its value for a result, for the columns
of ``_REPORTED``."""
SOURCE = ("name", "round", "organisation", "system")
"""Fields of a published result that a plan reports as the origin of a recipe."""
SCALES = tuple(2**n for n in range(13))
"""Numbers of accelerators on the scale-out curve: 1 to 4,096."""
WITHIN_OCTAVES = 0.25
"""A plan has a caution if its batch size and that of its recipe are further apart than this number of octaves
(factors of two)."""
ALIKE = 0.03
"""Relative error of predicted minutes (docs/measurements.md). Two plans count as equally fast if their
predicted minutes differ by at most this part."""
USUAL_SPANS = 0.9
"""Share of the published results whose batch norm span counts as usual. The ten results with 800 or 816
images took 36.4 epochs in the mean; those of the same batch sizes with fewer took 35.0."""
RULE = f"fewest predicted minutes within {ALIKE:.0%}, most published runs"
"""The choice of ``SystemPlanner.best``, in words."""


@dataclass(frozen=True)
class Prediction:
    """Minutes to expect of a run, and the epochs and images/s that they follow from."""

    epochs: Hundredths
    """Expected epochs to the target."""
    epochs_low: Hundredths
    """Lower end of the interval of the epochs."""
    epochs_high: Hundredths
    """Upper end of the interval of the epochs."""
    minutes: Minutes
    """Expected minutes to 75.9 %."""
    minutes_low: Minutes
    """Lower end of the interval of the minutes."""
    minutes_high: Minutes
    """Upper end of the interval of the minutes."""
    evaluations: Tenths
    """Evaluations until the target."""
    images_per_second_per_accelerator: Tenths
    """Images/s of each accelerator while training."""
    spread: Hidden[float]
    """Standard deviation of the logarithm of the images/s."""


class ThisCode(NamedTuple):
    """Prediction for a run with this code."""

    prediction: Inline[Prediction]
    is_measured: bool
    """True: from images/s that were measured on this accelerator; false: from an estimate of them."""
    basis: str
    """Origin of the images/s."""

    @property
    def sentence(self) -> str:
        """The prediction in words."""
        ours, label = self.prediction, "measured" if self.is_measured else "by estimate"
        origin = "by" if self.is_measured else "from"
        minutes = f"{ours.minutes:.3g} minutes ({ours.minutes_low:.3g} to {ours.minutes_high:.3g})"
        return f"this code, {label}: {minutes}, {origin} {self.basis}"


@dataclass(frozen=True)
class Borrowable:
    """Published recipe that a plan advises to borrow."""

    source: PublishedResult
    results: int
    """Number of published results with the recipe."""
    runs: int
    """Number of runs of these results."""
    missed: int
    """Number of runs that missed the target."""
    epochs: Hundredths
    """Mean epochs of the runs that reached the target."""


# The fields of --json: key -> value; a dot in a key makes an inner object.
prints(
    Borrowable,
    lambda r: {column: of_result(r.source) for column, of_result in BORROWED.items()},
    lambda r: {f"source.{name}": getattr(r.source, name) for name in SOURCE},
    lambda r: {f"published.{name}": getattr(r, name) for name in ("results", "runs", "missed", "epochs")},
)


@dataclass(frozen=True)
class Plan:
    """Batch size and recipe for a system, and the prediction for a run with them."""

    prediction: Inline[Prediction]
    hyperparameters: Borrowable
    accelerator: str
    """Name of the accelerator."""
    accelerators: int
    """Number of accelerators in all machines."""
    global_batch_size: int
    """Images per step on all accelerators together."""
    cautions: tuple[str, ...]
    """Sentences on where the prediction goes beyond what was published."""
    command: str
    """The command that borrows the hyperparameters."""
    this_code: ThisCode | None = None
    """The same with this code; null: nothing is known of it, or the prediction is from a measurement."""
    confidence: float = CONFIDENCE
    """Share of results that the intervals are meant to hold."""

    @property
    def evidence(self) -> int:
        """Number of published runs with these hyperparameters at this very batch size."""
        is_at_own_batch = self.hyperparameters.source.recipe.global_batch_size == self.global_batch_size
        return self.hyperparameters.runs if is_at_own_batch else 0


class SystemPlanner:
    """Planner that predicts from published ``results``, by default all with LARS, and from the rate that the
    user ``measured``, if there is one."""

    def __init__(self, results: Sequence[PublishedResult] | None = None, measured: Measurement | None = None):
        results = published.distinct(OPTIMIZER) if results is None else results
        self._given = results
        # Only these count here; the models below choose from ``results`` by their own conditions.
        self.results = [result for result in results if result.is_closed and result.epochs_to_target]
        self.throughput = ThroughputModel(results, measured)
        self._epochs = EpochModel(results)
        self._proven = list(expected_epochs.proven(results))
        self._points = self.throughput.points  # conditions of every published or measured rate
        spans = [span for result in self.results if (span := result.recipe.model_bn_span)]
        self._usual_span = float(np.quantile(spans, USUAL_SPANS)) if spans else math.inf

    @property
    def accelerators(self) -> list[str]:
        """Names of the accelerators whose speed is known; the accelerator with the most results comes
        first."""
        return [name for name in chips.known(self.results) if name in self.throughput.accelerators]

    def predict(
        self,
        accelerator: str,
        accelerators: int,
        batch_size: int,
        source: PublishedResult | None = None,
        throughput: ThroughputModel | None = None,
    ) -> Prediction:
        """Return the prediction for a run at a global ``batch_size`` with the hyperparameters of ``source``;
        None: with the hyperparameters that are usual at this batch size. ``throughput`` is by default the
        planner's own."""
        _refuse_idle(accelerators, batch_size)
        epochs = self._epochs.predict(batch_size, source.recipe.shared if source else None)
        conditions = Conditions(accelerator, accelerators, batch_size / accelerators)
        rate = (throughput or self.throughput).predict(conditions)
        # Without a source, the schedule is the default one of ``images_per_second.evaluations``.
        schedule = (source.first_evaluation_epoch, source.evaluation_interval) if source else (None, None)
        count = images_per_second.evaluations(epochs.expected, *schedule)
        minutes = images_per_second.minutes(epochs.expected, count, accelerators, rate.images_per_second)
        # The minutes are a product of epochs and seconds per epoch, whose errors are taken as independent: so
        # the widths of their intervals, as logarithms, add in quadrature.
        rate_width = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * rate.spread
        below = math.hypot(math.log(epochs.expected / epochs.low), rate_width)
        above = math.hypot(math.log(epochs.high / epochs.expected), rate_width)
        return Prediction(
            epochs=epochs.expected,
            epochs_low=epochs.low,
            epochs_high=epochs.high,
            minutes=minutes,
            minutes_low=minutes * math.exp(-below),
            minutes_high=minutes * math.exp(above),
            evaluations=count,
            images_per_second_per_accelerator=rate.images_per_second,
            spread=rate.spread,
        )

    def recipe(self, global_batch_size: int, accelerators: int) -> Borrowable:
        """Return the published recipe that ``rn50 borrow --suggest`` ranks first for a batch size. If several
        results have it, the source is the result with the nearest number of accelerators."""
        best = expected_epochs.rank(self._proven, global_batch_size)[0]
        # A result that does not state its accelerators is infinitely far away.
        source = min(best.results, key=lambda r: abs(math.log2((r.accelerators or math.inf) / accelerators)))
        epochs = best.prediction
        return Borrowable(source, len(best.results), epochs.runs, epochs.missed, epochs.mean)

    def plan(self, accelerator: str, accelerators: int, global_batch_size: int, fitting: int = 0) -> Plan:
        """Return the plan at a batch size; ``fitting`` is as in ``candidates``.

        Raises:
            UserError: the batch size is larger than the largest with which a published run reached the
                target, or smaller than the number of accelerators.
        """
        largest = max(result.recipe.global_batch_size or 0 for result in self.results)
        if global_batch_size > largest:
            problem = f"the largest with which a published LARS run reached the target is {largest}"
            raise UserError(f"--global-batch-size {global_batch_size}", problem, "choose one up to that")
        _refuse_idle(accelerators, global_batch_size)
        recipe = self.recipe(global_batch_size, accelerators)
        source = recipe.source
        return Plan(
            prediction=self.predict(accelerator, accelerators, global_batch_size, source),
            hyperparameters=recipe,
            accelerator=accelerator,
            accelerators=accelerators,
            global_batch_size=global_batch_size,
            cautions=tuple(self._cautions(accelerator, accelerators, global_batch_size, recipe, fitting)),
            command=command(source.name, source.recipe.global_batch_size, global_batch_size),
        )

    def best(self, accelerator: str, accelerators: int, fitting: int = 0) -> Plan:
        """Return the best of the ``candidates``, by ``RULE``: of those that are about as fast (``ALIKE``) as
        the fastest, a plan whose recipe was published at this very batch size comes first, then one with more
        published runs, then a faster one. Speed is judged by ``minutes_high``, so that a proven batch size
        wins over one that may be a little faster.

        Where there is a choice, every accelerator has a multiple of ``network.BATCH_STEP`` images, no fewer
        than were published with it, and no more than ``USUAL_SPANS`` of all published results, because batch
        norm is over them. ``fitting`` is by default what the memory of the data sheet holds, if there is one.

        Raises:
            UserError: more accelerators than images in the largest published batch.
        """
        if accelerator in chips.data_sheets() and not fitting:
            fitting = network.fitting(chips.data_sheets()[accelerator].gigabytes * 1024)
        plans = self.candidates(accelerator, accelerators, fitting)
        least = min(point.batch_size for point in self._published(accelerator)) * accelerators
        most = self._usual_span * accelerators
        plans = [plan for plan in plans if least <= plan.global_batch_size <= most] or plans
        step = network.BATCH_STEP * accelerators
        plans = [plan for plan in plans if plan.global_batch_size % step == 0] or plans
        most_minutes = (1 + ALIKE) * min(plan.prediction.minutes_high for plan in plans)
        return max(
            (plan for plan in plans if plan.prediction.minutes_high <= most_minutes),
            key=lambda plan: (plan.evidence > 0, plan.hyperparameters.runs, -plan.prediction.minutes_high),
        )

    def with_this_code(self, plan: Plan) -> Plan:
        """Return the plan with the prediction for this code, if something is known of it and the planner has
        no measurement of the user's. Only where one system at most is published it may be an estimate."""
        name, number, size = plan.accelerator, plan.accelerators, plan.global_batch_size
        ours = own_rates.find(Conditions(name, number, size / number), len(self._published_of(name)) <= 1)
        if self.throughput.measured or not ours:
            return plan
        spread = Spread.estimated if ours.estimate else Spread.measured
        model = ThroughputModel(self._given, (ours.conditions, ours.images_per_second), spread)
        prediction = self.predict(name, number, size, plan.hyperparameters.source, model)
        return dataclasses.replace(plan, this_code=ThisCode(prediction, not ours.estimate, ours.words))

    def _published_of(self, accelerator: str) -> list[str]:
        """Return the published systems whose rates with this accelerator are used, with their frameworks,
        in words."""
        systems = self.throughput.systems.items()
        return [f"{name}, with {code.split(',')[0]}" for (chip, name), code in systems if chip == accelerator]

    def candidates(self, accelerator: str, accelerators: int, fitting: int = 0) -> list[Plan]:
        """Return a plan for each published global batch size, rounded to a whole number of images per
        accelerator, that has a reasonable number of them.

        ``fitting`` is the largest number of images that the memory of an accelerator holds; 0: not known.
        Then the reasonable numbers are the range published or measured with this accelerator, and both ends
        of the range get a plan too. With more accelerators than were published, the range begins lower, so
        that the smallest global batch stays the same, but not below the smallest number of images published
        with any accelerator.

        If ``fitting`` is known, the range is that of all accelerators, up to ``fitting``; without a published
        batch size in the range, its upper end gets a plan. An accelerator without published results has plans
        too; of these only the batch sizes mean something.

        Raises:
            UserError: more accelerators than images in the largest published batch.
        """
        expected_epochs.refuse_no_count("--accelerators", accelerators)
        sizes = {result.recipe.global_batch_size or 0 for result in self.results}
        points = self._points if fitting else self._published(accelerator)
        images = [point.batch_size for point in points]  # per accelerator
        # The upper end: no more images than were seen on an accelerator, than fit its memory, and than make
        # the largest published global batch.
        most = min(math.floor(max(images)), max(sizes) // accelerators, fitting or max(sizes))
        if most < 1:
            problem = f"more than images in the largest published batch, {max(sizes)}"
            raise UserError(f"--accelerators {accelerators}", problem, "plan fewer")
        # The lower end. The factor is below 1 with more accelerators than were published.
        factor = min(1.0, max(point.accelerators for point in points) / accelerators)
        fewest_of_any = min(point.batch_size for point in self._points)
        fewest = min(most, math.ceil(max(factor * min(images), fewest_of_any)))
        # Images per accelerator of each plan: the published global batch sizes, divided and rounded.
        batches = {batch for size in sizes if fewest <= (batch := round(size / accelerators)) <= most}
        if not fitting:
            batches |= {fewest, most}
        # With a known memory and no published size in the range, the memory is filled.
        totals = [batch * accelerators for batch in sorted(batches or {most})]
        return [self.plan(accelerator, accelerators, total, fitting) for total in totals]

    def curve(self, accelerator: str) -> list[Plan]:
        """Return the best plan for each number of accelerators in ``SCALES``."""
        return [self.best(accelerator, accelerators) for accelerators in SCALES]

    def _published(self, accelerator: str) -> list[Conditions]:
        """Return the conditions of the rates that are known of an accelerator; if there are none, those of
        all accelerators."""
        return [point for point in self._points if point.accelerator == accelerator] or self._points

    def _cautions(
        self, accelerator: str, accelerators: int, global_batch_size: int, recipe: Borrowable, fitting: int
    ) -> Iterator[str]:
        """Yield sentences on where a plan goes beyond what was published."""
        points = self._published(accelerator)
        smallest_total = min(result.recipe.global_batch_size or 0 for result in self.results)
        most_seen = max(point.accelerators for point in points)
        most_images = max(point.batch_size for point in points)  # per accelerator
        if global_batch_size < smallest_total:
            none = f"no published result has a global batch below {smallest_total}"
            yield f"{none}: below it epochs are taken for the same"
        nearest = recipe.source.recipe.global_batch_size
        if abs(math.log2(nearest / global_batch_size)) > WITHIN_OCTAVES:
            yield f"the nearest published recipe is far away, at global batch {nearest}"
        if global_batch_size % accelerators:
            down = global_batch_size // accelerators * accelerators
            share = f"a whole number of images for each of {accelerators} accelerators"
            yield f"global batch {global_batch_size} is not {share}; {down} and {down + accelerators} are"
        # Images that are known to fit need no caution.
        if global_batch_size / accelerators > max(most_images, fitting):
            seen = f"{accelerator} was not seen with more than {most_images:g} images each"
            yield f"{seen}; it may not have the memory"
        if len(systems := self._published_of(accelerator)) == 1:
            yield f"the speed of {accelerator} is from one published system: {systems[0]}"
        if self.throughput.measured:
            yield from images_per_second.cautions({str(rules.IMAGE_SIZE): self.throughput.measured[1]})
        if accelerators > 2 * most_seen:
            yield f"beyond {most_seen} together, {accelerator} is taken to scale as the other accelerators do"


def _refuse_idle(accelerators: int, global_batch_size: int) -> None:
    """Raise UserError unless every accelerator has at least one image of a batch."""
    expected_epochs.refuse_no_count("--accelerators", accelerators)
    expected_epochs.refuse_no_count("--global-batch-size", global_batch_size)
    if global_batch_size < accelerators:
        problem = f"not an image for each of {accelerators} accelerators"
        raise UserError(f"--global-batch-size {global_batch_size}", problem, "choose at least that")


def planner_for(
    accelerator: str | None,
    images_per_second: float | None = None,
    accelerators: int | None = None,
    global_batch_size: int | None = None,
) -> tuple[SystemPlanner, str]:
    """Return a planner, and the name of the accelerator to plan with.

    ``accelerator`` is a name as a user writes it; None: the accelerator with the most published results.
    ``images_per_second`` is a rate that the user measured, on each of ``accelerators`` accelerators at
    ``global_batch_size``. With a measured rate the name may also be missing or new: then nothing but the rate
    is known of the accelerator.

    Raises:
        UserError: the name is not known or stands for several accelerators, or the conditions of a measured
            rate are missing or impossible.
    """
    planner = SystemPlanner()  # with a measured rate only its names are used, and another one is returned
    names = planner.accelerators
    if images_per_second is None:
        return planner, chips.find(accelerator, names) if accelerator else names[0]
    if not accelerators or not global_batch_size:
        remedy = "give --accelerators and --global-batch-size too, to say where it was measured"
        raise UserError("--images-per-second", remedy)
    _refuse_idle(accelerators, global_batch_size)
    name = accelerator or "measured accelerator"
    if accelerator:
        with contextlib.suppress(chips.UnknownError):  # a new name stays as the user wrote it
            name = chips.find(accelerator, names)
    measured = Conditions(name, accelerators, global_batch_size / accelerators)
    return SystemPlanner(measured=(measured, images_per_second)), name
