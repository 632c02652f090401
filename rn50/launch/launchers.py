"""The launchers of a run: plain Python, horovodrun, mpirun or Slurm's srun.

``start`` returns the command that starts the ranks, which ``job.py`` runs. ``sharing`` and ``bind`` divide
the cores of a machine among its ranks.
"""

import importlib.util
import os
import pathlib
import shutil
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import psutil

from rn50.errors import UserError, excerpt
from rn50.frameworks import traits
from rn50.launch import hosts
from rn50.machine import binding, hardware
from rn50.process import RANK, python
from rn50.settings.config import Config
from rn50.settings.fields import variables
from rn50.settings.libraries import is_passed_through


class Start(NamedTuple):
    """The command that this process has to start."""

    launcher: str
    argv: list[str]
    environ: Mapping[str, str] = {}
    """Variables of the ranks besides those of this process's environment. Where both have a variable, the
    environment counts."""
    rank: int | None = None
    """Number of the rank that runs ``argv``; None if ``argv`` starts all ranks."""


def choose(config: Config) -> str:
    """Return LAUNCHER, or if that is "auto" the first launcher of these that fits: srun in a Slurm step of
    several tasks; python for one rank, or for ranks of one machine that need no Horovod; mpirun for several
    machines, if it is installed and Horovod can use it; horovodrun in all other cases."""
    if config.run.launcher != "auto":
        return config.run.launcher
    if in_step(config):
        return "srun"
    if config.ranks == 1 or _local_launcher_can(config):
        return "python"
    can_use_mpirun = config.run.nodes > 1 and shutil.which("mpirun") is not None and horovod_has_mpi()
    return "mpirun" if can_use_mpirun else "horovodrun"


def in_step(config: Config) -> bool:
    """Return True if this process is one of several tasks of a Slurm step."""
    return int(config.environment.get("SLURM_STEP_NUM_TASKS", 1)) > 1


def start(config: Config, verb: Sequence[str] = ("train",)) -> Start:
    """Return the command that starts ``rn50 VERB`` as every rank of the run.

    Raises UserError, with the remedy, if this machine cannot start it.
    """
    starters = {"python": _python, "horovodrun": _horovodrun, "mpirun": _mpirun, "srun": _srun}
    return starters[choose(config)](config, python("-m", "rn50", *verb))


