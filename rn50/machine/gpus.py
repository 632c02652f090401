"""The NVIDIA GPUs that this process sees: ``read`` makes a ``Gpu`` of each from the output of ``nvidia-smi``
and from the PCI bus."""

import dataclasses
import re
from collections.abc import Iterator, Mapping

from rn50.machine.sources import Sources

NO_COMMAND = "nvidia-smi: command not found"
"""Reason why there is no GPU on a machine without NVIDIA's driver."""

QUERIED = (
    "index,name,uuid,pci.bus_id,driver_version,compute_cap,memory.total,memory.used,mig.mode.current,"
    "persistence_mode,power.limit,power.default_limit,clocks.max.sm,clocks_throttle_reasons.active,"
    "pcie.link.gen.max,pcie.link.width.max"
)
"""Properties of ``nvidia-smi --help-query-gpu``. Drivers before 510 have no compute_cap."""

OWN_MIB = 2048
"""GPU memory, in MiB, that the driver and a desktop may hold. If more is in use, other computations hold
it."""

OLDEST_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
"""Major version of CUDA -> the oldest driver that runs libraries of any of its minor versions (NVIDIA, CUDA
Compatibility, table 1)."""

SLOWED = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Bit of ``clocks_throttle_reasons.active`` -> the reason for lower clocks that it means. Only the bits that
tell of heat or a weak power supply are here. Source: NVML, nvmlClocksThrottleReasons."""


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU. None: the driver does not report the property."""

    index: int
    """Number of the GPU in ``nvidia-smi``."""
    name: str
    uuid: str
    driver: str
    """Version of the driver."""
    capability: tuple[int, int] | None
    """Compute capability."""
    memory_mib: float | None
    used_mib: float | None = None
    """Memory that processes hold, in all MIG instances together."""
    mig: bool = False
    """True if the GPU is in MIG mode, in which it is divided into instances."""
    instances: tuple[tuple[str, str], ...] = ()
    """(profile, UUID) of each MIG instance."""
    persistent: bool | None = None
    """True if persistence mode is on: the driver stays loaded when no process uses the GPU."""
    power_limit: float | None = None
    """Watts."""
    power_default: float | None = None
    """Power limit of the GPU's model, in watts."""
    clock_mhz: float | None = None
    """Highest clock of the multiprocessors."""
    slowed: tuple[str, ...] = ()
    """Reasons of ``SLOWED`` for which the clocks are lower now."""
    node: int | None = None
    """NUMA node to which the GPU is attached."""
    pcie: str | None = None
    """The fastest link that the GPU and its slot both support, as in "PCIe 4.0 x16"."""

    @property
    def free_mib(self) -> float | None:
        """The memory that no process holds; all of it if the driver does not report the use."""
        return self.memory_mib - (self.used_mib or 0) if self.memory_mib else None

    @property
    def used_by_others(self) -> str:
        """A sentence on the memory that other computations hold; empty if they hold none."""
        if self.mig or (self.used_mib or 0) <= OWN_MIB:
            return ""
        return f"GPU {self.index}: {self.used_mib:.0f} MiB are in use"


def newer(first: str, second: str) -> bool:
    """Return whether version ``first`` of a driver is newer than version ``second``."""
    numbers = [[int(digits) for digits in re.findall(r"\d+", version)] for version in (first, second)]
    return numbers[0] > numbers[1]


def read(sources: Sources) -> tuple[tuple[Gpu, ...], str]:
    """Return the GPUs that this process sees, in the order in which ranks count them, and the reason if there
    are none.

    The order is that of the PCI bus. CUDA has the same order if all GPUs are of the same model.
    """
    status, printed, rows = _query(sources)
    if status == 127:  # no such command
        return (), NO_COMMAND
    if status != 0 or not rows:
        # The reason is the first line of an error, or the last line of an answer without a GPU.
        lines = printed.strip().splitlines() or [f"nvidia-smi ended with status {status}"]
        return (), lines[0 if status else -1]
    instances = _instances(sources)
    gpus = tuple(_gpu(row, instances.get(row["uuid"], ()), sources) for row in rows)
    visible = sources.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return gpus, ""
    seen = tuple(_visible(gpus, visible))
    return seen, "" if seen else f"CUDA_VISIBLE_DEVICES={visible} hides all of {len(gpus)}"


