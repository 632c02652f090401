"""The timed run: initialisation, warm-up, clock, epochs, evaluations, stop.

The clock and the stop rule are here and nowhere else. Rules: MLPerf Training policies, sections "Run results"
(the clock starts before any file of the data set is touched and stops when an evaluation reaches the target)
and "Quality" (evaluation cadence).
"""

import dataclasses
import os
import pathlib
import secrets
import signal
import statistics
import threading
import time
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rn50 import files, process
from rn50.benchmark import rules, schedule
from rn50.data.certification import certificate
from rn50.errors import Status, UserError
from rn50.run import all_reduce, beginning, checkpoint, provenance, saved_weights, training, watchdog
from rn50.run.beginning import Beginning
from rn50.run.clock import now_ms
from rn50.run.display import Display
from rn50.run.implementation import Communicator, Implementation
from rn50.run.loss_check import LossCheck
from rn50.run.mlperf_log import RunLog
from rn50.run.watchdog import Watchdog
from rn50.settings.config import Config
from rn50.terminal import say
from rn50.weights.counts import refuse_other_count

LAST_WORDS_S = 5
"""Time limit in seconds for ending the log, because the disk may be what hangs."""


class Outcome(NamedTuple):
    """The result of a run that came to its end."""

    reached_target: bool
    epoch: int
    """The last epoch that was trained."""
    accuracy: float
    """Top-1 of the last evaluation, as a fraction."""


def agree_on_seed(configured: int | None, communicator: Communicator) -> int:
    """Return the seed of the run, the same on all ranks: the configured one, else a random one that rank 0
    broadcasts."""
    seed = configured if configured is not None else secrets.randbelow(2**31 - 1) + 1
    return int(communicator.all_reduce(np.array([seed if communicator.rank == 0 else 0], dtype=np.int64))[0])


def count_correct(implementation: Implementation, expected: int) -> float:
    """Return the top-1 accuracy over all ranks: the sum of correct over the sum of all.

    Raises UserError unless exactly ``expected`` samples were counted.
    """
    correct, total = (
        int(n)
        for n in implementation.communicator.all_reduce(np.array(implementation.evaluate(), dtype=np.int64))
    )
    refuse_other_count(total, expected)
    return correct / total


def run(config: Config, create: Callable[[Config], Implementation], display: Display) -> Outcome:
    """Make one timed run on this rank; every rank of the job calls it.

    If the clock was running, a fault, a signal and a UserError all end with ``run_stop`` status "aborted".
    The error is raised again after that.
    """
    init_start_ms = now_ms()
    begins = beginning.of(config)
    implementation = create(begins.configured(config))
    try:
        communicator = implementation.communicator
        is_first = communicator.rank == 0
        checkpoint.agree(begins.checkpoint, communicator)
        seed = agree_on_seed(begins.configured(config).run.seed, communicator)
        if is_first:
            saved_weights.refuse_impossible(config)
            checkpoint.refuse_impossible(config)
        result_file = pathlib.Path(config.run.result_file) if config.run.result_file else None
        log = RunLog(communicator.rank, result_file)
        shown = display if is_first else Display()
        with (
            training.full_memory_named(config),
            _AbortOnSignal(log, communicator.rank),
            _watch(implementation, log, shown) as watch,
        ):
            rank = _Rank(
                config, begins, implementation, seed, result_file if is_first else None, log, shown, watch
            )
            try:
                rank.prepare(init_start_ms)
                communicator.barrier()
                log.run_start()
                watch.start_the_clock()
                outcome = rank.train_to_target()
                log.run_stop("success" if outcome.reached_target else "aborted")
                log.finish()
                if is_first:
                    rank.keep_weights(outcome)
                communicator.barrier()  # a rank that ends first may take the others with it
            except BaseException:
                log.run_stop("aborted")
                raise
        return outcome
    finally:
        implementation.close()


