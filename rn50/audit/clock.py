"""Tests of the times of runs: the order of the records (``order``), images/s that a log states beside its
time stamps (``stated``), runs faster than the others (``pace``), and images/s against published results with
the accelerator (``hardware``)."""

import functools
import math
import statistics

from rn50.audit.run_set import Evidence, RunSet, ratio_of
from rn50.benchmark import rules
from rn50.errors import excerpt
from rn50.hyperparameters.plan import images_per_second
from rn50.hyperparameters.plan.images_per_second import Conditions, ThroughputModel
from rn50.results import chips, published, timing, tree
from rn50.results.parse import ResultLog, epoch_number, finite
from rn50.results.validity.clock_rules import CLOCK_SKEW_MS, COURSE

OFF_CLOCK = 0.005
"""Relative difference between the images/s that a log states and those of its time stamps from which a run
stands out. The largest of published logs is 0.0028."""
FASTER = 0.04
"""Fraction by which a run's time per epoch is below the median of its set from which a run stands out. The
largest of published sets is 0.036."""
MADE_UP = 20.0
"""Likelihood ratio from which a set stands out because a gap is longer by just what the run before it is
shorter."""
DEVIATIONS_FASTER = 4.0
"""Standard deviations above the predicted images/s from which a set stands out."""

_model_of = functools.lru_cache(maxsize=8)(ThroughputModel)  # all unpublished sets have the same model


def order(runs: RunSet) -> Evidence:
    """Test "order": look for records of epochs and evaluations that are not between run_start and run_stop,
    or are earlier than one above them."""
    for log in runs.logs:
        latest = log.run_start_ms or 0
        for event in log.events:
            if event.key not in COURSE:
                continue
            if not latest - CLOCK_SKEW_MS <= event.time_ms <= (log.run_stop_ms or 0) + CLOCK_SKEW_MS:
                text = f"{event.key} in line {event.line} of {log.path.name} is out of order, or of the clock"
                return Evidence("order", True, text)
            latest = max(latest, event.time_ms)
    return Evidence("order", False, "all between run_start and run_stop, in their order")


def stated(runs: RunSet) -> Evidence | None:
    """Test "clock": compare the images/s that the logs state of each epoch with their time stamps. None if
    they state none."""
    excesses = [(ratio - 1, log.path.name) for log in runs.logs if (ratio := stated_over_clock(log))]
    if not excesses:
        return None
    excess, name = max(excesses, key=lambda pair: abs(pair[0]))
    if abs(excess) <= OFF_CLOCK:
        return Evidence("clock", False, "the images/s that the logs state are those of the clock", excess)
    percent = f"{abs(excess):.1%}" if abs(excess) < 10 else "over ten times"
    text = f"{name} states {percent} {'more' if excess > 0 else 'fewer'} images/s than its time stamps give"
    return Evidence("clock", True, text, excess)


def stated_over_clock(log: ResultLog) -> float | None:
    """Return the median over the epochs of the ratio of the images/s that a log states after an epoch to
    those of its time stamps. None for a log that states fewer than three."""
    clock = dict(timing.throughput(log).epochs)  # epoch -> images/s by its time stamps
    epoch, ratios = None, []
    for event in log.events:
        if event.key == "epoch_stop":
            epoch = epoch_number(event.metadata.get("epoch_num"))
        # "throughput" has a number as its value, or like "tracked_stats" {"throughput": 2450.3, ...}.
        value = event.value.get("throughput") if isinstance(event.value, dict) else event.value
        rate = finite(value) if event.key in ("throughput", "tracked_stats") else None
        if rate and epoch in clock:
            ratios.append(rate / clock[epoch])
    return statistics.median(ratios) if len(ratios) >= 3 else None


