"""Checks of threads and their binding, memory, limits of the system, network, data set and power meters."""

import math
import os
import pathlib
import shutil
from collections.abc import Iterator

from rn50.data import layout, preflight
from rn50.data.certification import certificate
from rn50.data.pipeline import loader_batches
from rn50.doctor.diagnosis import FAILURE, OK, WARNING, Diagnosis
from rn50.errors import UserError
from rn50.machine import binding, cpu_list, power
from rn50.machine.hardware import Machine
from rn50.machine.software import Software
from rn50.settings.config import Config

GIB = 1 << 30
RANK_MEMORY = 350 << 20
"""Bytes of memory that a rank needs at least. A rank of the smallest system, DEMO_CPU, ran with a limit of
330 MiB and was killed with one of 300 MiB."""
NCCL_SEGMENT = 10 << 20
"""Bytes that NCCL allocates in /dev/shm for each rank: its messages name segments of 9,637,888 bytes."""
SHARED_MEMORY = GIB
"""Size of /dev/shm that NVIDIA recommends for NCCL in a container (NCCL user guide, troubleshooting, sharing
data)."""
OPEN_FILES = 4096
"""Limit of open files below which the doctor warns: many systems have 1024, and frameworks open many files
and sockets."""
NETWORK_KINDS = ("nfs", "cifs", "smb3", "9p", "virtiofs", "afs", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse")
"""Beginnings of the types of network file systems."""


def diagnoses(machine: Machine, software: Software, config: Config | None) -> Iterator[Diagnosis]:
    """Yield the diagnoses of a machine for the run of ``config``; None: for training in general."""
    ranks = config.run.ranks_per_node if config else 1
    on_gpus = bool(machine.gpus) if config is None else config.run.device == "gpu"
    yield _threads(machine, config)
    yield _binding(machine, ranks, on_gpus)
    yield _memory(machine, config)
    # Only ranks on GPUs use NCCL. Ranks on the CPU are counted as one, for which NCCL needs no memory.
    yield _shared_memory(machine, ranks if on_gpus else 1, _batch_bytes(machine, software, config))
    yield _locked_memory(machine, config)
    yield _open_files(machine)
    yield _network(machine, config)
    if config is not None:
        yield _data(machine, config)
        yield from _power(config.run.power)


def _threads(machine: Machine, config: Config | None) -> Diagnosis:
    """Compare the number of usable CPUs with the number of threads that are always busy: one for each rank,
    and the threads of its input pipeline. Also warn if OMP_NUM_THREADS gives the ranks more threads than
    there are CPUs."""
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
    limit = max(1, machine.usable_cpus // ranks - 1)  # most input threads of a rank for which there are CPUs
    # An input thread of a run on the CPU is busy for a small part of the time only, and may share the core of
    # its rank.
    may_share = config.run.device == "cpu" and ranks <= machine.usable_cpus and threads <= limit
    if ranks * (threads + 1) <= machine.usable_cpus or may_share:
        return Diagnosis(OK, "threads", text)
    fewer = f"set DALI_THREADS={limit} in the configuration"
    return Diagnosis(WARNING, "threads", text, fewer if limit < threads else "give the job more CPUs")


def _input_threads(machine: Machine, config: Config) -> int:
    """Return the number of threads of a rank's input pipeline: DALI_THREADS, or, if it is 0, the number that
    a run chooses."""
    return config.input_pipeline.threads or max(1, machine.usable_cpus // config.run.ranks_per_node - 1)


def _binding(machine: Machine, ranks: int, on_gpus: bool) -> Diagnosis:
    """Show which CPUs each rank gets, and check that they are near its GPU."""
    plan = binding.plan(machine, ranks, near_gpus=on_gpus)
    cpus_of_ranks = "; ".join(f"rank {rank.local_rank}: CPU {cpu_list.write(rank.cpus)}" for rank in plan)
    nodes = {cpu.node for cpu in machine.cpus}
    # A node is None if it is not known. A GPU is checked only if its node and those of all CPUs are known.
    used = machine.gpus[:ranks] if on_gpus and None not in nodes else ()
    far = [f"GPU {gpu.index} (NUMA node {gpu.node})" for gpu in used if gpu.node not in {None, *nodes}]
    if far:
        text = f"{cpus_of_ranks}; no usable CPU is near {', '.join(far)}"
        remedy = "ask for CPUs near the GPUs: srun --gpu-bind=closest, or docker run --cpuset-cpus=..."
        return Diagnosis(WARNING, "binding", text, remedy)
    if len(machine.cpus) < ranks:
        cpus = cpu_list.write(cpu.number for cpu in machine.cpus)
        return Diagnosis(WARNING, "binding", f"{ranks} ranks share CPU {cpus}", "give the job more CPUs")
    return Diagnosis(OK, "binding", cpus_of_ranks)


def _memory(machine: Machine, config: Config | None) -> Diagnosis:
    """Compare the memory with the need of the ranks, and with the size of the data set."""
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
    """Return the bytes of all files of the data set in ``folder`` that exist. Opens no file, because none may
    be opened before the clock starts."""
    return sum(path.stat().st_size for path in (folder / name for name in layout.FILES) if path.exists())


def shown(size: int) -> str:
    """Return a number of bytes in GiB or MiB."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / (1 << 20):.0f} MiB"


def _batch_bytes(machine: Machine, software: Software, config: Config | None) -> int:
    """Return how many bytes of /dev/shm are filled by batches that the processes of a DataLoader prepare; 0
    if DALI prepares the batches."""
    if config is None:
        return 0
    library = config.input_pipeline.library
    if library == "dali" or (library == "auto" and software.has_dali):
        return 0
    return config.run.ranks_per_node * loader_batches.shared_memory(config, _input_threads(machine, config))


def _shared_memory(machine: Machine, ranks: int, batch_bytes: int = 0) -> Diagnosis:
    """Compare the size of /dev/shm with ``batch_bytes``, which is the need of batches, and with the need of
    NCCL between ``ranks`` ranks."""
    size = machine.shared_memory
    if size is None:  # mounted without a size: the kernel's default
        return Diagnosis(OK, "/dev/shm", "half of the memory")
    text = shown(size) if size else "not mounted"
    gib = math.ceil(max(SHARED_MEMORY, batch_bytes + ranks * NCCL_SEGMENT) / GIB)
    mount = f"remount,size={gib}G" if size else f"size={gib}G -t tmpfs tmpfs"
    outside = f"sudo mount -o {mount} /dev/shm"
    remedy = f"docker run --shm-size={gib}g (or --ipc=host)" if machine.in_container else outside
    if size < batch_bytes:
        text = f"{text}; batches of the DataLoader's processes take up to {shown(batch_bytes)}"
        remedy = f"{remedy}; or lower DALI_PREFETCH_QUEUE or DALI_THREADS, or install DALI"
        return Diagnosis(FAILURE, "/dev/shm", text, remedy)
    if ranks > 1 and size < ranks * NCCL_SEGMENT:
        text += f"; NCCL needs {shown(ranks * NCCL_SEGMENT)} for {ranks} ranks"
        return Diagnosis(FAILURE, "/dev/shm", text, remedy)
    if ranks > 1 and size < SHARED_MEMORY:
        return Diagnosis(WARNING, "/dev/shm", f"{text}; NVIDIA advises 1 GiB for NCCL", remedy)
    return Diagnosis(OK, "/dev/shm", text)


def _locked_memory(machine: Machine, config: Config | None) -> Diagnosis:
    """Check that a process may lock memory without limit, which InfiniBand needs: a failure for a run on
    several machines, else a warning."""
    limit = machine.locked_memory
    text = "unlimited" if limit is None else f"{limit >> 10} KiB"
    if limit is None or not machine.infiniband:
        return Diagnosis(OK, "locked memory", text)
    severity = FAILURE if config is not None and config.run.nodes > 1 else WARNING
    service = "LimitMEMLOCK=infinity in the service that starts the job"
    outside = f"ulimit -l unlimited; where that is not allowed, {service}"
    remedy = "docker run --ulimit memlock=-1" if machine.in_container else outside
    return Diagnosis(severity, "locked memory", f"{text}; InfiniBand needs its buffers locked", remedy)


def _open_files(machine: Machine) -> Diagnosis:
    """Check the limit of the number of open files."""
    limit = machine.open_files
    text = "unlimited" if limit is None else str(limit)
    if limit is not None and limit < OPEN_FILES:
        remedy = "docker run --ulimit nofile=65536" if machine.in_container else "ulimit -n 65536"
        return Diagnosis(WARNING, "open files", f"{text} at a time", remedy)
    return Diagnosis(OK, "open files", text)


def _network(machine: Machine, config: Config | None) -> Diagnosis:
    """Check that a run on several machines has InfiniBand."""
    if machine.infiniband:
        return Diagnosis(OK, "network", "; ".join(machine.infiniband))
    if config is not None and config.run.nodes > 1:
        text = f"no active InfiniBand port for {config.run.nodes} machines: ranks talk over TCP"
        remedy = "cat /sys/class/infiniband/*/ports/*/state shows what is down"
        inside = "in a container: docker run --device=/dev/infiniband"
        return Diagnosis(WARNING, "network", text, f"{remedy}; {inside}")
    return Diagnosis(OK, "network", "no active InfiniBand port")


def _data(machine: Machine, config: Config) -> Diagnosis:
    """Check that the data set is whole, and that it is not on a network file system."""
    folder = os.path.realpath(config.data.folder)
    try:
        certificate.refuse_other_numbers(config)
        preflight.check(config)
        # A record set is (.rec file, .idx file, number of records, variable that sets the number).
        for record_set in preflight.record_sets(config).values():
            preflight.check_record_set(*record_set)
        short_side = certificate.expected(pathlib.Path(folder)).short_side  # None: images keep their size
        preflight.refuse_resized(config, short_side)
    except UserError as error:
        return Diagnosis(FAILURE, "DATADIR", f"{error.subject}: {error.problem}", error.remedy)
    mount = machine.mount_of(folder)
    kind = mount.kind if mount else "unknown file system"
    size, free = _size(pathlib.Path(folder)), shutil.disk_usage(folder).free
    text = f"{folder} on {kind}, {shown(size)} of data, {shown(free)} free"
    text += f", shorter side {short_side}: open division only" if short_side else ""
    if kind.startswith(NETWORK_KINDS):
        remedy = f"cp -r {folder} to a local disk and set DATADIR"
        to_stay = "if it has to stay, DALI_DONT_USE_MMAP=1 is what DALI advises there"
        return Diagnosis(WARNING, "DATADIR", f"{text}: a network file system", f"{remedy}; {to_stay}")
    return Diagnosis(OK, "DATADIR", text)


def _power(source: str) -> Iterator[Diagnosis]:
    """Check that the power can be measured as ``source`` says, which is the value of POWER. Yield nothing if
    it is "off"."""
    try:
        reason = power.refuse_impossible(source)  # why POWER=auto measures nothing, else empty
        if source != "off":
            yield Diagnosis(OK, "POWER", reason or source)
    except UserError as error:
        yield Diagnosis(FAILURE, error.subject, error.problem, error.remedy)