@dataclasses.dataclass(frozen=True)
class _Rank:
    """This rank of a timed run, from its log on."""

    config: Config
    begins: Beginning
    implementation: Implementation
    seed: int
    result_file: pathlib.Path | None
    """The log, on the rank that saves facts beside it."""
    log: RunLog
    display: Display
    watch: Watchdog

    def prepare(self, init_start_ms: int) -> None:
        """Do everything before the clock: refuse what cannot be, warm up on synthetic data, time the ranks.
        No file of the data set is touched."""
        config, begins, implementation, display = self.config, self.begins, self.implementation, self.display
        # Say and save what this run is.
        if self.result_file is not None:
            provenance.save(config, self.seed, self.result_file, begins.epoch or None)
        self.log.submission(config, init_start_ms, begins.labels)
        for name, rule in config.departures.items() if config.division != config.run.division else ():
            display.remark(f"{name}: {rule}; so the log names the open division")
        display.initialising("compiling and warming up on synthetic data")
        _refuse_different_inputs(config, implementation.communicator)
        for line in (*training.passed_over(config), *checkpoint.passed_over(config)):
            display.remark(line)
        # Warm up, which decides the precision, and only then take the weights to begin with.
        self.watch.doing = watchdog.WARMING_UP
        tensors = implementation.warm_up(self.seed)
        name, reason = implementation.precision
        if reason:
            display.remark(reason)
        if self.result_file is not None:
            provenance.add(self.result_file, {"precision": name, "precision_reason": reason})
        begins.give(config, implementation)
        if begins.checkpoint:
            display.remark(f"goes on after epoch {begins.epoch} of {begins.checkpoint.file}; {rules.RESUMED}")
        # A slow or badly placed rank holds up all others: name it before the clock.
        self.watch.doing = "timing the ranks"
        for line in all_reduce.before_the_clock(config, implementation, self.watch.hosts()):
            display.remark(line)
        self.log.hyperparameters(config, self.seed, implementation.communicator.size, tensors)

    def train_to_target(self) -> Outcome:
        """Do everything between ``run_start`` and ``run_stop``."""
        config, implementation, log = self.config, self.implementation, self.log
        # Open the data set. Its files are touched only now.
        self.watch.doing = "opening the data set"
        implementation.open_data()
        hashes = _check_certificate(config, implementation.communicator, self.display)
        log.samples(config, implementation.precision.name, hashes)
        trained, accuracy = self.begins.epoch, 0.0
        if trained:
            implementation.begin_after(trained, checkpoint.seed_after(self.seed, trained))
        loss_check = LossCheck(
            config, lambda line: self.display.remark(f"warning: {line}"), trained=self.begins.is_pretrained
        )
        h = config.hyperparameters
        every = schedule.evaluation_epochs(h.num_epochs, h.eval_offset, h.eval_period)
        evaluations = [epoch for epoch in every if epoch > trained]
        for evaluated_epoch in evaluations:
            # Train up to the next evaluation: a block of the log.
            first = trained + 1
            log.block_start(first, evaluated_epoch - trained)
            for epoch in range(first, evaluated_epoch + 1):
                self.watch.doing = f"training epoch {epoch}"
                _train(epoch, implementation, log, self.display, loss_check)
                if epoch < evaluated_epoch:
                    self._save_checkpoint(epoch)
            trained = evaluated_epoch
            # Count the whole validation set.
            self.watch.doing = "evaluating"
            log.eval_start(trained)
            accuracy = count_correct(implementation, config.data.eval_samples)
            log.eval_stop(trained, accuracy)
            log.block_stop(first)
            self.display.evaluated(trained, accuracy)
            # Stop at the target.
            if accuracy >= rules.TARGET_ACCURACY:
                return Outcome(True, trained, accuracy)
            if evaluated_epoch != evaluations[-1]:
                self._save_checkpoint(trained)
        return Outcome(False, trained, accuracy)

    def _save_checkpoint(self, epoch: int) -> None:
        if checkpoint.is_due(self.config, epoch):
            self.watch.doing = "saving a checkpoint"
            checkpoint.write(self.config, self.implementation, self.seed, epoch)

    def keep_weights(self, outcome: Outcome) -> None:
        """Remove the checkpoint of the finished run, and save its weights with SAVE_WEIGHTS=1."""
        if self.config.run.checkpoint_epochs:
            checkpoint.remove(self.config)
        if self.config.run.save_weights:
            self.watch.doing = "saving the weights"
            saved_weights.save(self.config, self.implementation, self.seed, outcome.epoch, outcome.accuracy)


