"""Parts of a training loop that are the same in every framework: the choices of "auto", learning rates,
warm-up, and timing."""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

from rn50 import frameworks
from rn50.benchmark import schedule
from rn50.data.pipeline import dali, record_set
from rn50.data.pipeline.batches import Batch, Batches, BatchFormat, Split
from rn50.errors import UserError
from rn50.process import OUT_OF_DEVICE_MEMORY
from rn50.run import precision
from rn50.run.implementation import EpochResult
from rn50.settings.config import Config

PROGRESS_SECONDS = 1.0
WARM_UP_STEPS = 3


def input_library(config: Config) -> str:
    """Return the library that reads and decodes images: INPUT_LIBRARY, or for "auto" DALI if it can be
    imported."""
    if config.input_pipeline.library != "auto":
        return config.input_pipeline.library
    framework = config.run.framework
    if frameworks.is_importable(f"nvidia.dali.plugin.{framework}"):
        return "dali"
    return frameworks.traits(framework).input_libraries[-1]


def prepare_input(config: Config, form: BatchFormat) -> None:
    """Import, compile or start what the batches of ``open_batches`` need. Raises UserError if it is
    missing."""
    _batches(config)
    if input_library(config) == "dali":
        dali.prepare(config, form)


def open_batches(config: Config, split: Split, communicator: Any, seed: int, form: BatchFormat) -> Batches:
    """Return the batches of a split, from ``dali_batches.py`` or ``loader_batches.py`` of the framework."""
    batches: Batches = _batches(config)(config, split, communicator, seed, form)
    return batches


def _batches(config: Config) -> Any:
    """Return the class of the batches. What reads for the other library is not imported."""
    framework = config.run.framework
    if input_library(config) != "dali":
        return frameworks.module(framework, "loader_batches").LoaderBatches
    try:
        return frameworks.module(framework, "dali_batches").DaliBatches
    except UserError as error:
        install = frameworks.traits(framework).install(config.run.device)
        remedy = f"{install}, or set INPUT_LIBRARY=auto"
        raise UserError("INPUT_LIBRARY=dali", error.__cause__, remedy) from error


def require_gpus(config: Config, seen: int, remedy: str) -> None:
    """Raise UserError unless the framework sees a GPU for every rank of this machine. Call it before the
    ranks connect, which takes their GPUs."""
    ranks, gpus = config.run.ranks_per_node, "1 GPU" if seen == 1 else f"{seen} GPUs"
    if seen < ranks:
        name = frameworks.traits(config.run.framework).name
        problem = f"{name} sees {gpus}, DGXNGPU={ranks} asks for more"
        raise UserError("DEVICE=gpu", problem, f"set DEVICE=cpu, or {remedy}")


def require_code(config: Config, capability: tuple[int, int], build: frameworks.Traits | None = None) -> None:
    """Raise UserError unless the framework has code for a GPU of this compute capability, and computes on it
    in PRECISION. ``build`` has the capabilities of the installed build if they differ from the traits'."""
    traits = build or frameworks.traits(config.run.framework)
    actual = "{}.{}".format(*capability)
    if not traits.runs_on(capability):
        problem = f"{traits.name} has code for compute capability {traits.code}, this GPU has {actual}"
        raise UserError("DEVICE=gpu", problem, "take another FRAMEWORK, see docs/gpus.md")
    name = precision.before_warm_up(config).name
    least = traits.least_capabilities.get(name, capability)
    if capability < least:
        needed = "{}.{}".format(*least)
        problem = f"in {name} {traits.name} needs compute capability {needed}, this GPU has {actual}"
        raise UserError(f"PRECISION={config.run.precision}", problem, "set another PRECISION")


@contextlib.contextmanager
def full_memory_named(config: Config) -> Iterator[None]:
    """Replace an error about a GPU's used-up memory by a UserError that names BATCHSIZE."""
    try:
        yield
    except Exception as error:
        is_used_up = config.run.device == "gpu" and OUT_OF_DEVICE_MEMORY.search(str(error))
        if isinstance(error, UserError) or not is_used_up:
            raise
        images = config.hyperparameters.batch_size
        fewer = max(1, images * 3 // 4 // 8 * 8)
        problem = f"a GPU's memory is used up ({str(error).strip().splitlines()[0]})"
        recipe = f"a recipe for that (rn50 borrow --suggest --gbs {fewer * config.ranks})"
        remedy = f"lower it, to {fewer} say, with {recipe}, or see in nvidia-smi who else uses the GPU"
        raise UserError(f"BATCHSIZE={images}", problem, remedy) from error


class LearningRates:
    """Counts the steps of a run and gives the learning rate of each (``rn50.benchmark.schedule``)."""

    def __init__(self, config: Config):
        h = config.hyperparameters
        steps = schedule.steps_per_epoch(config.data.train_samples, config.ranks, h.batch_size)
        batches = record_set.batches(config.data.train_samples, config.ranks, h.batch_size)
        self._steps_taken = min(batches, config.run.benchmark_steps or batches)
        self._of = schedule.of_recipe(config.recipe, steps)
        self._step = 0

    def go_on_after(self, epoch: int) -> None:
        """Go on as after ``epoch`` epochs."""
        self._step = epoch * self._steps_taken

    def next(self) -> float:
        """Begin the next step and return its learning rate."""
        self._step += 1
        return self.of(self._step)

    def of(self, step: int) -> float:
        """Return the learning rate of a step, counted from 1."""
        return self._of(step)


class Pace:
    """Samples and seconds of an epoch, and when its progress is due: at most once in PROGRESS_SECONDS."""

    def __init__(self) -> None:
        self._reported = 0.0
        self.samples = 0

    def begin(self, batches: Batches) -> None:
        """Begin to count, for an epoch of these batches."""
        self._batches, self._waited, self.samples = batches, batches.wait_seconds, 0
        self._begin = time.perf_counter()

    def add(self, samples: int) -> None:
        """Count the samples of a step."""
        self.samples += samples

    def is_due(self) -> bool:
        """Return True, and count it as reported, if no progress was reported for PROGRESS_SECONDS."""
        due = time.perf_counter() - self._reported > PROGRESS_SECONDS
        if due:
            self._reported = time.perf_counter()
        return due

    def result(self) -> EpochResult:
        """Return the samples and seconds since ``begin``; the caller has waited for the device."""
        seconds = time.perf_counter() - self._begin
        waited = self._batches.wait_seconds - self._waited
        return EpochResult(self.samples, seconds, waited, self._batches.sample_order)


def warm_up(
    config: Config, batches: Batches, train: Callable[[Batch], Any], evaluate: Callable[[Batch], Any]
) -> float:
    """Run ``train`` and ``evaluate`` on WARM_UP_STEPS batches and return the seconds of the fastest
    evaluation.

    ``train`` then gets a batch of each size with which a pass over the training set ends. Libraries compile
    kernels and choose algorithms for each shape, which must not happen after the clock has started. Both
    functions wait until the device has finished.
    """
    seconds = []
    for batch in itertools.islice(batches.epoch(), WARM_UP_STEPS):
        train(batch)
        begin = time.perf_counter()
        evaluate(batch)
        seconds.append(time.perf_counter() - begin)
    data, h = config.data, config.hyperparameters
    for samples in record_set.ragged_sizes(data.train_samples, config.ranks, h.batch_size):
        train(batch._replace(samples=samples))
    return min(seconds)
