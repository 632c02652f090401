"""Check that threads, memory, limits, network and data of this machine suit a run."""

import math
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping

from rn50.data import layout, preflight
from rn50.data.pipeline import loader_batches
from rn50.doctor.finding import FAILURE, OK, WARNING, Finding
from rn50.errors import UserError
from rn50.machine import binding, cpu_list
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
NETWORK_FILE_SYSTEMS = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "9p",
    "virtiofs",
    "fuse.sshfs",
    "fuse.s3fs",
    "fuse.gcsfuse",
    "afs",
)


def findings(
    machine: Machine, software: Software, config: Config | None, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield the findings on everything but processor, GPUs and software."""
    ranks = config.run.ranks_per_node if config else 1
    on_gpus = bool(machine.gpus) if config is None else config.run.device == "gpu"
    yield _threads(machine, config, environ)
    yield _binding(machine, ranks, on_gpus)
    yield _memory(machine, config)
    yield _shared_memory(machine, ranks if on_gpus else 1, _of_batches(machine, software, config))
    yield _locked_memory(machine, config)
    yield _open_files(machine)
    yield _network(machine, config)
    if config is not None:
        yield _data(machine, config)


def _threads(machine: Machine, config: Config | None, environ: Mapping[str, str]) -> Finding:
    """Compare the number of always-busy threads with the number of usable CPUs. More threads than CPUs wait
    for each other."""
    quota = "" if machine.quota is None else f" (the control group's quota is {machine.quota:g} CPUs)"
    usable = f"{machine.usable_cpus} usable CPU(s){quota}"
    if config is None:
        return Finding(OK, "threads", usable)
    ranks = config.run.ranks_per_node
    threads = _input_threads(machine, config)
    omp = environ.get("OMP_NUM_THREADS", "")
    if omp.isdigit() and int(omp) * ranks > machine.usable_cpus:
        return Finding(
            WARNING,
            "threads",
            f"OMP_NUM_THREADS={omp} for {ranks} rank(s) on {usable}: threads that spin while they "
            "wait make training several times slower",
            "unset OMP_NUM_THREADS",
        )
    fitting = max(1, machine.usable_cpus // ranks - 1)
    # On a CPU an input thread takes little, and may share the core of its rank.
    shared = config.run.device == "cpu" and ranks <= machine.usable_cpus and threads <= fitting
    if ranks * (threads + 1) > machine.usable_cpus and not shared:
        remedy = (
            f"set DALI_THREADS={fitting} in the configuration"
            if fitting < threads
            else "give the job more CPUs"
        )
        return Finding(
            WARNING,
            "threads",
            f"{ranks} rank(s) with one thread and DALI_THREADS={threads} each on {usable}",
            remedy,
        )
    return Finding(
        OK, "threads", f"{ranks} rank(s) with one thread and DALI_THREADS={threads} each on {usable}"
    )


def _input_threads(machine: Machine, config: Config) -> int:
    return config.input_pipeline.threads or max(1, machine.usable_cpus // config.run.ranks_per_node - 1)


def _binding(machine: Machine, ranks: int, on_gpus: bool) -> Finding:
    plan = binding.plan(machine, ranks, near_gpus=on_gpus)
    shown = "; ".join(f"rank {rank.local_rank}: CPU {cpu_list.write(rank.cpus)}" for rank in plan)
    nodes = {cpu.node for cpu in machine.cpus}
    far = [
        gpu
        for gpu in machine.gpus[:ranks]
        if on_gpus and None not in nodes and gpu.node not in {None, *nodes}
    ]
    if far:
        gpus = ", ".join(f"GPU {gpu.index} (NUMA node {gpu.node})" for gpu in far)
        return Finding(
            WARNING,
            "binding",
            f"{shown}; no usable CPU is near {gpus}",
            "ask for CPUs near the GPUs: srun --gpu-bind=closest, or docker run --cpuset-cpus=...",
        )
    if len(machine.cpus) < ranks:
        every = cpu_list.write(cpu.number for cpu in machine.cpus)
        return Finding(WARNING, "binding", f"{ranks} ranks share CPU {every}", "give the job more CPUs")
    return Finding(OK, "binding", shown)


def _memory(machine: Machine, config: Config | None) -> Finding:
    size = machine.memory_limit or machine.memory
    if size is None:
        return Finding(OK, "memory", "not reported by /proc/meminfo")
    text = shown(size) + (" (limit of the control group)" if machine.memory_limit else "")
    least = RANK_MEMORY * config.run.ranks_per_node if config else 0
    if size < least:
        more = (
            "docker run --memory=... or Slurm's --mem=... with more"
            if machine.memory_limit
            else "use a machine with more"
        )
        return Finding(FAILURE, "memory", f"{text}; the smallest ranks need {shown(least)}", more)
    data = _size(pathlib.Path(config.data.folder)) if config else 0
    if config and data > size:
        return Finding(
            WARNING,
            "memory",
            f"{text}, less than the data set's {shown(data)}: every epoch reads it from "
            f"{config.data.folder} again",
            "keep DATADIR on a local NVMe disk, or give the job more memory",
        )
    return Finding(OK, "memory", text)


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
    has_dali = any(name.startswith("nvidia-dali-") for name in software.packages)
    if library == "dali" or library == "auto" and has_dali:
        return 0
    return config.run.ranks_per_node * loader_batches.shared_memory(config, _input_threads(machine, config))


def _shared_memory(machine: Machine, ranks: int, of_batches: int = 0) -> Finding:
    size = machine.shared_memory
    if size is None:
        return Finding(OK, "/dev/shm", "half of the memory")
    text = shown(size) if size else "not mounted"
    gib = math.ceil(max(SHARED_MEMORY, of_batches + ranks * NCCL_SEGMENT) / GIB)
    mount = f"remount,size={gib}G" if size else f"size={gib}G -t tmpfs tmpfs"
    remedy = (
        f"docker run --shm-size={gib}g (or --ipc=host)"
        if machine.in_container
        else f"sudo mount -o {mount} /dev/shm"
    )
    if size < of_batches:
        text = f"{text}; batches of the DataLoader's processes take up to {shown(of_batches)}"
        remedy = f"{remedy}; or lower DALI_PREFETCH_QUEUE or DALI_THREADS, or install DALI"
        return Finding(FAILURE, "/dev/shm", text, remedy)
    if ranks > 1 and size < ranks * NCCL_SEGMENT:
        return Finding(
            FAILURE, "/dev/shm", f"{text}; NCCL needs {shown(ranks * NCCL_SEGMENT)} for {ranks} ranks", remedy
        )
    if ranks > 1 and size < SHARED_MEMORY:
        return Finding(WARNING, "/dev/shm", f"{text}; NVIDIA advises 1 GiB for NCCL", remedy)
    return Finding(OK, "/dev/shm", text)


def _locked_memory(machine: Machine, config: Config | None) -> Finding:
    limit = machine.locked_memory
    text = "unlimited" if limit is None else f"{limit >> 10} KiB"
    if limit is None or not machine.infiniband:
        return Finding(OK, "locked memory", text)
    several = config is not None and config.run.nodes > 1
    remedy = (
        "ulimit -l unlimited; where that is not allowed, LimitMEMLOCK=infinity in the service that "
        "starts the job"
    )
    if machine.in_container:
        remedy = "docker run --ulimit memlock=-1"
    return Finding(
        FAILURE if several else WARNING,
        "locked memory",
        f"{text}; InfiniBand needs its buffers locked",
        remedy,
    )


def _open_files(machine: Machine) -> Finding:
    limit = machine.open_files
    text = "unlimited" if limit is None else str(limit)
    if limit is not None and limit < OPEN_FILES:
        remedy = "docker run --ulimit nofile=65536" if machine.in_container else "ulimit -n 65536"
        return Finding(WARNING, "open files", f"{text} at a time", remedy)
    return Finding(OK, "open files", text)


def _network(machine: Machine, config: Config | None) -> Finding:
    if machine.infiniband:
        return Finding(OK, "network", "; ".join(machine.infiniband))
    if config is not None and config.run.nodes > 1:
        return Finding(
            WARNING,
            "network",
            f"no active InfiniBand port for {config.run.nodes} machines: ranks talk over TCP",
            "cat /sys/class/infiniband/*/ports/*/state shows what is down; in a container: docker run "
            "--device=/dev/infiniband",
        )
    return Finding(OK, "network", "no active InfiniBand port")


def _data(machine: Machine, config: Config) -> Finding:
    folder = os.path.realpath(config.data.folder)
    try:
        preflight.of(config)
    except UserError as error:
        return Finding(FAILURE, "DATADIR", f"{error.subject}: {error.problem}", error.remedy)
    mount = machine.mount_of(folder)
    kind = mount.kind if mount else "unknown file system"
    text = (
        f"{folder} on {kind}, {shown(_size(pathlib.Path(folder)))} of data, "
        f"{shown(shutil.disk_usage(folder).free)} free"
    )
    if kind.startswith(NETWORK_FILE_SYSTEMS):
        return Finding(
            WARNING,
            "DATADIR",
            f"{text}: a network file system",
            f"cp -r {folder} to a local disk and set DATADIR; if it has to stay, DALI_DONT_USE_MMAP=1 is "
            "what DALI advises there",
        )
    return Finding(OK, "DATADIR", text)
