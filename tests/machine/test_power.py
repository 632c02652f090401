"""Power meters: trees of files as the kernel has them, and GPUs whose library is made up: there are none."""

import time
import types

import pytest

from rn50.machine import power
from rn50.machine.sources import Sources


def tree(root, **zones):
    """zone -> (name, microjoules, range)."""
    for zone, (name, counted, most) in zones.items():
        folder = root / power.ZONES / zone.replace("_", ":").replace("intel:", "intel-")
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "energy_uj").write_text(f"{counted}\n")
        (folder / "max_energy_range_uj").write_text(f"{most}\n")
    return Sources(root)


def zone(root, name):
    return root / power.ZONES / name / "energy_uj"


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def two_sockets(root):
    return tree(
        root,
        **{
            "intel-rapl:0": ("package-0", 1_000_000, 262_143_328_850),
            "intel-rapl:0:0": ("dram", 500_000, 65_712_999_613),
            "intel-rapl:0:1": ("core", 9, 262_143_328_850),
            "intel-rapl:1": ("package-1", 2_000_000, 262_143_328_850),
            "intel-rapl:2": ("psys", 7, 262_143_328_850)})


def test_packages_and_memory_of_every_socket_and_nothing_twice(tmp_path):
    counters, reason = power.rapl(two_sockets(tmp_path))
    assert reason == "" and [counter.part for counter in counters] == ["package-0", "dram", "package-1"]
    clock = Clock()
    meter = power.PowerMeter(counters, clock)
    zone(tmp_path, "intel-rapl:0").write_text("51000000")  # 50 J
    zone(tmp_path, "intel-rapl:0:0").write_text("4500000")  # 4 J
    zone(tmp_path, "intel-rapl:1").write_text("48000000")  # 46 J
    clock.now = 0.5
    assert meter.watts() == pytest.approx(200)
    clock.now = 1.5
    assert meter.watts() == 0


def test_reading_takes_less_than_a_hundredth_of_a_core(tmp_path):
    """Processor time, which other load does not change, of 50 seconds of readings."""
    meter = power.PowerMeter(power.rapl(two_sockets(tmp_path))[0])
    begin = time.process_time()
    for _ in range(100):
        meter.watts()
    assert time.process_time() - begin < 0.5


def test_a_counter_that_wraps_around(tmp_path):
    counters, _ = power.rapl(
        tree(tmp_path, **{"intel-rapl:0": ("package-0", 262_143_000_000, 262_143_328_850)}))
    clock = Clock()
    meter = power.PowerMeter(counters, clock)
    zone(tmp_path, "intel-rapl:0").write_text("99671150")
    clock.now = 1.0
    assert meter.watts() == pytest.approx(100)


def test_nothing_to_read_is_said(tmp_path):
    assert "has no package, as in a virtual machine" in power.rapl(Sources(tmp_path))[1]
    sources = tree(tmp_path, **{"intel-rapl:0": ("package-0", "?", 1)})
    assert "is not a number" in power.rapl(sources)[1]


def test_a_counter_that_vanishes_raises(tmp_path):
    meter = power.PowerMeter(power.rapl(two_sockets(tmp_path))[0])
    zone(tmp_path, "intel-rapl:1").unlink()
    with pytest.raises(OSError):
        meter.watts()


class Lost(Exception):
    pass


def library(energies, watts=(), lost=()):
    """pynvml, of GPUs with these millijoules; None: a GPU that counts none and draws ``watts``."""

    def energy(gpu):
        if gpu in lost or energies[gpu] is None:
            raise Lost("GPU is lost" if gpu in lost else "Not Supported")
        return energies[gpu]

    def draws(gpu):
        return watts[gpu] * 1000

    return types.SimpleNamespace(
        NVMLError=Lost, nvmlInit=lambda: None, nvmlDeviceGetCount=lambda: len(energies),
        nvmlDeviceGetHandleByIndex=lambda index: index, nvmlDeviceGetTotalEnergyConsumption=energy,
        nvmlDeviceGetPowerUsage=draws)


def test_gpus_by_their_counters_and_old_ones_by_their_power():
    energies, watts, lost = [1000, None], [0, 150], set()
    counters, reason = power.nvml(library(energies, watts, lost))
    assert reason == "" and [counter.part for counter in counters] == ["GPU 0", "GPU 1"]
    assert power.kinds(counters) == "energy counters and power readings"
    clock = Clock()
    meter = power.PowerMeter(counters, clock)
    energies[0], watts[1], clock.now = 301_000, 250, 1.0
    assert meter.watts() == pytest.approx(300 + 200)
    lost.add(0)
    with pytest.raises(OSError, match="GPU 0: GPU is lost"):
        meter.watts()


def test_no_library_and_no_driver_are_said():
    assert "-m pip install nvidia-ml-py" in power.nvml(None)[1]
    broken = library([])
    broken.nvmlInit = lambda: (_ for _ in ()).throw(Lost("Driver Not Loaded"))
    assert power.nvml(broken)[1] == "NVML: Driver Not Loaded"
    assert power.nvml(library([]))[1] == "NVML: no GPU"


@pytest.mark.parametrize(
    "parts, says",
    [(("package-0", "dram"), "GPUs, disks, fans, power supplies and network"),
     (("GPU 0", "GPU 1"), "processors, memory, disks, fans, power supplies and network"),
     (("GPU 0", "package-0"), "memory, disks, fans, power supplies and network")])
def test_what_is_left_out_is_said(parts, says):
    assert power.left_out([power.Counter(part, lambda: 0.0) for part in parts]) == says
