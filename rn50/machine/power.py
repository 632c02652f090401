"""Meters of this machine's power: the energy counters of NVIDIA's GPUs (NVML) and of the processors (RAPL),
and the file of an external meter. POWER, a variable of the configuration, chooses among them.

``PowerMeter`` turns counters into watts. The power sampler of a run (``rn50/launch/power_sampler.py``) asks
it once a second, or reads the file of the external meter with ``read_meter``.
"""

import contextlib
import errno
import importlib
import os
import pathlib
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from rn50 import files, packages
from rn50.errors import UserError
from rn50.machine.sources import Sources

FILE = "file:"
"""Beginning of a POWER that names the file of an external meter: file:PATH or file:PATH,SECONDS."""
LARGEST_WATTS = 1e7
"""Power above which a reading must be a mistake."""
LAST_READING_S = 600
"""Most seconds between now and the last reading in a meter's file. A meter may write the readings of some
minutes at once."""

ZONES = "sys/class/powercap"
"""Folder in which Linux has a folder for each RAPL counter."""
ZONE = re.compile(r"intel-rapl:\d+(:\d+)?")
"""Name of the folder of a RAPL counter: intel-rapl:0 for a processor's package, intel-rapl:0:1 for a part of
it."""


class Counter(NamedTuple):
    """An energy counter, or a power reading of a device that does not count energy."""

    part: str
    """Part of the machine, such as "GPU 0", "package-0" or "dram"."""
    read: Callable[[], float]
    """Returns the joules counted so far, or the watts now. Raises OSError if the device cannot be read any
    more."""
    wraps_at: float | None = None
    """Joules at which the counter begins again from 0; None: it never does."""
    is_power: bool = False
    """True: a power reading; False: an energy counter."""


class PowerMeter:
    """A meter of the total power of several parts, from their ``counters``. ``now`` returns the time in
    seconds."""

    def __init__(self, counters: Sequence[Counter], now: Callable[[], float] = time.monotonic):
        self._counters, self._now = counters, now
        self._last_values = [counter.read() for counter in counters]
        self._last_time = now()

    def watts(self) -> float:
        """Return the mean power since the last call, or since the meter was made. A device with a power
        reading counts with the mean of two readings, the last one and a new one. Raises OSError if a counter
        cannot be read any more."""
        values, now = [counter.read() for counter in self._counters], self._now()
        seconds = max(now - self._last_time, 1e-9)  # never 0, by which it would be divided
        total = 0.0
        for counter, last, value in zip(self._counters, self._last_values, values, strict=True):
            # A value below the last one means that the counter has begun again from 0.
            wrapped = (counter.wraps_at or 0.0) if value < last else 0.0
            total += (last + value) / 2 if counter.is_power else (value - last + wrapped) / seconds
        self._last_values, self._last_time = values, now
        return total


def counters(source: str) -> tuple[list[Counter], list[str]]:
    """Return the counters that can be read for a POWER of "auto", "nvml" or "rapl", and the reasons why
    others cannot be read. Any other POWER has neither."""
    gpus, gpu_reason = nvml(_pynvml()) if source in ("auto", "nvml") else ([], "")
    processors, processor_reason = rapl(Sources()) if source in ("auto", "rapl") else ([], "")
    return gpus + processors, list(filter(None, [gpu_reason, processor_reason]))


def _pynvml() -> Any:
    """Return the module pynvml; None: it is not installed."""
    with contextlib.suppress(ImportError):
        return importlib.import_module("pynvml")
    return None


def rapl(sources: Sources) -> tuple[list[Counter], str]:
    """Return the counters of the processors and of the memory, and the reason if there are none."""
    counters: list[Counter] = []
    for zone in filter(ZONE.fullmatch, sources.names(ZONES)):
        name = sources.text(f"{ZONES}/{zone}/name")
        if not re.fullmatch(r"package-\d+|dram", name):
            continue
        file = sources.root / ZONES / zone / "energy_uj"
        wraps = sources.text(f"{ZONES}/{zone}/max_energy_range_uj")
        wraps_at = float(wraps) / 1e6 if wraps.isdigit() else None
        counters.append(Counter(name, partial(_joules, file), wraps_at))
        try:
            counters[-1].read()
        except OSError as error:
            return [], f"RAPL: {file}: {error.strerror}; only root may read it: sudo chmod a+r {file}"
    return counters, "" if counters else "RAPL: /sys/class/powercap has no package, as in a virtual machine"


def _joules(file: pathlib.Path) -> float:
    """Return the joules in the ``file`` of a RAPL counter, which has microjoules. Raises OSError."""
    try:
        return float(file.read_text()) / 1e6
    except ValueError:
        raise OSError(errno.EINVAL, "is not a number", str(file)) from None


def nvml(library: Any) -> tuple[list[Counter], str]:
    """Return a counter of each GPU, and the reason if there are none. ``library`` is the module pynvml, or
    None if it is not installed."""
    if library is None:
        return [], f"NVML: the package nvidia-ml-py is not installed: {packages.install('nvidia-ml-py')}"
    try:
        library.nvmlInit()
        handles = [library.nvmlDeviceGetHandleByIndex(i) for i in range(library.nvmlDeviceGetCount())]
        counters = [_gpu(library, number, handle) for number, handle in enumerate(handles)]
    except library.NVMLError as error:
        return [], f"NVML: {error}"
    return counters, "" if counters else "NVML: no GPU"


