"""The description of this machine that a submission needs: ``read`` returns fields of
``systems/<system>.json``.

Source of the fields and their units: MLPerf submission rules, section "<system_desc_id>.json metadata". Every
value is text; numbers are per processor or per node. A field that the machine does not report is left out,
and the submitter has to add it.
"""

import collections
import re
from collections.abc import Iterable

from rn50.machine import cgroup, hardware
from rn50.machine.hardware import Machine
from rn50.machine.software import container_variables
from rn50.machine.sources import HERE, Sources

_VERSIONS = ("CUDA_VERSION", "CUDNN_VERSION", "CUBLAS_VERSION", "NCCL_VERSION", "OPENMPI_VERSION")
"""Environment variables of NVIDIA's container images."""
_DISKS = {r"nvme\d+n\d+": "NVMe SSD", r"x?vd[a-z]+": "virtual disk", r"sd[a-z]+": "SSD"}
"""Pattern of the kernel's name of a disk (nvme0n1; vda, xvda; sda) -> kind of the disk. A disk with the kind
"SSD" that rotates is a hard disk."""


def read(source: Sources = HERE) -> dict[str, str]:
    """Return field -> value of the machine whose files and commands ``source`` has.

    The result also has versions of software that is no Python package, such as ``cuda_version``, for the
    field ``other_software_stack``.
    """
    # ``hardware.read`` gets no environment variables, so that CUDA_VISIBLE_DEVICES hides no GPU.
    machine = hardware.read(source._replace(environ={}))
    fields = {**_processor(source, machine), **_memory_and_storage(source, machine), **_accelerators(machine)}
    fields["host_networking"] = _networking(source, machine)
    kernel = source.text("proc/sys/kernel/osrelease")
    # As in PRETTY_NAME="Ubuntu 22.04.4 LTS".
    name = re.search(r'^PRETTY_NAME="?([^"\n]*)', source.text("etc/os-release"), re.MULTILINE)
    systems = (name[1] if name else "", f"Linux {kernel}" if kernel else "")
    fields["operating_system"] = ", ".join(filter(None, systems))
    versions = (*_VERSIONS, *container_variables())
    fields.update((name.lower(), source.environ.get(name, "")) for name in versions)
    fields["hw_notes"] = _confined(machine, cgroup.read(source))
    return {field: value for field, value in fields.items() if value}


def _processor(source: Sources, machine: Machine) -> dict[str, str]:
    """Return the fields of the processors."""
    properties = hardware.lscpu(source)
    counts = [properties.get(key, "") for key in ("Socket(s)", "Core(s) per socket", "Thread(s) per core")]
    sockets, cores, threads = counts if all(map(str.isdigit, counts)) else ("", "", "")
    fastest = re.fullmatch(r"[\d.]+", properties.get("CPU max MHz", ""))
    # As in "Intel(R) Xeon(R) CPU @ 2.20GHz".
    in_name = re.search(r"@ ([\d.]+ ?GHz)", machine.processor)
    frequency = in_name[1] if in_name else ""
    caches = {key.removesuffix(" cache"): properties[key] for key in properties if key.endswith(" cache")}
    return {
        "host_processors_per_node": sockets,
        "host_processor_model_name": machine.processor,
        "host_processor_core_count": cores,
        "host_processor_vcpu_count": str(int(cores) * int(threads)) if cores else "",
        "host_processor_frequency": f"{float(fastest[0]):.0f} MHz" if fastest else frequency,
        "host_processor_caches": ", ".join(f"{name}: {size}" for name, size in caches.items()),
    }


def _memory_and_storage(source: Sources, machine: Machine) -> dict[str, str]:
    """Return the fields of the memory and the disks."""
    kinds, sizes = [], []
    for disk in source.names("sys/block"):
        sectors = source.text(f"sys/block/{disk}/size")  # of 512 bytes, also if the disk's sectors are larger
        kind = next((kind for pattern, kind in _DISKS.items() if re.fullmatch(pattern, disk)), "")
        if kind and sectors.isdigit() and int(sectors):
            is_hard_disk = kind == "SSD" and source.text(f"sys/block/{disk}/queue/rotational") == "1"
            kinds.append("HDD" if is_hard_disk else kind)
            sizes.append(f"{int(sectors) * 512 / 1e9:.0f} GB")
    return {
        "host_memory_capacity": f"{machine.memory / 2**30:.0f} GiB" if machine.memory else "",
        "host_storage_type": " + ".join(dict.fromkeys(kinds)),
        "host_storage_capacity": _counted(sizes),
    }


def _counted(things: Iterable[str]) -> str:
    """Return the texts ``things`` with the number of times that each occurs, as in "2 x 3840 GB + 1 x 480
    GB"."""
    return " + ".join(f"{count} x {thing}" for thing, count in collections.Counter(things).items())


def _networking(source: Sources, machine: Machine) -> str:
    """Return the InfiniBand and RoCE ports that are up, or, if there are none, the Ethernet ports that report
    their speed."""
    # From "mlx5_0: 400 Gb/sec (4X NDR), InfiniBand" to "400 Gb/sec (4X NDR) InfiniBand".
    ports = [re.sub(r"^[^:]*: (.*), (.*)$", r"\1 \2", port) for port in machine.infiniband]
    if not ports:
        for name in source.names("sys/class/net"):
            speed = source.text(f"sys/class/net/{name}/speed")
            # A virtual interface has no device. A port that is not connected has the speed -1.
            if source.names(f"sys/class/net/{name}/device") and speed.isdigit():
                ports.append(f"{int(speed) / 1000:g} Gb/sec Ethernet")
    return _counted(ports)


def _accelerators(machine: Machine) -> dict[str, str]:
    """Return the fields of the GPUs, and the version of their driver."""
    if not machine.gpus:
        return {}
    kinds = collections.Counter(machine.links)  # kind of link -> number of pairs of GPUs
    # NVLink is named if any pair has it. A single GPU has no link.
    link = "NVLink" if any(kind.startswith("NV") for kind in kinds) else "PCIe" if kinds else ""
    pairs = [f"{kind} between {number} of {kinds.total()} pairs" for kind, number in kinds.items()]
    first = machine.gpus[0]
    power = f" ({first.power_limit:.0f} W)" if first.power_limit else ""
    return {
        "accelerator_model_name": " + ".join(dict.fromkeys(gpu.name for gpu in machine.gpus)) + power,
        "accelerator_host_interconnect": first.pcie or "",
        "accelerator_frequency": f"{first.clock_mhz:.0f} MHz" if first.clock_mhz else "",
        "accelerator_memory_capacity": f"{first.memory_mib:.0f} MiB" if first.memory_mib else "",
        "accelerator_interconnect": link,
        "accelerator_interconnect_topology": ", ".join(pairs),
        "cuda_driver_version": first.driver,
    }


def _confined(machine: Machine, limits: cgroup.Limits) -> str:
    """Return a sentence on the CPUs and the memory that the control group allows a run; "" if it allows all
    of the machine."""
    parts = []
    # The number of CPUs that the run may use, or the number whose time it may use, if that is smaller.
    cpus = min(machine.online if limits.cpus is None else len(limits.cpus), limits.quota or machine.online)
    if cpus < machine.online:
        parts.append(f"{cpus:g} of {machine.online} CPUs")
    if machine.memory and machine.memory_limit:
        parts.append(f"{machine.memory_limit / 2**30:.0f} of {machine.memory / 2**30:.0f} GiB of memory")
    return f"the run could use {' and '.join(parts)}" if parts else ""
