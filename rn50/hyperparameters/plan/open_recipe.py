"""``rn50 plan`` of the open recipe: minutes from the sizes of the images by epoch and the images/s of each
size, and the published runs of so many epochs."""

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, NamedTuple

from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.hyperparameters.plan import images_per_second
from rn50.printed import Minutes
from rn50.results import published
from rn50.settings import named
from rn50.settings.config import Config
from rn50.settings.fields import VARIABLE_OF
from rn50.terminal import Terminal

RECIPE = "DGXH100_OPEN"
"""Configuration with the published recipe."""
_OF_BATCH = ("batch_size", "learning_rate", "ema_half_life")
"""Hyperparameters that scale with the batch, so that another value makes no other recipe."""


class OpenPlan(NamedTuple):
    """Minutes to expect of a run by the open recipe."""

    system: str
    """DGXSYSTEM of the configuration."""
    accelerators: int
    """Number of accelerators in all machines."""
    minutes: Minutes
    """Minutes from run_start to run_stop, if the rates hold."""
    evaluations: int
    """Number of evaluations."""
    epochs: dict[Annotated[str, "pixels"], int]
    """Side of the training images -> epochs with them, in the order of the epochs."""
    images_per_second_per_accelerator: dict[Annotated[str, "pixels"], float]
    """Side of images, in training and in evaluation -> images/s of each accelerator while training."""
    published: dict[Annotated[str, "result"], tuple[float | None, ...]]
    """Published result of the open division with as many epochs -> top-1 of its runs, fractions."""
    cautions: tuple[str, ...]
    """Sentences on where the prediction goes beyond what was measured or published."""


def plan(config: Config, rates: object, accelerators: int | None) -> OpenPlan:
    """Return the plan of a configuration, to the last epoch that it evaluates. ``rates`` are as in
    ``images_per_second.at_size``; ``accelerators`` is by default the number of ranks of ``config``.

    Raises:
        UserError: ``config`` is of the closed division or not of ImageNet, or ``rates`` has no size.
    """
    if config.labels != (rules.OPEN,):
        problem = "not the open recipe on ImageNet, which alone is planned by the name of a configuration"
        remedy = f"name another, such as {RECIPE}"
        if config.is_imagenet:
            sizes = f"--accelerators {config.ranks} --global-batch-size {config.global_batch_size}"
            remedy = f"this one is planned by rn50 plan {sizes} --accelerator NAME"
        raise UserError(config.run.system, problem, remedy)
    if not isinstance(rates, dict) or not rates.keys() - {images_per_second.INPUT}:
        measure = f"rn50 bench throughput {config.run.system} --image-sizes 96,128,160,176,224 measures them"
        raise UserError("--images-per-second", f"give SIZE:RATE,SIZE:RATE,...; {measure}")
    evaluated = config.evaluation_epochs
    by_epoch = [config.image_size_of(epoch) for epoch in range(1, evaluated[-1] + 1)]
    speeds = {size: images_per_second.at_size(size, rates) for size in (*by_epoch, config.data.image_size)}
    mean = statistics.harmonic_mean([speeds[size] for size in by_epoch])
    # Evaluations, whose images have the size of IMAGE_SIZE, as a number of evaluations at the mean speed.
    evaluations = len(evaluated) * mean / speeds[config.data.image_size]
    number = accelerators or config.ranks
    results = (r for r in published.results() if not r.is_closed and {*r.epochs} == {evaluated[-1]})
    return OpenPlan(
        system=config.run.system,
        accelerators=number,
        minutes=images_per_second.minutes(len(by_epoch), evaluations, number, mean),
        evaluations=len(evaluated),
        epochs={str(size): count for size, count in Counter(by_epoch).items()},
        images_per_second_per_accelerator={str(size): speed for size, speed in speeds.items()},
        published={result.name: result.accuracy for result in results},
        cautions=tuple(_cautions(config, rates, speeds)),
    )


def _cautions(config: Config, rates: Mapping[str, float], sizes: Iterable[int]) -> Iterator[str]:
    """Yield sentences on where the prediction goes beyond what was measured or published."""
    ours, theirs = (vars(c.hyperparameters) for c in (config, named.read(RECIPE, environ={})))
    if others := [VARIABLE_OF[f] for f in ours if ours[f] != theirs[f] and f not in _OF_BATCH]:
        yield f"{', '.join(others)} differ from {RECIPE}, the published recipe: the epochs are not shown"
    measured = [int(size) for size in rates if size != images_per_second.INPUT]
    if outside := sorted(size for size in sizes if not min(measured) <= size <= max(measured)):
        yield f"the rate of {', '.join(map(str, outside))} pixels is a guess from the nearest size"
    yield from images_per_second.cautions(rates)
    yield "a first epoch that reads from slow storage takes longer (MosaicML's took two minutes more)"


def show(plan: OpenPlan, accelerator: str | None, console: Terminal) -> None:
    """Print a plan: the minutes, the rate of each size, the published runs, and the cautions. ``accelerator``
    is its name, as the user wrote it."""
    runs = [accuracy or 0 for accuracies in plan.published.values() for accuracy in accuracies]
    reached = sum(accuracy >= rules.TARGET_ACCURACY for accuracy in runs)
    rates = plan.images_per_second_per_accelerator
    lines = [
        f"{plan.system}, {plan.accelerators:,} x {accelerator or 'accelerator'}: {plan.minutes:.3g} minutes "
        f"for {sum(plan.epochs.values())} epochs and {plan.evaluations} evaluations, if each reaches:",
        *(f"{n} epochs at {size}x{size}: {rates[size]:,.0f} images/s" for size, n in plan.epochs.items()),
        f"of {len(runs)} published open runs of as many epochs {reached} reached 75.9 %: "
        f"{', '.join(plan.published) or 'nobody published any'}",
        *(f"caution: {caution}" for caution in plan.cautions),
    ]
    for line in lines:
        console.print(line)
