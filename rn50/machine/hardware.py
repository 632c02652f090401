"""``Machine``, the hardware that this process may use: cores, memory, limits, file systems, network and GPUs.
``read`` makes it from the files of /proc and /sys and from the commands lscpu and nvidia-smi.

Reading never fails: a fact that the machine does not report is empty or None, and a limit counts as absent.
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
"""Flags, in /proc/cpuinfo, of the instruction sets that multiply bfloat16."""
AVX512 = frozenset(("avx512f", "avx512bw", "avx512dq", "avx512vl"))
"""Flags of the AVX-512 instruction sets that Intel's servers have since Skylake."""
AMX = ("amx_tile", "amx_bf16", "amx_int8")
"""Flags of Intel's Advanced Matrix Extensions."""


class Cpu(NamedTuple):
    """A hardware thread, with the numbers of its core, socket and NUMA node."""

    number: int
    core: int
    socket: int
    node: int | None


class Mount(NamedTuple):
    """A mounted file system."""

    folder: str
    """Mount point."""
    kind: str
    """Type of the file system, such as "ext4"."""
    device: str
    options: str
    """The file system's own options, such as "size=64k"."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """The part of a machine that this process may use. Sizes are in bytes. None: no limit, or not known."""

    host: str
    """Host name."""
    architecture: str
    """Name of the instruction set, such as "x86_64"."""
    processor: str
    """Model name of the processor."""
    cpu_flags: frozenset[str]
    """The kernel's names of the processor's instruction sets and other features."""
    cpus: tuple[Cpu, ...]
    """The online CPUs in the affinity mask and the cpuset; never empty."""
    online: int
    """Number of online CPUs of the whole machine."""
    quota: float | None
    """CPU time that the control group allows, as a number of CPUs (1.5: 1.5 seconds per second), if it is
    less than the number of ``cpus``."""
    memory: int | None
    memory_limit: int | None
    """Limit of the control group, if it is less than ``memory``."""
    locked_memory: int | None
    """Limit of the memory that a process may lock (ulimit -l)."""
    open_files: int | None
    """Limit of the number of files that a process may hold open (ulimit -n)."""
    mounts: tuple[Mount, ...]
    infiniband: tuple[str, ...]
    """A line for each port that is up: device, rate, link layer."""
    gpus: tuple[gpus.Gpu, ...]
    """The NVIDIA GPUs that this process sees, in the order in which ranks count them."""
    no_gpu: str
    """The reason if ``gpus`` is empty."""
    nvidia_hardware: bool
    """True if there is an NVIDIA GPU on the PCI bus or a loaded driver, even if ``gpus`` is empty."""
    links: tuple[str, ...]
    """Type of the connection between the GPUs of each pair, as ``nvidia-smi topo -m`` names it: NV12, PIX,
    SYS, ..."""

    @property
    def lacks_its_gpus(self) -> bool:
        """True if the machine has NVIDIA hardware or ``nvidia-smi``, but this process can use no GPU."""
        return not self.gpus and (self.nvidia_hardware or self.no_gpu != gpus.NO_COMMAND)

    @property
    def in_container(self) -> bool:
        """True if the root file system is a container's."""
        kinds = [mount.kind for mount in self.mounts if mount.folder == "/"]
        return bool({"overlay", "fuse.fuse-overlayfs"} & set(kinds))

    @property
    def usable_cpus(self) -> int:
        """Number of CPUs that this process can keep busy: that of ``cpus``, or ``quota`` rounded up."""
        return len(self.cpus) if self.quota is None else min(len(self.cpus), math.ceil(self.quota))

    @property
    def shared_memory(self) -> int | None:
        """Size of /dev/shm in bytes. 0: it is not mounted; None: it has the kernel's default size, half of
        the memory."""
        mount = self.mount_of("/dev/shm")
        if mount is None or mount.folder != "/dev/shm":
            return 0
        size = re.search(r"\bsize=(\d+)k", mount.options)
        return int(size[1]) * 1024 if size else None

    def mount_of(self, path: str) -> Mount | None:
        """Return the mounted file system that holds an absolute path; None: no mount is known."""
        candidates = [mount for mount in self.mounts if f"{path}/".startswith(f"{mount.folder.rstrip('/')}/")]
        # The innermost mount counts. If two have the same mount point, the later one hides the other.
        return max(reversed(candidates), key=lambda mount: len(mount.folder), default=None)