def sharing(config: Config) -> tuple[int, int]:
    """Return (number of this rank, number of ranks), counted among the ranks of this machine that may use the
    same cores as this process.

    These are all ranks of the machine, unless Slurm has bound each task to cores. In the launcher's own
    process the number is 0.
    """
    environ = config.environment
    names = (RANK, "HOROVOD_LOCAL_RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
    name = next((name for name in names if name in environ), "")
    number = environ.get(name, "0")
    if not number.isdecimal():
        raise UserError(f"{name}={excerpt(number)}", "not the number of a rank", "unset it")
    local_rank = int(number)
    if in_step(config) and environ.get("SLURM_CPU_BIND_TYPE", "").startswith(("mask_cpu", "map_cpu")):
        # The cores of each task of this machine, as 0x3,0xc,0x3,0xc: tasks 0 and 2 share cores.
        masks = environ["SLURM_CPU_BIND_LIST"].split(",")
        mask = masks[local_rank % len(masks)]
        return masks[:local_rank].count(mask), masks.count(mask)
    return local_rank, config.run.ranks_per_node


def bind(config: Config) -> str:
    """Bind this process to the cores of its rank, and return a line that reports it. Call it before anything
    starts threads."""
    number, ranks = sharing(config)
    # Choose cores near the rank's GPU, unless Slurm bound the tasks: then ``number`` does not tell the GPU.
    near_gpus = config.run.device == "gpu" and ranks == config.run.ranks_per_node
    return binding.apply(binding.plan(hardware.read(), ranks, near_gpus)[number % ranks])


def horovod_has_mpi() -> bool:
    """Return True if the library of Horovod is linked to MPI. Horovod has a function that says so, but it
    imports the framework."""
    package = importlib.util.find_spec("horovod")
    if package is None or not package.origin:
        return False
    libraries = pathlib.Path(package.origin).parent.glob("*/mpi_lib*.so")
    return any(b"libmpi.so" in library.read_bytes() for library in libraries)


def _need_horovod(config: Config) -> None:
    """Raise UserError if the framework does not use Horovod, or if Horovod is not installed."""
    if _without_horovod(config):
        several = "start those of several with ./run.sub (Slurm)"
        remedy = f"set LAUNCHER=auto for those of one machine, and {several}"
        raise UserError(f"FRAMEWORK={config.run.framework}", "its ranks do not use Horovod", remedy)
    if importlib.util.find_spec("horovod") is None or importlib.util.find_spec("horovod.runner") is None:
        build = "requirements/install.sh horovod-build && requirements/install.sh horovod"
        nccl = "-nccl" if config.run.device == "gpu" else ""
        problem = "needs Horovod" if config.ranks == 1 else f"{config.ranks} ranks need Horovod"
        remedy = f"{build}{nccl}, or set {config.to_one_rank}"
        raise UserError(f"LAUNCHER={config.run.launcher}", problem, remedy)


def _slots(config: Config) -> str:
    """Return the machines and their number of ranks in the format of horovodrun and mpirun."""
    return ",".join(f"{host}:{config.run.ranks_per_node}" for host in hosts.of_run(config))


def _python(config: Config, rank_argv: list[str]) -> Start:
    """Return the start of one rank itself, or of the local launcher for several."""
    if config.ranks == 1:
        return Start("python", rank_argv, rank=0)
    if not _local_launcher_can(config):
        place = "CPU" if traits(config.run.framework).horovod else "machine"
        problem = f"starts one rank, or those of one {place}; this run has {config.ranks} with "
        problem += f"DEVICE={config.run.device} and DGXNNODES={config.run.nodes}"
        raise UserError("LAUNCHER=python", problem, "set LAUNCHER=auto")
    return Start("python", python("-m", "rn50.launch.local_launcher", str(config.ranks), *rank_argv))


def _local_launcher_can(config: Config) -> bool:
    """Return True if the local launcher can start the ranks: they are all on this machine, and they run on
    CPUs, or the framework connects GPUs without Horovod."""
    return config.run.nodes == 1 and (config.run.device == "cpu" or _without_horovod(config))


def _without_horovod(config: Config) -> bool:
    """Return True if the framework connects ranks on GPUs, or on several machines, without Horovod."""
    return not traits(config.run.framework).horovod


def _horovodrun(config: Config, rank_argv: list[str]) -> Start:
    """Return the start of horovodrun, with Gloo."""
    _need_horovod(config)
    # Run horovodrun's main function behind an import of the implementation: horovodrun imports the framework,
    # to see what Horovod was built for, and the framework may need a fix that the implementation makes.
    run = "from horovod.runner.launch import run_commandline as run; run()"
    code = f"import implementations.{config.run.framework}; {run}"
    argv = python("-c", code, "--gloo", "-np", str(config.ranks), "-H", _slots(config), *rank_argv)
    return Start("horovodrun", argv)


def _mpirun(config: Config, rank_argv: list[str]) -> Start:
    """Return the start of mpirun, which Horovod uses through MPI."""
    _need_horovod(config)
    alternative = "or set LAUNCHER=horovodrun"
    if shutil.which("mpirun") is None:
        install = "sudo apt-get install openmpi-bin"
        raise UserError("LAUNCHER=mpirun", "no mpirun on PATH", f"{install}, {alternative}")
    if not horovod_has_mpi():
        install = "sudo apt-get install libopenmpi-dev && requirements/install.sh horovod"
        raise UserError("LAUNCHER=mpirun", "Horovod was built without MPI", f"{install}, {alternative}")
    argv = ["mpirun", "--tag-output", "-np", str(config.ranks), "-H", _slots(config)]
    argv += ["--map-by", "slot", "--bind-to", "none"]  # each rank binds itself
    argv += ["--mca", "orte_keep_fqdn_hostnames", "1"]  # else it cuts names of HOSTS off at the first dot
    # Use MPI's plain transports, as Horovod recommends. NCCL does not use MPI's transports.
    argv += ["--mca", "pml", "ob1", "--mca", "btl", "^openib"]
    argv += ["--allow-run-as-root"] if os.geteuid() == 0 else []  # in containers the user is root
    defaults = {
        "HOROVOD_CONTROLLER": "mpi",
        "HOROVOD_CPU_OPERATIONS": "mpi",
        # Without this, MPI asks the kernel for a copy at every message, which a container refuses.
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    }
    # mpirun passes only its own variables to other machines; -x passes another one.
    names = filter(_is_for_every_machine, sorted({**defaults, **config.environment}))
    argv += [word for name in names for word in ("-x", name)]
    return Start("mpirun", argv + rank_argv, defaults)


def _is_for_every_machine(name: str) -> bool:
    """Return True if ranks on other machines need the variable, and mpirun does not set it there itself."""
    spellings = {word for _, _, variable in variables() for word in (variable.name, *variable.aliases)}
    rn50_reads = name in spellings or name.startswith(("RN50_", "PYTHON")) or name in ("PATH", "CONFIG_FILE")
    return rn50_reads or (is_passed_through(name) and not name.startswith(("OMPI_", "PMIX_", "SBATCH_")))


def _srun(config: Config, rank_argv: list[str]) -> Start:
    """Return the start of one rank. srun has started this process once for each rank, and each starts its
    own.

    The ranks find each other through the rendezvous of Gloo or torch.distributed, which rank 0 serves. So
    containers do not need an MPI that fits Slurm's.
    """
    environ = config.environment
    tasks = environ.get("SLURM_STEP_NUM_TASKS")
    if tasks is None:
        remedy = "start it by ./run.sub, or set LAUNCHER=auto"
        raise UserError("LAUNCHER=srun", "this is not a task of a Slurm step", remedy)
    nodes, per_node = config.run.nodes, config.run.ranks_per_node
    if int(tasks) != config.ranks or int(environ["SLURM_STEP_NUM_NODES"]) != nodes:
        started = f"srun started {tasks} tasks on {environ['SLURM_STEP_NUM_NODES']} machines"
        configured = f"DGXNNODES={nodes} times DGXNGPU={per_node}"
        raise UserError(f"{started}, not {configured}; use ./run.sub, which gives srun these numbers")
    rank, node = int(environ["SLURM_PROCID"]), int(environ["SLURM_NODEID"])
    if config.ranks == 1:
        return Start("srun", rank_argv, rank=rank)
    machines = hosts.expand(environ["SLURM_STEP_NODELIST"])
    # Take a port from the numbers of job and step, so that two jobs on a machine differ, below the ephemeral
    # ports of the kernel.
    port = 10000 + (int(environ["SLURM_JOB_ID"]) * 100 + int(environ["SLURM_STEP_ID"])) % 20000
    master, interface = "127.0.0.1", "lo"
    if nodes > 1:
        master = _address(machines[0])
        other_machine = machines[1] if node == 0 else machines[0]  # this one is machines[node]
        interface = interface_towards(_address(other_machine))
    if _without_horovod(config):
        defaults = {
            "RANK": str(rank),
            "WORLD_SIZE": tasks,
            "LOCAL_RANK": environ["SLURM_LOCALID"],
            "MASTER_ADDR": master,
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": interface,
        }
        return Start("srun", rank_argv, defaults, rank)
    _need_horovod(config)
    defaults = {
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": tasks,
        "HOROVOD_HOSTNAME": machines[node],
        "HOROVOD_LOCAL_RANK": environ["SLURM_LOCALID"],
        "HOROVOD_LOCAL_SIZE": str(per_node),
        "HOROVOD_CROSS_RANK": str(node),
        "HOROVOD_CROSS_SIZE": str(nodes),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": master,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_GLOO_IFACE": interface,
        # From this list rank 0 starts the rendezvous server (implementations/mxnet/communicator.py).
        "RN50_RENDEZVOUS": ",".join(f"{machine}:{per_node}" for machine in machines),
    }
    return Start("srun", rank_argv, defaults, rank)


def _address(host: str) -> str:
    """Return the IP address of a host name."""
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        problem = f"this machine knows no address of it ({error.strerror})"
        raise UserError(host, problem, "fix /etc/hosts or DNS") from error


def interface_towards(address: str) -> str:
    """Return the name of the network interface through which this machine reaches ``address``. Nothing is
    sent.

    Without it Gloo would use the interface of this host's name, which is often the loopback.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 1))
        except OSError as error:
            problem = f"this machine has no way there ({error.strerror})"
            raise UserError(address, problem, "fix its network") from error
        ip = probe.getsockname()[0]
    interfaces = psutil.net_if_addrs().items()
    return next(name for name, addresses in interfaces if ip in [entry.address for entry in addresses])
