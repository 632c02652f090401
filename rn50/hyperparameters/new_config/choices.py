"""Settings of a run that follow from the machine: ranks, framework, precision, threads, and the images that
fit the memory."""

import re
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from rn50 import frameworks
from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.frameworks import Traits
from rn50.machine.hardware import Machine
from rn50.machine.software import Software
from rn50.settings.config import Data

MIB = 1 << 20
IMAGE_MIB = 64
"""GPU memory of an image of 224x224 in half precision.

PyTorch's backward pass keeps 42 MiB of tensors (counted in tests/implementations/pytorch/test_memory.py). The
rest is a margin for gradients, workspaces and the input pipeline. No GPU was at hand to measure it. On a CPU
in float32, where twice as much is taken, the peak memory of a process grew by 108 MiB an image with MXNet and
by 90 with PyTorch. Published runs, with NVIDIA's build of MXNet, had 208 images on 16 GB and 1,000 on 80
GB."""
RESERVED_MIB = 2048
"""GPU memory of the driver's context, weights, gradients and momentum."""
MOST_THREADS = 8
"""DALI threads of a rank from which on `rn50 tune input` has to show that more help."""
TENSOR_CORES = (7, 0)
"""The oldest compute capability that multiplies float16 faster than float32 (NVIDIA, Volta architecture
whitepaper)."""


class Choice(NamedTuple):
    """A value of a configuration and the reason for it."""

    value: str
    reason: str


@dataclass(frozen=True)
class Devices:
    """Devices that train, one for each rank. ``memory_mib`` is that of the smallest, None if it is not
    reported."""

    device: str
    ranks: int
    models: tuple[str, ...]
    memory_mib: float | None
    capabilities: frozenset[tuple[int, int]]

    @property
    def unit(self) -> str:
        """Name of what a rank has to itself."""
        return "GPU" if self.device == "gpu" else "rank"

    @property
    def memory(self) -> str:
        """Memory in words."""
        return f"{self.memory_mib / 1024:.0f} GiB" if self.memory_mib else "unknown memory"


def devices(machine: Machine) -> Devices:
    """Return the devices of a machine: all its GPUs, or one rank on all CPUs.

    Raises UserError if some GPUs are in MIG mode and others are not, or one has no instance.
    """
    gpus = machine.gpus
    if not gpus:
        memory = machine.memory_limit or machine.memory
        return Devices("cpu", 1, (), memory / MIB if memory else None, frozenset())
    capabilities = frozenset(each.capability for each in gpus if each.capability)
    models = tuple(dict.fromkeys(each.name for each in gpus))
    sliced = [each for each in gpus if each.mig]
    if not sliced:
        known = [each.memory_mib for each in gpus if each.memory_mib]
        return Devices(
            "gpu", len(gpus), models, min(known) if len(known) == len(gpus) else None, capabilities
        )
    if len(sliced) < len(gpus) or not sliced[0].instances:
        indices = ",".join(str(each.index) for each in sliced)
        raise UserError(
            f"GPU {indices}",
            "in MIG mode, which ranks cannot use beside whole GPUs or without an instance",
            f"sudo nvidia-smi -i {indices} -mig 0, or hide them with CUDA_VISIBLE_DEVICES",
        )
    # NCCL does not connect instances, so there is one rank, on the first one.
    profile = sliced[0].instances[0][0]
    size = re.search(r"(\d+)gb", profile)
    return Devices(
        "gpu", 1, (f"{models[0]} MIG {profile}",), int(size[1]) * 1024 if size else None, capabilities
    )


def described(machine: Machine, on: Devices) -> str:
    """Return the machine in one line."""
    counted = Counter(each.name for each in machine.gpus)
    gpus = (
        [f"{number} x {model}" for model, number in counted.items()]
        if len(on.models) > 1 or on.ranks > 1
        else on.models
    )
    accelerators = (
        [f"{' and '.join(gpus)}, {on.memory} each" if on.ranks > 1 else f"{gpus[0]}, {on.memory}"]
        if gpus
        else []
    )
    memory = machine.memory_limit or machine.memory
    host = f"{machine.processor or machine.architecture}, {machine.usable_cpus} CPUs"
    return "; ".join([*accelerators, host + (f", {memory / (1 << 30):.0f} GiB" if memory else "")])