def _gpu(library: Any, number: int, handle: Any) -> Counter:
    """Return the energy counter of a GPU, or its power reading if it counts no energy, as GPUs before Volta.
    ``handle`` is the GPU's in NVML.

    The reading is the mean of a second on Ampere and newer, without A100 and A30, and of the instant on older
    GPUs (NVIDIA, NVML API Reference, nvmlDeviceGetPowerUsage).
    """

    def read(query: Callable[[Any], float]) -> float:
        try:
            return query(handle) / 1000  # from millijoules or milliwatts
        except library.NVMLError as error:
            raise OSError(f"GPU {number}: {error}") from None

    joules = partial(read, library.nvmlDeviceGetTotalEnergyConsumption)
    try:
        joules()
    except OSError:
        return Counter(f"GPU {number}", partial(read, library.nvmlDeviceGetPowerUsage), is_power=True)
    return Counter(f"GPU {number}", joules)


def kinds(counters: Sequence[Counter]) -> str:
    """Return in words where the watts of these counters come from."""
    sources = ("power readings" if counter.is_power else "energy counters" for counter in counters)
    return " and ".join(dict.fromkeys(sources))


def left_out(counters: Sequence[Counter]) -> str:
    """Return the parts of a machine that these counters do not measure, in words."""
    parts = {counter.part.rstrip("0123456789- ") for counter in counters}
    names = {"GPU": "GPUs", "package": "processors", "dram": "memory"}
    absent = [name for part, name in names.items() if part not in parts]
    return ", ".join([*absent, "disks, fans, power supplies and network"])


def refuse_impossible(source: str) -> str:
    """Raise UserError if power cannot be measured as POWER, ``source``, says: it names counters that cannot
    be read, or a meter's file without a reading of the last minutes.

    With POWER=auto return the reason instead. Return "" if power can be measured, and for POWER=off.
    """
    if not source.startswith(FILE):
        readable, reasons = counters(source)
        if not readable and source not in ("auto", "off"):
            raise UserError(f"POWER={source}", "; ".join(reasons), "set POWER=off")
        return f"no power is measured: {'; '.join(reasons)}" if reasons and not readable else ""
    readings, _ = read_meter(source, -(1 << 16))  # the last 64 KiB are enough for the last reading
    age_s = time.time() - max((time_ms for time_ms, _ in readings), default=0) / 1000
    if abs(age_s) <= LAST_READING_S:
        return ""
    # At most 13 digits: a file that is no meter's may hold any time.
    age = f"its last reading is {min(abs(age_s), 1e12):,.0f} s {'old' if age_s > 0 else 'ahead of now'}"
    problem = age if readings else "no reading at its end (time,watts with the time in seconds since 1970)"
    remedy = f"start the meter first; if its clock is ahead, {FILE}PATH,SECONDS says by how much"
    raise UserError(f"POWER={source}", problem, remedy)


def meter_file(source: str) -> tuple[pathlib.Path, int]:
    """Return the file that a POWER of file:PATH or file:PATH,SECONDS names, and the milliseconds by which the
    meter's clock is ahead of this machine's. A comma may also be a part of PATH."""
    name = source.removeprefix(FILE)
    path, _, ahead_s = name.rpartition(",")
    if path and not os.path.exists(name):
        with contextlib.suppress(ValueError, OverflowError):
            return pathlib.Path(path), round(float(ahead_s) * 1000)
    return pathlib.Path(name), 0


def read_meter(source: str, begin: int) -> tuple[list[tuple[int, float]], int]:
    """Return (milliseconds of this machine's clock, watts) for each reading in a meter's file from byte
    ``begin`` on, and the number of lines there that are not a reading.

    A negative ``begin`` counts from the end of the file; a shorter file is read whole. ``source`` is the
    POWER that names the file. Raises UserError if it is not a regular file.
    """
    path, ahead_ms = meter_file(source)
    with files.open_regular(path, "name the file that the meter writes") as stream:
        size = os.fstat(stream.fileno()).st_size
        begin = begin if begin >= 0 else size + begin
        if 0 < begin <= size:
            # Skip the rest of a line that begins before byte ``begin``.
            stream.seek(begin - 1)
            stream.readline()
        lines = stream.readlines()
    readings = [reading for line in lines if (reading := _reading(line, ahead_ms))]
    return readings, len(lines) - len(readings)


def _reading(line: bytes, ahead_ms: int) -> tuple[int, float] | None:
    """Return (milliseconds of this machine's clock, watts) in a line ``time,watts`` of a meter's file; None:
    the line is a heading, or not yet written in full."""
    with contextlib.suppress(ValueError, OverflowError):  # also for a time of NaN or infinity
        time_s, watts = map(float, line.replace(b'"', b"").split(b",")[:2])  # further columns are ignored
        if 0 <= watts <= LARGEST_WATTS:
            return round(time_s * 1000) - ahead_ms, watts
    return None
