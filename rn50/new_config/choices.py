"""Settings of a run that follow from the machine: ranks, framework, precision, threads, and the images that
fit the memory."""

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rn50 import frameworks
from rn50.benchmark import rules
from rn50.errors import UserError, excerpt
from rn50.frameworks import Traits
from rn50.machine import hardware
from rn50.machine.gpus import OLDEST_DRIVER, Gpu
from rn50.machine.hardware import Cpu, Machine
from rn50.machine.software import Software
from rn50.settings.fields import Data

MIB = 1 << 20
MODEL_UNKNOWN = "GPU of compute capability "
"""Beginning of the name of a GPU of ``planned``, whose model is not known."""
IMAGE_MIB = 64
"""GPU memory of an image of 224x224 in half precision.

PyTorch's backward pass keeps 42 MiB of tensors (counted in tests/implementations/pytorch/test_memory.py). The
rest is a margin for gradients, workspaces and the input pipeline. On an H200 a step of 400 images had a peak
of 44 MiB an image, with weights and without input (docs/measurements.md). On a CPU in float32, where twice as
much is taken, the peak memory of a process grew by 108 MiB an image with MXNet and by 90 with PyTorch.
Published runs, with NVIDIA's build of MXNet, had 208 images on 16 GB and 1,000 on 80 GB."""
RESERVED_MIB = 4096
"""GPU memory of the driver's context, weights, gradients, momentum, and workspaces of convolutions."""
BATCH_STEP = 8
"""Step of batch sizes on a GPU."""
JPEG_ENGINES = frozenset({(8, 0), (9, 0), (10, 0)})
"""Compute capabilities of the GPUs whose JPEG engine nvJPEG uses: A100 and A30, H100 and H200, B200.

Source: NVIDIA, nvJPEG documentation, "Hardware Acceleration", which names A100, A30 and H100; 9.0 also in
DALI's pull request 4601. That it is so for 10.0 is inferred."""
ENGINE_LOAD = "0.7"
"""Share of the images for the JPEG engine, as in Inspur's submission on 8 A100 (MLPerf Training v1.0); on an
H200 DALI was faster with it than with 1.0."""
MOST_THREADS = 8
"""Most DALI threads per rank by default; `rn50 tune input` has to show that more help."""
TENSOR_CORES = (7, 0)
"""The oldest compute capability that multiplies float16 faster than float32 (NVIDIA, Volta architecture
whitepaper)."""


_GPUS = re.compile(r"([1-9]\d{0,3}) *x *([1-9]\d{0,3}) *GB? *,? +(\d{1,2})\.(\d)", re.IGNORECASE)
MEASURED = (9, 0)
"""Compute capability of the GPU on which the values of STEP_MODE were measured (docs/measurements.md)."""


class Choice(NamedTuple):
    """A value of a configuration and the reason for it."""

    value: str
    reason: str
    """Why."""


@dataclass(frozen=True)
class Devices:
    """Devices that train, one for each rank."""

    device: str
    """cpu or gpu."""
    ranks: int
    models: tuple[str, ...]
    memory_mib: float | None
    """Memory of the smallest; None if not reported."""
    free_mib: float | None
    """The least free memory; None if not reported."""
    capabilities: frozenset[tuple[int, int]]
    jpeg_engine: bool = False
    """True if each is known to have one."""

    @property
    def unit(self) -> str:
        """Word for the device of one rank."""
        return "GPU" if self.device == "gpu" else "rank"

    @property
    def is_model_known(self) -> bool:
        """False for GPUs of ``planned``."""
        return not self.models or not self.models[0].startswith(MODEL_UNKNOWN)

    @property
    def memory(self) -> str:
        """Memory in words."""
        return f"{self.memory_mib / 1024:.0f} GiB" if self.memory_mib else "unknown memory"

    @property
    def room(self) -> str:
        """Free memory in words."""
        if self.free_mib is None or self.free_mib == self.memory_mib:
            return self.memory
        return f"the {self.free_mib / 1024:.1f} GiB that are free"