def _refuse_different_inputs(config: Config, communicator: Communicator) -> None:
    """Raise UserError if INPUT_LIBRARY=auto is another library on another rank, because each library splits
    and orders the data differently."""
    if config.input_pipeline.library != "auto":
        return
    library = training.input_library(config)
    checksum = zlib.crc32(library.encode())
    if int(communicator.all_reduce(np.array([checksum], dtype=np.int64))[0]) != checksum * communicator.size:
        raise UserError(
            "INPUT_LIBRARY=auto",
            f"it is {library} on this rank, and not on every other",
            "install the same packages on every machine, or set INPUT_LIBRARY",
        )


def _check_certificate(config: Config, communicator: Communicator, display: Display) -> dict[str, str] | None:
    """Return the hashes that certify the data, the same on all ranks; None if no rank's data have a
    certificate.

    Raises UserError if the certificate does not match the configuration, or the ranks' certificates differ.
    """
    certified = certificate.check(config)
    digest = int(certified.sha256[:8], 16) if certified else 0
    if int(communicator.all_reduce(np.array([digest], dtype=np.int64))[0]) != digest * communicator.size:
        mine = certified.sha256 if certified else "none"
        raise UserError(
            config.data.folder,
            f"the ranks read data of different certificates, this one {mine}",
            "give every machine the same data",
        )
    if certified is None:
        folder = config.data.folder
        display.remark(
            f"no certificate.json in {folder}; rn50 verify {folder} looks at every image and writes it"
        )
        return None
    if config.run.result_file and communicator.rank == 0:
        provenance.add(pathlib.Path(config.run.result_file), {"data certificate": certified.summary()})
    return {"certificate_sha256": certified.sha256, "data_set_sha256": str(certified.content["set_sha256"])}


def _train(
    epoch: int, implementation: Implementation, log: RunLog, display: Display, loss_check: LossCheck
) -> None:
    losses: list[float] = []  # about one a second: reading the loss of every step would slow the run down

    def progress(samples: int, loss: float) -> None:
        loss_check.look(epoch, loss)
        losses.append(loss)
        display.trained(samples, loss)

    log.epoch_start(epoch)
    display.epoch_begins(epoch)
    result = implementation.train_epoch(epoch, progress)
    samples = int(implementation.communicator.all_reduce(np.array([result.samples], dtype=np.int64))[0])
    images_per_second = samples / result.seconds
    log.epoch_stop(epoch, images_per_second, statistics.fmean(losses))
    display.epoch_ends(epoch, images_per_second)


def _watch(implementation: Implementation, log: RunLog, display: Display) -> Watchdog:
    """Return a watchdog that ends this process, and with it the job, when a rank makes no progress."""

    def end(line: str | None) -> None:
        threading.Timer(LAST_WORDS_S, os._exit, (Status.USER_ERROR,)).start()
        try:
            log.run_stop("aborted")
        finally:
            if line is not None:
                say(f"rn50: {line}; then start the run again", err=True)
            files.discard_unfinished()
            os._exit(Status.USER_ERROR)

    limits = watchdog.limits(process.environment())
    return Watchdog(implementation, lambda line: display.remark(f"warning: {line}"), end, limits)


class _AbortOnSignal:
    """While it is open, SIGINT and SIGTERM write ``run_stop`` status "aborted" and end the process at once.

    Only SIGINT is reported, because it comes from a person who started this one process. The sender of
    SIGTERM reports why.

    The main thread may be in a native call that waits for a rank that no longer exists; Python runs no signal
    handler then. So the interpreter's wake-up descriptor wakes a thread of our own, which does not depend on
    the main thread.

    mpirun kills all other ranks as soon as the first one has ended. So rank 0, which ends the log, exits
    before the others.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)
    AFTER_RANK_0_S = 0.5  # mpirun gives the ranks one second

    def __init__(self, log: RunLog, rank: int):
        self._log = log
        self._rank = rank

    def __enter__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._handlers = {number: signal.signal(number, lambda *_: None) for number in self.SIGNALS}
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        for number in iter(lambda: os.read(self._read, 1), b""):
            if number[0] in self.SIGNALS:
                try:
                    self._log.run_stop("aborted")
                    if self._rank != 0:
                        time.sleep(self.AFTER_RANK_0_S)
                finally:
                    if number[0] == signal.SIGINT:
                        say("rn50: stopped by SIGINT; the same command starts the run again", err=True)
                    files.discard_unfinished()
                    os._exit(128 + number[0])

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._write)
