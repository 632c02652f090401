"""The MLPerf log of a run: ``RunLog`` has a method for each event, which ``timed_run.py`` calls.

The format is ``:::MLLOG {json}`` lines of the ``mlperf_logging`` package. Keys and their order are those of
the MLPerf Training logging specification and its compliance rulesets 1.0.0 to 4.0.0 for ResNet-50. Only rank
0 writes.
"""

import dataclasses
import logging
import pathlib
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.files import ROOT
from rn50.packages import needed_for
from rn50.results.parse import EPOCH_SAMPLES, SAMPLE_ORDER, TARGET, TOP_5
from rn50.run import input_library
from rn50.run.clock import now_ms
from rn50.run.log_file import LogFile
from rn50.settings.config import Config

with needed_for("the log of a timed run"):
    from mlperf_logging.mllog import constants
    from mlperf_logging.mllog.mllog import MLLogger


_NUMERIC = {"float32": "fp32", "float16": "fp16"}
"""Precision -> its name in ``rules.PRECISIONS``, where the two differ."""


class _StrictHandler(logging.StreamHandler):
    """A logging handler that raises UserError if a line cannot be written. The standard handler would print
    the error, and the run would go on without a log."""

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        name = getattr(self.stream, "name", "the log")
        raise UserError(name, f"cannot write the result log ({error})", "free the disk and run again")