def devices(machine: Machine) -> Devices:
    """Return the devices of a machine: all its GPUs, or two ranks on all CPUs, as in the demo.

    Raises UserError if some GPUs are in MIG mode and others are not, or one has no instance.
    """
    gpus = machine.gpus
    if not gpus:
        memory = machine.memory_limit or machine.memory
        ranks = min(2, machine.usable_cpus)
        mib = memory / MIB / ranks if memory else None
        return Devices("cpu", ranks, (), mib, mib, frozenset())
    capabilities = frozenset(gpu.capability for gpu in gpus if gpu.capability)
    models = tuple(dict.fromkeys(gpu.name for gpu in gpus))
    sliced = [gpu for gpu in gpus if gpu.mig]
    if not sliced:
        engine = bool(capabilities) and capabilities <= JPEG_ENGINES
        memories, free = [gpu.memory_mib for gpu in gpus], [gpu.free_mib for gpu in gpus]
        return Devices("gpu", len(gpus), models, _least(memories), _least(free), capabilities, engine)
    if len(sliced) < len(gpus) or not sliced[0].instances:
        indices = ",".join(str(gpu.index) for gpu in sliced)
        problem = "in MIG mode, which ranks cannot use beside whole GPUs or without an instance"
        remedy = f"sudo nvidia-smi -i {indices} -mig 0, or hide them with CUDA_VISIBLE_DEVICES"
        raise UserError(f"GPU {indices}", problem, remedy)
    # NCCL does not connect instances, so there is one rank, on the first one. Those of an A100 have no JPEG
    # engine (NVIDIA, MIG User Guide, GPU instance profiles).
    profile = sliced[0].instances[0][0]
    size = re.search(r"(\d+)gb", profile)
    mib = int(size[1]) * 1024 if size else None
    return Devices("gpu", 1, (f"{models[0]} MIG {profile}",), mib, mib, capabilities)


def planned(text: str) -> tuple[Machine, Software]:
    """Return a machine that is not here, with the GPUs of ``text`` like "4 x 24GB 8.9", and without packages.
    What is assumed of it stands in its processor, which the file names.

    Raises UserError if the text is of another form.
    """
    form = _GPUS.fullmatch(text.strip())
    if not form:
        problem = "not the number of GPUs, the memory of each and their compute capability"
        without = "without a GPU the configuration is DEMO_CPU"
        raise UserError(f"--for {excerpt(text)}", problem, f'write --for "4 x 24GB 8.9"; {without}')
    number, gigabytes, major, minor = map(int, form.groups())
    newest = OLDEST_DRIVER[max(OLDEST_DRIVER)]
    model, memory = f"{MODEL_UNKNOWN}{major}.{minor}", gigabytes * 1024
    if memory < RESERVED_MIB + IMAGE_MIB:
        problem = f"no image fits beside the {RESERVED_MIB >> 10} GiB that a run needs without images"
        raise UserError(f"--for {excerpt(text)}", problem, "give GPUs with more memory")
    gpus = (Gpu(0, model, "", newest, (major, minor), memory),) * number
    cpus = tuple(Cpu(cpu, cpu, 0, None) for cpu in range(number * (MOST_THREADS + 1)))
    assumed: dict[str, Any] = dict.fromkeys(("quota", "memory", "memory_limit"))
    assumed["processor"] = f"assumed: all GPU memory free, driver {newest} or newer"
    machine = dataclasses.replace(hardware.read(), gpus=gpus, cpus=cpus, **assumed)
    return machine, Software("3.11", {}, (), (), None)


def _least(values: Sequence[float | None]) -> float | None:
    sizes = [mib for mib in values if mib is not None]
    return min(sizes) if len(sizes) == len(values) else None


def described(machine: Machine, devices: Devices) -> str:
    """Return the machine in one line."""
    parts = []
    if devices.models and devices.ranks > 1:
        counted = Counter(gpu.name for gpu in machine.gpus)
        gpus = " and ".join(f"{number} x {model}" for model, number in counted.items())
        parts.append(f"{gpus}, {devices.memory} each")
    elif devices.models:
        parts.append(f"{devices.models[0]}, {devices.memory}")
    memory = machine.memory_limit or machine.memory
    host = f"{machine.processor or machine.architecture}, {machine.usable_cpus} CPUs"
    parts.append(host + (f", {memory / (1 << 30):.0f} GiB" if memory else ""))
    return "; ".join(parts)


def framework(devices: Devices, software: Software, asked: str | None) -> Choice:
    """Return the framework that was ``asked`` for, or one that can use the devices: that of a vendor's
    container, else an installed one, else the first in the order of ``_standing``.

    Raises UserError if none can, or the one asked for cannot.
    """
    every = frameworks.every()
    reasons = {name: _why_not(traits, devices, software) for name, traits in every.items()}
    able = [name for name, reason in reasons.items() if not reason]
    if asked:
        if frameworks.traits(asked) and reasons[asked]:
            remedy = f"give --framework {' or '.join(able)}" if able else "use another machine"
            raise UserError(f"--framework {asked}", reasons[asked], remedy)
        return Choice(asked, "asked for")
    unwanted = {name: _too_old(traits, devices) for name, traits in every.items()}
    able = [name for name in able if not unwanted[name]]
    if not able:
        problem = "; ".join(filter(None, (reasons[name] or unwanted[name] for name in every)))
        raise UserError("no framework can use this machine", problem, "use another machine")
    has_gpus = bool(devices.capabilities)
    able.sort(key=lambda name: (not (every[name].preferred and has_gpus), not every[name].is_default))
    for name in able:
        if devices.device == "gpu" and every[name].container and software.nvidia_container:
            return Choice(name, f"that of NVIDIA's container {software.nvidia_container}")
    first = every[able[0]]
    installed = [name for name in able if software.has(every[name], devices.device)]
    if installed and installed[0] != able[0]:
        return Choice(installed[0], f"installed; {first.name}, {_standing(first, devices)}, is not")
    reason = reasons[frameworks.default()] or _standing(first, devices, why=True)
    advice = "" if installed else "rn50 doctor says how to install it"
    return Choice(able[0], "; ".join(filter(None, (reason, advice, *unwanted.values()))))