def pace(runs: RunSet) -> Evidence | None:
    """Test "pace": look for a run that is much faster per epoch than the others, and for a run that is
    shorter by just what the gap after it is longer. None for fewer than four runs and for runs that are not
    of the benchmark, because these may share a machine."""
    per_epoch = []  # (minutes per epoch, name), 0 minutes if a log does not tell
    for log in runs.logs:
        last_epoch = log.evaluations[-1].epoch if log.evaluations else 0.0
        per_epoch.append(((log.minutes or 0.0) / last_epoch if last_epoch >= 1 else 0.0, log.path.name))
    minutes = [value for value, _ in per_epoch]
    if len(minutes) < 4 or not all(minutes) or runs.label:
        return None
    fastest, name = min(per_epoch, key=lambda pair: pair[0])
    faster = 1 - fastest / statistics.median(minutes)
    if faster > FASTER:
        text = f"{name} takes {faster:.1%} less time per epoch than the others"
        return Evidence("pace", True, text, faster)
    if made_up := _made_up(runs):
        ratio, text = made_up
        return Evidence("pace", True, text, faster, 1 / ratio)
    return Evidence("pace", False, f"the fastest, {name}, takes {faster:.1%} less time per epoch", faster)


def _made_up(runs: RunSet) -> tuple[float, str] | None:
    """Look for a run whose times were shortened while those of the next run were left as they were. Return
    the likelihood ratio of that to an honest log, for the likeliest run, and a sentence; None if the ratio is
    at most ``MADE_UP``."""
    if not runs.gaps or min(runs.gaps) < 0:
        return None
    # All in lengths of a run. The deviation is that of an honest gap from the usual one.
    lengths = [(end - begin) / runs.length for begin, end in runs.spans]
    usual = statistics.median(runs.gaps)
    deviation = max(0.002, 0.05 * usual)
    best = 0.0, ""
    # The last run has no gap after it, so it has no turn.
    for length, gap, log in zip(lengths, runs.gaps, runs.logs, strict=False):
        shorter, longer = 1 - length, gap - usual
        # Logarithm of the ratio of two bell curves: about the usual gap plus what the run is shorter, and
        # about the usual gap.
        exponent = ((longer / deviation) ** 2 - ((longer - shorter) / deviation) ** 2) / 2
        if shorter > 0.005 and abs(longer - shorter) < 3 * deviation:
            text = f"{log.path.name} is {shorter:.1%} shorter, and the gap after it longer by as much"
            best = max(best, (ratio_of(exponent), text))
    return best if best[0] > MADE_UP else None


def hardware(runs: RunSet) -> Evidence | None:
    """Test "hardware": compare images/s per accelerator with those predicted from other published results.
    None if the system is not described, or the runs are not of the closed division."""
    place, number, batch_size = tree.place(runs.folder), tree.accelerators(runs.folder), runs.batch_size
    model = str(tree.described(runs.folder).get("accelerator_model_name", ""))
    rates = [_rate(log, number) for log in runs.logs if number]
    if not (place and number and model and batch_size and all(rates)) or not runs.is_closed:
        return None
    measured = statistics.median(rate for rate in rates if rate)
    system = f"{place.organisation.name}/{place.system}".lower()
    # What the images/s are compared with: results of other systems, without those of these very runs.
    rest = [result for result in published.distinct("lars") if images_per_second.system(result) != system]
    model_of_all = _model_of(tuple(result for result in rest if not runs.are_of(result)))
    name = chips.name(model)
    if name not in model_of_all.accelerators:
        return Evidence("hardware", False, f"nobody else published {excerpt(name)}")
    rate = model_of_all.predict(Conditions(name, number, batch_size / number))
    deviations = math.log(measured / rate.images_per_second) / math.hypot(rate.spread, 0.03)
    text = f"{measured:,.0f} images/s per accelerator, {rate.images_per_second:,.0f} predicted from others"
    p = math.erfc(deviations / math.sqrt(2)) / 2
    return Evidence("hardware", deviations > DEVIATIONS_FASTER, text, deviations, p)


def _rate(log: ResultLog, accelerators: int | None) -> float | None:
    """Return images/s per accelerator in training, as ``images_per_second`` computes them for a published
    result; None if the log or the number of accelerators does not suffice."""
    if not (log.decisive and log.train_samples and log.minutes and accelerators) or log.train_samples < 0:
        return None
    # Evaluations count as the images on which a run trains in the same time.
    images = log.decisive.epoch * log.train_samples
    images += len(log.evaluations) * rules.EVAL_SAMPLES / images_per_second.EVALUATION_SPEED
    seconds = 60 * log.minutes - images_per_second.START_UP_SECONDS
    return images / accelerators / seconds if seconds > 0 else None


TESTS = order, stated, pace, hardware
"""Tests of this file, which ``audit`` makes."""
