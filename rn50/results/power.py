"""Energy of a run from its power logs: power/result_N/node_M.txt beside result_N.txt, as in the rounds.

Format: ``:::MLLOG`` records power_measurement_start, power_reading (watts, of the time since the record
before) and power_measurement_stop, in ms of the node's clock (mlperf_logging, result_summarizer). A record
conversion_eff is a factor of all readings.
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
"""Metadata of ``START`` in our logs: what was read, and what is not in it."""
GPU_WATTS = 10.0, 2_500.0
"""Least mean power and highest reading of a GPU that trains. Idle, a T4 takes 9 W and an H200 79."""
NODE_WATTS, UNKNOWN_PARTS = (1.0, 5_000.0), 16
"""Least mean power of a node; highest reading at the wall for each accelerator, of a node without one, or of
so many where their number is not known."""
WINDOW, DISTINCT = 20, 12
"""Readings that follow each other as in another log, and how many of these steps differ: it is a copy."""
RULE = "a power log has a reading each second from before run_start to after run_stop"
_AGAIN = "measure again, and let the meter run longer than the run"
SAME = "the energy of every run of a result is measured, of all its nodes and by the same meters"
_OWN = "put the power logs of this run beside it, or measure all runs again, or leave all power logs out"


class Energy(NamedTuple):
    """Energy of a run from run_start to run_stop, as far as it was measured."""

    kilojoules: Tenths
    """Energy to the target."""
    joules_an_image: Share
    """Energy a training image."""
    images_per_joule: Share
    """images/s a watt, which are images a joule."""
    mean_watts: Tenths
    """Mean power of all nodes together."""
    peak_watts: Tenths
    """Sum of the nodes' highest readings."""
    nodes: int
    """Nodes with a power log."""
    not_included: str
    """Parts that the readings leave out, as far as the logs tell; empty: not told."""

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
    """A node's power log."""

    path: pathlib.Path
    begin_ms: int
    end_ms: int
    readings: Sequence[tuple[int, float]]
    """(end of the interval in ms, watts in it), in the order of time."""
    sources: str
    not_included: str
    factor: float

    @property
    def spans(self) -> list[tuple[int, int, float]]:
        """(begin, end, watts) of each reading."""
        begins = [self.begin_ms, *(end for end, _ in self.readings)]
        return [(begin, end, watts) for begin, (end, watts) in zip(begins, self.readings, strict=False)]

    def within(self, begin_ms: int, end_ms: int) -> tuple[float, float]:
        """Return mean and highest power of the readings between two times, 0 where there is none."""
        spans = [(min(end, end_ms) - max(begin, begin_ms), watts) for begin, end, watts in self.spans]
        inside = [(span, watts) for span, watts in spans if span > 0] or [(1, 0.0)]
        mean = sum(span * watts for span, watts in inside) / sum(span for span, _ in inside)
        return mean, max(watts for _, watts in inside)

    def windows(self, step: int) -> Iterator[tuple[float, ...]]:
        """Yield how readings follow each other, ``WINDOW`` of them at a time: the same if all are scaled."""
        pairs = itertools.pairwise(watts for _, watts in self.readings)
        ratios = [round(after / before, 4) if before else 0.0 for before, after in pairs]
        windows = (tuple(ratios[first : first + WINDOW]) for first in range(0, len(ratios), step))
        return (window for window in windows if len(set(window)) >= DISTINCT)


def file_of(log: pathlib.Path, node: object) -> pathlib.Path:
    """Return the path of a node's power log, beside a run's log."""
    return log.parent / "power" / log.stem / f"node_{node}.txt"


def files_of(log: pathlib.Path) -> list[pathlib.Path]:
    """Return the power logs of a run's log."""
    return sorted(file_of(log, "").parent.glob("node_*.txt"))


def read(path: pathlib.Path) -> tuple[PowerLog | None, list[Finding]]:
    """Return a power log, None if it cannot be read or has no energy, and what breaks its form."""
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
    """Return the energy of each run of a result, None where it has no power log or an error in one, and what
    is wrong with the power logs: each by itself, by its run, and by those before."""
    energies, findings = [], []
    most = max((len(files_of(log.path)) for log in logs), default=0)
    first: list[str] = []
    seen: dict[tuple[float, ...], pathlib.Path] = {}
    for log in logs:
        of_run, accelerators = _machine(log)
        files = [read(path) for path in files_of(log.path)]
        nodes, number = [node for node, _ in files if node], f"{len(files)} power logs, and"
        faults = [fault for _, of_form in files for fault in of_form]
        faults += [fault for node in nodes for fault in _of_run(node, accelerators, log)]
        about = [f"'{node.sources}' without '{node.not_included}', times {node.factor:g}" for node in nodes]
        first = first or about
        contradictions = [
            f"{number} another run has {most}" if len(files) < most else "",
            f"{number} the run has {of_run} nodes" if len(files) > (of_run or most) else "",
            f"measured is {about[0]}; of another run {first[0]}" if {*about} - {*first} else "",
            *(_copied(node, seen) for node in nodes),
        ]
        faults += [Finding(ERROR, log.path, None, SAME, text, _OWN) for text in contradictions if text]
        wrong = any(fault.severity == ERROR for fault in faults)
        energies.append(None if wrong else _energy(log, nodes, of_run or len(nodes)))
        findings += faults
    return energies, findings