def _standing(traits: Traits, devices: Devices, why: bool = False) -> str:
    if traits.preferred and devices.capabilities:
        (major, minor), reason = traits.preferred
        return f"the default from compute capability {major}.{minor} on" + (f": {reason}" if why else "")
    return "the default"


def _too_old(traits: Traits, devices: Devices) -> str:
    """Return why a framework is not taken unless it is asked for; empty if it may be."""
    if not traits.preferred or not devices.capabilities or min(devices.capabilities) >= traits.preferred[0]:
        return ""
    major, minor = traits.preferred[0]
    return f"{traits.name} is for compute capability {major}.{minor} and newer"


def _why_not(traits: Traits, devices: Devices, software: Software) -> str:
    """Return why a framework cannot use the devices; empty if it can."""
    if devices.device not in traits.precisions:
        return f"{traits.name} cannot use DEVICE={devices.device}"
    if traits.container and software.nvidia_container:
        return ""  # a vendor's own build knows the vendor's GPUs
    bad = sorted(capability for capability in devices.capabilities if not traits.runs_on(capability))
    return f"{traits.name} has no code for compute capability {bad[0][0]}.{bad[0][1]}" if bad else ""


def precision(devices: Devices, framework: str) -> Choice:
    """Return PRECISION."""
    if devices.device == "cpu":
        possible = frameworks.traits(framework).precisions["cpu"]
        if len(possible) == 1:
            return Choice("auto", f"{possible[0]}, the only one on a CPU")
        return Choice("auto", f"{' or '.join(possible)}: the faster one at warm-up")
    if not devices.capabilities:
        return Choice("auto", "float16 on a GPU")
    oldest = min(devices.capabilities)
    if oldest < TENSOR_CORES:
        return Choice("float32", f"compute capability {oldest[0]}.{oldest[1]} has no tensor cores")
    return Choice("float16", "on tensor cores, with float32 master weights")


def threads(machine: Machine, devices: Devices) -> Choice:
    """Return DALI_THREADS. On a CPU the network needs the cores more than the input does."""
    if devices.device == "cpu":
        return Choice("1", "the other cores train")
    cpus = machine.usable_cpus // devices.ranks
    return Choice(str(max(1, min(cpus - 1, MOST_THREADS))), f"of {cpus} CPUs a rank")


def step_mode(devices: Devices, framework: str, software: Software) -> Choice | None:
    """Return STEP_MODE, None if the framework has only one for the device."""
    traits = frameworks.traits(framework)
    if devices.device == "cpu" or "graph" not in traits.step_modes:
        return None
    least, package = traits.fused or ((), "")
    if not least or not devices.capabilities or min(devices.capabilities) < least:
        return Choice("graph", "a step is launched as one CUDA graph")
    missing = list(software.missing_to_compile)
    if software.has(traits, "gpu") and package not in software.packages:
        missing.append(package)
    if missing:
        return Choice("graph", f"fused is faster, and lacks {' and '.join(missing)}")
    elsewhere = "" if devices.capabilities == {MEASURED} else "; measured on an H200 alone"
    return Choice("fused", f"kernels of ours in one CUDA graph{elsewhere}")


def fitting(devices: Devices, precision: str, data: Data) -> int | None:
    """Return the most images that fit a rank's free memory, on a GPU in steps of ``BATCH_STEP``; None if the
    memory is not known."""
    if devices.free_mib is None:
        return None
    halves = 2 if precision == "float32" or precision == "auto" and devices.device == "cpu" else 1
    image = IMAGE_MIB * halves * data.width * (data.image_size / rules.IMAGE_SIZE) ** 2
    if devices.device == "gpu":
        return max(1, int((devices.free_mib - RESERVED_MIB) / image) // BATCH_STEP) * BATCH_STEP
    return max(1, int(devices.free_mib / 2 / image))  # other half: the data, and what else runs
