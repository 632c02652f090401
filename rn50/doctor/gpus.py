"""Check that the GPUs of a configuration are present, at full speed and linked; and, for the framework's own
checks, that its build has code for them and that their driver runs its CUDA."""

from collections import Counter
from collections.abc import Iterator, Sequence

from rn50 import frameworks
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
    """Yield the diagnoses of GPUs, as ``framework`` uses them.

    An obstacle is a failure if the configuration uses GPUs, else a warning.
    """
    needed = config is not None and config.run.device == "gpu"
    checks = frameworks.unimported(framework, "doctor")
    ranks = config.run.ranks_per_node if config is not None and needed else 1
    grave = FAILURE if needed else WARNING
    if not machine.gpus:
        yield _no_gpu(machine, needed)
        return
    used = machine.gpus[:ranks]
    yield _count(machine, ranks)
    if checks is not None and hasattr(checks, "gpus"):
        yield from checks.gpus(used, software, grave, config)
    if any(gpu.mig for gpu in used):
        yield _mig(used, ranks, grave)
    yield from _memory(used)
    yield _speed(used)
    if len(machine.gpus) > 1:
        yield Diagnosis(OK, "GPU links", _links(machine.links))


def _no_gpu(machine: Machine, needed: bool) -> Diagnosis:
    if not needed and not machine.lacks_its_gpus:
        return Diagnosis(OK, "GPU", "none: this machine trains on its CPU", "")
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
    return Diagnosis(FAILURE if needed else WARNING, "GPU", f"no NVIDIA GPU ({machine.no_gpu})", remedy)


def _count(machine: Machine, ranks: int) -> Diagnosis:
    memory = (f", {gpu.memory_mib:.0f} MiB" if gpu.memory_mib else "" for gpu in machine.gpus)
    kinds = Counter(f"{gpu.name}{size}" for gpu, size in zip(machine.gpus, memory, strict=True))
    text = "; ".join(f"{number} x {kind}" for kind, number in kinds.items())
    if len(machine.gpus) < ranks:
        few = len(machine.gpus)
        remedy = f"use a configuration for {few}, or set DGXNGPU={few} in it and raise BATCHSIZE to keep the"
        remedy += " global batch"
        return Diagnosis(FAILURE, "GPU", f"{text}, but DGXNGPU={ranks} ranks want one each", remedy)
    return Diagnosis(OK, "GPU", text)


def _mig(used: Sequence[Gpu], ranks: int, grave: str) -> Diagnosis:
    sliced = [gpu for gpu in used if gpu.mig]
    whole = f"sudo nvidia-smi -i {','.join(str(gpu.index) for gpu in sliced)} -mig 0"
    instances = [profile for gpu in sliced for profile, _ in gpu.instances]
    shown = f"GPU {', '.join(str(gpu.index) for gpu in sliced)} in MIG mode"
    if not instances:
        return Diagnosis(grave, "MIG", f"{shown} without an instance: CUDA sees no device there", whole)
    shown += f" with {', '.join(instances)}"
    if ranks > 1:
        text = f"{shown}: NCCL does not connect instances, so {ranks} ranks cannot train on them"
        return Diagnosis(grave, "MIG", text, whole)
    return Diagnosis(WARNING, "MIG", f"{shown}: a rank gets one instance, not the GPU", whole)


def _memory(used: Sequence[Gpu]) -> Iterator[Diagnosis]:
    """Yield a diagnosis if other computations hold memory of the GPUs."""
    held = [gpu.used_by_others for gpu in used if gpu.used_by_others]
    if held:
        text = f"{'; '.join(held)}: a run may lack it, and shares the GPU's speed"
        remedy = "nvidia-smi names the processes: end them, or leave the GPU out with CUDA_VISIBLE_DEVICES"
        yield Diagnosis(WARNING, "GPU memory", text, remedy)