def _query(sources: Sources) -> tuple[int, str, list[dict[str, str]]]:
    """Ask ``nvidia-smi`` for the properties ``QUERIED``. Return its exit status, its output, and property ->
    value for each GPU, without the properties that this driver does not support."""
    fields = QUERIED.split(",")
    while True:
        query = f"--query-gpu={','.join(fields)}"
        status, printed = sources.run(["nvidia-smi", query, "--format=csv,nounits"])
        # An older driver refuses all properties because of the first that it does not know; ask without it.
        unknown = re.search(r'Field "(.+?)" is not a valid field', printed)
        if unknown is None or unknown[1] not in fields:
            break
        fields.remove(unknown[1])
    # [1:]: without the heading.
    rows = [line.split(", ") for line in printed.splitlines()[1:]] if status == 0 else []
    # Other lines, such as warnings, have no value for each field or do not begin with an index.
    rows = [row for row in rows if len(row) == len(fields) and re.fullmatch(r"[0-9]{1,4}", row[0])]
    return status, printed, [dict(zip(fields, row, strict=True)) for row in rows]


def _instances(sources: Sources) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return UUID of a GPU -> ``Gpu.instances``, for all GPUs; empty for a GPU that is not divided."""
    printed = sources.output("nvidia-smi", "-L")
    # "  MIG 3g.20gb     Device  0: (UUID: MIG-5f09d9a8-...)", in lines below "GPU 0: NAME (UUID: GPU-...)".
    instance = r"[ \t]+MIG (\S+)[ \t]+Device[ \t]+\d+: \(UUID: (\S+)\)"
    gpus = re.findall(r"^GPU \d+: .*\(UUID: (\S+)\)((?:\n[ \t]+MIG .*)*)", printed, re.MULTILINE)
    return {uuid: tuple(re.findall(instance, lines)) for uuid, lines in gpus}


def _gpu(row: Mapping[str, str], instances: tuple[tuple[str, str], ...], sources: Sources) -> Gpu:
    """Return a GPU from its ``row`` of the output of ``nvidia-smi``, property -> value, and its MIG
    instances."""
    capability = re.fullmatch(r"(\d+)\.(\d+)", row.get("compute_cap", ""))
    reasons = row.get("clocks_throttle_reasons.active", "")
    generation, width = row.get("pcie.link.gen.max", ""), row.get("pcie.link.width.max", "")
    bits = int(reasons, 16) if re.fullmatch(r"0x[0-9a-fA-F]+", reasons) else 0
    # nvidia-smi writes the PCI domain with eight digits, sysfs with four.
    node = sources.text(f"sys/bus/pci/devices/{row['pci.bus_id'].lower()[-12:]}/numa_node")
    return Gpu(
        index=int(row["index"]),
        name=row["name"],
        uuid=row["uuid"],
        driver=row["driver_version"],
        capability=(int(capability[1]), int(capability[2])) if capability else None,
        memory_mib=_number(row.get("memory.total")),
        used_mib=_number(row.get("memory.used")),
        mig=row.get("mig.mode.current") == "Enabled",
        instances=instances,
        persistent={"Enabled": True, "Disabled": False}.get(row.get("persistence_mode", "")),
        power_limit=_number(row.get("power.limit")),
        power_default=_number(row.get("power.default_limit")),
        clock_mhz=_number(row.get("clocks.max.sm")),
        slowed=tuple(reason for bit, reason in SLOWED.items() if bits & bit),
        node=int(node) if node.isdigit() else None,
        pcie=f"PCIe {generation}.0 x{width}" if generation.isdigit() and width.isdigit() else None,
    )


def _number(value: str | None) -> float | None:
    """Return a value as a number; None: the driver does not report it, and wrote "[N/A]" for example."""
    return float(value) if value and re.fullmatch(r"[\d.]+", value) else None


def _visible(gpus: tuple[Gpu, ...], visible: str) -> Iterator[Gpu]:
    """Yield the GPUs that ``visible``, the value of CUDA_VISIBLE_DEVICES, names. Like CUDA, accept an index,
    the UUID of an instance, or the beginning of the UUID of a GPU, and stop at the first word that names none
    or several."""
    names = {gpu: {str(gpu.index), *(uuid for _, uuid in gpu.instances)} for gpu in gpus}
    for word in map(str.strip, visible.split(",")):
        chosen = [gpu for gpu in gpus if word in names[gpu] or gpu.uuid.startswith(word)]
        # Every UUID begins with an empty word.
        if not word or len(chosen) != 1:
            return
        yield chosen[0]
