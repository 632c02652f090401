"""Checks of the GPUs: number, memory, clocks, power and links (``diagnoses``).

``capability`` and ``driver`` are checks for a framework's own ``doctor.py``, which calls them with the facts
about its build: whether it has code for the GPUs, and whether their driver runs its version of CUDA.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from rn50 import frameworks
from rn50.benchmark import network
from rn50.doctor.diagnosis import FAILURE, INSTALL_DRIVER, OK, WARNING, Diagnosis
from rn50.frameworks import Traits
from rn50.machine.gpus import OLDEST_DRIVER, Gpu, newer
from rn50.machine.hardware import Machine
from rn50.machine.software import Software
from rn50.settings.config import Config
from rn50.terminal import counted


def diagnoses(
    machine: Machine, software: Software, config: Config | None, framework: str
) -> Iterator[Diagnosis]:
    """Yield the diagnoses of the GPUs that the run of ``config`` uses, with those of the own checks of
    ``framework``. A fault is a failure if the run is on GPUs, else a warning."""
    runs_on_gpus = config is not None and config.run.device == "gpu"
    # The framework's own ``doctor.py``, loaded without the framework; None if it has none.
    checks = frameworks.unimported(framework, "doctor")
    ranks = config.run.ranks_per_node if config is not None and runs_on_gpus else 1
    severity = FAILURE if runs_on_gpus else WARNING
    if not machine.gpus:
        yield _no_gpu(machine, runs_on_gpus)
        return
    used = machine.gpus[:ranks]  # each rank has one, in this order
    yield _count(machine, ranks)
    if checks is not None and hasattr(checks, "gpus"):
        yield from checks.gpus(used, software, severity, config)
    if any(gpu.mig for gpu in used):
        yield _mig(used, ranks, severity)
    yield from _memory(used)
    if config is not None and runs_on_gpus:
        yield from _batch_size(used, config)
    yield _speed(used)
    if len(machine.gpus) > 1:
        yield Diagnosis(OK, "GPU links", _links(machine.links))


def _no_gpu(machine: Machine, runs_on_gpus: bool) -> Diagnosis:
    """Return the diagnosis of a machine without a GPU that this process can use."""
    if not runs_on_gpus and not machine.lacks_its_gpus:
        return Diagnosis(OK, "GPU", "none: this machine trains on its CPU", "")
    # ``machine.no_gpu`` is a text: the reason why this process can use none.
    if "CUDA_VISIBLE_DEVICES" in machine.no_gpu:
        remedy = "unset CUDA_VISIBLE_DEVICES"
    elif machine.nvidia_hardware and machine.in_container:
        with_gpus = "docker run --gpus all, or podman run --device nvidia.com/gpu=all"
        remedy = f"start the container with GPUs: {with_gpus}"
    elif "mismatch" in machine.no_gpu:
        remedy = "sudo reboot (the loaded kernel module is not that of the installed driver)"
    elif machine.lacks_its_gpus:
        remedy = INSTALL_DRIVER
    else:
        remedy = "rn50 run DEMO_CPU trains without a GPU; otherwise use a machine that has one"
    return Diagnosis(FAILURE if runs_on_gpus else WARNING, "GPU", f"no NVIDIA GPU ({machine.no_gpu})", remedy)


def _count(machine: Machine, ranks: int) -> Diagnosis:
    """Compare the number of GPUs with the number of ranks on this machine."""
    memory = (f", {gpu.memory_mib:.0f} MiB" if gpu.memory_mib else "" for gpu in machine.gpus)
    kinds = Counter(f"{gpu.name}{size}" for gpu, size in zip(machine.gpus, memory, strict=True))
    text = "; ".join(f"{number} x {kind}" for kind, number in kinds.items())
    if len(machine.gpus) < ranks:
        number = len(machine.gpus)
        remedy = f"use a configuration for {number}, or set DGXNGPU={number} in it and raise BATCHSIZE to "
        remedy += "keep the global batch"
        return Diagnosis(FAILURE, "GPU", f"{text}, but DGXNGPU={ranks} ranks want one each", remedy)
    return Diagnosis(OK, "GPU", text)


def _mig(used: Sequence[Gpu], ranks: int, severity: str) -> Diagnosis:
    """Return the diagnosis of the GPUs in MIG mode. ``severity`` is that of a fault with which the ranks
    cannot train on them."""
    in_mig_mode = [gpu for gpu in used if gpu.mig]
    remedy = f"sudo nvidia-smi -i {','.join(str(gpu.index) for gpu in in_mig_mode)} -mig 0"
    instances = [profile for gpu in in_mig_mode for profile, _ in gpu.instances]  # without their UUIDs
    text = f"GPU {', '.join(str(gpu.index) for gpu in in_mig_mode)} in MIG mode"
    if not instances:
        return Diagnosis(severity, "MIG", f"{text} without an instance: CUDA sees no device there", remedy)
    text += f" with {', '.join(instances)}"
    if ranks > 1:
        text += f": NCCL does not connect instances, so {ranks} ranks cannot train on them"
        return Diagnosis(severity, "MIG", text, remedy)
    return Diagnosis(WARNING, "MIG", f"{text}: a rank gets one instance, not the GPU", remedy)


def _memory(used: Sequence[Gpu]) -> Iterator[Diagnosis]:
    """Yield a diagnosis if other computations hold memory of the GPUs."""
    if sentences := [gpu.used_by_others for gpu in used if gpu.used_by_others]:
        text = f"{'; '.join(sentences)}: a run may lack it, and shares the GPU's speed"
        remedy = "nvidia-smi names the processes: end them, or leave the GPU out with CUDA_VISIBLE_DEVICES"
        yield Diagnosis(WARNING, "GPU memory", text, remedy)


def _batch_size(used: Sequence[Gpu], config: Config) -> Iterator[Diagnosis]:
    """Yield a diagnosis if a batch of the largest images may not fit the free memory of a GPU."""
    h, size = config.hyperparameters, max(config.image_sizes)
    is_float32 = config.run.precision == "float32"
    gib = network.training_mib(size, config.data.width, is_float32, h.blur_pool) / 1024
    free_gib = min((gpu.free_mib / 1024 for gpu in used if gpu.free_mib and not gpu.mig), default=math.inf)
    if gib * h.batch_size > free_gib:
        text = f"{h.batch_size} images of {size}x{size} take about {gib * h.batch_size:.0f} GiB of a GPU"
        remedy = f"set BATCHSIZE={free_gib / gib:.0f} or less, and an LR for it (rn50 borrow --suggest)"
        yield Diagnosis(WARNING, "BATCHSIZE", f"{text}, and {free_gib:.0f} GiB are free", remedy)


def _speed(used: Sequence[Gpu]) -> Diagnosis:
    """Check what makes GPUs slower than they could be: power limit, persistence mode, and heat."""
    faults, remedies = [], []
    for gpu in used:
        if gpu.power_limit and gpu.power_default and gpu.power_limit < gpu.power_default:
            faults.append(f"GPU {gpu.index} limited to {gpu.power_limit:.0f} of {gpu.power_default:.0f} W")
            remedies.append(f"sudo nvidia-smi -i {gpu.index} -pl {gpu.power_default:.0f}")
        if gpu.slowed:
            faults.append(f"GPU {gpu.index} slowed down ({', '.join(gpu.slowed)})")
            query = f"nvidia-smi -i {gpu.index} -q -d PERFORMANCE,TEMPERATURE,POWER"
            remedies.append(f"check cooling and supply: {query}")
    if any(gpu.persistent is False for gpu in used):
        faults.append("persistence mode off: the driver unloads between runs and forgets its settings")
        remedies.append("sudo nvidia-smi -pm 1")
    if faults:
        remedy = "; ".join(dict.fromkeys(remedies))
        return Diagnosis(WARNING, "GPU clocks and power", "; ".join(faults), remedy)
    first = used[0]
    clock = f"up to {first.clock_mhz:.0f} MHz" if first.clock_mhz else "clock not reported"
    power = f"{first.power_limit:.0f} W" if first.power_limit else "power limit not reported"
    return Diagnosis(OK, "GPU clocks and power", f"{clock}, {power}")


def _links(links: Sequence[str]) -> str:
    """Return ``Machine.links`` in words: for each pair of GPUs the kind of its link as ``nvidia-smi topo -m``
    names it, such as NV18 (18 links of NVLink), PIX or SYS."""
    kinds = Counter(links)  # kind of link -> number of pairs
    if all(kind.startswith("NV") for kind in kinds):
        return f"NVLink between all ({', '.join(kinds)})" if kinds else "not reported by nvidia-smi topo -m"
    paths = {
        "SYS": "between CPU sockets",
        "NODE": "within a NUMA node",
        "PHB": "over a PCIe host bridge",
        "PXB": "over PCIe bridges",
        "PIX": "over one PCIe bridge",
    }
    return ", ".join(
        f"{counted(pairs, 'pair')} {paths.get(kind, f'over NVLink {kind}')}" for kind, pairs in kinds.items()
    )


def capability(used: Sequence[Gpu], traits: Traits, build: str, severity: str, remedy: str = "") -> Diagnosis:
    """Check that ``build``, a name of the framework's build, has code for the GPUs ``used``. If it has none
    for one of them, the diagnosis has ``severity``. ``remedy`` is added if that GPU is newer than all of
    the code."""
    subject = "compute capability"
    capabilities = sorted({gpu.capability for gpu in used if gpu.capability})
    if not capabilities:
        text = f"driver {used[0].driver} does not tell; {build} has code for {traits.code}"
        return Diagnosis(WARNING, subject, text, f"a newer driver tells: {INSTALL_DRIVER}")
    without_code = [version for version in capabilities if not traits.runs_on(version)]
    if not without_code:
        versions = ", ".join(f"{major}.{minor}" for major, minor in capabilities)
        return Diagnosis(OK, subject, f"{versions}; {build} has code for {traits.code}")
    oldest = without_code[0]
    name = next(gpu.name for gpu in used if gpu.capability == oldest)
    text = f"{name} has {oldest[0]}.{oldest[1]}; "
    text += f"{build} has code for {traits.code} only, and no driver changes that"
    # The options that choose a framework with code for this GPU, and the command that installs it.
    other = frameworks.instead(traits, [oldest]) or ("use a newer GPU; rn50 run DEMO_CPU needs none",)
    remedies = (" and ".join(other), remedy if oldest > max(traits.capabilities) else "")
    return Diagnosis(severity, subject, text, "; or ".join(filter(None, remedies)))


def driver(version: str, cuda: int, severity: str) -> Diagnosis:
    """Check that the driver of this version runs libraries of the major version ``cuda`` of CUDA. If it does
    not, the diagnosis has ``severity``."""
    limit = OLDEST_DRIVER[cuda]
    if newer(limit, version):  # the oldest driver that would do is newer than this one
        return Diagnosis(severity, "driver", f"{version}; CUDA {cuda} needs {limit} or newer", INSTALL_DRIVER)
    return Diagnosis(OK, "driver", f"{version}; CUDA {cuda} runs on it")