def read(source: Sources = HERE) -> Machine:
    """Return the facts of the machine whose files and commands ``source`` has."""
    limits = cgroup.read(source)
    online_cpus, cpus = _cpus(source, limits.cpus)
    processor = lscpu(source)
    # "MemTotal:       32764208 kB"
    total = re.search(r"^MemTotal:\s+(\d+) kB", source.text("proc/meminfo"), re.MULTILINE)
    memory = int(total[1]) * 1024 if total else None
    visible_gpus, no_gpu = gpus.read(source)
    # A limit of the control group that is above what the machine has is left out.
    return Machine(
        host=source.text("proc/sys/kernel/hostname"),
        architecture=processor.get("Architecture", os.uname().machine),
        processor=processor.get("Model name", ""),
        cpu_flags=cpu_flags(source),
        cpus=cpus,
        online=len(online_cpus),
        quota=limits.quota if (limits.quota or math.inf) < len(cpus) else None,
        memory=memory,
        memory_limit=limits.memory if (limits.memory or math.inf) < (memory or math.inf) else None,
        locked_memory=_resource_limit(source, "Max locked memory"),
        open_files=_resource_limit(source, "Max open files"),
        mounts=tuple(_mounts(source)),
        infiniband=tuple(_infiniband(source)),
        gpus=visible_gpus,
        no_gpu=no_gpu,
        nvidia_hardware=_nvidia_hardware(source),
        links=_links(source, [gpu.index for gpu in visible_gpus]) if len(visible_gpus) > 1 else (),
    )


def lscpu(source: Sources) -> dict[str, str]:
    """Return the output of lscpu: property of the processor -> value. A line is as "Model name:   Intel(R)
    Xeon(R) Gold 6148 CPU @ 2.40GHz"."""
    return dict(re.findall(r"^([\w ()]+):\s+(.*)$", source.output("lscpu"), re.MULTILINE))


def foreign_vectors(source: Sources = HERE) -> int:
    """Return the width in bits of the vectors of an x86 processor that Intel did not make: 256 or 512. Return
    0 for Intel's processors, and for processors with narrower vectors.

    On another maker's processor Intel's MKL uses such vectors only if an environment variable says so, which
    ``implementations/paddle`` sets.
    """
    flags = cpu_flags(source)
    intel = re.search(r"^vendor_id\s*: GenuineIntel$", source.text("proc/cpuinfo"), re.MULTILINE)
    if intel or "avx2" not in flags:
        return 0
    return 512 if flags >= AVX512 else 256


def cpu_flags(source: Sources = HERE) -> frozenset[str]:
    """Return the kernel's names of the processor's instruction sets and other features. AVX-512 and AMX are
    left out if the environment variable DNNL_MAX_CPU_ISA keeps oneDNN, with which the frameworks compute,
    from using them."""
    flags = re.search(r"^flags\s*:(.*)$", source.text("proc/cpuinfo"), re.MULTILINE)
    best_allowed = source.environ.get("DNNL_MAX_CPU_ISA", "").upper()
    denied = ("avx512", "amx") if best_allowed in ("SSE41", "AVX", "AVX2") else ()
    return frozenset(flag for flag in (flags[1].split() if flags else ()) if not flag.startswith(denied))


