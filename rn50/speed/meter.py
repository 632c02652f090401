"""Measurements of a rank's input pipeline, made by all ranks at once because they share cores and storage."""

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rn50.data.pipeline import dali, record_set
from rn50.data.pipeline.batches import Batches
from rn50.data.recordio import IndexedRecordReader
from rn50.errors import UserError
from rn50.run import input_library
from rn50.run.all_reduce import total
from rn50.run.loop import EpochResult, Rank
from rn50.settings.config import Config
from rn50.settings.fields import InputPipeline
from rn50.speed import measured_steps
from rn50.speed.worker import TAKES
from rn50.terminal import say

LEAST_STEPS = 3
"""Fewest steps that are timed, however short the time."""
LEAD_IN_STEPS = 2
"""Untimed steps at the start, in addition to those that fill the pipeline's queue."""
BATCHES_IN_MEMORY = 4
"""Batches that are decoded without reading: too many for any cache of the processor."""
SEED = 1


class Input(NamedTuple):
    """Batches, and what is done with them."""

    batches: Batches
    depth: int
    """Depth of their queue; 0 for a synthetic batch, which has none."""
    training: bool = True
    """False: they are only taken, so that the input runs alone."""


class Meter:
    """One rank of a measurement. Every rank calls every method."""

    def __init__(self, config: Config, rank: Rank):
        self._config, self._rank = config, rank
        self.communicator = rank.communicator
        shortest = min(record_set.shard_sizes(config.data.train_samples, config.ranks))
        self._round_seconds = self.step_seconds = 0.0
        self._full_batches = shortest // config.hyperparameters.batch_size
        if not self._full_batches:
            problem = f"more than the {shortest} images of a rank, so that there is no full batch to measure"
            raise UserError(f"BATCHSIZE={config.hyperparameters.batch_size}", problem, "lower it")
        rank.warm_up(SEED)
        if rank.precision.reason and self.communicator.rank == 0:
            say(rank.precision.reason, err=True)

    def agreed(self, value: int) -> int:
        """Broadcast rank 0's value."""
        return total(self.communicator, value if self.communicator.rank == 0 else 0)

    def over_ranks(self, value: float) -> float:
        """Return the sum over all ranks, to a millionth."""
        return total(self.communicator, round(value * 1e6)) / 1e6

    def open(self, settings: InputPipeline | None) -> Input:
        """Open the training set through a pipeline of these settings, or with None a synthetic batch."""
        depth = settings.prefetch_queue_depth if settings else 0
        return Input(measured_steps.open_input(self._rank, settings), depth)

    def stages(self) -> dict[str, Callable[[], Any]]:
        """Return functions that wait for the next batch of a part of the pipeline. DALI has "read", which
        only reads, and "decode", which only decodes images in memory; other libraries have none."""
        if input_library.chosen(self._config) != "dali":
            return {}
        rank, ranks = self.communicator.rank, self.communicator.size
        batch_format = self._rank.engine.batch_format
        return {
            "read": dali.build_reader(self._config, rank, ranks, SEED).run,
            "decode": dali.build_decoder(self._config, SEED, batch_format, self._in_memory()).run,
        }

    def _in_memory(self) -> Iterator[list[np.ndarray]]:
        folder, size = Path(self._config.data.folder), self._config.hyperparameters.batch_size
        with IndexedRecordReader(folder / "train.rec", folder / "train.idx") as reader:
            places = np.linspace(0, len(reader) - 1, BATCHES_IN_MEMORY * size).astype(int)
            images = [np.frombuffer(reader.read(int(place))[1], np.uint8) for place in places]
        return itertools.cycle([images[begin : begin + size] for begin in range(0, len(images), size)])

    def images_per_second(self, next_batch: Callable[[], Any], seconds: float) -> float:
        """Return the rate of one of ``stages``, over all ranks, measured for about ``seconds``."""
        depth = self._config.input_pipeline.prefetch_queue_depth
        for _ in range(depth + LEAD_IN_STEPS):
            next_batch()
        self.communicator.barrier()
        begin = time.perf_counter()
        for batches in itertools.count(1):  # noqa: B007
            next_batch()
            taken = time.perf_counter() - begin
            if taken >= seconds:
                break
        time.sleep(depth * taken / batches)  # filling the queue would slow the next measurement
        return self.over_ranks(batches * self._config.hyperparameters.batch_size / taken)

    def steps(self, source: Input, seconds: float) -> int:
        """Return how many steps ``train`` can time in about ``seconds``, at most the full batches of an
        epoch."""
        tried = min(LEAD_IN_STEPS, self._full_batches)
        lead_in = 1 if source.training else self._lead_in(source.depth)
        result = self._timed(source, lead_in, tried)
        self.step_seconds = result.seconds / tried
        # The queue is emptied before the steps and filled again after them.
        around = self._lead_in(source.depth) + 2 * source.depth
        fit = round(seconds / self.step_seconds) - around
        steps = self.agreed(min(self._full_batches, max(LEAST_STEPS, fit)))
        self._round_seconds += (steps + around) * self.step_seconds
        return steps

    def tell(self, rounds: int, others: float) -> None:
        """Say on rank 0 how long the rounds take, in each of which every input of ``steps`` has its turn, and
        ``others``, seconds beside them."""
        if self.communicator.rank == 0:
            least = f"a round times at least {LEAST_STEPS} steps"
            say(f"{TAKES} {rounds * self._round_seconds + others:.0f} s from here; {least}", err=True)

    def _lead_in(self, depth: int) -> int:
        return min(depth + LEAD_IN_STEPS, self._full_batches)

    def rate(self, source: Input, steps: int) -> float:
        """Return images/s of ``train``."""
        result = self.train(source, steps)
        return result.samples / result.seconds

    def train(self, source: Input, steps: int) -> EpochResult:
        """Time training steps, or the input alone, on all ranks. Return the samples of all ranks and the
        seconds of rank 0."""
        self.communicator.barrier()
        lead_in = self._lead_in(source.depth)
        result = self._timed(source, lead_in, steps)
        time.sleep(source.depth * result.seconds / steps)  # as above
        seconds = self.agreed(round(result.seconds * 1e12)) / 1e12  # so that all ranks conclude the same
        return result._replace(samples=round(self.over_ranks(result.samples)), seconds=seconds)

    def _timed(self, source: Input, lead_in: int, steps: int) -> EpochResult:
        if source.training:
            return measured_steps.train(self._rank, source.batches, lead_in, steps)
        return measured_steps.take(source.batches, lead_in, steps)