def framework(on: Devices, software: Software, asked: str | None) -> Choice:
    """Return the framework that was ``asked`` for, or one that can use the devices: an installed one, or else
    the default first.

    Raises UserError if none can, or the one asked for cannot.
    """
    every = frameworks.every()
    reasons = {name: _why_not(traits, on, software) for name, traits in every.items()}
    able = [name for name, reason in reasons.items() if not reason]
    if asked:
        if frameworks.traits(asked) and reasons[asked]:
            remedy = f"give --framework {' or '.join(able)}" if able else "use another machine"
            raise UserError(f"--framework {asked}", reasons[asked], remedy)
        return Choice(asked, "asked for")
    if not able:
        raise UserError(
            "no framework can use this machine",
            "; ".join(filter(None, reasons.values())),
            "use another machine",
        )
    installed = [name for name in able if _is_installed(every[name], software)]
    chosen = min(installed or able, key=lambda name: not every[name].is_default)
    others = [reason for name, reason in reasons.items() if every[name].is_default and reason]
    missing = [every[name].name for name in able if every[name].is_default and name != chosen]
    if others:
        return Choice(chosen, others[0])
    if missing:
        return Choice(chosen, f"installed; {missing[0]} is not")
    return Choice(chosen, "the default" + ("" if installed else "; rn50 doctor says how to install it"))


def _why_not(traits: Traits, on: Devices, software: Software) -> str:
    """Return why a framework cannot use the devices; empty if it can."""
    if on.device not in traits.precisions:
        return f"{traits.name} cannot use DEVICE={on.device}"
    if traits.container and software.nvidia_container:
        return ""  # a vendor's own build knows the vendor's GPUs
    bad = sorted(each for each in on.capabilities if not traits.runs_on(each))
    return f"{traits.name} has no code for compute capability {bad[0][0]}.{bad[0][1]}" if bad else ""


def _is_installed(traits: Traits, software: Software) -> bool:
    return any(re.fullmatch(traits.package, name) for name in software.packages)


def precision(on: Devices, framework: str) -> Choice:
    """Return PRECISION."""
    if on.device == "cpu":
        first, *others = frameworks.traits(framework).precisions["cpu"]
        reason = (
            f"{' or '.join([first, *others])}: the faster one at warm-up"
            if others
            else f"{first}, the only one on a CPU"
        )
        return Choice("auto", reason)
    if not on.capabilities:
        return Choice("auto", "float16 on a GPU")
    oldest = min(on.capabilities)
    if oldest < TENSOR_CORES:
        return Choice("float32", f"compute capability {oldest[0]}.{oldest[1]} has no tensor cores")
    return Choice("float16", "on tensor cores, with float32 master weights")


def threads(machine: Machine, on: Devices) -> Choice:
    """Return DALI_THREADS. On a CPU the network needs the cores more than the input does."""
    if on.device == "cpu":
        return Choice("1", "the other cores train")
    cpus = machine.usable_cpus // on.ranks
    return Choice(str(max(1, min(cpus - 1, MOST_THREADS))), f"of {cpus} CPUs a rank")


def fitting(on: Devices, precision: str, data: Data) -> int | None:
    """Return the largest number of images of a rank that its memory holds; None if the memory is not
    known."""
    if on.memory_mib is None:
        return None
    halves = 1 if precision == "float16" or precision == "auto" and on.device == "gpu" else 2
    image = IMAGE_MIB * halves * data.width * (data.image_size / rules.IMAGE_SIZE) ** 2
    reserved = (
        RESERVED_MIB if on.device == "gpu" else on.memory_mib / 2
    )  # other half: the data, and what else runs
    return max(1, int((on.memory_mib - reserved) / image))
