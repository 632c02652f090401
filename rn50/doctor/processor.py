"""Checks of the processor: its architecture, whether the framework uses its AMX unit, and whether it computes
the configured precision fast."""

from collections.abc import Iterator

from rn50 import frameworks
from rn50.doctor.diagnosis import FAILURE, OK, WARNING, Diagnosis
from rn50.machine.hardware import AMX, BFLOAT16, Machine
from rn50.settings.config import Config


def diagnoses(machine: Machine, config: Config | None) -> Iterator[Diagnosis]:
    """Yield the diagnoses of the processor, for the run of ``config``, or, if that is None, for training in
    general."""
    yield _processor(machine)
    on_cpu = not machine.gpus if config is None else config.run.device == "cpu"
    if on_cpu and set(AMX) & machine.cpu_flags:
        yield _amx(machine)
    if on_cpu and config is not None:
        yield _precision(machine, config)


def _processor(machine: Machine) -> Diagnosis:
    """Show the processor, and check its architecture."""
    cores = len({(cpu.socket, cpu.core) for cpu in machine.cpus})
    nodes = len({cpu.node for cpu in machine.cpus})
    usable = f"{len(machine.cpus)} of {machine.online} CPUs usable"
    text = f"{machine.processor or machine.architecture}: {usable}, cores {cores}, NUMA nodes {nodes}"
    if machine.architecture not in ("x86_64", "amd64"):
        text += "; the packages of requirements/ are built for x86_64 only"
        return Diagnosis(FAILURE, "processor", text, "use an x86-64 machine")
    return Diagnosis(OK, "processor", text)


def _amx(machine: Machine) -> Diagnosis:
    """Name the frameworks that use AMX. The diagnosis is no warning, because another framework may be faster
    for small images."""
    flags = ", ".join(name for name in AMX if name in machine.cpu_flags)
    # A framework has the rate 0 if nobody has measured it.
    fastest_first = sorted(frameworks.every().values(), key=lambda traits: -traits.rate_with_amx)
    users = " and ".join(traits.name for traits in fastest_first if traits.uses_amx)
    rates = ", ".join(f"{t.name} {t.rate_with_amx:g}" for t in fastest_first if t.rate_with_amx)
    text = f"{flags}: used by {users} alone, the faster framework here for large images (images/s at 224x224 "
    text += f"in bfloat16 on an Intel Xeon: {rates}); rn50 bench throughput --frameworks times yours"
    return Diagnosis(OK, "AMX", text)


def _precision(machine: Machine, config: Config) -> Diagnosis:
    """Check that the framework computes in PRECISION on this processor, and that it does so fast."""
    precision = config.run.precision
    traits = frameworks.traits(config.run.framework)
    has_bfloat16 = bool(BFLOAT16 & machine.cpu_flags)
    remedy = "set PRECISION=auto in the configuration"
    if precision == "bfloat16" and not traits.bfloat16_flags <= machine.cpu_flags:
        text = f"bfloat16, in which {traits.name} does not compute on this processor"
        return Diagnosis(FAILURE, "precision", text, remedy)
    if precision == "bfloat16" and not has_bfloat16:
        text = "bfloat16, for which the processor has no instructions, so that it is slow"
        return Diagnosis(WARNING, "precision", text, remedy)
    if precision != "auto":
        return Diagnosis(OK, "precision", precision)
    possible = traits.precisions["cpu"]
    text = f"auto: the faster of {' and '.join(possible)}, timed at warm-up"
    if not has_bfloat16:
        text = "auto: float32, because the processor has no instructions for bfloat16"
    elif len(possible) == 1:
        text = f"auto: {possible[0]}, the only one on a CPU"
    return Diagnosis(OK, "precision", text)
