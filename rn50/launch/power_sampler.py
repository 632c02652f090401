"""Measure power beside a run, in a process of its own: POWER.

It writes the power log of this machine (``rn50.results.power``) from before the ranks start until they have
ended, and never touches them.
"""

import contextlib
import csv
import json
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rn50 import files
from rn50.errors import UserError
from rn50.machine import power
from rn50.machine.power import Meter
from rn50.process import ask_to_end_with_parent, python
from rn50.results.parse import TOKEN
from rn50.results.power import LEFT_OUT, READING, SOURCES, START, STOP
from rn50.run.clock import now_ms
from rn50.settings.config import Config
from rn50.terminal import say

INTERVAL_S = 0.5
READY_S = 20
_FILE = "file:"


def refuse_impossible(config: Config) -> None:
    """Raise UserError if POWER names a source that cannot be read. With auto, that is only said."""
    how = config.run.power
    if how == "off":
        return
    if how.startswith(_FILE):
        path, _ = meter_file(how)
        files.open_regular(path, "name the file that the meter writes").close()
        return
    readable, reasons = power.counters(how)
    if not readable and how != "auto":
        raise UserError(f"POWER={how}", "; ".join(reasons), "set POWER=off")
    if not readable:
        say(f"POWER=auto: no power is measured: {'; '.join(reasons)}", err=True)


def meter_file(how: str) -> tuple[pathlib.Path, float]:
    """Return the file of ``file:PATH,SECONDS``, and the seconds by which the meter's clock is ahead."""
    path, comma, ahead = how.removeprefix(_FILE).rpartition(",")
    try:
        return (pathlib.Path(path), float(ahead)) if comma else (pathlib.Path(ahead), 0.0)
    except ValueError:
        return pathlib.Path(how.removeprefix(_FILE)), 0.0


@contextlib.contextmanager
def beside(config: Config, environ: Mapping[str, str], log: pathlib.Path | None) -> Iterator[None]:
    """Measure while the body runs, if POWER says so and this process is the first of its machine."""
    how, first = config.run.power, environ.get("SLURM_LOCALID", "0") == "0"
    if how == "off" or log is None or not first or not (how.startswith(_FILE) or power.counters(how)[0]):
        yield
        return
    file = log.parent / "power" / log.stem / f"node_{environ.get('SLURM_NODEID', '0')}.txt"
    sampler = subprocess.Popen(
        python("-m", "rn50.launch.power_sampler", how, str(file)),
        env=dict(environ),
        stdout=subprocess.PIPE,
        preexec_fn=ask_to_end_with_parent(),
    )
    assert sampler.stdout is not None
    sampler.stdout.readline()  # it has begun, or ended with a line of its own
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            sampler.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            sampler.wait(READY_S)
        sampler.stdout.close()


def main(how: str, file: pathlib.Path) -> None:
    """Write a power log until SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # it is waited for
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the launcher's, which then ends this
    lines: list[str] = []
    meter: Meter | None = None
    if how.startswith(_FILE):
        path, ahead = meter_file(how)
        about = {SOURCES: path.name, LEFT_OUT: ""}
    else:
        readable, _ = power.counters(how)
        about = {SOURCES: ", ".join(counter.part for counter in readable), LEFT_OUT: power.left_out(readable)}
        meter = Meter(readable)
    begun, problem = now_ms(), ""
    print("ready", flush=True)
    try:
        is_over = None
        while not is_over:
            is_over = signal.sigtimedwait([signal.SIGTERM], INTERVAL_S)
            if meter:
                lines.append(_record(READING, meter.watts(), now_ms()))
        if not meter:
            lines = [_record(READING, watts, at) for at, watts in _of_meter(path, ahead, begun, now_ms())]
    except OSError as error:
        problem = str(error)
    if problem:
        say(f"rn50: POWER={how}: {problem}; the power of this run is not known", err=True)
    ends = [] if problem else [_record(STOP, None, now_ms())]
    content = "\n".join([_record(START, None, begun, about), *lines, *ends])
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        files.write(file, content + "\n", files.ANY, "free the disk and run again")
    except (OSError, UserError) as error:
        say(f"rn50: {error}; the power of this run is lost", err=True)


def _record(key: str, value: Any, time_ms: int, metadata: Mapping[str, str] | None = None) -> str:
    kind = {START: "INTERVAL_START", STOP: "INTERVAL_END"}.get(key, "POINT_IN_TIME")
    value = round(value, 3) if value is not None else None
    fields = {"namespace": "", "time_ms": time_ms, "event_type": kind, "key": key, "value": value}
    return f"{TOKEN} {json.dumps({**fields, 'metadata': metadata or {}})}"


def _of_meter(path: pathlib.Path, ahead: float, begin: int, end: int) -> Iterator[tuple[int, float]]:
    """Yield time in ms of our clock and watts of a meter's CSV (columns time, in seconds since 1970, and
    watts), from ``begin`` to ``end``."""
    with open(path, newline="", encoding="utf-8", errors="replace") as stream:
        for row in csv.reader(stream):
            try:
                at, watts = round((float(row[0]) - ahead) * 1000), float(row[1])
            except (IndexError, ValueError):
                continue  # the heading, or a line that is being written
            if begin <= at <= end:
                yield at, watts


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
