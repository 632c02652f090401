"""Tests of the times of runs: the order of the records (``order``), the images/s that a log states, compared
with its time stamps (``stated``), runs faster than the others of the set (``pace``), and images/s compared
with published results on the same accelerator (``hardware``)."""

import functools
import math
import statistics

from rn50.audit.run_set import NOT_OF_BENCHMARK, Evidence, RunSet, not_tested, ratio_of
from rn50.benchmark import rules
from rn50.errors import excerpt
from rn50.hyperparameters.plan import images_per_second, own_rates
from rn50.hyperparameters.plan.images_per_second import Conditions, ThroughputModel
from rn50.results import chips, published, timing, tree
from rn50.results.parse import ResultLog, epoch_number, finite
from rn50.results.validity.clock_rules import CLOCK_SKEW_MS, COURSE

OFF_CLOCK = 0.005
"""A run stands out if the images/s that its log states differ by more than this fraction from those of its
time stamps. In published logs the difference is 0.0028 at most."""
FASTER = 0.04
"""A run stands out if its time per epoch is below the median of its set by more than this fraction. In
published sets it is 0.036 at most."""
MADE_UP = 20.0
"""Likelihood ratio above which a set stands out because a run is shorter than usual, and the gap after it
longer by as much: its times may be made up."""
DEVIATIONS_FASTER = 4.0
"""A set stands out if its images/s are above the predicted ones by more than so many standard deviations."""

# Results -> model. It is cached, because all sets that are not published are compared with the same results.
_model_of = functools.lru_cache(maxsize=8)(ThroughputModel)


def order(runs: RunSet) -> Evidence:
    """Test "order": look for a record of an epoch or evaluation whose time is not between run_start and
    run_stop, or is earlier than that of a record above it."""
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


def stated(runs: RunSet) -> Evidence:
    """Test "clock": compare the images/s that the logs state of each epoch with their time stamps. Not
    possible if they state none."""
    excesses = [(ratio - 1, log.path.name) for log in runs.logs if (ratio := stated_over_clock(log))]
    if not excesses:
        return not_tested("clock", "no log states the images/s of three epochs")
    excess, name = max(excesses, key=lambda pair: abs(pair[0]))
    if abs(excess) <= OFF_CLOCK:
        return Evidence("clock", False, "the images/s that the logs state are those of the clock", excess)
    percent = f"{abs(excess):.1%}" if abs(excess) < 10 else "over ten times"
    off = sum(abs(other) > OFF_CLOCK for other, _ in excesses)
    text = f"{name} states {percent} {'more' if excess > 0 else 'fewer'} images/s than its time stamps give"
    if len(runs.logs) > 1:
        text = f"{off} of {len(runs.logs)} logs differ from their time stamps; most of all {text}"
    return Evidence("clock", True, text, excess)


def stated_over_clock(log: ResultLog) -> float | None:
    """Return the images/s that a log states after an epoch, divided by those of its time stamps: the median
    over the epochs. None for a log that states them after fewer than three epochs."""
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


def pace(runs: RunSet) -> Evidence:
    """Test "pace": look for a run that is much faster per epoch than the others, and for a run that is
    shorter by just what the gap after it is longer. Not possible for fewer than four runs, for a log without
    epochs, and for runs that are not of the benchmark, because these may share a machine."""
    minutes = []  # minutes per epoch of each run; 0 if its log does not tell
    for log in runs.logs:
        last_epoch = log.evaluations[-1].epoch if log.evaluations else 0.0
        minutes.append((log.minutes or 0.0) / last_epoch if last_epoch >= 1 else 0.0)
    if runs.label:
        return not_tested("pace", NOT_OF_BENCHMARK)
    if len(minutes) < 4 or not all(minutes):
        return not_tested("pace", "fewer than 4 runs" if all(minutes) else "a log has no evaluation")
    fastest = min(minutes)
    name = runs.logs[minutes.index(fastest)].path.name
    faster = 1 - fastest / statistics.median(minutes)
    if faster > FASTER:
        text = f"{name} takes {faster:.1%} less time per epoch than the others"
        return Evidence("pace", True, text, faster)
    if made_up := _made_up(runs):
        ratio, text = made_up
        return Evidence("pace", True, text, faster, 1 / ratio)
    return Evidence("pace", False, f"the fastest, {name}, takes {faster:.1%} less time per epoch", faster)


def _made_up(runs: RunSet) -> tuple[float, str] | None:
    """Look for a log whose times were shortened while those of the next run were left as they were, so that
    the gap between them grew. Return (likelihood ratio of such a log to an honest one, sentence) for the run
    with the highest ratio; None if the ratio is at most ``MADE_UP``."""
    if not runs.gaps or min(runs.gaps) < 0:
        return None
    # All in lengths of a run. An honest gap has a standard deviation of 5 % about the usual gap, but at least
    # of 0.002.
    lengths = [(end - begin) / runs.length for begin, end in runs.spans]
    usual = statistics.median(runs.gaps)
    deviation = max(0.002, 0.05 * usual)
    best = 0.0, ""  # ratio and sentence
    # Not ``strict``: the last run has no gap after it, and is not tested.
    for length, gap, log in zip(lengths, runs.gaps, runs.logs, strict=False):
        shorter, longer = 1 - length, gap - usual
        # Logarithm of the ratio of two normal densities of the gap: with the mean usual + shorter, and with
        # the mean usual.
        exponent = ((longer / deviation) ** 2 - ((longer - shorter) / deviation) ** 2) / 2
        if shorter > 0.005 and abs(longer - shorter) < 3 * deviation:
            text = f"{log.path.name} is {shorter:.1%} shorter, and the gap after it longer by as much"
            best = max(best, (ratio_of(exponent), text))
    return best if best[0] > MADE_UP else None


def hardware(runs: RunSet) -> Evidence:
    """Test "hardware": compare the images/s per accelerator with those that other published results predict.
    Not possible if the system is not described, the logs do not suffice, or the runs are not of the closed
    division."""
    place, number, batch_size = tree.place(runs.folder), tree.accelerators(runs.folder), runs.batch_size
    model = str(tree.described(runs.folder).get("accelerator_model_name", ""))
    rates = [_rate(log, number) for log in runs.logs if number]
    if runs.not_closed:
        return not_tested("hardware", runs.not_closed)
    if not (place and number and model):
        return not_tested("hardware", "no description of the system")
    if not batch_size or not all(rates):
        return not_tested("hardware", "a log lacks its batch size or its images/s")
    measured = statistics.median(rate for rate in rates if rate)
    system = f"{place.organisation.name}/{place.system}".lower()
    # The results of other systems. The same runs may be published under another name: leave them out too.
    others = [result for result in published.distinct("lars") if images_per_second.system(result) != system]
    model_of_others = _model_of(tuple(result for result in others if not runs.are_of(result)))
    name = chips.name(model)
    if name not in model_of_others.accelerators:
        return not_tested("hardware", f"nobody else published {excerpt(name)}")
    conditions = Conditions(name, number, batch_size / number)
    rate, spread = model_of_others.predict(conditions)
    # Standard deviation of the logarithm: that of the prediction, and 0.03 besides.
    deviations = math.log(measured / rate) / math.hypot(spread, 0.03)
    text = f"{measured:,.0f} images/s per accelerator, {rate:,.0f} predicted from others"
    if (ours := own_rates.find(conditions)) and not ours.path.is_relative_to(runs.folder.resolve()):
        text += f"; this code, measured: {ours.words}"
    # Probability of so many standard deviations or more, in a normal distribution.
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
