"""Expected minutes to the target of a planned system, from the epochs at its batch size and the images/s of
its accelerators.

``epochs.py`` and ``images_per_second.py`` say how each is predicted; ``benchmarks/predictions.py`` says how
far off they are on held-out published results.
"""

import contextlib
import math
import operator
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rn50.benchmark.recipe import SHARED
from rn50.errors import UserError
from rn50.hyperparameters import expected_epochs
from rn50.hyperparameters.borrow.borrow import command
from rn50.hyperparameters.plan import images_per_second
from rn50.hyperparameters.plan.epochs import CONFIDENCE, EpochModel
from rn50.hyperparameters.plan.images_per_second import Conditions, ThroughputModel
from rn50.printed import Hidden, Hundredths, Inline, Minutes, Tenths, prints
from rn50.results import chips, published
from rn50.results.published import PublishedResult

OPTIMIZER = "lars"
_REPORTED = (*SHARED, "label_smoothing", "first_evaluation_epoch", "evaluation_interval")
BORROWED = {
    column: operator.attrgetter(attribute)
    for column, attribute in published.COLUMNS.items()
    if attribute.removeprefix("recipe.") in _REPORTED
}
"""Column -> what takes its value from a published result, of those that are reported of its recipe."""
SOURCE = ("name", "round", "organisation", "system")
"""Fields of a published result that say where its recipe is from."""
SCALES = tuple(2**n for n in range(13))
"""Numbers of accelerators on the scale-out curve: 1 to 4,096."""
WITHIN_OCTAVES = 0.25
"""Distance of a recipe's batch size beyond which a caution is given."""
EQUAL = 1.005
"""Ratio of minutes within which plans count as equal, because minutes are printed with three digits."""


@dataclass(frozen=True)
class Prediction:
    """Expected minutes of a run."""

    epochs: Hundredths
    """Expected epochs."""
    epochs_low: Hundredths
    """Lower end of their interval."""
    epochs_high: Hundredths
    """Upper end."""
    minutes: Minutes
    """Expected minutes to 75.9 %."""
    minutes_low: Minutes
    """Lower end of their interval."""
    minutes_high: Minutes
    """Upper end."""
    evaluations: Tenths
    """Evaluations until the target."""
    images_per_second_per_accelerator: Tenths
    """Images/s of each while training."""
    spread: Hidden[float]
    """Standard deviation of the logarithm of those."""


@dataclass(frozen=True)
class Borrowable:
    """Published recipe to borrow."""

    source: PublishedResult
    results: int
    """Published results of the recipe."""
    runs: int
    """Their runs."""
    missed: int
    """Runs that missed the target."""
    epochs: Hundredths
    """Mean epochs of the others."""


prints(
    Borrowable,
    lambda r: {column: of_result(r.source) for column, of_result in BORROWED.items()},
    lambda r: {f"source.{name}": getattr(r.source, name) for name in SOURCE},
    lambda r: {f"published.{name}": getattr(r, name) for name in ("results", "runs", "missed", "epochs")},
)


@dataclass(frozen=True)
class Plan:
    """Plan of a system."""

    prediction: Inline[Prediction]
    hyperparameters: Borrowable
    accelerator: str
    """Name of the accelerator."""
    accelerators: int
    """Number, in all machines."""
    global_batch_size: int
    """Images per step on all of them together."""
    cautions: tuple[str, ...]
    """Where the prediction goes beyond what was published."""
    command: str
    """The command that borrows the hyperparameters."""
    confidence: float = CONFIDENCE
    """Share of results that the intervals are meant to hold."""

    @property
    def evidence(self) -> int:
        """Return the number of published runs with these hyperparameters at this very batch size."""
        published = self.hyperparameters
        at_its_batch = published.source.recipe.global_batch_size == self.global_batch_size
        return published.runs if at_its_batch else 0


