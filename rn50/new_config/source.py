"""Choose the hyperparameters and the batch size of a new configuration: from a configuration file
(``of_base``), from a published or logged recipe (``of_origin``), or as ``rn50 plan`` advises (``of_plan``).

``new_config.py`` calls one of the three functions, and prints ``cautions``.
"""

import contextlib
import dataclasses
import math
import pathlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from rn50 import frameworks
from rn50.errors import UserError
from rn50.hyperparameters.borrow import origin
from rn50.hyperparameters.plan.planner import RULE, WITHIN_OCTAVES, Plan, SystemPlanner, ThisCode
from rn50.machine.gpus import OLDEST_DRIVER, newer
from rn50.machine.hardware import Machine
from rn50.new_config import choices
from rn50.new_config.choices import Choice, Devices
from rn50.results import chips, published
from rn50.settings import header
from rn50.settings.config import of_document
from rn50.settings.document import CONFIGS, Document, file_of, systems
from rn50.settings.fields import Data


@dataclass(frozen=True)
class Source:
    """Hyperparameters and data of a new configuration, and the batch size that fits the memory."""

    origin: origin.Origin
    data: Data
    batch: Choice
    """Value of BATCHSIZE, which is the images of a rank and step, and the reason for it."""
    base: pathlib.Path | None = None
    """Configuration file that the hyperparameters are from; None: they are from another source."""
    plan: Plan | None = None
    """Plan that advised the hyperparameters; None: they are from another source."""
    accelerator: str | None = None
    """Name that published results have for the GPU; null: nobody published a result with it."""

    @property
    def minutes(self) -> float | None:
        """Minutes that `rn50 plan` predicts; null: no plan was made, or nobody published a result with the
        GPU."""
        return self.plan.prediction.minutes if self.plan and self.accelerator else None

    @property
    def this_code(self) -> ThisCode | None:
        """The minutes with this code; null: nothing is known of it with the GPU."""
        return self.plan.this_code if self.plan else None


def of_base(base: Document, devices: Devices, precision: str) -> Source:
    """Return the hyperparameters and data of a configuration file, at its global batch size if that fits the
    memory, else at a smaller one. ``precision`` is the PRECISION of the new configuration."""
    config, path = of_document(base), base.path
    data = dataclasses.replace(config.data, image_size=max(config.image_sizes))
    largest = choices.fitting(devices, precision, data, config.hyperparameters.blur_pool)
    batch = _batch(config.global_batch_size, path.name, devices, largest)
    # A file of configs/ by its path from the root of the checkout.
    name = f"{CONFIGS.name}/{path.name}" if base.is_ours else str(path)
    return Source(origin.of_document(name, base), config.data, batch, path)


def of_origin(recipe: origin.Origin, devices: Devices, precision: str) -> Source:
    """Return the hyperparameters of a recipe for ImageNet, at its global batch size if that fits the memory,
    else at a smaller one. Raises UserError if the recipe lacks its global batch size."""
    if recipe.global_batch_size is None:
        raise UserError(recipe.name, "does not say its global batch size", "give another source")
    largest = choices.fitting(devices, precision, Data())
    return Source(recipe, Data(), _batch(recipe.global_batch_size, recipe.name, devices, largest))


def _batch(total: int, name: str, devices: Devices, largest: int | None) -> Choice:
    """Return BATCHSIZE and the reason for it: the images of a rank that make up the global batch size
    ``total`` of the source ``name``, or ``largest`` if that is fewer."""
    ideal = max(1, round(total / devices.ranks))
    batch = ideal if largest is None else min(ideal, largest)
    if batch * devices.ranks == total:
        return Choice(str(batch), f"as {name}")
    if batch < ideal:
        return Choice(str(batch), f"{total} in {name}; no more fit {devices.room}")
    return Choice(str(batch), f"{total} in {name}, which {devices.ranks} ranks do not divide")


