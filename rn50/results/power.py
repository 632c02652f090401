"""Energy of a run from its power logs: power/result_N/node_M.txt beside result_N.txt, as in the rounds.

Format: ``:::MLLOG`` records power_measurement_start, power_reading (watts, of the time since the record
before) and power_measurement_stop, in ms of the node's clock (mlperf_logging, result_summarizer). A record
conversion_eff is a factor of all readings.
"""

import pathlib
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.printed import Share, Tenths
from rn50.results import parse
from rn50.results.parse import ResultLog, finite
from rn50.results.validity.findings import ERROR, WARNING, Finding

START, READING, STOP = "power_measurement_start", "power_reading", "power_measurement_stop"
SOURCES, LEFT_OUT = "sources", "not_included"
"""Metadata of ``START`` in our logs: what was read, and what is not in it."""
LARGEST_WATTS = 10_000_000.0
RULE = "a power log has a reading each second from before run_start to after run_stop"
_AGAIN = "measure again, and let the meter run longer than the run"


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
    not_included: str

    @property
    def spans(self) -> list[tuple[int, int, float]]:
        """(begin, end, watts) of each reading."""
        begins = [self.begin_ms, *(end for end, _ in self.readings)]
        return [(begin, end, watts) for begin, (end, watts) in zip(begins, self.readings, strict=False)]

    def joules(self, begin_ms: int, end_ms: int) -> float:
        """Return the energy between two times: the mean power of the readings between them, times that
        time."""
        inside = [
            (max(0, min(end, end_ms) - max(begin, begin_ms)), watts) for begin, end, watts in self.spans
        ]
        covered = sum(span for span, _ in inside)
        summed = sum(span * watts for span, watts in inside)
        return summed / covered * (end_ms - begin_ms) / 1000 if covered else 0.0


def files_of(log: pathlib.Path) -> list[pathlib.Path]:
    """Return the power logs of a run's log."""
    folder = log.parent / "power" / log.stem
    return sorted(folder.glob("node_*.txt")) if folder.is_dir() else []


def read(path: pathlib.Path) -> tuple[PowerLog | None, list[Finding]]:
    """Return a power log, None if it cannot be read or has no energy, and what breaks its form."""
    try:
        logged = parse.read_log(path)
    except UserError as error:
        return None, [_fault(path, None, error.problem)]
    faults = [_fault(path, None, text) for text in logged.findings]
    start, stop = logged.first(START), logged.first(STOP)
    for key in (START, STOP):
        number = len(logged.by_key.get(key, ()))
        if number != 1:
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
    if factor is None or not 0 < factor <= 10:
        faults.append(_fault(path, None, f"conversion_eff {factors[0]!r} is not a factor"))
    if not start or not readings or not factor:
        return None, faults
    ordered = sorted((end, watts * factor) for end, watts in readings)
    end_ms = stop.time_ms if stop else ordered[-1][0]
    return PowerLog(path, start.time_ms, end_ms, ordered, str(start.metadata.get(LEFT_OUT, ""))), faults


def energy(log: ResultLog) -> Energy | None:
    """Return the energy of a run, None without power logs, or if one of them does not cover the run."""
    begin, end = log.run_start_ms, log.run_stop_ms
    nodes = [read(path) for path in files_of(log.path)]
    if not nodes or begin is None or end is None or end <= begin:
        return None
    read_logs = [node for node, _ in nodes if node is not None]
    if len(read_logs) < len(nodes) or any(_uncovered(node, begin, end) for node in read_logs):
        return None
    of_nodes = [node.joules(begin, end) for node in read_logs]
    joules = sum(of_nodes)
    images = (log.reached.epoch if log.reached else 0) * (log.epoch_samples or 0)
    if not all(of_nodes) or not images:
        return None
    peak = sum(max(watts for at, watts in node.readings if begin < at) for node in read_logs)
    left_out = "; ".join(dict.fromkeys(node.not_included for node in read_logs if node.not_included))
    mean = joules * 1000 / (end - begin)
    return Energy(joules / 1000, joules / images, images / joules, mean, peak, len(nodes), left_out)


def mean_of(energies: Sequence[Energy | None]) -> Energy | None:
    """Return the mean energy of the runs that count, None if one of them was not measured."""
    measured = [energy for energy in energies if energy]
    if not measured or len(measured) < len(energies):
        return None
    means = map(statistics.mean, zip(*(energy[:5] for energy in measured), strict=True))
    return measured[0]._replace(**dict(zip(Energy._fields, means, strict=False)))


def findings(logs: Iterable[ResultLog]) -> Iterator[Finding]:
    """Yield what is wrong with the power logs of runs."""
    measured = {log.path: files_of(log.path) for log in logs}
    most = max(map(len, measured.values()), default=0)
    for log in logs:
        paths = measured[log.path]
        if len(paths) < most:
            yield _fault(log.path, None, f"{len(paths)} power logs, and another run has {most}")
        for path in paths:
            node, faults = read(path)
            yield from faults
            if node is not None and log.run_start_ms is not None and log.run_stop_ms is not None:
                yield from _of_run(node, log.run_start_ms, log.run_stop_ms)


def _uncovered(node: PowerLog, begin: int, end: int) -> str:
    """Return which part of the run a power log does not cover, empty if that is at most two intervals."""
    last = min(node.end_ms, node.readings[-1][0])
    usual = statistics.median(later - earlier for earlier, later, _ in node.spans)
    most = 2 * max(1000 * rules.POWER_INTERVAL_S, usual)
    if node.end_ms <= begin or node.begin_ms >= end:
        apart = (begin - node.begin_ms) / 1000
        return (
            f"it lies {abs(apart):,.0f} s {'before' if apart > 0 else 'after'} the run: the clocks are apart"
        )
    if node.begin_ms - begin > most:
        return f"it begins {(node.begin_ms - begin) / 1000:,.1f} s after run_start"
    if end - last > most:
        return f"it ends {(end - last) / 1000:,.1f} s before run_stop"
    return ""


def _of_run(node: PowerLog, begin: int, end: int) -> Iterator[Finding]:
    uncovered = _uncovered(node, begin, end)
    if uncovered:
        yield _fault(node.path, None, uncovered)
        return
    inside = [at for at, _ in node.readings if begin <= at <= end]
    if len(inside) < rules.POWER_READINGS:
        text = f"{len(inside)} readings in the run, and the rules want {rules.POWER_READINGS}"
        yield _fault(node.path, None, text, WARNING)
    between = node.spans[1:]
    gaps = [(later - earlier) / 1000 for earlier, later, _ in between if later > begin and earlier < end]
    if not gaps:
        return
    usual, longest = statistics.median(gaps), max(gaps)
    if usual > rules.POWER_INTERVAL_S * 1.05:
        yield _fault(node.path, None, f"a reading each {usual:.1f} s", WARNING)
    if longest > max(2 * usual, 2 * rules.POWER_INTERVAL_S):
        yield _fault(node.path, None, f"a hole of {longest:.1f} s between two readings", WARNING)


def _fault(path: pathlib.Path, line: int | None, text: str, severity: str = ERROR) -> Finding:
    return Finding(severity, path, line, RULE, text, _AGAIN)