def _copied(node: PowerLog, seen: dict[tuple[float, ...], pathlib.Path]) -> str:
    """Return of which log with windows in ``seen`` this one is a copy, empty if of none; add its own."""
    other = next((seen[window] for window in node.windows(1) if window in seen), None)
    seen.update(dict.fromkeys(node.windows(WINDOW), node.path))
    return f"{node.path.name} has the readings of {other.parent.name}/{other.name}" if other else ""


def _energy(log: ResultLog, nodes: Sequence[PowerLog], of_run: int) -> Energy | None:
    """Return the energy of a run that had ``of_run`` nodes, None if it has no end or no power log."""
    images = (log.reached.epoch if log.reached else 0) * (log.epoch_samples or 0)
    begin, end = log.run_start_ms, log.run_stop_ms
    if not nodes or not images or begin is None or end is None:
        return None
    mean, peak = map(sum, zip(*(node.within(begin, end) for node in nodes), strict=True))
    absent = [f"{of_run - len(nodes)} of {of_run} nodes"] if len(nodes) < of_run else []
    left_out = "; ".join(filter(None, dict.fromkeys([*absent, *(node.not_included for node in nodes)])))
    joules = mean * (end - begin) / 1000
    return Energy(joules / 1000, joules / images, images / joules, mean, peak, len(nodes), left_out)


def mean_of(energies: Sequence[Energy | None]) -> Energy | None:
    """Return the mean energy of the runs that count, None if one of them was not measured."""
    measured = [energy for energy in energies if energy]
    if not measured or len(measured) < len(energies):
        return None
    means = map(statistics.mean, zip(*(energy[:5] for energy in measured), strict=True))
    return measured[0]._replace(**dict(zip(Energy._fields, means, strict=False)))


def _machine(log: ResultLog) -> tuple[int | None, int | None]:
    """Return nodes and accelerators of a node, as a run or its description says."""
    nodes, accelerators = tree.counts(tree.described(log.path.parent)) or (None, None)
    run = sidecar.section(sidecar.read(log.path), "run")
    if "ranks_per_node" in run:
        nodes, accelerators = run.get("nodes"), run["ranks_per_node"] if run.get("device") == "gpu" else 0
    return nodes, accelerators


def _impossible(node: PowerLog, accelerators: int | None, begin: int, end: int) -> str:
    """Return why the readings of a run cannot be of its node, empty if they can."""
    named, others = len(re.findall(r"\bGPU \d", node.sources)), re.search("package|dram", node.sources)
    used = 0 if others and not named else named if accelerators is None else accelerators
    least = max(NODE_WATTS[0], GPU_WATTS[0] * used)
    most = NODE_WATTS[1] * (UNKNOWN_PARTS if accelerators is None else max(1, accelerators))
    most = GPU_WATTS[1] * named if named and not others else most
    mean, peak = node.within(begin, end)
    if mean < least:
        return f"a mean of {mean:,.3g} W, where at least {least:,.0f} W are possible"
    return f"a reading of {peak:,.0f} W, where at most {most:,.0f} W are possible" if peak > most else ""


def _uncovered(node: PowerLog, begin: int, end: int) -> str:
    """Return which part of the run a power log does not cover, empty if that is at most two intervals."""
    last = min(node.end_ms, node.readings[-1][0])
    usual = statistics.median(later - earlier for earlier, later, _ in node.spans)
    most = 2 * max(1000 * rules.POWER_INTERVAL_S, usual)
    if node.end_ms <= begin or node.begin_ms >= end:
        apart, side = (begin - node.begin_ms) / 1000, "before" if begin > node.begin_ms else "after"
        return f"it lies {abs(apart):,.0f} s {side} the run: the clocks are apart"
    if node.begin_ms - begin > most:
        return f"it begins {(node.begin_ms - begin) / 1000:,.1f} s after run_start"
    return f"it ends {(end - last) / 1000:,.1f} s before run_stop" if end - last > most else ""


def _of_run(node: PowerLog, accelerators: int | None, log: ResultLog) -> Iterator[Finding]:
    begin, end = log.run_start_ms, log.run_stop_ms
    if begin is None or end is None:
        return
    if wrong := _uncovered(node, begin, end) or _impossible(node, accelerators, begin, end):
        yield _fault(node.path, None, wrong)
        return
    inside = [at for at, _ in node.readings if begin <= at <= end]
    if len(inside) < rules.POWER_READINGS:
        text = f"{len(inside)} readings in the run, and the rules want {rules.POWER_READINGS}"
        yield _fault(node.path, None, text, WARNING)
    gaps = [(last - first) / 1000 for first, last, _ in node.spans[1:] if last > begin and first < end]
    usual, longest = statistics.median(gaps or [0.0]), max(gaps, default=0.0)
    if usual > rules.POWER_INTERVAL_S * 1.05:
        yield _fault(node.path, None, f"a reading each {usual:.1f} s", WARNING)
    if longest > max(2 * usual, 2 * rules.POWER_INTERVAL_S):
        yield _fault(node.path, None, f"a hole of {longest:.1f} s between two readings", WARNING)


def _fault(path: pathlib.Path, line: int | None, text: str, severity: str = ERROR) -> Finding:
    return Finding(severity, path, line, RULE, text, _AGAIN)
