"""Share of a core that reading RAPL's counters takes: python benchmarks/power_sampler.py

The counters are made up. It prints the processor time of reading them twice a second,
and of sleeping as often without reading.
"""

import argparse
import pathlib
import resource
import tempfile
import time

from rn50.launch import power_sampler
from rn50.machine import power
from rn50.machine.sources import Sources


def processor_s() -> float:
    """Return the processor time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def sample(root: pathlib.Path, seconds: float) -> float:
    """Return the processor time of reading the counters below a root for some seconds."""
    meter = power.PowerMeter(power.rapl(Sources(root))[0])
    begin, until = processor_s(), time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(power_sampler.INTERVAL_S)
        meter.watts()
    return processor_s() - begin


def sleep(seconds: float) -> float:
    """Return the processor time of sleeping as often."""
    begin, until = processor_s(), time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(power_sampler.INTERVAL_S)
    return processor_s() - begin


def make(root: pathlib.Path, sockets: int) -> None:
    """Make the counters of a machine: package and memory of each socket."""
    for socket in range(sockets):
        for name, part in ((f"intel-rapl:{socket}", f"package-{socket}"), (f"intel-rapl:{socket}:0", "dram")):
            zone = root / power.ZONES / name
            zone.mkdir(parents=True)
            (zone / "name").write_text(part)
            (zone / "energy_uj").write_text("1000")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--sockets", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make(pathlib.Path(folder), arguments.sockets)
        taken = sample(pathlib.Path(folder), arguments.seconds), sleep(arguments.seconds)
    shares = [f"{100 * processor / arguments.seconds:.3f} %" for processor in taken]
    print(f"{2 * arguments.sockets} counters: {shares[0]} of a core; sleeping alone: {shares[1]}")
