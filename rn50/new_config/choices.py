"""Values of a new configuration that follow from the machine, each a ``Choice`` with its reason: framework,
precision, threads, step mode.

``devices`` describes what trains, ``fitting`` counts the images that fit its memory. ``new_config.py`` writes
the values; ``source.py`` uses ``fitting`` to choose the batch size.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rn50 import frameworks
from rn50.benchmark import network
from rn50.errors import UserError, excerpt
from rn50.frameworks import Traits
from rn50.machine import hardware
from rn50.machine.gpus import OLDEST_DRIVER, Gpu
from rn50.machine.hardware import Cpu, Machine
from rn50.machine.software import Software
from rn50.results import chips, published
from rn50.settings.fields import Data

MIB = 1 << 20
MODEL_UNKNOWN = "GPU of compute capability "
"""Beginning of the name that ``planned`` gives a GPU, because its model is not known."""
JPEG_ENGINES = frozenset({(8, 0), (9, 0), (10, 0)})
"""Compute capabilities of the GPUs whose JPEG engine nvJPEG uses: A100 and A30 (8.0), H100 and H200 (9.0),
B200 (10.0).

Source: NVIDIA, nvJPEG documentation, "Hardware Acceleration", names A100, A30 and H100; DALI's pull request
4601 names 9.0. For 10.0 there is no source: it is inferred."""
ENGINE_LOAD = "0.7"
"""DALI_HW_DECODER_LOAD, the share of the images that the JPEG engine decodes. Inspur's submission on 8 A100
(MLPerf Training v1.0) had this value; on an H200 DALI was faster with it than with 1.0."""
MOST_THREADS = 8
"""Most DALI threads of a rank in a new configuration. `rn50 tune input` finds out whether more threads
help."""
TENSOR_CORES = (7, 0)
"""The oldest compute capability that multiplies float16 faster than float32 (NVIDIA, Volta architecture
whitepaper)."""
MEASURED = (9, 0)
"""Compute capability of the GPU on which the values of STEP_MODE were measured (docs/measurements.md)."""
_GPUS = re.compile(r"([1-9]\d{0,3}) *x *([1-9]\d{0,3}) *GB? *,? +(\d{1,2})\.(\d)", re.IGNORECASE)
"""Number of GPUs, gigabytes of memory, major and minor number of the compute capability: "4 x 24GB 8.9"."""
_NAMED_GPUS = re.compile(r"([1-9]\d{0,3})(?: *x *| +)(\S.*)", re.IGNORECASE)
"""Number of GPUs and their name: "4 x RTX-4090"."""
_MACHINES = re.compile(r"^[1-9]\d* *x *(?=[1-9]\d?(?: *x *| +)(?!GB?\b)[a-z])", re.IGNORECASE)
"""Number of machines in front of the GPUs of each: "8 x " of "8 x 8 H100"."""
MOST_GPUS = 16
"""Most GPUs of a machine that ``planned`` accepts: those of a DGX-2, the most in one machine of NVIDIA's."""


class Choice(NamedTuple):
    """A value of a configuration and the reason for it."""

    value: str
    reason: str
    """Reason for the value."""


@dataclass(frozen=True)
class Devices:
    """The devices that train, one for each rank: GPUs, or shares of the CPU's cores."""

    device: str
    """cpu or gpu."""
    ranks: int
    models: tuple[str, ...]
    """Names of the GPUs, each model once; empty on a CPU."""
    memory_mib: float | None
    """Memory of the device with the least memory; None: a device does not report its memory."""
    free_mib: float | None
    """Free memory of the device with the least free memory; None: a device does not report it."""
    capabilities: frozenset[tuple[int, int]]
    """Compute capabilities of the GPUs, as far as the driver reports them; empty on a CPU."""
    jpeg_engine: bool = False
    """True if every device is known to have a JPEG engine."""

    @property
    def unit(self) -> str:
        """Word for the device of one rank."""
        return "GPU" if self.device == "gpu" else "rank"

    @property
    def is_model_known(self) -> bool:
        """False for the GPUs of ``planned``, of which only the compute capability is known."""
        return not self.models or not self.models[0].startswith(MODEL_UNKNOWN)

    @property
    def memory(self) -> str:
        """Memory of a device, in words."""
        return f"{self.memory_mib / 1024:.0f} GiB" if self.memory_mib else "unknown memory"

    @property
    def room(self) -> str:
        """Free memory of a device, in words."""
        if self.free_mib is None or self.free_mib == self.memory_mib:
            return self.memory
        return f"the {self.free_mib / 1024:.1f} GiB that are free"


