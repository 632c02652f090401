"""Check that there are the GPUs that a configuration wants, at full speed and linked. The framework checks
the rest."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rn50 import frameworks
from rn50.doctor.finding import FAILURE, INSTALL_DRIVER, OK, WARNING, Finding
from rn50.machine.gpus import Gpu
from rn50.machine.hardware import Machine
from rn50.machine.software import Software
from rn50.settings.config import Config


def findings(
    machine: Machine, software: Software, config: Config | None, framework: str, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield the findings on GPUs, as ``framework`` uses them.

    An obstacle is a failure if the configuration uses GPUs, else a warning.
    """
    wanted = config is not None and config.run.device == "gpu"
    own = frameworks.unimported(framework, "doctor")
    ranks = config.run.ranks_per_node if config is not None and wanted else 1
    grave = FAILURE if wanted else WARNING
    if not machine.gpus:
        yield _no_gpu(machine, wanted)
        return
    used = machine.gpus[:ranks]
    yield _count(machine, ranks)
    if own is not None and hasattr(own, "gpus"):
        yield from own.gpus(used, software, grave, environ)
    if any(each.mig for each in used):
        yield _mig(used, ranks, grave)
    yield from _memory(used)
    yield _speed(used)
    if len(machine.gpus) > 1:
        yield Finding(OK, "GPU links", _links(machine.links))


def _no_gpu(machine: Machine, wanted: bool) -> Finding:
    if not wanted and not machine.nvidia_hardware:
        return Finding(OK, "GPU", "none: this machine trains on its CPU", "")
    if "CUDA_VISIBLE_DEVICES" in machine.no_gpu:
        remedy = "unset CUDA_VISIBLE_DEVICES"
    elif machine.nvidia_hardware and machine.in_container:
        remedy = (
            "start the container with GPUs: docker run --gpus all, or podman run --device nvidia.com/gpu=all"
        )
    elif "mismatch" in machine.no_gpu:
        remedy = "sudo reboot (the loaded kernel module is not that of the installed driver)"
    elif machine.nvidia_hardware:
        remedy = INSTALL_DRIVER
    else:
        remedy = "rn50 run DEMO_CPU trains without a GPU; otherwise use a machine that has one"
    return Finding(FAILURE if wanted else WARNING, "GPU", f"no NVIDIA GPU ({machine.no_gpu})", remedy)


def _count(machine: Machine, ranks: int) -> Finding:
    kinds = Counter(
        f"{each.name}" + (f", {each.memory_mib:.0f} MiB" if each.memory_mib else "") for each in machine.gpus
    )
    found = "; ".join(f"{number} x {kind}" for kind, number in kinds.items())
    if len(machine.gpus) < ranks:
        few = len(machine.gpus)
        return Finding(
            FAILURE,
            "GPU",
            f"{found}, but DGXNGPU={ranks} ranks want one each",
            f"use a configuration for {few}, or set DGXNGPU={few} in it and raise BATCHSIZE to keep the "
            "global batch",
        )
    return Finding(OK, "GPU", found)


def _mig(used: Sequence[Gpu], ranks: int, grave: str) -> Finding:
    sliced = [each for each in used if each.mig]
    whole = f"sudo nvidia-smi -i {','.join(str(each.index) for each in sliced)} -mig 0"
    instances = [profile for each in sliced for profile, _ in each.instances]
    shown = f"GPU {', '.join(str(each.index) for each in sliced)} in MIG mode"
    if not instances:
        return Finding(grave, "MIG", f"{shown} without an instance: CUDA sees no device there", whole)
    shown += f" with {', '.join(instances)}"
    if ranks > 1:
        return Finding(
            grave,
            "MIG",
            f"{shown}: NCCL does not connect instances, so {ranks} ranks cannot train on them",
            whole,
        )
    return Finding(WARNING, "MIG", f"{shown}: a rank gets one instance, not the GPU", whole)


def _memory(used: Sequence[Gpu]) -> Iterator[Finding]:
    """Yield a finding if other computations hold memory of the GPUs."""
    held = [each.used_by_others for each in used if each.used_by_others]
    if held:
        yield Finding(
            WARNING,
            "GPU memory",
            f"{'; '.join(held)}: a run may lack it, and shares the GPU's speed",
            "nvidia-smi names the processes: end them, or leave the GPU out with CUDA_VISIBLE_DEVICES",
        )


def _speed(used: Sequence[Gpu]) -> Finding:
    """Check power limit, persistence mode and the reasons for lower clocks."""
    wrong, remedies = [], []
    for each in used:
        if each.power_limit and each.power_default and each.power_limit < each.power_default:
            wrong.append(f"GPU {each.index} limited to {each.power_limit:.0f} of {each.power_default:.0f} W")
            remedies.append(f"sudo nvidia-smi -i {each.index} -pl {each.power_default:.0f}")
        if each.slowed:
            wrong.append(f"GPU {each.index} slowed down ({', '.join(each.slowed)})")
            remedies.append(
                f"check cooling and supply: nvidia-smi -i {each.index} -q -d PERFORMANCE,TEMPERATURE,POWER"
            )
    if any(each.persistent is False for each in used):
        wrong.append("persistence mode off: the driver unloads between runs and forgets its settings")
        remedies.append("sudo nvidia-smi -pm 1")
    if wrong:
        return Finding(WARNING, "GPU clocks and power", "; ".join(wrong), "; ".join(dict.fromkeys(remedies)))
    first = used[0]
    clock = f"up to {first.clock_mhz:.0f} MHz" if first.clock_mhz else "clock not reported"
    power = f"{first.power_limit:.0f} W" if first.power_limit else "power limit not reported"
    return Finding(OK, "GPU clocks and power", f"{clock}, {power}")


def _links(links: Sequence[str]) -> str:
    if not links:
        return "not reported by nvidia-smi topo -m"
    kinds = Counter(links)
    if all(kind.startswith("NV") for kind in kinds):
        return f"NVLink between all ({', '.join(kinds)})"
    meaning = {
        "SYS": "between CPU sockets",
        "NODE": "within a NUMA node",
        "PHB": "over a PCIe host bridge",
        "PXB": "over PCIe bridges",
        "PIX": "over one PCIe bridge",
    }
    return ", ".join(
        f"{number} pairs {meaning.get(kind, 'over NVLink ' + kind)}" for kind, number in kinds.items()
    )
