"""Check that a run can have been as its log says: every accuracy after its epochs, at rates that machines
have.

Every published log of rounds v0.7 to v3.1 keeps these bounds: no accuracy is of more epochs than were logged
before it, no epoch takes less than 0.46 of the median, and of the second and third one takes at most 1.45
times the median. Blocks of TPUs, logged without epochs, are not as steady.
"""

import math
import statistics
from collections.abc import Iterator

from rn50.benchmark import rules
from rn50.results import timing
from rn50.results.parse import ResultLog, epoch_number
from rn50.results.run import Run
from rn50.results.validity.findings import ERROR, WARNING, Finding
from rn50.results.validity.log_rules import finding

FASTEST_ACCELERATOR = 7_245
"""Highest published images/s per accelerator over the whole run: XE8640x4H100-SXM-80GB, round v3.0."""
FASTEST_SYSTEM = 8_985_088
"""Highest published images/s of a system: coreweave_hgxh100_n448_ngc23.04_mxnet, round v3.0."""
ABSURD = 10
"""Multiple of the fastest published rate that is refused, because no step from one round to the next was so
large."""
UNSTEADY = 3
"""Multiple of a run's own rate that is refused in an epoch."""
_REMEDY = "submit the log as the run wrote it"


def check(run: Run, accelerators: int | None) -> Iterator[Finding]:
    """Yield every finding on the course of a run; ``accelerators`` is the system's number of them, where
    known."""
    if rules.RESUMED not in (run.label or ""):
        yield from _trained(run.log)
    yield from _evaluated(run.log)
    if not run.label:  # labelled runs may have smaller images and networks, and share a machine
        yield from _steady(run.log)
        yield from _rate(run.log, accelerators)


def _trained(log: ResultLog) -> Iterator[Finding]:
    """Yield findings on accuracies that are logged before their epochs."""
    in_epochs = "epoch_start" in log.by_key
    trained, training, stops_left = 0.0, False, len(log.by_key.get("epoch_stop", ()))
    for event in log.events:
        if event.key in ("epoch_start", "epoch_stop"):
            trained, training = trained + training, event.key == "epoch_start"
            stops_left -= not training
        elif event.key == "block_start" and not in_epochs:
            trained += epoch_number(event.metadata.get("epoch_count")) or 0
        elif event.key == "eval_accuracy":
            epoch = epoch_number(event.metadata.get("epoch_num")) or 0
            done = trained + (training and not stops_left)  # the last epoch may lack its stop
            if epoch > done:
                yield finding(
                    log,
                    event.line,
                    "an accuracy comes after the epochs that it is of",
                    f"an accuracy after epoch {epoch:g}, and {done:g} epochs are trained before it",
                    _REMEDY,
                )


def _evaluated(log: ResultLog) -> Iterator[Finding]:
    """Yield findings on accuracies outside of the evaluation of their epoch."""
    started = [event.metadata.get("epoch_num") for event in log.by_key.get("eval_start", ())]
    evaluating = None
    for event in log.events:
        epoch = event.metadata.get("epoch_num")
        if event.key == "eval_start":
            evaluating = epoch
        elif event.key == "eval_accuracy" and started and epoch != evaluating:
            early = epoch in started and (
                evaluating is None or started.index(epoch) > started.index(evaluating)
            )
            yield finding(
                log,
                event.line,
                "an accuracy comes in the evaluation of its epoch",
                f"the accuracy of epoch {epoch} comes before its eval_start"
                if early
                else f"the accuracy is of epoch {epoch}, and the evaluation of epoch {evaluating}",
                "log it between eval_start and eval_stop of its epoch",
                WARNING if early else ERROR,
            )


def _steady(log: ResultLog) -> Iterator[Finding]:
    """Yield a finding where an epoch is much faster than the run. The first may be slow; of the next two one
    may be."""
    found = timing.throughput(log)
    rates = [rate for _, rate in found.epochs]
    if found.in_blocks or len(rates) < 3:
        return
    usual = min(statistics.median(rates), max(rates[1:3]))
    epoch, fastest = max(found.epochs, key=lambda each: each[1])
    if fastest > UNSTEADY * usual:
        yield finding(
            log,
            None,
            "no epoch takes less than a third of the median, or of the second and third",
            f"epoch {epoch:g} has {fastest:,.0f} images/s, and others {usual:,.0f}",
            _REMEDY,
        )


def _rate(log: ResultLog, accelerators: int | None) -> Iterator[Finding]:
    """Yield findings on a run or a part of it that takes no time, or has an absurd rate."""
    stop, epochs = log.first("run_stop"), max((evaluation.epoch for evaluation in log.evaluations), default=0)
    if stop is None or log.minutes is None or not epochs or not log.train_samples:
        return
    found = timing.throughput(log)
    of_all = epochs * log.train_samples / log.minutes / 60 if log.minutes else math.inf
    rates = [(f"the run of {epochs:g} epochs", of_all)]
    rates += [(f"epoch {epoch:g}", rate) for epoch, rate in found.epochs]
    rates += [(f"epoch {epoch:g}", math.inf) for epoch in timing.without_time(log)]
    bound, fastest = ABSURD * FASTEST_SYSTEM, "published system"
    if accelerators and accelerators * FASTEST_ACCELERATOR < FASTEST_SYSTEM:
        bound, fastest = ABSURD * FASTEST_ACCELERATOR * accelerators, f"{accelerators} published accelerators"
    for what, rate in rates:
        if rate > bound:
            yield finding(
                log,
                stop.line,
                "a run takes the time that its images need",
                f"{what}: {rate:,.0f} images/s, more than {ABSURD} times those of the fastest {fastest}"
                if rate < math.inf
                else f"{what} takes no time",
                _REMEDY,
            )
            return