class RunLog:
    """The log of one run.

    With a ``result_file`` the log is written under the name ``<result_file>.partial``, until ``finish``
    renames it. So a file with the final name is always the log of a whole run. Without a ``result_file`` the
    log goes to standard output. On any rank but 0 every method does nothing.
    """

    def __init__(self, rank: int, result_file: pathlib.Path | None):
        self._lock = threading.RLock()
        self._clock_runs = False
        self._writes = rank == 0
        self._file = LogFile(result_file) if self._writes and result_file is not None else None
        logger = logging.Logger("rn50.mlperf", logging.INFO)
        logger.addHandler(_StrictHandler(self._file.stream if self._file else sys.stdout))
        self._mllog = MLLogger(logger, root_dir=str(ROOT))

    def _log(
        self, key: str, value: Any = None, metadata: dict[str, Any] | None = None, time_ms: int | None = None
    ) -> None:
        """Write a line: the start of an interval if ``key`` ends in "_start", its end if in "_stop", else a
        point in time. ``time_ms`` is now by default."""
        writers = {"start": self._mllog.start, "stop": self._mllog.end}
        write = writers.get(key.rpartition("_")[2], self._mllog.event)
        with self._lock:
            if self._writes:  # stack_offset 2: the line names the source line that called ``_log``
                write(key, value, metadata, time_ms=time_ms or now_ms(), stack_offset=2)

    def submission(self, config: Config, init_start_ms: int, labels: Sequence[str] = ()) -> None:
        """Log the submission lines, ``cache_clear`` and ``init_start``. The labels of the configuration and
        ``labels`` follow the platform in parentheses.

        All lines have the time ``init_start_ms`` at which the process began, because loading the framework is
        part of initialisation. They are written later, once this process knows its rank.
        """
        platform = config.run.platform  # may have a label already, which is not added again
        for label in (*config.labels, *labels):
            platform += "" if label in platform else f" ({label})"
        for key, value in (
            (constants.SUBMISSION_BENCHMARK, rules.BENCHMARK),
            (constants.SUBMISSION_ORG, config.run.organisation),
            (constants.SUBMISSION_DIVISION, config.run.division),
            (constants.SUBMISSION_STATUS, config.run.status),
            (constants.SUBMISSION_PLATFORM, platform),
        ):
            self._log(key, value, time_ms=init_start_ms)
        self._log(constants.CACHE_CLEAR, config.run.cache_cleared, time_ms=init_start_ms)
        self._log(constants.INIT_START, time_ms=init_start_ms)

    def hyperparameters(self, config: Config, seed: int, ranks: int, tensors: Iterable[str]) -> None:
        """Log seed, hyperparameters and the names of the initialised ``tensors``, then ``init_stop``."""
        # ``ranks`` is the number that take part, not the number in the configuration.
        total = config.hyperparameters.batch_size * ranks
        self._log(constants.SEED, seed)
        for key, value in dataclasses.replace(config.recipe, global_batch_size=total).logged().items():
            self._log(key, value)
        for tensor in tensors:
            self._log(constants.WEIGHTS_INITIALIZATION, metadata={"tensor": tensor})
        self._log(constants.INIT_STOP)

    def run_start(self) -> None:
        """Start the clock."""
        with self._lock:
            self._log(constants.RUN_START)
            self._clock_runs = True

    def samples(self, config: Config, precision: str, about_data: dict[str, str | int] | None = None) -> None:
        """Log the numbers of training and validation samples, then lowest precisions, parallelism and the
        name of the configuration file.

        The lines of the samples have metadata for which the rules have no key: input library, precision, and
        ``about_data``, which ``agreement.on_certificate`` returns.
        """
        library = input_library.chosen(config)
        metadata: dict[str, Any] = {"input_library": library, "precision": precision, **(about_data or {})}
        epoch_samples = {EPOCH_SAMPLES: config.epoch_samples} if config.run.benchmark_steps else {}
        target = {TARGET: config.run.target} if rules.OTHER_TARGET in config.labels else {}
        self._log(constants.TRAIN_SAMPLES, config.data.train_samples, {**metadata, **epoch_samples, **target})
        self._log(constants.EVAL_SAMPLES, config.data.eval_samples, metadata)
        # Keys that rounds from v6.1 on ask for: precisions of matrix products, of attention, which ResNet-50
        # lacks, and of communication, which sums gradients in float32.
        in_linear, _, in_communication = rules.LOWEST_PRECISIONS
        self._log(in_linear, _NUMERIC.get(precision, precision))
        self._log(in_communication, _NUMERIC["float32"])
        # Every rank has the whole network: no kind of parallelism but that of the data.
        batch_size = {constants.MICRO_BATCH_SIZE: config.hyperparameters.batch_size}
        for key, value in {**dict.fromkeys(rules.PARALLELISM, 1), **batch_size}.items():
            self._log(key, value)
        if file := config.environment.get("CONFIG_FILE"):
            self._log(constants.CONFIG_FILENAME, pathlib.Path(file).name)

    def block_start(self, first_epoch: int, epochs: int) -> None:
        """Log the start of a block: the epochs up to and including the next one that is evaluated."""
        metadata = {constants.FIRST_EPOCH_NUM: first_epoch, constants.EPOCH_COUNT: epochs}
        self._log(constants.BLOCK_START, metadata=metadata)

    def block_stop(self, first_epoch: int) -> None:
        """Log the end of the block that began with epoch ``first_epoch``."""
        self._log(constants.BLOCK_STOP, metadata={constants.FIRST_EPOCH_NUM: first_epoch})

    def epoch_start(self, epoch: int) -> None:
        """Log the start of an epoch. Epochs count from 1."""
        self._log(constants.EPOCH_START, metadata={constants.EPOCH_NUM: epoch})

    def epoch_stop(self, epoch: int, images_per_second: float, loss: float, order: str | None = None) -> None:
        """Log the end of an epoch, its training throughput over all ranks, ``loss``, the mean of the losses
        that rank 0 has read in it, and ``order``, a hash of the order of its samples (None: unknown).

        Raises UserError if the log file was removed or moved.
        """
        self._log(constants.EPOCH_STOP, metadata={constants.EPOCH_NUM: epoch})
        metadata = {"step": epoch, **({} if order is None else {SAMPLE_ORDER: order})}
        self._log("tracked_stats", {"throughput": images_per_second, "train_loss": loss}, metadata)
        if self._file is not None:
            self._file.refuse_loss()

    def eval_start(self, epoch: int) -> None:
        """Log the start of the evaluation after epoch ``epoch``."""
        self._log(constants.EVAL_START, metadata={constants.EPOCH_NUM: epoch})

    def eval_stop(self, epoch: int, accuracy: float, top_5: float | None = None) -> None:
        """Log the end of an evaluation and its top-1 ``accuracy``. ``top_5`` (None: not counted) is metadata,
        because the rules have no key for it. Both are fractions."""
        top_5_metadata = {} if top_5 is None else {TOP_5: top_5}
        self._log(constants.EVAL_ACCURACY, accuracy, {constants.EPOCH_NUM: epoch, **top_5_metadata})
        self._log(constants.EVAL_STOP, metadata={constants.EPOCH_NUM: epoch})

    def run_stop(self, status: str) -> None:
        """Stop the clock with ``status`` "success" or "aborted". A second call, or one before the clock
        starts, does nothing.

        Nothing is logged after ``run_stop``, although the training thread may go on for a moment after a
        signal. If somebody has removed the log or its folder during the run, the log is written elsewhere,
        and its place is printed on standard error.
        """
        with self._lock:
            if self._clock_runs:
                self._clock_runs = False
                self._log(constants.RUN_STOP, metadata={constants.STATUS: status})
                self._writes = False
                if self._file is not None and self._file.is_lost:
                    self._file.keep()

    def finish(self) -> None:
        """Give the finished log its final name. Raises UserError if that fails."""
        if self._file is not None:
            self._file.finish()
