"""The machine as far as this process may use it: cores, memory, limits, mounts, network and GPUs.

Reading never fails: a fact that the machine does not report is empty, None, or counts as unlimited.
"""

import dataclasses
import math
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from rn50.machine import cgroup, cpu_list, gpus
from rn50.machine.sources import HERE, Sources

BFLOAT16 = frozenset(("avx512_bf16", "amx_bf16"))
"""Flags of the instruction sets that multiply bfloat16."""
AVX512 = frozenset(("avx512f", "avx512bw", "avx512dq", "avx512vl"))
"""Flags of the instruction sets of a Skylake server."""
AMX = ("amx_tile", "amx_bf16", "amx_int8")
"""Flags of Intel's Advanced Matrix Extensions."""


class Cpu(NamedTuple):
    """A hardware thread, with the numbers of its core, socket and NUMA node."""

    number: int
    core: int
    socket: int
    node: int | None


class Mount(NamedTuple):
    """A mounted file system: mount point, type, device, and the file system's own options."""

    folder: str
    kind: str
    device: str
    options: str


@dataclasses.dataclass(frozen=True)
class Machine:
    """The machine as far as this process may use it. Sizes are in bytes; None: no limit, or not known."""

    host: str
    architecture: str
    processor: str
    cpu_flags: frozenset[str]
    """Instruction sets and other features that the kernel names of the processor."""
    cpus: tuple[Cpu, ...]
    """The online CPUs in the affinity mask and the cpuset; never empty."""
    online: int
    """CPUs of the whole machine."""
    quota: float | None
    """CPU time of the control group in CPUs, if that is less than ``cpus``."""
    memory: int | None
    memory_limit: int | None
    """Limit of the control group, if that is less than ``memory``."""
    locked_memory: int | None
    open_files: int | None
    mounts: tuple[Mount, ...]
    infiniband: tuple[str, ...]
    """A line for each port that is up: device, rate, link layer."""
    gpus: tuple[gpus.Gpu, ...]
    no_gpu: str
    """The reason if there are none."""
    nvidia_hardware: bool
    """True if there is an NVIDIA GPU on the PCI bus or a loaded driver, even if ``gpus`` is empty."""
    links: tuple[str, ...]
    """Connection of each pair of GPUs, as in ``nvidia-smi topo -m``: NV12, PIX, SYS, ..."""

    @property
    def lacks_its_gpus(self) -> bool:
        """True if there is a sign of a GPU, hardware or ``nvidia-smi``, and none can be used."""
        return not self.gpus and (self.nvidia_hardware or self.no_gpu != gpus.NO_COMMAND)

    @property
    def in_container(self) -> bool:
        """True if the root file system is a container's."""
        kinds = [mount.kind for mount in self.mounts if mount.folder == "/"]
        return bool({"overlay", "fuse.fuse-overlayfs"} & set(kinds))

    @property
    def usable_cpus(self) -> int:
        """Number of CPUs that this process can keep busy; under a quota the last one may be busy only in
        part."""
        return len(self.cpus) if self.quota is None else min(len(self.cpus), math.ceil(self.quota))

    @property
    def shared_memory(self) -> int | None:
        """Size of /dev/shm; 0 if nothing is mounted there, None if it is the kernel's default, half of the
        memory."""
        mount = self.mount_of("/dev/shm")
        if mount is None or mount.folder != "/dev/shm":
            return 0
        size = re.search(r"\bsize=(\d+)k", mount.options)
        return int(size[1]) * 1024 if size else None

    def mount_of(self, path: str) -> Mount | None:
        """Return the file system that holds an absolute path."""
        holding = [m for m in self.mounts if f"{path}/".startswith(f"{m.folder.rstrip('/')}/")]
        # Of two mounts on one folder the later one hides the other.
        return max(reversed(holding), key=lambda mount: len(mount.folder), default=None)


def read(source: Sources = HERE) -> Machine:
    """Return the facts of this machine, or of the one of ``source``."""
    limits = cgroup.read(source)
    all_cpus, cpus = _cpus(source, limits.cpus)
    about = lscpu(source)
    memory = re.search(r"^MemTotal:\s+(\d+) kB", source.text("proc/meminfo"), re.MULTILINE)
    total = int(memory[1]) * 1024 if memory else None
    visible, no_gpu = gpus.read(source)
    return Machine(
        host=source.text("proc/sys/kernel/hostname"),
        architecture=about.get("Architecture", os.uname().machine),
        processor=about.get("Model name", ""),
        cpu_flags=cpu_flags(source),
        cpus=cpus,
        online=len(all_cpus),
        quota=limits.quota if (limits.quota or math.inf) < len(cpus) else None,
        memory=total,
        memory_limit=limits.memory if (limits.memory or math.inf) < (total or math.inf) else None,
        locked_memory=_resource_limit(source, "Max locked memory"),
        open_files=_resource_limit(source, "Max open files"),
        mounts=tuple(_mounts(source)),
        infiniband=tuple(_infiniband(source)),
        gpus=visible,
        no_gpu=no_gpu,
        nvidia_hardware=_nvidia_hardware(source),
        links=_links(source, [gpu.index for gpu in visible]) if len(visible) > 1 else (),
    )


