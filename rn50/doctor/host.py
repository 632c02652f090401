"""Check that threads, memory, limits, network and data of this machine suit a run."""

import math
import os
import pathlib
import shutil
from collections.abc import Iterator

from rn50.data import layout, preflight
from rn50.data.pipeline import loader_batches
from rn50.doctor.diagnosis import FAILURE, OK, WARNING, Diagnosis
from rn50.errors import UserError
from rn50.machine import binding, cpu_list, power
from rn50.machine.hardware import Machine
from rn50.machine.software import Software
from rn50.settings.config import Config

GIB = 1 << 30
RANK_MEMORY = 350 << 20
"""Bytes for a rank of the smallest system, DEMO_CPU: with 330 MiB it ran, with 300 it was killed (in a memory
cgroup)."""
NCCL_SEGMENT = 10 << 20
"""Bytes that NCCL allocates in /dev/shm for each rank: its messages name segments of 9,637,888."""
SHARED_MEMORY = GIB
"""Size that NVIDIA recommends for NCCL in a container (NCCL user guide, troubleshooting, sharing data)."""
OPEN_FILES = 4096
NETWORK_KINDS = ("nfs", "cifs", "smb3", "9p", "virtiofs", "afs", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse")
"""Beginnings of the types of network file systems."""


def diagnoses(machine: Machine, software: Software, config: Config | None) -> Iterator[Diagnosis]:
    """Yield the diagnoses of everything but processor, GPUs and software."""
    ranks = config.run.ranks_per_node if config else 1
    on_gpus = bool(machine.gpus) if config is None else config.run.device == "gpu"
    yield _threads(machine, config)
    yield _binding(machine, ranks, on_gpus)
    yield _memory(machine, config)
    yield _shared_memory(machine, ranks if on_gpus else 1, _of_batches(machine, software, config))
    yield _locked_memory(machine, config)
    yield _open_files(machine)
    yield _network(machine, config)
    if config is not None:
        yield _data(machine, config)
        yield from _power(config.run.power)


def _threads(machine: Machine, config: Config | None) -> Diagnosis:
    """Compare the number of always-busy threads with the number of usable CPUs. More threads than CPUs wait
    for each other."""
    quota = "" if machine.quota is None else f" (the control group's quota is {machine.quota:g} CPUs)"
    usable = f"{machine.usable_cpus} usable CPU(s){quota}"
    if config is None:
        return Diagnosis(OK, "threads", usable)
    ranks = config.run.ranks_per_node
    threads = _input_threads(machine, config)
    omp = config.environment.get("OMP_NUM_THREADS", "")
    if omp.isdigit() and int(omp) * ranks > machine.usable_cpus:
        text = f"OMP_NUM_THREADS={omp} for {ranks} rank(s) on {usable}: threads that spin while they wait"
        text += " make training several times slower"
        return Diagnosis(WARNING, "threads", text, "unset OMP_NUM_THREADS")
    text = f"{ranks} rank(s) with one thread and DALI_THREADS={threads} each on {usable}"
    fitting = max(1, machine.usable_cpus // ranks - 1)
    # On a CPU an input thread takes little, and may share the core of its rank.
    shared = config.run.device == "cpu" and ranks <= machine.usable_cpus and threads <= fitting
    if ranks * (threads + 1) <= machine.usable_cpus or shared:
        return Diagnosis(OK, "threads", text)
    lower = f"set DALI_THREADS={fitting} in the configuration"
    return Diagnosis(WARNING, "threads", text, lower if fitting < threads else "give the job more CPUs")


def _input_threads(machine: Machine, config: Config) -> int:
    return config.input_pipeline.threads or max(1, machine.usable_cpus // config.run.ranks_per_node - 1)


def _binding(machine: Machine, ranks: int, on_gpus: bool) -> Diagnosis:
    plan = binding.plan(machine, ranks, near_gpus=on_gpus)
    shown = "; ".join(f"rank {rank.local_rank}: CPU {cpu_list.write(rank.cpus)}" for rank in plan)
    nodes = {cpu.node for cpu in machine.cpus}
    used = machine.gpus[:ranks] if on_gpus and None not in nodes else ()
    far = [f"GPU {gpu.index} (NUMA node {gpu.node})" for gpu in used if gpu.node not in {None, *nodes}]
    if far:
        text = f"{shown}; no usable CPU is near {', '.join(far)}"
        remedy = "ask for CPUs near the GPUs: srun --gpu-bind=closest, or docker run --cpuset-cpus=..."
        return Diagnosis(WARNING, "binding", text, remedy)
    if len(machine.cpus) < ranks:
        every = cpu_list.write(cpu.number for cpu in machine.cpus)
        return Diagnosis(WARNING, "binding", f"{ranks} ranks share CPU {every}", "give the job more CPUs")
    return Diagnosis(OK, "binding", shown)


def _memory(machine: Machine, config: Config | None) -> Diagnosis:
    size = machine.memory_limit or machine.memory
    if size is None:
        return Diagnosis(OK, "memory", "not reported by /proc/meminfo")
    text = shown(size) + (" (limit of the control group)" if machine.memory_limit else "")
    least = RANK_MEMORY * config.run.ranks_per_node if config else 0
    if size < least:
        limited = "docker run --memory=... or Slurm's --mem=... with more"
        remedy = limited if machine.memory_limit else "use a machine with more"
        return Diagnosis(FAILURE, "memory", f"{text}; the smallest ranks need {shown(least)}", remedy)
    data = _size(pathlib.Path(config.data.folder)) if config else 0
    if config and data > size:
        text += f", less than the data set's {shown(data)}"
        text += f": every epoch reads it from {config.data.folder} again"
        remedy = "keep DATADIR on a local NVMe disk, or give the job more memory"
        return Diagnosis(WARNING, "memory", text, remedy)
    return Diagnosis(OK, "memory", text)


def _size(folder: pathlib.Path) -> int:
    """Return the bytes of the data set's files that exist.

    It opens no file, because none may be opened before the clock runs.
    """
    return sum(path.stat().st_size for path in (folder / name for name in layout.FILES) if path.exists())


def shown(size: int) -> str:
    """Return bytes in a readable unit."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / (1 << 20):.0f} MiB"


def _of_batches(machine: Machine, software: Software, config: Config | None) -> int:
    """Return the bytes in /dev/shm of the batches that DataLoader processes prepare; 0 if DALI prepares
    them."""
    if config is None:
        return 0
    library = config.input_pipeline.library
    if library == "dali" or library == "auto" and software.has_dali:
        return 0
    return config.run.ranks_per_node * loader_batches.shared_memory(config, _input_threads(machine, config))


def _shared_memory(machine: Machine, ranks: int, of_batches: int = 0) -> Diagnosis:
    size = machine.shared_memory
    if size is None:
        return Diagnosis(OK, "/dev/shm", "half of the memory")
    text = shown(size) if size else "not mounted"
    gib = math.ceil(max(SHARED_MEMORY, of_batches + ranks * NCCL_SEGMENT) / GIB)
    mount = f"remount,size={gib}G" if size else f"size={gib}G -t tmpfs tmpfs"
    outside = f"sudo mount -o {mount} /dev/shm"
    remedy = f"docker run --shm-size={gib}g (or --ipc=host)" if machine.in_container else outside
    if size < of_batches:
        text = f"{text}; batches of the DataLoader's processes take up to {shown(of_batches)}"
        remedy = f"{remedy}; or lower DALI_PREFETCH_QUEUE or DALI_THREADS, or install DALI"
        return Diagnosis(FAILURE, "/dev/shm", text, remedy)
    if ranks > 1 and size < ranks * NCCL_SEGMENT:
        text += f"; NCCL needs {shown(ranks * NCCL_SEGMENT)} for {ranks} ranks"
        return Diagnosis(FAILURE, "/dev/shm", text, remedy)
    if ranks > 1 and size < SHARED_MEMORY:
        return Diagnosis(WARNING, "/dev/shm", f"{text}; NVIDIA advises 1 GiB for NCCL", remedy)
    return Diagnosis(OK, "/dev/shm", text)


def _locked_memory(machine: Machine, config: Config | None) -> Diagnosis:
    limit = machine.locked_memory
    text = "unlimited" if limit is None else f"{limit >> 10} KiB"
    if limit is None or not machine.infiniband:
        return Diagnosis(OK, "locked memory", text)
    grave = FAILURE if config is not None and config.run.nodes > 1 else WARNING
    service = "LimitMEMLOCK=infinity in the service that starts the job"
    outside = f"ulimit -l unlimited; where that is not allowed, {service}"
    remedy = "docker run --ulimit memlock=-1" if machine.in_container else outside
    return Diagnosis(grave, "locked memory", f"{text}; InfiniBand needs its buffers locked", remedy)


def _open_files(machine: Machine) -> Diagnosis:
    limit = machine.open_files
    text = "unlimited" if limit is None else str(limit)
    if limit is not None and limit < OPEN_FILES:
        remedy = "docker run --ulimit nofile=65536" if machine.in_container else "ulimit -n 65536"
        return Diagnosis(WARNING, "open files", f"{text} at a time", remedy)
    return Diagnosis(OK, "open files", text)


def _network(machine: Machine, config: Config | None) -> Diagnosis:
    if machine.infiniband:
        return Diagnosis(OK, "network", "; ".join(machine.infiniband))
    if config is not None and config.run.nodes > 1:
        text = f"no active InfiniBand port for {config.run.nodes} machines: ranks talk over TCP"
        remedy = "cat /sys/class/infiniband/*/ports/*/state shows what is down"
        inside = "in a container: docker run --device=/dev/infiniband"
        return Diagnosis(WARNING, "network", text, f"{remedy}; {inside}")
    return Diagnosis(OK, "network", "no active InfiniBand port")


def _data(machine: Machine, config: Config) -> Diagnosis:
    folder = os.path.realpath(config.data.folder)
    try:
        preflight.check(config)
        for record_set in preflight.record_sets(config).values():
            preflight.check_record_set(*record_set)
    except UserError as error:
        return Diagnosis(FAILURE, "DATADIR", f"{error.subject}: {error.problem}", error.remedy)
    mount = machine.mount_of(folder)
    kind = mount.kind if mount else "unknown file system"
    size, free = _size(pathlib.Path(folder)), shutil.disk_usage(folder).free
    text = f"{folder} on {kind}, {shown(size)} of data, {shown(free)} free"
    if kind.startswith(NETWORK_KINDS):
        remedy = f"cp -r {folder} to a local disk and set DATADIR"
        else_advice = "if it has to stay, DALI_DONT_USE_MMAP=1 is what DALI advises there"
        return Diagnosis(WARNING, "DATADIR", f"{text}: a network file system", f"{remedy}; {else_advice}")
    return Diagnosis(OK, "DATADIR", text)


def _power(how: str) -> Iterator[Diagnosis]:
    try:
        reason = power.refuse_impossible(how)
        if how != "off":
            yield Diagnosis(OK, "POWER", reason or how)
    except UserError as error:
        yield Diagnosis(FAILURE, error.subject, error.problem, error.remedy)