def of_plan(devices: Devices, precision: str) -> Source:
    """Return the hyperparameters and the batch size that ``rn50 plan`` would advise, among the batch sizes
    that fit the memory. Raises UserError if the memory is not known."""
    data = Data()
    largest = choices.fitting(devices, precision, data)
    if largest is None:
        remedy = "give --from SYSTEM, whose batch size is taken"
        raise UserError("GPU", "its driver does not report its memory", remedy)
    planner = SystemPlanner()
    accelerator = chips.among(planner.accelerators, devices.models[0])
    # If nobody published a result with the GPU, the plan is made for the name of its model.
    plan = planner.best(accelerator or chips.name(devices.models[0]), devices.ranks, largest)
    plan = planner.with_this_code(plan)
    reason = f"fits {devices.room}; {RULE}"
    batch = Choice(str(plan.global_batch_size // devices.ranks), reason)
    return Source(origin.find(plan.hyperparameters.source.name), data, batch, None, plan, accelerator)


def is_far(recipe: origin.Origin, total: int) -> bool:
    """Return True if the global batch size ``total`` and that of the recipe are more than ``WITHIN_OCTAVES``
    factors of two apart."""
    return abs(math.log2((recipe.global_batch_size or total) / total)) > WITHIN_OCTAVES


def _written_for(model: str, ranks: int, traits: frameworks.Traits) -> Iterator[str]:
    """Yield a sentence about each file of configs/ that a person wrote for so many accelerators ``model``, by
    the entry "machine" of its header, with the framework of ``traits``, in the closed division."""
    for system in systems():
        with contextlib.suppress(UserError):  # a file of the user's that cannot be read
            config = of_document(file := Document(file_of(system)))
            machine = header.read(file).get("machine", "")
            # The accelerator is the longest word of capitals and digits: in "DGX A100: 8 A100-SXM4-80GB" too.
            name = max(re.findall(r"[A-Z]+\d[\w-]*", machine), key=len, default="")
            theirs = config.ranks, frameworks.traits(config.run.framework), config.labels
            is_alike = theirs == (ranks, traits, ()) and chips.matching(name, [model])
            if is_alike and "written by rn50" not in file.text:
                yield f"{CONFIGS.name}/{file.path.name} is there already, for {machine}"


def cautions(machine: Machine, devices: Devices, source: Source, traits: frameworks.Traits) -> Iterator[str]:
    """Yield cautions about the new configuration, a sentence each. ``traits`` are those of its framework."""
    if source.plan:
        yield from source.plan.cautions
        yield from _written_for(chips.name(devices.models[0]), devices.ranks, traits)
    total = int(source.batch.value) * devices.ranks
    if source.base and is_far(source.origin, total):
        recipe = f"the recipe was chosen for a global batch size of {source.origin.global_batch_size}"
        yield f"{recipe}, far from {total}: rn50 borrow --suggest --gbs {total} names nearer ones"
    if source.plan and not source.accelerator:
        nearest = chips.nearest(devices.models[0], chips.known(published.results()))
        unknown = f"nobody published a result with {devices.models[0]}"
        unknown += f", the nearest is {nearest}" if nearest else ""
        if not devices.is_model_known:
            unknown = "the model is not known, so no published result is compared"
        yield f"{unknown}: its batch size is chosen as if it were another accelerator"
    for gpu in machine.gpus:
        if gpu.used_by_others:
            used = f"{gpu.used_by_others}, which the batch size leaves to others"
            yield f"{used}: nvidia-smi names the processes"
    # ``traits.cuda`` is 0 if the framework has no CUDA: it then needs no driver.
    for driver in sorted({gpu.driver for gpu in machine.gpus} if traits.cuda else ()):
        oldest = OLDEST_DRIVER[traits.cuda]
        if newer(oldest, driver):
            needing = f"{traits.name}'s set, whose CUDA {traits.cuda} needs {oldest}"
            yield f"driver {driver} is too old for {needing}: rn50 doctor says how to get a newer one"
    if len(devices.models) > 1:
        differing = f"the GPUs differ ({', '.join(devices.models)}): each waits for the slowest"
        yield f"{differing}; CUDA_VISIBLE_DEVICES hides some"
    if machine.lacks_its_gpus:
        yield f"no GPU can be used ({machine.no_gpu}), so this trains on the CPU: rn50 doctor names a remedy"