def lscpu(source: Sources) -> dict[str, str]:
    """Return what lscpu says of the processor."""
    return dict(re.findall(r"^([\w ()]+):\s+(.*)$", source.output("lscpu"), re.MULTILINE))


def foreign_vectors(source: Sources = HERE) -> int:
    """Return the bits of the widest vectors, 256 or 512, of an x86 processor that Intel did not make; 0 for
    any other."""
    flags = cpu_flags(source)
    intel = re.search(r"^vendor_id\s*: GenuineIntel$", source.text("proc/cpuinfo"), re.MULTILINE)
    if intel or "avx2" not in flags:
        return 0
    return 512 if flags >= AVX512 else 256


def cpu_flags(source: Sources = HERE) -> frozenset[str]:
    """Return the instruction sets and other features that the kernel names of the processor, without those
    that oneDNN's environment variable denies to frameworks."""
    listed = re.search(r"^flags\s*:(.*)$", source.text("proc/cpuinfo"), re.MULTILINE)
    most = source.environ.get("DNNL_MAX_CPU_ISA", "").upper()
    denied = ("avx512", "amx") if most in ("SSE41", "AVX", "AVX2") else ()
    return frozenset(flag for flag in (listed[1].split() if listed else ()) if not flag.startswith(denied))


def _cpus(source: Sources, cpuset: tuple[int, ...] | None) -> tuple[tuple[Cpu, ...], tuple[Cpu, ...]]:
    """Return all online CPUs, and those that this process may use."""
    listed = source.output("lscpu", "-p=CPU,CORE,SOCKET,NODE")
    online = [
        Cpu(int(number), int(core or 0), int(socket or 0), int(node) if node else None)
        for number, core, socket, node in re.findall(r"^(\d+),(\d*)-?,(\d*)-?,(\d*)-?$", listed, re.MULTILINE)
    ]
    mask = re.search(r"^Cpus_allowed_list:\s*(\S+)", source.text("proc/self/status"), re.MULTILINE)
    allowed = set(cpu_list.parse(mask[1]) if mask else os.sched_getaffinity(0))
    if not online:  # no lscpu: each CPU counts as a core of its own
        online = [Cpu(number, number, 0, None) for number in sorted(os.sched_getaffinity(0))]
    # The mask may name CPUs that do not exist: in many virtual machines it goes up to the largest possible
    # number.
    usable = [cpu for cpu in online if cpu.number in allowed] or online
    inside = [cpu for cpu in usable if cpuset is None or cpu.number in cpuset]
    return tuple(online), tuple(inside or usable)


def _resource_limit(source: Sources, name: str) -> int | None:
    soft = re.search(rf"^{name}\s+(\d+)", source.text("proc/self/limits"), re.MULTILINE)
    return int(soft[1]) if soft else None


def _mounts(source: Sources) -> Iterator[Mount]:
    for line in source.text("proc/self/mountinfo").splitlines():
        if fields := re.match(r"\S+ \S+ \S+ \S+ (\S+) .* - (\S+) (\S+) (\S+)$", line):
            folder = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[1])
            yield Mount(folder, *fields.groups()[1:])


def _infiniband(source: Sources) -> Iterator[str]:
    for device in source.names("sys/class/infiniband"):
        for port in source.names(f"sys/class/infiniband/{device}/ports"):
            folder = f"sys/class/infiniband/{device}/ports/{port}"
            if "ACTIVE" in source.text(f"{folder}/state"):
                rate, layer = (source.text(f"{folder}/{file}") for file in ("rate", "link_layer"))
                yield f"{device}: {rate}, {layer}"


def _nvidia_hardware(source: Sources) -> bool:
    devices = (f"sys/bus/pci/devices/{name}" for name in source.names("sys/bus/pci/devices"))
    of_nvidia = (device for device in devices if source.text(f"{device}/vendor") == "0x10de")
    is_there = any(source.text(f"{device}/class").startswith("0x03") for device in of_nvidia)
    return is_there or bool(source.text("proc/driver/nvidia/version"))


def _links(source: Sources, gpus: list[int]) -> tuple[str, ...]:
    printed = source.output("nvidia-smi", "topo", "-m")
    plain = re.sub(r"\x1b\[[\d;]*m", "", printed)  # the heading is underlined
    heading, *lines = [line.split() for line in plain.splitlines() if line.strip()] or [[]]
    links = {
        (first, second): link for first, *row in lines for second, link in zip(heading, row, strict=False)
    }
    pairs = ((f"GPU{first}", f"GPU{second}") for first in gpus for second in gpus if first < second)
    return tuple(links[pair] for pair in pairs if pair in links)