class SystemPlanner:
    """Planner from published ``results``, by default all, and a ``measured`` rate: images/s per accelerator
    at a point."""

    def __init__(
        self,
        results: Sequence[PublishedResult] | None = None,
        measured: tuple[Conditions, float] | None = None,
    ) -> None:
        results = published.distinct(OPTIMIZER) if results is None else results
        self.results = [result for result in results if result.is_closed and result.epochs_to_target]
        self.throughput = ThroughputModel(results, measured)
        self._epochs = EpochModel(results)
        self._proven = list(expected_epochs.proven(results))
        self._points = self.throughput.points

    @property
    def accelerators(self) -> list[str]:
        """Return the names of the accelerators whose speed is known, those with the most results first."""
        return [name for name in chips.known(self.results) if name in self.throughput.accelerators]

    def predict(
        self,
        accelerator: str,
        accelerators: int,
        global_batch_size: int,
        source: PublishedResult | None = None,
    ) -> Prediction:
        """Predict a run with the hyperparameters of ``source``, or with the usual ones at this batch size."""
        _refuse_idle(accelerators, global_batch_size)
        epochs = self._epochs.predict(global_batch_size, source.recipe.shared if source else None)
        at = Conditions(accelerator, accelerators, global_batch_size / accelerators)
        rate = self.throughput.predict(at)
        schedule = (source.first_evaluation_epoch, source.evaluation_interval) if source else (None, None)
        count = images_per_second.evaluations(epochs.expected, *schedule)
        minutes = images_per_second.minutes(epochs.expected, count, accelerators, rate.images_per_second)
        # Independent relative errors: their log-intervals add in quadrature.
        speed = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * rate.spread
        below = math.hypot(math.log(epochs.expected / epochs.low), speed)
        above = math.hypot(math.log(epochs.high / epochs.expected), speed)
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
        """Return the published recipe that ``rn50 borrow --suggest`` ranks first. Its source is the result
        with the nearest number of accelerators."""
        best = expected_epochs.rank(self._proven, global_batch_size)[0]
        source = min(
            best.results, key=lambda result: abs(math.log2((result.accelerators or math.inf) / accelerators))
        )
        of_runs = best.prediction
        return Borrowable(source, len(best.results), of_runs.runs, of_runs.missed, of_runs.mean)

    def plan(self, accelerator: str, accelerators: int, global_batch_size: int, fitting: int = 0) -> Plan:
        """Return the plan at a batch size; ``fitting`` as for ``candidates``.

        Raises: UserError: the batch size is larger than any that reached the target, or smaller than the
            number of accelerators.
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

    def best(self, accelerator: str, accelerators: int) -> Plan:
        """Return the plan whose interval has the lowest upper end, so that a proven batch size wins over one
        that may be a little faster. Among ``EQUAL`` plans the one with the most evidence wins.

        Raises:
            UserError: more accelerators than images in the largest published batch.
        """
        plans = self.candidates(accelerator, accelerators)
        fewest_minutes = min(plan.prediction.minutes_high for plan in plans)
        equal = [plan for plan in plans if plan.prediction.minutes_high <= EQUAL * fewest_minutes]
        return max(equal, key=lambda plan: (plan.evidence, -plan.prediction.minutes_high))

    def candidates(self, accelerator: str, accelerators: int, fitting: int = 0) -> list[Plan]:
        """Return plans at the published batch sizes, rounded to a whole number of images per accelerator, and
        at the most and the fewest images.

        The most and the fewest images are those published, or measured, with this accelerator. But more
        accelerators than were published may share the same images, down to the fewest that any accelerator
        had.

        ``fitting`` is the largest number of images that the memory of one accelerator holds, 0 if it is not
        known. If given, the most and the fewest are those of all accelerators, as far as they fit, and only
        published batch sizes are planned if one fits. This also plans an accelerator that nobody published;
        then only the plan's batch size is meaningful.

        Raises:
            UserError: more accelerators than images in the largest published batch.
        """
        expected_epochs.refuse_no_count("--accelerators", accelerators)
        sizes = {result.recipe.global_batch_size or 0 for result in self.results}
        points = self._points if fitting else self._published(accelerator)
        images = [point.batch_size for point in points]
        most = min(math.floor(max(images)), max(sizes) // accelerators, fitting or max(sizes))
        if most < 1:
            problem = f"more than images in the largest published batch, {max(sizes)}"
            raise UserError(f"--accelerators {accelerators}", problem, "plan fewer")
        shared_out = min(1.0, max(point.accelerators for point in points) / accelerators) * min(images)
        fewest = min(most, math.ceil(max(shared_out, min(point.batch_size for point in self._points))))
        batches = {batch for size in sizes if fewest <= (batch := round(size / accelerators)) <= most}
        if not fitting:
            batches |= {fewest, most}
        totals = [batch * accelerators for batch in sorted(batches or {most})]
        return [self.plan(accelerator, accelerators, total, fitting) for total in totals]

    def curve(self, accelerator: str) -> list[Plan]:
        """Return the best plan for each of ``SCALES``."""
        return [self.best(accelerator, accelerators) for accelerators in SCALES]

    def _published(self, accelerator: str) -> list[Conditions]:
        """Return the points of an accelerator, of all accelerators if it has none."""
        return [point for point in self._points if point.accelerator == accelerator] or self._points

    def _cautions(
        self, accelerator: str, accelerators: int, global_batch_size: int, recipe: Borrowable, fitting: int
    ) -> Iterator[str]:
        points = self._published(accelerator)
        smallest = min(result.recipe.global_batch_size or 0 for result in self.results)
        together = max(point.accelerators for point in points)
        batch, largest = global_batch_size / accelerators, max(point.batch_size for point in points)
        if global_batch_size < smallest:
            none = f"no published result has a global batch below {smallest}"
            yield f"{none}: below it epochs are taken for the same"
        nearest = recipe.source.recipe.global_batch_size
        if abs(math.log2(nearest / global_batch_size)) > WITHIN_OCTAVES:
            yield f"the nearest published recipe is far away, at global batch {nearest}"
        if global_batch_size % accelerators:
            down = global_batch_size // accelerators * accelerators
            share = f"a whole number of images for each of {accelerators} accelerators"
            yield f"global batch {global_batch_size} is not {share}; {down} and {down + accelerators} are"
        if batch > max(largest, fitting):
            seen = f"{accelerator} was not seen with more than {largest:g} images each"
            yield f"{seen}; it may not have the memory"
        if sum(accelerator == name for name, _ in self.throughput.systems) == 1:
            yield f"the speed of {accelerator} is from one published system"
        if accelerators > 2 * together:
            yield f"beyond {together} together, {accelerator} is taken to scale as the other accelerators do"


def _refuse_idle(accelerators: int, global_batch_size: int) -> None:
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
    """Return the planner for an accelerator, or for a measured rate and where it was measured, and the
    accelerator's name.

    Without a name, take the accelerator with the most published results. With a measured rate and no name,
    take a new accelerator, known only by that rate.

    Raises: UserError: the name is not known or stands for several, or the conditions of a measured rate are
        missing or impossible.
    """
    plain = SystemPlanner()
    names = plain.accelerators
    if images_per_second is None:
        return plain, chips.find(accelerator, names) if accelerator else names[0]
    if not accelerators or not global_batch_size:
        remedy = "give --accelerators and --global-batch-size too, to say where it was measured"
        raise UserError("--images-per-second", remedy)
    _refuse_idle(accelerators, global_batch_size)
    name = accelerator or "measured accelerator"
    if accelerator:
        with contextlib.suppress(chips.UnknownError):
            name = chips.find(accelerator, names)
    measured = Conditions(name, accelerators, global_batch_size / accelerators)
    return SystemPlanner(measured=(measured, images_per_second)), name
