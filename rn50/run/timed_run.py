"""The timed run: initialisation, warm-up, clock, epochs, evaluations, stop.

The clock and the stop rule are here and nowhere else. Rules: MLPerf Training policies, sections "Run results"
(the clock starts before any file of the data set is touched and stops when an evaluation reaches the target)
and "Quality" (evaluation cadence).
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
    """True where TARGET=none sets no target, too."""
    epoch: int
    """The last epoch that was trained."""
    accuracy: float
    """Top-1 of the last evaluation, as a fraction."""


def run(config: Config, create: Callable[[Config], Rank], display: Display) -> RunResult:
    """Make one timed run on this rank; every rank of the job calls it.

    If the clock was running, a fault, a signal and a UserError all end with ``run_stop`` status "aborted".
    The error is raised again after that.
    """
    init_start_ms = now_ms()
    begins = beginning.of(config)
    config_of_start = begins.configured(config)
    # Connect to the other ranks, and agree with them on where to begin.
    rank = create(config_of_start)
    try:
        communicator = rank.communicator
        is_first = communicator.rank == 0
        agreement.on_beginning(begins, communicator)
        seed = agreement.on_seed(config_of_start.run.seed, communicator)
        # Refuse now what could not be written at the end.
        if is_first:
            saved_weights.refuse_impossible(config)
            checkpoint.refuse_impossible(config)
        # From here on the log is ended, whatever happens.
        result_file = pathlib.Path(config.run.result_file) if config.run.result_file else None
        log = RunLog(communicator.rank, result_file)
        shown = display if is_first else Display()  # which shows nothing
        signals = ending.OnSignal(log, communicator.rank)
        with full_memory_named(config), signals, _watch(rank, log, shown) as watch:
            timed = TimedRun(
                config=config,
                begins=begins,
                rank=rank,
                seed=seed,
                facts_beside=result_file if is_first else None,
                log=log,
                display=shown,
                watch=watch,
                best=saved_weights.Best(config, rank),
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
                # The clock has stopped: the log is renamed from its .partial name, and the weights are saved.
                log.finish()
                if is_first:
                    timed.keep_weights(result)
                communicator.barrier()  # where one rank ends, launchers may end the others
            except BaseException:
                log.run_stop("aborted")
                raise
        return result
    finally:
        rank.close()


@dataclasses.dataclass(frozen=True)
class TimedRun:
    """A timed run on this rank, from its log on."""

    config: Config
    begins: Beginning
    rank: Rank
    seed: int
    facts_beside: pathlib.Path | None
    """The path of the log on the first rank, which saves facts beside it; else None."""
    log: RunLog
    display: Display
    watch: Watchdog
    best: saved_weights.Best

    def prepare(self, init_start_ms: int) -> None:
        """Do everything before the clock. No file of the data set is touched."""
        config, begins, rank, display = self.config, self.begins, self.rank, self.display
        # Say and save what this run is.
        if self.facts_beside is not None:
            provenance.save(config, self.seed, self.facts_beside, begins.epoch or None)
        self.log.submission(config, init_start_ms, (rules.RESUMED,) if begins.checkpoint else ())
        for name, rule in config.departures.items() if config.division != config.run.division else ():
            display.remark(f"{name}: {rule}; so the log names the open division")
        display.initialising("compiling and warming up on synthetic data")
        agreement.on_input_library(config, rank.communicator)
        for line in checkpoint.remarks(config):
            display.remark(line)
        # Build the network, and run a few steps on synthetic data, which decides the precision.
        self.watch.doing = WARMING_UP
        tensors = rank.warm_up(self.seed)
        name, reason = rank.precision
        if reason:
            display.remark(reason)
        if self.facts_beside is not None:
            provenance.add(self.facts_beside, {"precision": name, "precision_reason": reason})
        # Only then give the network the weights to begin with, because warm-up changes them.
        begins.give(config, rank)
        if begins.checkpoint:
            display.remark(f"goes on after epoch {begins.epoch} of {begins.checkpoint.file}; {rules.RESUMED}")
        # A slow or badly placed rank holds up all others: name it before the clock.
        self.watch.doing = "timing the ranks"
        hosts = self.watch.hosts()
        for line in all_reduce.before_the_clock(config, rank.communicator, rank.forward_seconds, hosts):
            display.remark(line)
        self.log.hyperparameters(config, self.seed, rank.communicator.size, tensors)

    def train_to_target(self) -> RunResult:
        """Do everything between ``run_start`` and ``run_stop``."""
        config, rank, log = self.config, self.rank, self.log
        # Open the data set. Its files are touched only now.
        self.watch.doing = "opening the data set"
        rank.open_data()
        hashes = agreement.on_certificate(config, rank.communicator, self.display)
        log.samples(config, rank.precision.name, hashes)
        trained, accuracy = self.begins.epoch, 0.0
        if trained:
            rank.begin_after(trained, checkpoint.seed_after(self.seed, trained))
        is_pretrained = trained > 0 or self.begins.weights is not None
        loss_check = LossCheck(config, self.display.warn, trained=is_pretrained)
        evaluations = [epoch for epoch in config.evaluation_epochs if epoch > trained]
        for evaluated_epoch in evaluations:
            # Train up to the next evaluation: a block of the log.
            first = trained + 1
            log.block_start(first, evaluated_epoch - trained)
            for epoch in range(first, evaluated_epoch + 1):
                loss = self._train_epoch(epoch, loss_check)
                if epoch < evaluated_epoch:
                    self._save_checkpoint(epoch)
            trained = evaluated_epoch
            # Count what the network gets right of the whole validation set.
            self.watch.doing = "evaluating"
            log.eval_start(trained)
            accuracy, top_5 = self._evaluate()
            log.eval_stop(trained, accuracy, top_5)
            log.block_stop(first)
            self.display.evaluated(trained, accuracy)
            if evaluated_epoch == evaluations[0]:
                loss_check.look_at_top1(accuracy, config.data.eval_samples, loss)
            self.best.look(trained, accuracy)
            # Stop at the target.
            if accuracy >= config.run.target_accuracy:
                return RunResult(True, trained, accuracy)
            if evaluated_epoch != evaluations[-1]:
                self._save_checkpoint(trained)
        return RunResult(config.run.target == "none", trained, accuracy)

    def _evaluate(self) -> tuple[float, float | None]:
        """Return top-1, and top-5 with EVAL_TOP5=1, over all ranks."""
        if not self.config.run.eval_top5:
            return top1_of(self.rank, self.config.data.eval_samples), None
        counts = count(self.config, self.rank)
        return counts.top1, counts.top5

    def _train_epoch(self, epoch: int, loss_check: LossCheck) -> float:
        """Train one epoch, log its images per second over all ranks, and return its mean loss."""
        losses: list[float] = []  # about one a second: reading the loss of every step would slow the run down

        def progress(samples: int, loss: float) -> None:
            loss_check.look(epoch, loss)
            losses.append(loss)
            self.display.trained(samples, loss)

        self.watch.doing = f"training epoch {epoch}"
        self.log.epoch_start(epoch)
        self.display.epoch_begins(epoch)
        passed = self.rank.train_epoch(progress)
        share, communicator = passed.sample_order, self.rank.communicator
        images_per_second = all_reduce.total(communicator, passed.samples) / passed.seconds
        order = None if share is None else f"{all_reduce.total(communicator, share):016x}"
        mean_loss = statistics.fmean(losses)
        self.log.epoch_stop(epoch, images_per_second, mean_loss, order)
        self.display.epoch_ends(epoch, images_per_second)
        return mean_loss

    def _save_checkpoint(self, epoch: int) -> None:
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
            self.best.look(result.epoch, result.accuracy)
            saved_weights.save(self.config, self.rank, self.seed, self.best)


def top1_of(rank: Rank, expected: int) -> float:
    """Return the top-1 accuracy over all ranks: the sum of correct over the sum of all.

    Raises UserError unless exactly ``expected`` samples were counted.
    """
    correct, total = map(int, rank.communicator.all_reduce(np.array(rank.evaluate(), dtype=np.int64)))
    refuse_other_count(total, expected)
    return correct / total


def _watch(rank: Rank, log: RunLog, display: Display) -> Watchdog:
    """Return a watchdog that ends this process, and with it the job, when a rank makes no progress."""

    def end(line: str | None) -> None:
        ending.at_once(log, Status.USER_ERROR, line and f"{line}; then start the run again")

    return Watchdog(rank, display.warn, end, limits(process.environment()))
