"""The timed run: initialisation, warm-up, clock, epochs, evaluations, stop.

``rn50 train`` calls ``run`` on every rank. ``run`` connects the ranks, opens the log, and calls the methods
of ``TimedRun``: ``prepare`` before the clock, ``train_to_target`` while it runs, ``keep_weights`` after it.

The clock and the rule that stops it are here and nowhere else. Rules: MLPerf Training policies, sections "Run
results" (the clock starts before any file of the data set is touched and stops when an evaluation reaches the
target) and "Quality" (evaluation cadence).
"""

import dataclasses
import pathlib
import statistics
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rn50 import process
from rn50.benchmark import rules
from rn50.errors import Status
from rn50.run import agreement, all_reduce, beginning, checkpoint, ending, provenance, saved_weights
from rn50.run.beginning import Beginning
from rn50.run.clock import now_ms
from rn50.run.display import Display
from rn50.run.evaluation import count
from rn50.run.gpu import full_memory_named
from rn50.run.loop import Rank
from rn50.run.loss_check import LossCheck
from rn50.run.mlperf_log import RunLog
from rn50.run.watchdog import WARMING_UP, Watchdog, limits
from rn50.settings.config import Config
from rn50.weights.counts import refuse_other_count


class RunResult(NamedTuple):
    """The result of a run that came to its end."""

    reached_target: bool
    """True if the last evaluation reached the target, or if TARGET=none sets no target."""
    epoch: int
    """The last epoch that was trained."""
    accuracy: float
    """Top-1 of the last evaluation, as a fraction."""


def run(config: Config, create: Callable[[Config], Rank], display: Display) -> RunResult:
    """Make one timed run on this rank; every rank of the job calls it. ``create`` makes the rank.

    A fault, a signal or a UserError while the clock runs ends the log with ``run_stop``, status "aborted".
    The error is raised again after that.
    """
    init_start_ms = now_ms()
    start = beginning.read(config)
    # A resumed run takes the seed and the precision of its checkpoint.
    config_of_start = start.configured(config)
    # Connect to the other ranks, and agree with them on where to begin.
    rank = create(config_of_start)
    try:
        communicator = rank.communicator
        is_first = communicator.rank == 0
        agreement.on_beginning(start, communicator)
        seed = agreement.on_seed(config_of_start.run.seed, communicator)
        # If the weights or a checkpoint could not be written at the end, refuse to start.
        if is_first:
            saved_weights.refuse_impossible(config)
            checkpoint.refuse_impossible(config)
        # From here on every way out of this function ends the log.
        result_file = pathlib.Path(config.run.result_file) if config.run.result_file else None
        log = RunLog(communicator.rank, result_file)
        display = display if is_first else Display()  # the base class shows nothing
        signals = ending.OnSignal(log, communicator.rank)
        with full_memory_named(config), signals, _watch(rank, log, display) as watch:
            timed = TimedRun(
                config=config,
                start=start,
                rank=rank,
                seed=seed,
                result_file=result_file if is_first else None,
                log=log,
                display=display,
                watch=watch,
                best=saved_weights.WeightsToSave(config, rank),
            )
            try:
                # Compile and warm up, without a look at the data.
                timed.prepare(init_start_ms)
                communicator.barrier()
                # The clock runs.
                log.run_start()
                watch.heartbeats.start_the_clock()
                result = timed.train_to_target()
                log.run_stop("success" if result.reached_target else "aborted")
                # The clock has stopped: rename the log from its .partial name, and save the weights.
                log.finish()
                if is_first:
                    timed.keep_weights(result)
                # Wait for rank 0: when one rank ends, launchers may end the others.
                communicator.barrier()
            except BaseException:
                log.run_stop("aborted")
                raise
        return result
    finally:
        rank.close()


