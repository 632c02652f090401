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
from rn50.results import evaluation
from rn50.run import all_reduce, checkpoint, initial_weights, provenance, saved_weights, training, watchdog
from rn50.run.checkpoint import Checkpoint
from rn50.run.clock import now_ms
from rn50.run.display import Display
from rn50.run.implementation import Communicator, Implementation
from rn50.run.loss_check import LossCheck
from rn50.run.mlperf_log import RunLog
from rn50.run.watchdog import Watchdog
from rn50.settings.config import Config
from rn50.terminal import say

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
    evaluation.refuse_other_count(total, expected)
    return correct / total


def run(config: Config, create: Callable[[Config], Implementation], display: Display) -> Outcome:
    """Make one timed run on this rank; every rank of the job calls it.

    If the clock was running, a fault, a signal and a UserError all end with ``run_stop`` status "aborted".
    The error is raised again after that.
    """
    init_start_ms = now_ms()
    initial, resumed = initial_weights.read(config), checkpoint.read(config)
    implementation = create(_in_precision_of(resumed, config))
    try:
        communicator = implementation.communicator
        rank_display = display if communicator.rank == 0 else Display()
        checkpoint.agree(resumed, communicator)
        seed = agree_on_seed(resumed.seed if resumed else config.run.seed, communicator)
        result_file = pathlib.Path(config.run.result_file) if config.run.result_file else None
        if communicator.rank == 0:
            saved_weights.refuse_impossible(config)
            checkpoint.refuse_impossible(config)
        log = RunLog(communicator.rank, result_file)
        with (
            training.full_memory_named(config),
            _AbortOnSignal(log, communicator.rank),
            _watch(implementation, log, rank_display) as watch,
        ):
            try:
                if result_file is not None and communicator.rank == 0:
                    provenance.save(config, seed, result_file, resumed.epoch if resumed else None)
                log.submission(config, init_start_ms, (rules.RESUMED,) if resumed else ())
                for name, rule in config.departures.items() if config.division != config.run.division else ():
                    rank_display.remark(f"{name}: {rule}; so the log names the open division")
                rank_display.initialising("compiling and warming up on synthetic data")
                _refuse_different_inputs(config, communicator)
                for line in (*training.passed_over(config), *checkpoint.passed_over(config)):
                    rank_display.remark(line)
                watch.doing = "warming up"
                tensors = implementation.warm_up(seed)
                _tell_precision(implementation, result_file, rank_display)
                if initial:
                    initial_weights.give(config, initial, implementation)
                if resumed:
                    checkpoint.restore(resumed, implementation)
                    rank_display.remark(
                        f"goes on after epoch {resumed.epoch} of {resumed.file}; {rules.RESUMED}"
                    )
                watch.doing = "timing the ranks"
                for line in all_reduce.before_the_clock(config, implementation, watch.hosts()):
                    rank_display.remark(line)
                log.hyperparameters(config, seed, communicator.size, tensors)
                communicator.barrier()
                log.run_start()
                watch.start_the_clock()
                outcome = _against_the_clock(config, implementation, log, rank_display, watch, seed, resumed)
                log.run_stop("success" if outcome.reached_target else "aborted")
                log.finish()
                if config.run.checkpoint_epochs and communicator.rank == 0:
                    checkpoint.remove(config)
                if config.run.save_weights and communicator.rank == 0:
                    watch.doing = "saving the weights"
                    saved_weights.save(config, implementation, seed, outcome.epoch, outcome.accuracy)
                communicator.barrier()  # a rank that ends first may take the others with it
            except BaseException:
                log.run_stop("aborted")
                raise
        return outcome
    finally:
        implementation.close()


def _in_precision_of(resumed: Checkpoint | None, config: Config) -> Config:
    """Return the configuration with the precision of a checkpoint, because PRECISION=auto may become another
    one."""
    if resumed is None:
        return config
    return dataclasses.replace(config, run=dataclasses.replace(config.run, precision=resumed.precision))


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


def _tell_precision(
    implementation: Implementation, result_file: pathlib.Path | None, display: Display
) -> None:
    """Show why warm-up took its precision, and save both beside the log."""
    name, reason = implementation.precision
    if reason:
        display.remark(reason)
    if result_file is not None and implementation.communicator.rank == 0:
        provenance.add(result_file, {"precision": name, "precision_reason": reason})


def _against_the_clock(
    config: Config,
    implementation: Implementation,
    log: RunLog,
    display: Display,
    watch: Watchdog,
    seed: int,
    resumed: Checkpoint | None,
) -> Outcome:
    """Do everything between ``run_start`` and ``run_stop``."""
    h = config.hyperparameters
    loss_check = LossCheck(
        config,
        lambda line: display.remark(f"warning: {line}"),
        trained=resumed is not None or config.run.initial_weights is not None,
    )
    watch.doing = "opening the data set"
    implementation.open_data()
    log.samples(
        config,
        implementation.precision.name,
        _check_certificate(config, implementation.communicator, display),
    )
    trained, accuracy = 0, 0.0
    if resumed:
        trained = resumed.epoch
        implementation.begin_after(trained, checkpoint.seed_after(seed, trained))

    def save_checkpoint(epoch: int) -> None:
        if checkpoint.is_due(config, epoch):
            watch.doing = "saving a checkpoint"
            checkpoint.write(config, implementation, seed, epoch)

    evaluations = [
        epoch
        for epoch in schedule.evaluation_epochs(h.num_epochs, h.eval_offset, h.eval_period)
        if epoch > trained
    ]
    for evaluated_epoch in evaluations:
        first = trained + 1
        log.block_start(first, evaluated_epoch - trained)
        for epoch in range(first, evaluated_epoch + 1):
            watch.doing = f"training epoch {epoch}"
            _train(epoch, implementation, log, display, loss_check)
            if epoch < evaluated_epoch:
                save_checkpoint(epoch)
        trained = evaluated_epoch
        watch.doing = "evaluating"
        log.eval_start(trained)
        accuracy = count_correct(implementation, config.data.eval_samples)
        log.eval_stop(trained, accuracy)
        log.block_stop(first)
        display.evaluated(trained, accuracy)
        if accuracy >= rules.TARGET_ACCURACY:
            return Outcome(True, trained, accuracy)
        if evaluated_epoch != evaluations[-1]:
            save_checkpoint(trained)
    return Outcome(False, trained, accuracy)


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
