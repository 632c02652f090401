"""Hyperparameters of a new configuration and the batch that fits: from a configuration, or as ``rn50 plan``
advises."""

import math
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass

from rn50.errors import UserError
from rn50.frameworks import Traits
from rn50.hyperparameters.borrow import origin
from rn50.hyperparameters.plan.planner import WITHIN_OCTAVES, Plan, SystemPlanner
from rn50.machine.gpus import OLDEST_DRIVER, newer
from rn50.machine.hardware import Machine
from rn50.new_config import choices
from rn50.new_config.choices import Choice, Devices
from rn50.results import chips, published
from rn50.settings.config import of_document
from rn50.settings.document import CONFIGS, Document
from rn50.settings.fields import Data

ALIKE = 0.03
"""Relative error of predicted minutes (docs/measurements.md). Among batch sizes that differ less, the one
with the most published runs is taken."""


@dataclass(frozen=True)
class Source:
    """Origin of the hyperparameters, and the batch that fits."""

    origin: origin.Origin
    data: Data
    batch: Choice
    """Images of a rank, and the reason."""
    base: pathlib.Path | None = None
    plan: Plan | None = None
    """None for the hyperparameters of ``base``."""
    known: str | None = None
    """Name under which the GPU was published; null: nobody published a result with it."""

    @property
    def minutes(self) -> float | None:
        """Minutes that `rn50 plan` predicts for a GPU that others published results with."""
        return self.plan.prediction.minutes if self.plan and self.known else None


def of_base(base: Document, devices: Devices, precision: str) -> Source:
    """Keep the global batch size of a configuration as far as the memory allows."""
    config, path = of_document(base), base.path
    batch = _batch(config.global_batch_size, path.name, config.data, devices, precision)
    ours = f"{CONFIGS.name}/{path.name}"  # as it is called in a checkout
    recipe = origin.of_document(ours if base.is_ours else str(path), base)
    return Source(recipe, config.data, batch, path)


def of_origin(recipe: origin.Origin, devices: Devices, precision: str) -> Source:
    """Keep the global batch size of a recipe for ImageNet as far as the memory allows."""
    if recipe.global_batch_size is None:
        raise UserError(recipe.name, "does not say its global batch size", "give another source")
    data = Data()
    return Source(recipe, data, _batch(recipe.global_batch_size, recipe.name, data, devices, precision))


def _batch(total: int, name: str, data: Data, devices: Devices, precision: str) -> Choice:
    """Return the images of a rank for a global batch size, and the reason."""
    fitting = choices.fitting(devices, precision, data)
    even = max(1, round(total / devices.ranks))
    batch = even if fitting is None else min(even, fitting)
    if batch * devices.ranks == total:
        return Choice(str(batch), f"as {name}")
    if batch < even:
        return Choice(str(batch), f"{total} in {name}; no more fit {devices.room}")
    return Choice(str(batch), f"{total} in {name}, which {devices.ranks} ranks do not divide")


def of_plan(devices: Devices, precision: str) -> Source:
    """Choose batch size and recipe as ``rn50 plan`` does, among the batch sizes that fit the memory."""
    data = Data()
    fitting = choices.fitting(devices, precision, data)
    if fitting is None:
        remedy = "give --from SYSTEM, whose batch size is taken"
        raise UserError("GPU", "its driver does not report its memory", remedy)
    planner = SystemPlanner()
    accelerator = chips.among(planner.accelerators, devices.models[0])
    plans = planner.candidates(accelerator or devices.models[0], devices.ranks, fitting)
    step = choices.BATCH_STEP * devices.ranks
    plans = [plan for plan in plans if plan.global_batch_size % step == 0] or plans
    fewest = min(plans, key=lambda plan: plan.prediction.minutes_high)
    most_minutes = fewest.prediction.minutes_high * (1 + ALIKE)
    plan = max(
        (plan for plan in plans if plan.prediction.minutes_high <= most_minutes),
        key=lambda plan: (plan.evidence > 0, plan.hyperparameters.runs, -plan.prediction.minutes_high),
    )
    within = "" if plan is fewest else f" within {ALIKE:.0%}, most published runs"
    reason = f"fits {devices.room}; fewest predicted minutes{within}"
    batch = Choice(str(plan.global_batch_size // devices.ranks), reason)
    return Source(origin.find(plan.hyperparameters.source.name), data, batch, None, plan, accelerator)


def is_far(recipe: origin.Origin, total: int) -> bool:
    """Return whether a recipe is used at a batch size far from its own."""
    return abs(math.log2((recipe.global_batch_size or total) / total)) > WITHIN_OCTAVES


def cautions(machine: Machine, devices: Devices, source: Source, traits: Traits) -> Iterator[str]:
    """Yield cautions about the choice, a sentence each. ``traits`` are the framework's."""
    if source.plan:
        yield from source.plan.cautions
    total = int(source.batch.value) * devices.ranks
    if source.base and is_far(source.origin, total):
        its = f"the recipe was chosen for a global batch size of {source.origin.global_batch_size}"
        yield f"{its}, far from {total}: rn50 borrow --suggest --gbs {total} names nearer ones"
    if source.plan and not source.known:
        near = chips.nearest(devices.models[0], chips.known(published.results()))
        unknown = f"nobody published a result with {devices.models[0]}{near and f', the nearest is {near}'}"
        if not devices.is_model_known:
            unknown = "the model is not known, so no published result is compared"
        yield f"{unknown}: its batch size is chosen as if it were another accelerator"
    for gpu in machine.gpus:
        if gpu.used_by_others:
            used = f"{gpu.used_by_others}, which the batch size leaves to others"
            yield f"{used}: nvidia-smi names the processes"
    for driver in sorted({gpu.driver for gpu in machine.gpus} if traits.cuda else ()):
        oldest = OLDEST_DRIVER[traits.cuda]
        if newer(oldest, driver):
            needing = f"{traits.name}'s set, whose CUDA {traits.cuda} needs {oldest}"
            yield f"driver {driver} is too old for {needing}: rn50 doctor says how to get a newer one"
    if len(devices.models) > 1:
        differing = f"the GPUs differ ({', '.join(devices.models)}): each waits for the slowest"
        yield f"{differing}; CUDA_VISIBLE_DEVICES hides some"
    if machine.lacks_its_gpus:
        unusable = f"no GPU can be used ({machine.no_gpu}), so this trains on the CPU"
        yield f"{unusable}: rn50 doctor names a remedy"
