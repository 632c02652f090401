"""Check that a run is possible as logged: each accuracy comes after its epochs, and the images/s are within
the reach of machines.

Every published log of rounds v0.7 to v3.1 keeps the bounds below. It logs the epochs before their accuracy.
None of its epochs takes less than 0.46 of the median time of an epoch, and the faster of its second and third
epoch takes at most 1.45 of the median. Logs of TPUs have blocks of epochs, whose times are not as steady.
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

FASTEST_ACCELERATOR = 7_768
"""Highest published images/s per accelerator over the whole run: h200_ngc24.04_mxnet, round v4.0."""
FASTEST_SYSTEM = 8_985_088
"""Highest published images/s of a system: coreweave_hgxh100_n448_ngc23.04_mxnet, round v3.0."""
ABSURD = 10
"""Multiple of the fastest published rate from which a rate is refused, because no step from one round to the
next was so large."""
UNSTEADY = 3
"""Multiple of a run's usual images/s from which an epoch is refused."""
# Each rule in words, as findings name it.
_TRAINED = "an accuracy comes after the epochs that it is of"
_EVALUATED = "an accuracy comes in the evaluation of its epoch"
_STEADY = "no epoch takes less than a third of the median, or of the second and third"
_POSSIBLE = "a run takes the time that its images need"
_REMEDY = "submit the log as the run wrote it"


def check(run: Run, accelerators: int | None) -> Iterator[Finding]:
    """Yield every finding on the course of a run. ``accelerators`` is the number of accelerators on all
    nodes; None: it is not known."""
    yield from _accuracies(run.log, rules.RESUMED in (run.label or ""))
    if not run.label:  # labelled runs may have smaller images and networks, and share a machine
        yield from _rates(run.log, accelerators)


def _accuracies(log: ResultLog, resumed: bool) -> Iterator[Finding]:
    """Yield findings on accuracies that are logged before their epochs or outside of their evaluation. The
    log of a ``resumed`` run lacks the epochs before it was resumed."""
    eval_starts = [event.metadata.get("epoch_num") for event in log.by_key.get("eval_start", ())]
    stops_left = len(log.by_key.get("epoch_stop", ()))  # records further on
    epochs_trained = 0.0
    in_epoch = False  # an epoch has started and not stopped
    evaluation = None  # epoch_num of the latest eval_start
    for event in log.events:
        epoch = event.metadata.get("epoch_num")
        if event.key in ("epoch_start", "epoch_stop"):
            epochs_trained += int(in_epoch)  # ends the epoch that was started before, if one was
            in_epoch = event.key == "epoch_start"
            stops_left -= int(event.key == "epoch_stop")
        elif event.key == "block_start" and "epoch_start" not in log.by_key:
            epochs_trained += epoch_number(event.metadata.get("epoch_count")) or 0
        elif event.key == "eval_start":
            evaluation = epoch
        elif event.key == "eval_accuracy":
            # The epoch in progress counts if no stop comes any more: the last epoch may lack its stop.
            done = epochs_trained + int(in_epoch and not stops_left)
            if (epoch_number(epoch) or 0) > done and not resumed:
                message = f"an accuracy after epoch {epoch:g}, and {done:g} epochs are trained before it"
                yield finding(log, event.line, _TRAINED, message, _REMEDY)
            if eval_starts and epoch != evaluation:
                # An accuracy whose eval_start comes further on is early.
                next_start = eval_starts.index(evaluation) + 1 if evaluation in eval_starts else 0
                is_early = epoch in eval_starts[next_start:]
                place = "comes before its eval_start" if is_early else f"is in the evaluation of {evaluation}"
                message = f"the accuracy of epoch {epoch} {place}"
                yield finding(log, event.line, _EVALUATED, message, _REMEDY, WARNING if is_early else ERROR)


def _rates(log: ResultLog, accelerators: int | None) -> Iterator[Finding]:
    """Yield a finding if the run, or an epoch of it, takes no time or has absurdly many images/s, and a
    finding if an epoch has many more images/s than usual."""
    stop = log.first("run_stop")
    epochs = max((evaluation.epoch for evaluation in log.evaluations), default=0)
    if stop is None or log.minutes is None or not epochs or not log.train_samples:
        return
    throughput = timing.throughput(log)
    run_rate = epochs * log.train_samples / log.minutes / 60 if log.minutes else math.inf
    rates = [(f"the run of {epochs:g} epochs", run_rate)]
    rates += [(f"epoch {epoch:g}", rate) for epoch, rate in throughput.epochs]
    rates += [(f"epoch {epoch:g}", math.inf) for epoch in timing.without_time(log)]
    bound, fastest = ABSURD * FASTEST_SYSTEM, "published system"
    if accelerators and accelerators * FASTEST_ACCELERATOR < FASTEST_SYSTEM:
        bound, fastest = ABSURD * FASTEST_ACCELERATOR * accelerators, f"{accelerators} published accelerators"
    if absurd := [pair for pair in rates if pair[1] > bound]:
        what, rate = absurd[0]
        message = f"{rate:,.0f} images/s, more than {ABSURD} times those of the fastest {fastest}"
        message = f"{what} takes no time" if rate == math.inf else f"{what}: {message}"
        yield finding(log, stop.line, _POSSIBLE, message, _REMEDY)
    epoch_rates = [rate for _, rate in throughput.epochs]
    if not throughput.in_blocks and len(epoch_rates) >= 3:
        # The first epoch may be slow, and so may the second or the third.
        usual = min(statistics.median(epoch_rates), max(epoch_rates[1:3]))
        epoch, highest = max(throughput.epochs, key=lambda pair: pair[1])
        if highest > UNSTEADY * usual:
            message = f"epoch {epoch:g} has {highest:,.0f} images/s, and others {usual:,.0f}"
            yield finding(log, None, _STEADY, message, _REMEDY)