def _speed(used: Sequence[Gpu]) -> Diagnosis:
    """Check power limit, persistence mode and the reasons for lower clocks."""
    wrong, remedies = [], []
    for gpu in used:
        if gpu.power_limit and gpu.power_default and gpu.power_limit < gpu.power_default:
            wrong.append(f"GPU {gpu.index} limited to {gpu.power_limit:.0f} of {gpu.power_default:.0f} W")
            remedies.append(f"sudo nvidia-smi -i {gpu.index} -pl {gpu.power_default:.0f}")
        if gpu.slowed:
            wrong.append(f"GPU {gpu.index} slowed down ({', '.join(gpu.slowed)})")
            query = f"nvidia-smi -i {gpu.index} -q -d PERFORMANCE,TEMPERATURE,POWER"
            remedies.append(f"check cooling and supply: {query}")
    if any(gpu.persistent is False for gpu in used):
        wrong.append("persistence mode off: the driver unloads between runs and forgets its settings")
        remedies.append("sudo nvidia-smi -pm 1")
    if wrong:
        remedy = "; ".join(dict.fromkeys(remedies))
        return Diagnosis(WARNING, "GPU clocks and power", "; ".join(wrong), remedy)
    first = used[0]
    clock = f"up to {first.clock_mhz:.0f} MHz" if first.clock_mhz else "clock not reported"
    power = f"{first.power_limit:.0f} W" if first.power_limit else "power limit not reported"
    return Diagnosis(OK, "GPU clocks and power", f"{clock}, {power}")


def _links(links: Sequence[str]) -> str:
    kinds = Counter(links)
    if all(kind.startswith("NV") for kind in kinds):
        return f"NVLink between all ({', '.join(kinds)})" if kinds else "not reported by nvidia-smi topo -m"
    ways = {
        "SYS": "between CPU sockets",
        "NODE": "within a NUMA node",
        "PHB": "over a PCIe host bridge",
        "PXB": "over PCIe bridges",
        "PIX": "over one PCIe bridge",
    }
    pairs = (
        f"{counted(number, 'pair')} {ways.get(kind, f'over NVLink {kind}')}" for kind, number in kinds.items()
    )
    return ", ".join(pairs)


def capability(used: Sequence[Gpu], traits: Traits, build: str, grave: str, remedy: str = "") -> Diagnosis:
    """Check that ``build`` has code for the GPUs. ``remedy`` is for GPUs newer than all of its code."""
    subject = "compute capability"
    capabilities = sorted({gpu.capability for gpu in used if gpu.capability})
    if not capabilities:
        text = f"driver {used[0].driver} does not tell; {build} has code for {traits.code}"
        return Diagnosis(WARNING, subject, text, f"a newer driver tells: {INSTALL_DRIVER}")
    bad = [version for version in capabilities if not traits.runs_on(version)]
    if not bad:
        shown = ", ".join(f"{major}.{minor}" for major, minor in capabilities)
        return Diagnosis(OK, subject, f"{shown}; {build} has code for {traits.code}")
    name = next(gpu.name for gpu in used if gpu.capability == bad[0])
    shown = f"{name} has {bad[0][0]}.{bad[0][1]}"
    text = f"{shown}; {build} has code for {traits.code} only, and no driver changes that"
    other = frameworks.instead(traits, [bad[0]]) or ("use a newer GPU; rn50 run DEMO_CPU needs none",)
    remedies = (" and ".join(other), remedy if bad[0] > max(traits.capabilities) else "")
    return Diagnosis(grave, subject, text, "; or ".join(filter(None, remedies)))


def driver(version: str, cuda: int, grave: str) -> Diagnosis:
    """Check that a driver runs libraries of a major version of CUDA."""
    oldest = OLDEST_DRIVER[cuda]
    if newer(oldest, version):
        return Diagnosis(grave, "driver", f"{version}; CUDA {cuda} needs {oldest} or newer", INSTALL_DRIVER)
    return Diagnosis(OK, "driver", f"{version}; CUDA {cuda} runs on it")