def devices(machine: Machine) -> Devices:
    """Return the devices of a machine: all its GPUs, or two ranks that share all CPUs, as in the demo.

    Raises UserError if some GPUs are in MIG mode (divided into instances) and others are not, or if the first
    one in MIG mode has no instance.
    """
    gpus = machine.gpus
    if not gpus:
        memory = machine.memory_limit or machine.memory
        ranks = min(2, machine.usable_cpus)
        # Each rank has an equal share of the memory, and all of it counts as free.
        mib = memory / MIB / ranks if memory else None
        return Devices("cpu", ranks, (), mib, mib, frozenset())
    capabilities = frozenset(gpu.capability for gpu in gpus if gpu.capability)
    models = tuple(dict.fromkeys(gpu.name for gpu in gpus))
    in_mig_mode = [gpu for gpu in gpus if gpu.mig]
    if not in_mig_mode:
        engine = bool(capabilities) and capabilities <= JPEG_ENGINES
        memory_mib = _smallest([gpu.memory_mib for gpu in gpus])
        free_mib = _smallest([gpu.free_mib for gpu in gpus])
        return Devices("gpu", len(gpus), models, memory_mib, free_mib, capabilities, engine)
    if len(in_mig_mode) < len(gpus) or not in_mig_mode[0].instances:
        indices = ",".join(str(gpu.index) for gpu in in_mig_mode)
        problem = "in MIG mode, which ranks cannot use beside whole GPUs or without an instance"
        remedy = f"sudo nvidia-smi -i {indices} -mig 0, or hide them with CUDA_VISIBLE_DEVICES"
        raise UserError(f"GPU {indices}", problem, remedy)
    # NCCL does not connect MIG instances, so there is one rank, on the first instance. The instances of an
    # A100 have no JPEG engine (NVIDIA, MIG User Guide, GPU instance profiles).
    profile, _ = in_mig_mode[0].instances[0]
    # A profile is written as "3g.20gb": its share of the multiprocessors, and its memory.
    size = re.search(r"(\d+)gb", profile)
    mib = int(size[1]) * 1024 if size else None
    return Devices("gpu", 1, (f"{models[0]} MIG {profile}",), mib, mib, capabilities)


def planned(text: str) -> tuple[Machine, Software]:
    """Return a machine with the GPUs that ``text`` describes ("4 x 24GB 8.9" or "4 x RTX-4090"), and its
    software, without packages. The machine's ``processor``, which the new file names, says what else is
    assumed of it.

    Raises UserError if the text is in another form, names several or no known GPU, has more GPUs than one
    machine, or no image fits the memory.
    """
    of_one, several = _MACHINES.subn("", text.strip())
    if form := _GPUS.fullmatch(of_one):
        number, gigabytes, major, minor = map(int, form.groups())
        model = f"{MODEL_UNKNOWN}{major}.{minor}"
    else:
        number, model = _named(of_one)
        gigabytes, (major, minor), _ = chips.data_sheets()[model]
    if several or number > MOST_GPUS:
        remedy = "for several write a file like configs/config_8xDGXH100.sh, which sets DGXNNODES and "
        remedy += "DGXNGPU, with a recipe that rn50 plan --accelerators N names for all N GPUs together"
        raise UserError(f"--for {excerpt(text)}", f"not one machine of up to {MOST_GPUS} GPUs", remedy)
    # A driver that is new enough for the newest CUDA.
    driver = OLDEST_DRIVER[max(OLDEST_DRIVER)]
    memory = gigabytes * 1024
    if memory < network.RESERVED_MIB + network.IMAGE_MIB:
        problem = f"no image fits beside the {network.RESERVED_MIB >> 10} GiB that a run needs without images"
        raise UserError(f"--for {excerpt(text)}", problem, "give GPUs with more memory")
    gpus = (Gpu(0, model, "", driver, (major, minor), memory),) * number
    # So many CPUs that ``threads`` gives every rank MOST_THREADS.
    cpus = tuple(Cpu(cpu, cpu, 0, None) for cpu in range(number * (MOST_THREADS + 1)))
    assumed: dict[str, Any] = dict.fromkeys(("quota", "memory", "memory_limit"))  # None: not known
    assumed["processor"] = f"assumed: all GPU memory free, driver {driver} or newer"
    machine = dataclasses.replace(hardware.read(), gpus=gpus, cpus=cpus, **assumed)
    return machine, Software("3.11", {}, (), (), None)  # nothing is installed, and nothing is missing


