"""Compute the energy of a run from its power logs, one per node, and check these logs: ``judge``.

The power logs of result_N.txt are power/result_N/node_M.txt beside it, as in the MLPerf rounds. They have the
format that the result_summarizer of mlperf_logging reads: ``:::MLLOG`` records power_measurement_start,
power_reading and power_measurement_stop, with times in milliseconds of the node's clock. A power_reading is
the mean power in watts since the record before it. All readings are multiplied by the value of the record
conversion_eff, if there is one.
"""

import itertools
import pathlib
import re
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rn50.benchmark import rules
from rn50.errors import UserError, excerpt
from rn50.machine.power import LARGEST_WATTS
from rn50.printed import Share, Tenths
from rn50.results import sidecar, tree
from rn50.results.parse import ResultLog, finite, read_log
from rn50.results.validity.findings import ERROR, WARNING, Finding

START, READING, STOP = "power_measurement_start", "power_reading", "power_measurement_stop"
SOURCES, LEFT_OUT = "sources", "not_included"
"""Metadata keys of ``START`` in our logs: the sensors that were read, and the parts that they do not
cover."""
GPU_WATTS = 10.0, 2_500.0
"""Smallest mean power and highest reading that are possible for a GPU that trains, in watts. Idle, a T4 takes
9 W and an H200 79 W."""
NODE_WATTS = 1.0, 5_000.0
"""Smallest mean power that is possible for a node, and highest reading at the wall socket that is possible
for each accelerator of a node, or for a node without accelerators, in watts."""
UNKNOWN_PARTS = 16
"""Number of accelerators by which the highest possible reading of a node is computed if the number is not
known."""
WINDOW, DISTINCT = 20, 12
"""Two logs are copies if they have ``WINDOW`` consecutive ratios of readings in common, of which at least
``DISTINCT`` differ from each other."""
RULE = "a power log has a reading each second from before run_start to after run_stop"
"""Rule of the findings on one power log."""
_MEASURE_AGAIN = "measure again, and let the meter run longer than the run"
SAME_METERS = "the energy of every run of a result is measured, of all its nodes and by the same meters"
"""Rule of the findings on a run whose power logs contradict the other runs."""
_OWN_LOGS = "put the power logs of this run beside it, or measure all runs again, or leave all power logs out"


class Energy(NamedTuple):
    """Energy of a run from run_start to run_stop, as far as it was measured."""

    kilojoules: Tenths
    """Energy from run_start to run_stop."""
    joules_an_image: Share
    """Energy per training image."""
    images_per_joule: Share
    """Training images per joule, which is images/s per watt."""
    mean_watts: Tenths
    """Mean power of all nodes together."""
    peak_watts: Tenths
    """Sum of the highest readings of the nodes."""
    nodes: int
    """Number of nodes with a power log."""
    not_included: str
    """Parts of the system that the readings do not cover, as far as the logs say; empty: the logs do not
    say."""

    @property
    def sentence(self) -> str:
        """Return the energy in words."""
        left_out = f"; not in it: {self.not_included}" if self.not_included else ""
        return (
            f"energy {self.kilojoules:,.1f} kJ, {self.joules_an_image:.3g} J an image, "
            f"{self.images_per_joule:.3g} images/s a watt; mean {self.mean_watts:,.0f} W, peak "
            f"{self.peak_watts:,.0f} W{left_out}"
        )


