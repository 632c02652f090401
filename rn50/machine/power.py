"""Meters of this machine's power: NVIDIA's GPUs (NVML), the processors' energy counters (RAPL), and the file
of an external meter."""

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
LARGEST_WATTS = 1e7
APART_S = 600
"""Most seconds between now and the last reading of a meter's file: it may write several at once."""
ZONES = "sys/class/powercap"
ZONE = re.compile(r"intel-rapl:\d+(:\d+)?")


class Counter(NamedTuple):
    """One energy counter, or a power reading where the device has none."""

    part: str
    read: Callable[[], float]
    """Joules counted so far, or watts now. Raises OSError if it cannot be read any more."""
    wraps_at: float | None = None
    """Joules at which it begins again from 0; None: never."""
    is_power: bool = False


class PowerMeter:
    """Counters that are read together. ``watts`` is their mean power since the call before."""

    def __init__(self, counters: Sequence[Counter], now: Callable[[], float] = time.monotonic):
        self._counters, self._now = counters, now
        self._last = [counter.read() for counter in counters]
        self._at = now()

    def watts(self) -> float:
        """Return the mean power since the last call, of readings of power half of now's and half of the last
        one's. Raises OSError if a part vanishes."""
        values, at = [counter.read() for counter in self._counters], self._now()
        total = 0.0
        for counter, before, value in zip(self._counters, self._last, values, strict=True):
            wrapped = counter.wraps_at or 0.0 if value < before else 0.0
            counted = (value - before + wrapped) / max(at - self._at, 1e-9)
            total += (before + value) / 2 if counter.is_power else counted
        self._last, self._at = values, at
        return total


def counters(how: str) -> tuple[list[Counter], list[str]]:
    """Return the counters that POWER=auto, nvml or rapl reads, and why others cannot be read."""
    meters = [nvml(_pynvml())] if how in ("auto", "nvml") else []
    meters += [rapl(Sources())] if how in ("auto", "rapl") else []
    readable = [counter for counters, _ in meters for counter in counters]
    return readable, [reason for _, reason in meters if reason]


def _pynvml() -> Any:
    with contextlib.suppress(ImportError):
        return importlib.import_module("pynvml")
    return None


def rapl(sources: Sources) -> tuple[list[Counter], str]:
    """Return the counters of the processors' packages and of their memory, or the reason why there are
    none."""
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
    try:
        return float(file.read_text()) / 1e6
    except ValueError:
        raise OSError(errno.EINVAL, "is not a number", str(file)) from None


def nvml(library: Any) -> tuple[list[Counter], str]:
    """Return a counter of each GPU, or the reason why there are none. ``library`` is the module pynvml, None
    if it is not installed."""
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
    """Return a GPU's energy counter, or its power where the GPU counts no energy (before Volta)."""

    def read(what: Callable[[Any], float]) -> float:
        try:
            return what(handle) / 1000  # millijoules, milliwatts
        except library.NVMLError as error:
            raise OSError(f"GPU {number}: {error}") from None

    joules = partial(read, library.nvmlDeviceGetTotalEnergyConsumption)
    try:
        joules()
    except OSError:
        return Counter(f"GPU {number}", partial(read, library.nvmlDeviceGetPowerUsage), is_power=True)
    return Counter(f"GPU {number}", joules)


def left_out(counters: Sequence[Counter]) -> str:
    """Return what these counters do not measure."""
    parts = {counter.part.rstrip("0123456789- ") for counter in counters}
    names = {"GPU": "GPUs", "package": "processors", "dram": "memory"}
    absent = [name for part, name in names.items() if part not in parts]
    return ", ".join([*absent, "disks, fans, power supplies and network"])


def refuse_impossible(how: str) -> str:
    """Return why POWER=auto measures nothing, empty if it does. Raises UserError if another POWER names what
    cannot be read, or a meter's file without a reading of now."""
    if not how.startswith(FILE):
        readable, reasons = counters(how)
        if not readable and how not in ("auto", "off"):
            raise UserError(f"POWER={how}", "; ".join(reasons), "set POWER=off")
        return f"no power is measured: {'; '.join(reasons)}" if reasons and not readable else ""
    readings, _ = read_meter(how, -(1 << 16))  # its end is enough
    late = time.time() - max((at for at, _ in readings), default=0) / 1000
    if abs(late) <= APART_S:
        return ""
    age = f"its last reading is {min(abs(late), 1e12):,.0f} s {'old' if late > 0 else 'ahead of now'}"
    problem = age if readings else "no reading at its end (time,watts with the time in seconds since 1970)"
    remedy = f"start the meter first; if its clock is ahead, {FILE}PATH,SECONDS says by how much"
    raise UserError(f"POWER={how}", problem, remedy)


def meter_file(how: str) -> tuple[pathlib.Path, int]:
    """Return the file of ``file:PATH,SECONDS``, and by how many ms the meter's clock is ahead."""
    name = how.removeprefix(FILE)
    path, _, ahead = name.rpartition(",")
    if path and not os.path.exists(name):
        with contextlib.suppress(ValueError, OverflowError):
            return pathlib.Path(path), round(float(ahead) * 1000)
    return pathlib.Path(name), 0


def read_meter(how: str, begin: int) -> tuple[list[tuple[int, float]], int]:
    """Return (ms of this machine's clock, watts) of each line of a meter's file from byte ``begin`` on, and
    the number of lines that are no reading.

    A negative ``begin`` counts from the end; a file that is shorter is read whole. Raises UserError if it is
    no regular file.
    """
    path, ahead = meter_file(how)
    with files.open_regular(path, "name the file that the meter writes") as stream:
        size = os.fstat(stream.fileno()).st_size
        begin = begin if begin >= 0 else size + begin
        if 0 < begin <= size:
            stream.seek(begin - 1)
            stream.readline()
        lines = stream.readlines()
    readings = [reading for line in lines if (reading := _reading(line, ahead))]
    return readings, len(lines) - len(readings)


def _reading(line: bytes, ahead: int) -> tuple[int, float] | None:
    with contextlib.suppress(ValueError, OverflowError):
        at, watts, *_ = map(float, line.replace(b'"', b"").split(b",")[:2])
        if 0 <= watts <= LARGEST_WATTS:
            return round(at * 1000) - ahead, watts  # not of NaN or infinity
    return None  # the heading, or a line that is being written