def _named(text: str) -> tuple[int, str]:
    """Return the number and the name of the GPUs in a ``text`` like "4 x RTX-4090". Of several that are
    called so, and have the same memory and compute capability, it is the one with the most published
    results. Raises UserError as ``planned`` does."""
    sheets = chips.data_sheets()
    form = _NAMED_GPUS.fullmatch(text.strip())
    names = [name for name in chips.known(published.results()) if name in sheets]
    matches = chips.matching(form[2], names) if form else []
    if len({sheets[name][:2] for name in matches}) > 1:
        raise UserError(f"--for {excerpt(text)}", f"several are called so: {', '.join(matches)}", "say which")
    if not form or not matches:
        problem = "not the number of GPUs and a known name, or the memory of each and compute capability"
        remedy = (
            'write --for "4 x RTX-4090" or --for "4 x 24GB 8.9"; without a GPU the configuration is DEMO_CPU'
        )
        raise UserError(f"--for {excerpt(text)}", problem, remedy)
    return int(form[1]), matches[0]


def _smallest(values: Sequence[float | None]) -> float | None:
    """Return the smallest of several numbers; None if one of them is None."""
    numbers = [value for value in values if value is not None]
    return min(numbers) if len(numbers) == len(values) else None


def described(machine: Machine, devices: Devices) -> str:
    """Return a description of the machine in one line: its GPUs and their memory, its processor, its CPUs and
    memory."""
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
    """Return the framework that the user ``asked`` for; None: choose one that can use the devices.

    The choice is the framework of the vendor's container in which this process runs; else the best framework
    that is installed; else the best. On GPUs a framework with ``Traits.preferred`` is best, but not a choice
    if they are older than it asks for. Then comes the default (``Traits.is_default``).

    Raises UserError if no framework can use the devices, or the one that was asked for cannot.
    """
    every = frameworks.every()
    reasons = {name: _why_not(traits, devices, software) for name, traits in every.items()}
    usable = [name for name, reason in reasons.items() if not reason]
    if asked:
        frameworks.traits(asked)  # raises UserError for an unknown name
        if reasons[asked]:
            remedy = f"give --framework {' or '.join(usable)}" if usable else "use another machine"
            raise UserError(f"--framework {asked}", reasons[asked], remedy)
        return Choice(asked, "asked for")
    too_old = {name: _too_old(traits, devices) for name, traits in every.items()}
    ranked = [name for name in usable if not too_old[name]]
    if not ranked:
        problem = "; ".join(filter(None, (reasons[name] or too_old[name] for name in every)))
        raise UserError("no framework can use this machine", problem, "use another machine")
    has_gpus = bool(devices.capabilities)
    # Best first: on GPUs those with ``preferred``, then the default, then the others.
    ranked.sort(key=lambda name: (not (every[name].preferred and has_gpus), not every[name].is_default))
    # In NVIDIA's container: the framework of which NVIDIA makes containers.
    for name in ranked:
        if devices.device == "gpu" and every[name].container and software.nvidia_container:
            return Choice(name, f"that of NVIDIA's container {software.nvidia_container}")
    best = every[ranked[0]]
    installed = [name for name in ranked if software.has(every[name], devices.device)]
    if installed and installed[0] != ranked[0]:
        return Choice(installed[0], f"installed; {best.name}, {_default(best, devices)}, is not")
    # Why the default cannot be used, else why this framework is taken in place of others.
    reason = reasons[frameworks.default()] or _default(best, devices, why=True)
    advice = "" if installed else "rn50 doctor says how to install it"
    return Choice(ranked[0], "; ".join(filter(None, (reason, advice, *too_old.values()))))


