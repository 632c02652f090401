"""``Meter``: measurements of the input pipeline and of training, by all ranks of a run at the same time,
because ranks share cores and storage. ``bench input``, ``bench throughput``, ``profile`` and ``tune input``
use it.
"""

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
from rn50.speed.worker import DURATION_LINE
from rn50.terminal import say

LEAST_STEPS = 3
"""Fewest steps that a measurement times, however few seconds it is given."""
LEAD_IN_STEPS = 2
"""Untimed steps before the timed ones, in addition to as many steps as the pipeline's queue has batches."""
BATCHES_IN_MEMORY = 4
"""Number of batches that the decoder decodes in turn without reading: too many for any cache of a
processor."""
SEED = 1
"""Seed of the warm-up and of the pipelines, whose speed does not depend on it."""


class Input(NamedTuple):
    """A source of batches, and whether a measurement trains on them."""

    batches: Batches
    depth: int
    """Depth of the queue of prepared batches; 0 for a synthetic batch, which has no queue."""
    training: bool = True
    """False: the batches are taken and no step runs, so that the input is measured alone."""


class Meter:
    """Measurements on one rank. Its methods wait for the other ranks, so every rank calls the same methods in
    the same order."""

    step_seconds = 0.0
    """Seconds of a step in the last call of ``steps``."""

    def __init__(self, config: Config, rank: Rank):
        """Warm the rank up. Raises UserError if no full batch fits the shard of a rank."""
        self._config, self._rank = config, rank
        self.communicator = rank.communicator
        self._round_seconds = 0.0
        """Seconds of a round, which measures each input once: the sum over the calls of ``steps``."""
        shortest = min(record_set.shard_sizes(config.data.train_samples, config.ranks))
        self._full_batches = shortest // config.hyperparameters.batch_size
        """Number of full batches that every rank has in an epoch."""
        if not self._full_batches:
            problem = f"more than the {shortest} images of a rank, so that there is no full batch to measure"
            raise UserError(f"BATCHSIZE={config.hyperparameters.batch_size}", problem, "lower it")
        rank.warm_up(SEED)
        if rank.precision.reason and self.communicator.rank == 0:
            say(rank.precision.reason, err=True)

    def broadcast(self, value: int) -> int:
        """Return the value of rank 0 on every rank."""
        return total(self.communicator, value if self.communicator.rank == 0 else 0)

    def sum_over_ranks(self, value: float) -> float:
        """Return the sum of ``value`` over all ranks, rounded to a millionth: ranks add whole numbers."""
        return total(self.communicator, round(value * 1e6)) / 1e6

    def open(self, settings: InputPipeline | None) -> Input:
        """Return the training set through a pipeline of these settings; with None a synthetic batch."""
        depth = settings.prefetch_queue_depth if settings else 0
        return Input(measured_steps.open_input(self._rank, settings), depth)

    def stages(self) -> dict[str, Callable[[], Any]]:
        """Return name -> function for the stages of the pipeline that can run alone. The function waits for
        the next batch of the stage. With DALI "read" reads records, and "decode" decodes images in memory; no
        other library can run its stages alone."""
        if input_library.chosen(self._config) != "dali":
            return {}
        rank, ranks = self.communicator.rank, self.communicator.size
        batch_format = self._rank.engine.batch_format
        return {
            "read": dali.build_reader(self._config, rank, ranks, SEED).run,
            "decode": dali.build_decoder(self._config, SEED, batch_format, self._in_memory()).run,
        }

    def _in_memory(self) -> Iterator[list[np.ndarray]]:
        """Yield batches of JPEG images in memory without end, ``BATCHES_IN_MEMORY`` batches in turn."""
        folder, size = Path(self._config.data.folder), self._config.hyperparameters.batch_size
        with IndexedRecordReader(folder / "train.rec", folder / "train.idx") as reader:
            # Records at equal distances over the whole file. ``read`` returns (header, bytes of the image).
            records = np.linspace(0, len(reader) - 1, BATCHES_IN_MEMORY * size).astype(int)
            images = [np.frombuffer(reader.read(int(record))[1], np.uint8) for record in records]
        return itertools.cycle([images[begin : begin + size] for begin in range(0, len(images), size)])

    def images_per_second(self, next_batch: Callable[[], Any], seconds: float) -> float:
        """Return images/s of a stage, of all ranks together, measured for about ``seconds``. ``next_batch``
        is its function, as ``stages`` returns it."""
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
        time.sleep(depth * taken / batches)  # let the queue fill up now, not during the next measurement
        return self.sum_over_ranks(batches * self._config.hyperparameters.batch_size / taken)

    def steps(self, source: Input, seconds: float) -> int:
        """Return how many steps of an input ``train`` can time in about ``seconds``, at most the full batches
        of an epoch. A few steps are timed to find out.

        Call it once for each input: it also adds the time of this measurement to that of a round, from which
        ``say_duration`` computes the time of all rounds.
        """
        # Time a few steps. For this estimate, one step is lead-in enough if the steps train.
        trial_steps = min(LEAD_IN_STEPS, self._full_batches)
        lead_in = 1 if source.training else self._lead_in(source.depth)
        self.step_seconds = self._run(source, lead_in, trial_steps).seconds / trial_steps
        # Steps whose time a measurement takes without counting them: the lead-in; those of the batches in the
        # queue, which are discarded first (``Batches.drain``); and as many in which the queue fills again.
        other_steps = self._lead_in(source.depth) + 2 * source.depth
        steps_in_time = round(seconds / self.step_seconds) - other_steps
        steps = self.broadcast(min(self._full_batches, max(LEAST_STEPS, steps_in_time)))
        self._round_seconds += (steps + other_steps) * self.step_seconds
        return steps

    def say_duration(self, rounds: int, others: float) -> None:
        """Print on rank 0 how long all measurements will take: ``rounds`` rounds, and ``others`` seconds for
        other measurements. In a round, every input for which ``steps`` was called is measured once."""
        if self.communicator.rank == 0:
            least = f"a round times at least {LEAST_STEPS} steps"
            say(f"{DURATION_LINE} {rounds * self._round_seconds + others:.0f} s from here; {least}", err=True)

    def _lead_in(self, depth: int) -> int:
        """Return the untimed steps before a measurement of an input with a queue of this depth. The queue was
        discarded before them, and has to be as full as in a long run when the timed steps begin."""
        return min(depth + LEAD_IN_STEPS, self._full_batches)

    def rate(self, source: Input, steps: int) -> float:
        """Return the images/s of ``train``, of all ranks together."""
        result = self.train(source, steps)
        return result.samples / result.seconds

    def train(self, source: Input, steps: int) -> EpochResult:
        """Time ``steps`` training steps, or the input alone if ``source.training`` is false, on all ranks at
        once. Return the samples of all ranks, the seconds of rank 0, and this rank's seconds of waiting."""
        self.communicator.barrier()
        result = self._run(source, self._lead_in(source.depth), steps)
        # Let the queue fill up now, not during the next measurement.
        time.sleep(source.depth * result.seconds / steps)
        # All ranks take the seconds of rank 0, because they must draw the same conclusions. They exchange
        # whole numbers, here picoseconds.
        seconds = self.broadcast(round(result.seconds * 1e12)) / 1e12
        return result._replace(samples=round(self.sum_over_ranks(result.samples)), seconds=seconds)

    def _run(self, source: Input, lead_in: int, steps: int) -> EpochResult:
        """Run ``lead_in`` untimed steps and ``steps`` timed ones on this rank, or take as many batches."""
        if source.training:
            return measured_steps.train(self._rank, source.batches, lead_in, steps)
        return measured_steps.take(source.batches, lead_in, steps)