def _cpus(source: Sources, cpuset: tuple[int, ...] | None) -> tuple[tuple[Cpu, ...], tuple[Cpu, ...]]:
    """Return all online CPUs, and the CPUs that this process may use. ``cpuset`` is the CPUs of the control
    group's cpuset; None: it has none."""
    printed = source.output("lscpu", "-p=CPU,CORE,SOCKET,NODE")
    # "3,1,0,0": CPU, core, socket, node. A number that is not known is empty or a dash.
    lines = re.findall(r"^(\d+),(\d*)-?,(\d*)-?,(\d*)-?$", printed, re.MULTILINE)
    online = [
        Cpu(int(number), int(core or 0), int(socket or 0), int(node) if node else None)
        for number, core, socket, node in lines
    ]
    # "Cpus_allowed_list:\t0-3,8"
    mask = re.search(r"^Cpus_allowed_list:\s*(\S+)", source.text("proc/self/status"), re.MULTILINE)
    allowed = set(cpu_list.parse(mask[1]) if mask else os.sched_getaffinity(0))
    if not online:  # there is no lscpu: each CPU counts as a core
        online = [Cpu(number, number, 0, None) for number in sorted(os.sched_getaffinity(0))]
    # The mask may contain CPUs that do not exist: in many virtual machines it has all possible numbers.
    usable = [cpu for cpu in online if cpu.number in allowed] or online
    # A cpuset with none of these CPUs is ignored, so that there is always a CPU.
    inside = [cpu for cpu in usable if cpuset is None or cpu.number in cpuset]
    return tuple(online), tuple(inside or usable)


def _resource_limit(source: Sources, name: str) -> int | None:
    """Return the soft limit of this process under its name in /proc/self/limits; None: unlimited."""
    # "Max open files            1024                 524288               files": soft limit, hard limit.
    soft = re.search(rf"^{name}\s+(\d+)", source.text("proc/self/limits"), re.MULTILINE)
    return int(soft[1]) if soft else None


def _mounts(source: Sources) -> Iterator[Mount]:
    """Yield the mounted file systems that /proc/self/mountinfo lists."""
    for line in source.text("proc/self/mountinfo").splitlines():
        # "36 35 0:26 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw,size=65536k": the mount point is fifth;
        # behind the dash are the type, the device and the file system's own options.
        if fields := re.match(r"\S+ \S+ \S+ \S+ (\S+) .* - (\S+) (\S+) (\S+)$", line):
            # The kernel writes white space in a name as an octal number.
            folder = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[1])
            yield Mount(folder, fields[2], fields[3], fields[4])


def _infiniband(source: Sources) -> Iterator[str]:
    """Yield the elements of ``Machine.infiniband``."""
    for device in source.names("sys/class/infiniband"):
        for port in source.names(f"sys/class/infiniband/{device}/ports"):
            folder = f"sys/class/infiniband/{device}/ports/{port}"
            # The file has "4: ACTIVE" if the port is up.
            if "ACTIVE" in source.text(f"{folder}/state"):
                rate, layer = (source.text(f"{folder}/{file}") for file in ("rate", "link_layer"))
                yield f"{device}: {rate}, {layer}"


def _nvidia_hardware(source: Sources) -> bool:
    """Return ``Machine.nvidia_hardware``."""
    # PCI has 0x10de for the vendor NVIDIA, and classes of 0x03 for display controllers.
    devices = (f"sys/bus/pci/devices/{name}" for name in source.names("sys/bus/pci/devices"))
    of_nvidia = (device for device in devices if source.text(f"{device}/vendor") == "0x10de")
    has_gpu = any(source.text(f"{device}/class").startswith("0x03") for device in of_nvidia)
    return has_gpu or bool(source.text("proc/driver/nvidia/version"))


def _links(source: Sources, indices: list[int]) -> tuple[str, ...]:
    """Return ``Machine.links`` for the GPUs with these indices."""
    # Without the escape sequences that underline the heading.
    printed = re.sub(r"\x1b\[[\d;]*m", "", source.output("nvidia-smi", "topo", "-m"))
    # A table with a column for each GPU, and a row for each GPU, which begins with the GPU's name:
    #         GPU0    GPU1    CPU Affinity
    # GPU0     X      NV12    0-31
    heading, *rows = [line.split() for line in printed.splitlines() if line.strip()] or [[]]
    links = {}
    for name, *cells in rows:
        links.update({(name, other): link for other, link in zip(heading, cells, strict=False)})
    pairs = ((f"GPU{first}", f"GPU{second}") for first in indices for second in indices if first < second)
    return tuple(links[pair] for pair in pairs if pair in links)