def _default(traits: Traits, devices: Devices, why: bool = False) -> str:
    """Return in words that the framework is the default, and for which GPUs; with ``why`` also the reason."""
    if traits.preferred and devices.capabilities:
        (major, minor), reason = traits.preferred
        return f"the default from compute capability {major}.{minor} on" + (f": {reason}" if why else "")
    return "the default"


def _too_old(traits: Traits, devices: Devices) -> str:
    """Return why the GPUs are too old for a framework, which is then chosen only if the user asks for it; an
    empty text if they are not."""
    if not traits.preferred or not devices.capabilities or min(devices.capabilities) >= traits.preferred[0]:
        return ""
    major, minor = traits.preferred[0]
    return f"{traits.name} is for compute capability {major}.{minor} and newer"


def _why_not(traits: Traits, devices: Devices, software: Software) -> str:
    """Return why a framework cannot use the devices; an empty text if it can."""
    if devices.device not in traits.precisions:
        return f"{traits.name} cannot use DEVICE={devices.device}"
    if traits.container and software.nvidia_container:
        return ""  # the build in a vendor's container has code for all GPUs of the vendor
    lacking = sorted(capability for capability in devices.capabilities if not traits.runs_on(capability))
    if not lacking:
        return ""
    major, minor = lacking[0]
    return f"{traits.name} has no code for compute capability {major}.{minor}"


def precision(devices: Devices, framework: str) -> Choice:
    """Return the value of PRECISION."""
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
    """Return the value of DALI_THREADS. On a CPU it is 1, because the network needs the cores more than the
    input does."""
    if devices.device == "cpu":
        return Choice("1", "the other cores train")
    cpus = machine.usable_cpus // devices.ranks
    return Choice(str(max(1, min(cpus - 1, MOST_THREADS))), f"of {cpus} CPUs a rank")


def step_mode(devices: Devices, framework: str, software: Software) -> Choice | None:
    """Return the value of STEP_MODE; None if the framework has only one step mode for the device."""
    traits = frameworks.traits(framework)
    if devices.device == "cpu" or "graph" not in traits.step_modes:
        return None
    # STEP_MODE=fused needs this compute capability at least, and this package. None: it is never chosen.
    oldest, package = traits.fused or (None, "")
    if not oldest or not devices.capabilities or min(devices.capabilities) < oldest:
        return Choice("graph", "a step is launched as one CUDA graph")
    missing = list(software.missing_to_compile)
    # If the framework is not installed yet, the package is assumed to come with it.
    if software.has(traits, "gpu") and package not in software.packages:
        missing.append(package)
    if missing:
        return Choice("graph", f"fused is faster, and lacks {' and '.join(missing)}")
    elsewhere = "" if devices.capabilities == {MEASURED} else "; measured on an H200 alone"
    return Choice("fused", f"kernels of ours in one CUDA graph{elsewhere}")


def fitting(devices: Devices, precision: str, data: Data, blur_pool: bool = False) -> int | None:
    """Return the most images of a batch that fit the free memory of a rank, at least 1; on a GPU a multiple
    of ``network.BATCH_STEP``. None: the free memory is not known. ``data.image_size`` is the largest size to
    train with."""
    if devices.free_mib is None:
        return None
    is_float32 = precision == "float32" or (precision == "auto" and devices.device == "cpu")
    image_mib = network.training_mib(data.image_size, data.width, is_float32, blur_pool)
    if devices.device == "gpu":
        return network.fitting(devices.free_mib, image_mib)
    return max(1, int(devices.free_mib / 2 / image_mib))  # the other half is for data and other processes