class PowerLog(NamedTuple):
    """The power log of a node, for one run."""

    path: pathlib.Path
    begin_ms: int
    """Time of power_measurement_start."""
    end_ms: int
    """Time of power_measurement_stop, or of the last reading if that record is missing."""
    readings: Sequence[tuple[int, float]]
    """(time in ms, mean watts from the reading before until this time), in the order of time."""
    sources: str
    """Names of the sensors that were read; empty: not known."""
    not_included: str
    """Parts of the node that the sensors do not cover; empty: not known."""
    factor: float
    """Value of conversion_eff, by which ``readings`` have been multiplied; 1 without that record."""

    @property
    def intervals(self) -> list[tuple[int, int, float]]:
        """(begin in ms, end in ms, watts) of each reading."""
        begins = [self.begin_ms, *(end for end, _ in self.readings)]
        return [(begin, end, watts) for begin, (end, watts) in zip(begins, self.readings, strict=False)]

    def within(self, begin_ms: int, end_ms: int) -> tuple[float, float]:
        """Return the mean power and the highest reading between two times, in watts; without a reading 0 for
        both."""
        durations = [(min(end, end_ms) - max(begin, begin_ms), watts) for begin, end, watts in self.intervals]
        inside = [(duration, watts) for duration, watts in durations if duration > 0] or [(1, 0.0)]
        mean = sum(duration * watts for duration, watts in inside) / sum(duration for duration, _ in inside)
        return mean, max(watts for _, watts in inside)

    def windows(self, step: int) -> Iterator[tuple[float, ...]]:
        """Yield windows of ``WINDOW`` consecutive ratios of each reading to the one before; one begins at
        every ``step``-th ratio. They tell copies: even a copy with scaled readings has the original's ratios.
        Windows with fewer than ``DISTINCT`` different ratios are left out, because two measurements may have
        them in common."""
        pairs = itertools.pairwise(watts for _, watts in self.readings)
        ratios = [round(after / before, 4) if before else 0.0 for before, after in pairs]
        windows = (tuple(ratios[first : first + WINDOW]) for first in range(0, len(ratios), step))
        return (window for window in windows if len(set(window)) >= DISTINCT)


def file_of(log: pathlib.Path, node: object) -> pathlib.Path:
    """Return the path of the power log of a node, by its number, for the run of a result file."""
    return log.parent / "power" / log.stem / f"node_{node}.txt"


def files_of(log: pathlib.Path) -> list[pathlib.Path]:
    """Return the paths of the power logs that exist for the run of a result file."""
    return sorted(file_of(log, "").parent.glob("node_*.txt"))


def read(path: pathlib.Path) -> tuple[PowerLog | None, list[Finding]]:
    """Read the file of a power log. Return it, and findings where it breaks the format. The power log is None
    if no energy can be computed from it."""
    try:
        logged = read_log(path)
    except UserError as error:
        return None, [_fault(path, None, error.problem)]
    faults = [_fault(path, None, text) for text in logged.findings]
    start, stop = logged.first(START), logged.first(STOP)
    for key in (START, STOP):
        if (number := len(logged.by_key.get(key, ()))) != 1:
            faults.append(_fault(path, None, f"{number or 'no'} record {key}, not one"))
    if start and stop and stop.time_ms <= start.time_ms:
        faults.append(_fault(path, stop.line, f"{STOP} is not later than {START}"))
    if READING not in logged.by_key:
        faults.append(_fault(path, None, f"no record {READING}"))
    readings: list[tuple[int, float]] = []
    for event in logged.by_key.get(READING, ()):
        watts = finite(event.value)
        if watts is None or not 0 <= watts <= LARGEST_WATTS:
            faults.append(_fault(path, event.line, f"a reading of {event.value!r} W is not a power"))
        else:
            readings.append((event.time_ms, watts))
    if [end for end, _ in readings] != sorted(end for end, _ in readings):
        faults.append(_fault(path, None, "its readings are not in the order of time"))
    factors = [event.value for event in logged.by_key.get("conversion_eff", ())]
    factor = finite(factors[0]) if factors else 1.0
    if factor is None or not 0.5 <= factor <= 2 or len(factors) > 1:
        text = excerpt(", ".join(map(repr, factors)))
        return None, [*faults, _fault(path, None, f"conversion_eff {text} is not a factor from 0.5 to 2")]
    if not start or not readings:
        return None, faults
    ordered = sorted((end, watts * factor) for end, watts in readings)
    end_ms = stop.time_ms if stop else ordered[-1][0]
    sources, left_out = (excerpt(str(start.metadata.get(name, ""))) for name in (SOURCES, LEFT_OUT))
    return PowerLog(path, start.time_ms, end_ms, ordered, sources, left_out, factor), faults


