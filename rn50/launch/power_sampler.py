"""Measure the power of this machine during a run, in a process of its own. POWER selects the power meter.

``job.py`` runs the ranks inside ``running``, which starts ``main`` as a process before the ranks and ends it
after them. ``main`` writes the power log of this machine, in the format of ``rn50.results.power``.
"""

import contextlib
import json
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from subprocess import PIPE
from typing import Any

from rn50 import files
from rn50.errors import UserError
from rn50.machine import power
from rn50.machine.power import FILE, PowerMeter
from rn50.process import ask_to_end_with_parent, python
from rn50.results.parse import TOKEN
from rn50.results.power import LEFT_OUT, READING, SOURCES, START, STOP, file_of
from rn50.run.clock import now_ms
from rn50.settings.config import Config
from rn50.terminal import counted, say

INTERVAL_S = 0.5
"""Time between two readings. The rules allow a second (``rules.POWER_INTERVAL_S``)."""
READY_S = 20
"""Time limit for writing the log once the run has ended."""


@contextlib.contextmanager
def running(config: Config, log: pathlib.Path | None) -> Iterator[None]:
    """Measure power in this context, unless POWER is off, the run has no result log, or this is not the first
    process on its machine. The power log is written beside the result log ``log``.

    Raises UserError before the body of the context runs if power cannot be measured; with POWER=auto it only
    prints the reason.
    """
    environ, source = config.environ(), config.run.power
    # Under srun ``job.py`` runs once for each rank. Only the first one on a machine measures.
    is_first_on_machine = environ.get("SLURM_LOCALID", "0") == "0"
    # If power cannot be measured, this raises UserError, or returns the reason if POWER is auto.
    impossible = power.refuse_impossible(source) if is_first_on_machine else ""
    if impossible:
        say(f"POWER={source}: {impossible}", err=True)
    if source == "off" or log is None or not is_first_on_machine or impossible:
        yield
        return
    file = file_of(log, environ.get("SLURM_NODEID", "0"))
    files.make_folder(file.parent, "name another RESULT_FILE, or set POWER=off")
    file.unlink(missing_ok=True)  # left by a run that ended without a log
    command = python("-m", "rn50.launch.power_sampler", source, str(file))
    with subprocess.Popen(command, env=environ, stdout=PIPE, preexec_fn=ask_to_end_with_parent()) as sampler:
        assert sampler.stdout is not None
        sampler.stdout.readline()  # wait for "ready", or for its end if it cannot begin
        try:
            yield
        finally:
            sampler.terminate()
            try:
                sampler.wait(READY_S)
            except subprocess.TimeoutExpired:
                sampler.kill()
                problem = f"no end in {READY_S} s; the power of this run is not known"
                say(f"rn50: POWER={source}: {problem}", err=True)


def main(source: str, file: pathlib.Path) -> None:
    """Measure until SIGTERM, then write the power log ``file``. ``source`` is the value of POWER. Counters of
    this machine are read every ``INTERVAL_S``. A meter's file, which the meter extends during the run, is
    read once at the end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # sigtimedwait receives it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the launcher ends the run, and then this process
    lines: list[str] = []
    meter: PowerMeter | None = None
    if source.startswith(FILE):
        path, _ = power.meter_file(source)  # _: milliseconds by which the meter's clock is ahead
        size = path.stat().st_size
        about = {SOURCES: "a meter", "file": path.name, LEFT_OUT: ""}
    else:
        readable, _ = power.counters(source)  # _: reasons why others cannot be read
        about = {SOURCES: ", ".join(counter.part for counter in readable), LEFT_OUT: power.left_out(readable)}
        about["watts_from"] = power.kinds(readable)
        meter = PowerMeter(readable)
    begin_ms = now_ms()
    # ``running`` waits for this line. The ranks start when it comes.
    print("ready", flush=True)
    try:
        stop_signal = None
        while not stop_signal:
            stop_signal = signal.sigtimedwait([signal.SIGTERM], INTERVAL_S)
            if meter:
                lines.append(_record(READING, meter.watts(), now_ms()))
        end_ms = now_ms()
        if not meter:
            # The first ``size`` bytes were in the file before the run, so read from there on.
            readings, other_lines = power.read_meter(source, size)
            end_ms = now_ms()
            lines = [_record(READING, watts, ms) for ms, watts in readings if begin_ms <= ms <= end_ms]
            outcome = f"{counted(len(lines), 'reading')} in this run, {counted(other_lines, 'other line')}"
            say(f"POWER={source}: {outcome}", err=True)
        lines.append(_record(STOP, None, end_ms))
    except (OSError, UserError) as error:
        say(f"rn50: POWER={source}: {error}; the power of this run is not known", err=True)
    content = "\n".join([_record(START, None, begin_ms, about), *lines])
    try:
        files.write(file, content + "\n", files.ANY, "free the disk and run again")
    except UserError as error:
        say(f"rn50: {error}; the power of this run is lost", err=True)


def _record(key: str, value: Any, time_ms: int, metadata: Mapping[str, str] | None = None) -> str:
    """Return a line of a power log; ``value`` is in watts."""
    kind = {START: "INTERVAL_START", STOP: "INTERVAL_END"}.get(key, "POINT_IN_TIME")
    rounded = None if value is None else round(value, 3)
    fields = {"namespace": "", "time_ms": time_ms, "event_type": kind, "key": key, "value": rounded}
    return f"{TOKEN} {json.dumps({**fields, 'metadata': metadata or {}})}"


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