@dataclasses.dataclass(frozen=True)
class TimedRun:
    """A timed run on this rank, once its log is open."""

    config: Config
    start: Beginning
    """The weights that the run starts from, or the checkpoint that it resumes from."""
    rank: Rank
    seed: int
    result_file: pathlib.Path | None
    """Path of the log on rank 0, which saves the facts of ``provenance`` beside it. None on every other rank,
    and if the log has no file."""
    log: RunLog
    display: Display
    watch: Watchdog
    best: saved_weights.WeightsToSave

    def prepare(self, init_start_ms: int) -> None:
        """Do everything that comes before the clock. No file of the data set is touched.

        ``init_start_ms`` is the time at which this process began, as ``now_ms`` gives it.
        """
        config, start, rank, display = self.config, self.start, self.rank, self.display
        # Log, show and save who runs what.
        if self.result_file is not None:
            provenance.save(config, self.seed, self.result_file, start.epoch or None)  # epoch 0: not resumed
        self.log.submission(config, init_start_ms, (rules.RESUMED,) if start.checkpoint else ())
        display.initialising("compiling and warming up on synthetic data")
        # Refuse ranks that would read the data with different libraries.
        agreement.on_input_library(config, rank.communicator)
        for line in checkpoint.remarks(config):
            display.remark(line)
        # Build the network, and run a few steps on synthetic data. PRECISION=auto is decided by timing steps.
        self.watch.doing = WARMING_UP
        tensors = rank.warm_up(self.seed)
        precision, reason = rank.precision
        if reason:
            display.remark(reason)
        if self.result_file is not None:
            provenance.add(self.result_file, {"precision": precision, "precision_reason": reason})
        # Set the weights of the start only after the warm-up, because the warm-up changes weights.
        start.load_into(rank, config)
        if start.checkpoint:
            display.remark(f"goes on after epoch {start.epoch} of {start.checkpoint.file}; {rules.RESUMED}")
        # A slow or badly placed rank holds up all others: name it before the clock.
        self.watch.doing = "timing the ranks"
        hosts = self.watch.hosts()
        for line in all_reduce.speed_lines(config, rank.communicator, rank.forward_seconds, hosts):
            display.remark(line)
        self.log.hyperparameters(config, self.seed, rank.communicator.size, tensors)

    def train_to_target(self) -> RunResult:
        """Train and evaluate until an evaluation reaches the target: all that the clock measures."""
        config, rank, log = self.config, self.rank, self.log
        # Open the data set. Its files are touched only now.
        self.watch.doing = "opening the data set"
        rank.open_data()
        about_data = agreement.on_certificate(config, rank.communicator, self.display)
        log.samples(config, rank.precision.name, about_data)
        epochs_trained = self.start.epoch
        if epochs_trained:
            rank.begin_after(epochs_trained, checkpoint.seed_after(self.seed, epochs_trained))
        is_pretrained = epochs_trained > 0 or self.start.weights is not None
        loss_check = LossCheck(config, self.display.warn, is_pretrained)
        evaluations = [epoch for epoch in config.evaluation_epochs if epoch > epochs_trained]
        accuracy = 0.0
        for evaluated_epoch in evaluations:
            # Train up to the next evaluation. The log calls these epochs a block.
            first_epoch = epochs_trained + 1
            log.block_start(first_epoch, evaluated_epoch - epochs_trained)
            for epoch in range(first_epoch, evaluated_epoch + 1):
                loss = self._train_epoch(epoch, loss_check)
                if epoch < evaluated_epoch:  # else the checkpoint follows the evaluation
                    self._save_checkpoint(epoch)
            epochs_trained = evaluated_epoch
            # Evaluate on the whole validation set.
            self.watch.doing = "evaluating"
            log.eval_start(evaluated_epoch)
            with rank.averaged():
                accuracy, top_5 = self._evaluate()
                self.best.consider(evaluated_epoch, accuracy)
            log.eval_stop(evaluated_epoch, accuracy, top_5)
            log.block_stop(first_epoch)
            self.display.evaluated(evaluated_epoch, accuracy)
            if evaluated_epoch == evaluations[0]:
                loss_check.check_top1(accuracy, config.data.eval_samples, loss)
            # Stop at the target.
            if accuracy >= config.run.target_accuracy:
                return RunResult(True, evaluated_epoch, accuracy)
            if evaluated_epoch != evaluations[-1]:
                self._save_checkpoint(evaluated_epoch)
        return RunResult(config.run.target == "none", epochs_trained, accuracy)

    def _evaluate(self) -> tuple[float, float | None]:
        """Return (top-1, top-5) over all ranks, as fractions. Top-5 is None without EVAL_TOP5=1."""
        if not self.config.run.eval_top5:
            return top1_of(self.rank, self.config.data.eval_samples), None
        counts = count(self.config, self.rank)
        return counts.top1, counts.top5

    def _train_epoch(self, epoch: int, loss_check: LossCheck) -> float:
        """Train one epoch and log its images per second over all ranks. Return the mean of the losses that
        this rank has read."""
        # ``train_epoch`` reads about one loss a second, and that of the last step: more would slow the run.
        losses: list[float] = []

        def progress(samples: int, loss: float) -> None:
            loss_check.check_loss(epoch, loss)
            losses.append(loss)
            self.display.trained(samples, loss)

        self.watch.doing = f"training epoch {epoch}"
        self.log.epoch_start(epoch)
        self.display.epoch_begins(epoch)
        result = self.rank.train_epoch(progress)
        images_per_second = all_reduce.total(self.rank.communicator, result.samples) / result.seconds
        order = result.sample_order  # this rank's part of the hash of the order; None: unknown
        order_hash = None if order is None else f"{all_reduce.total(self.rank.communicator, order):016x}"
        mean_loss = statistics.fmean(losses)
        self.log.epoch_stop(epoch, images_per_second, mean_loss, order_hash)
        self.display.epoch_ends(epoch, images_per_second)
        return mean_loss

    def _save_checkpoint(self, epoch: int) -> None:
        """Save the state after ``epoch`` if it is a multiple of CHECKPOINT_EPOCHS, which is 0 for never."""
        period = self.config.run.checkpoint_epochs
        if period and epoch % period == 0:
            self.watch.doing = "saving a checkpoint"
            checkpoint.write(self.config, self.rank, self.seed, epoch)

    def keep_weights(self, result: RunResult) -> None:
        """Remove the checkpoint of the finished run, and save weights as SAVE_WEIGHTS says."""
        if self.config.run.checkpoint_epochs:
            checkpoint.remove(self.config)
        if saved_weights.are_asked_for(self.config):
            self.watch.doing = "saving the weights"
            # Each evaluation was considered when it was made. But a run that resumed after the last one has
            # made none.
            with self.rank.averaged():
                self.best.consider(result.epoch, result.accuracy)
                saved_weights.save(self.config, self.rank, self.seed, self.best)


def top1_of(rank: Rank, expected: int) -> float:
    """Return the top-1 accuracy over all ranks: the sum of their correct samples over the sum of all samples.

    Raises UserError unless exactly ``expected`` samples were counted.
    """
    counts_of_rank = np.array(rank.evaluate(), dtype=np.int64)
    correct, total = map(int, rank.communicator.all_reduce(counts_of_rank))
    refuse_other_count(total, expected)
    return correct / total


def _watch(rank: Rank, log: RunLog, display: Display) -> Watchdog:
    """Return a watchdog that ends this process when a rank makes no progress. The launcher then ends the
    job."""

    def end(line: str | None) -> None:
        # ``line`` says what is wrong; it is None where another rank prints that.
        ending.at_once(log, Status.USER_ERROR, line and f"{line}; then start the run again")

    return Watchdog(rank, display.warn, end, limits(process.environment()))