def judge(logs: Sequence[ResultLog]) -> tuple[list[Energy | None], list[Finding]]:
    """Return the energy of each run of a result, and findings on the power logs. An energy is None if the run
    has no power log or an error in one. A power log is judged by its format, by the times and the machine of
    its run, and by the power logs of the other runs."""
    energies, findings = [], []
    most_files = max((len(files_of(log.path)) for log in logs), default=0)
    reference: list[str] = []  # the meters of the first run that has power logs, in words
    seen: dict[tuple[float, ...], pathlib.Path] = {}  # window of ratios -> power log that has it
    for log in logs:
        node_count, accelerators = _machine(log)
        files = [read(path) for path in files_of(log.path)]
        nodes = [node for node, _ in files if node]
        faults = [fault for _, format_faults in files for fault in format_faults]
        faults += [fault for node in nodes for fault in _by_run(node, accelerators, log)]
        meters = [f"'{node.sources}' without '{node.not_included}', times {node.factor:g}" for node in nodes]
        reference = reference or meters
        counted = f"{len(files)} power logs, and"
        # A run whose number of nodes is not known may have as many power logs as any other run.
        conflicts = [
            f"{counted} another run has {most_files}" if len(files) < most_files else "",
            f"{counted} the run has {node_count} nodes" if len(files) > (node_count or most_files) else "",
            f"measured is {meters[0]}; of another run {reference[0]}" if {*meters} - {*reference} else "",
            *(_copied(node, seen) for node in nodes),
        ]
        faults += [Finding(ERROR, log.path, None, SAME_METERS, text, _OWN_LOGS) for text in conflicts if text]
        has_error = any(fault.severity == ERROR for fault in faults)
        energies.append(None if has_error else _energy(log, nodes, node_count or len(nodes)))
        findings += faults
    return energies, findings


def _copied(node: PowerLog, seen: dict[tuple[float, ...], pathlib.Path]) -> str:
    """Return a phrase that names the log of which ``node`` is a copy; "" if it is no copy. ``seen`` maps the
    windows of earlier logs to their logs; the windows of ``node`` are added. It is enough to add windows that
    do not overlap, because windows from every ratio of a later log are looked up."""
    other = next((seen[window] for window in node.windows(1) if window in seen), None)
    seen.update(dict.fromkeys(node.windows(WINDOW), node.path))
    return f"{node.path.name} has the readings of {other.parent.name}/{other.name}" if other else ""


def _energy(log: ResultLog, nodes: Sequence[PowerLog], node_count: int) -> Energy | None:
    """Return the energy of a run on ``node_count`` nodes, from the power logs ``nodes``. Return None if the
    run did not reach its target, its clock did not start and stop, or there is no power log."""
    images = (log.reached.epoch if log.reached else 0) * (log.epoch_samples or 0)
    begin, end = log.run_start_ms, log.run_stop_ms
    if not nodes or not images or begin is None or end is None:
        return None
    # Sums over the nodes of their mean power and of their highest reading.
    mean, peak = map(sum, zip(*(node.within(begin, end) for node in nodes), strict=True))
    absent = [f"{node_count - len(nodes)} of {node_count} nodes"] if len(nodes) < node_count else []
    left_out = "; ".join(filter(None, dict.fromkeys([*absent, *(node.not_included for node in nodes)])))
    joules = mean * (end - begin) / 1000
    return Energy(joules / 1000, joules / images, images / joules, mean, peak, len(nodes), left_out)


def mean_of(energies: Sequence[Energy | None]) -> Energy | None:
    """Return the mean of ``energies``, with the nodes and left-out parts of the first. Return None if one of
    them is None or there are none."""
    measured = [energy for energy in energies if energy]
    if not measured or len(measured) < len(energies):
        return None
    # The first five fields are numbers to average, from ``kilojoules`` to ``peak_watts``.
    means = map(statistics.mean, zip(*(energy[:5] for energy in measured), strict=True))
    return measured[0]._replace(**dict(zip(Energy._fields, means, strict=False)))


