"""Meters of this machine's power: NVIDIA's GPUs (NVML) and the processors' energy counters (RAPL)."""

import errno
import importlib
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rn50.machine.sources import Sources

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


class Meter:
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
            if counter.is_power:
                total += (before + value) / 2
                continue
            counted = value - before
            if counted < 0:
                counted += counter.wraps_at or 0.0
            total += counted / max(at - self._at, 1e-9)
        self._last, self._at = values, at
        return total


def counters(how: str) -> tuple[list[Counter], list[str]]:
    """Return the counters that POWER=auto, nvml or rapl reads, and why others cannot be read."""
    meters = [nvml(_pynvml())] if how in ("auto", "nvml") else []
    meters += [rapl(Sources())] if how in ("auto", "rapl") else []
    readable = [counter for counters, _ in meters for counter in counters]
    return readable, [reason for _, reason in meters if reason]


def _pynvml() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
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
        counters.append(Counter(name, _microjoules(file), float(wraps) / 1e6 if wraps.isdigit() else None))
        try:
            counters[-1].read()
        except OSError as error:
            return [], f"RAPL: {file}: {error.strerror}; only root may read it: sudo chmod a+r {file}"
    return counters, "" if counters else "RAPL: /sys/class/powercap has no package, as in a virtual machine"


def _microjoules(file: Any) -> Callable[[], float]:
    def read() -> float:
        try:
            return float(file.read_text()) / 1e6
        except ValueError:
            raise OSError(errno.EINVAL, "is not a number", str(file)) from None

    return read


def nvml(library: Any) -> tuple[list[Counter], str]:
    """Return a counter of each GPU, or the reason why there are none. ``library`` is the module pynvml, None
    if it is not installed."""
    if library is None:
        return [], "NVML: the package nvidia-ml-py is not installed"
    try:
        library.nvmlInit()
        handles = [library.nvmlDeviceGetHandleByIndex(i) for i in range(library.nvmlDeviceGetCount())]
        counters = [_gpu(library, number, handle) for number, handle in enumerate(handles)]
    except library.NVMLError as error:
        return [], f"NVML: {error}"
    return counters, "" if counters else "NVML: no GPU"


def _gpu(library: Any, number: int, handle: Any) -> Counter:
    """Return a GPU's energy counter, or its power where the GPU counts no energy (before Volta)."""

    def asked(what: Callable[[Any], int]) -> Callable[[], float]:
        def read() -> float:
            try:
                return what(handle) / 1000  # millijoules, milliwatts
            except library.NVMLError as error:
                raise OSError(f"GPU {number}: {error}") from None

        return read

    joules = asked(library.nvmlDeviceGetTotalEnergyConsumption)
    try:
        joules()
    except OSError:
        return Counter(f"GPU {number}", asked(library.nvmlDeviceGetPowerUsage), is_power=True)
    return Counter(f"GPU {number}", joules)


def left_out(counters: Sequence[Counter]) -> str:
    """Return what these counters do not measure."""
    parts = {counter.part.rstrip("0123456789- ") for counter in counters}
    names = {"GPU": "GPUs", "package": "processors", "dram": "memory"}
    absent = [name for part, name in names.items() if part not in parts]
    return ", ".join([*absent, "disks, fans, power supplies and network"])