def _machine(log: ResultLog) -> tuple[int | None, int | None]:
    """Return the number of nodes and of accelerators per node, from the sidecar file of a run or from the
    description of its system; None for an unknown number."""
    nodes, accelerators = tree.counts(tree.described(log.path.parent)) or (None, None)
    run = sidecar.section(sidecar.read(log.path), "run")
    if "ranks_per_node" in run:
        nodes = run.get("nodes")
        accelerators = run["ranks_per_node"] if run.get("device") == "gpu" else 0
    return nodes, accelerators


def _impossible(node: PowerLog, accelerators: int | None, begin: int, end: int) -> str:
    """Return why the readings of a run, from ``begin`` to ``end`` in ms, cannot come from its node; "" if
    they can. ``accelerators`` is the number of the node's accelerators; None if it is not known."""
    # ``sources`` is like "GPU 0, GPU 1, package-0, dram" for sensors, or has the name of a meter.
    gpus = len(re.findall(r"\bGPU \d", node.sources))
    processors = re.search("package|dram", node.sources)
    # How many GPUs add to the readings: none if only processors have a sensor, else all accelerators. If
    # their number is not known, count the GPUs with a sensor.
    training_gpus = gpus if accelerators is None or (processors and not gpus) else accelerators
    least = max(NODE_WATTS[0], GPU_WATTS[0] * training_gpus)
    parts = UNKNOWN_PARTS if accelerators is None else max(1, accelerators)
    # Sensors of GPUs alone do not measure the rest of the node.
    most = GPU_WATTS[1] * gpus if gpus and not processors else NODE_WATTS[1] * parts
    mean, peak = node.within(begin, end)
    if mean < least:
        return f"a mean of {mean:,.3g} W, where at least {least:,.0f} W are possible"
    return f"a reading of {peak:,.0f} W, where at most {most:,.0f} W are possible" if peak > most else ""


def _uncovered(node: PowerLog, begin: int, end: int) -> str:
    """Return a phrase on the part of a run, from ``begin`` to ``end`` in ms, that its power log does not
    cover. Return "" if at most two intervals between readings are missing at each end of the run."""
    last = min(node.end_ms, node.readings[-1][0])
    usual = statistics.median(later - earlier for earlier, later, _ in node.intervals)
    most = 2 * max(1000 * rules.POWER_INTERVAL_S, usual)
    if node.end_ms <= begin or node.begin_ms >= end:
        where = "before" if begin > node.begin_ms else "after"
        return f"it lies {abs(begin - node.begin_ms) / 1000:,.0f} s {where} the run: the clocks are apart"
    if node.begin_ms - begin > most:
        return f"it begins {(node.begin_ms - begin) / 1000:,.1f} s after run_start"
    return f"it ends {(end - last) / 1000:,.1f} s before run_stop" if end - last > most else ""


def _by_run(node: PowerLog, accelerators: int | None, log: ResultLog) -> Iterator[Finding]:
    """Yield findings on a power log that does not fit the times or the machine of its run."""
    begin, end = log.run_start_ms, log.run_stop_ms
    if begin is None or end is None:
        return
    if error := _uncovered(node, begin, end) or _impossible(node, accelerators, begin, end):
        yield _fault(node.path, None, error)
        return
    readings = sum(begin <= time_ms <= end for time_ms, _ in node.readings)
    if readings < rules.POWER_READINGS:
        text = f"{readings} readings in the run, and the rules want {rules.POWER_READINGS}"
        yield _fault(node.path, None, text, WARNING)
    # Seconds between two readings in the run. The first interval is left out: it begins without a reading.
    gaps = [(last - first) / 1000 for first, last, _ in node.intervals[1:] if last > begin and first < end]
    usual, longest = statistics.median(gaps or [0.0]), max(gaps, default=0.0)
    if usual > rules.POWER_INTERVAL_S * 1.05:
        yield _fault(node.path, None, f"a reading each {usual:.1f} s", WARNING)
    if longest > max(2 * usual, 2 * rules.POWER_INTERVAL_S):
        yield _fault(node.path, None, f"a hole of {longest:.1f} s between two readings", WARNING)


def _fault(path: pathlib.Path, line: int | None, text: str, severity: str = ERROR) -> Finding:
    return Finding(severity, path, line, RULE, text, _MEASURE_AGAIN)
