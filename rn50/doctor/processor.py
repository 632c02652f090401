"""Check that the processor suits a run, and report the framework and precision that it computes fast."""

from collections.abc import Iterator

from rn50 import frameworks
from rn50.doctor.finding import FAILURE, OK, WARNING, Finding
from rn50.machine.hardware import AMX, BFLOAT16, Machine
from rn50.settings.config import Config


def findings(machine: Machine, config: Config | None) -> Iterator[Finding]:
    """Yield the findings on the processor, for the run of ``config`` if it is given."""
    yield _processor(machine)
    trains = not machine.gpus if config is None else config.run.device == "cpu"
    if trains and set(AMX) & machine.cpu_flags:
        yield _amx(machine)
    if trains and config is not None:
        yield _precision(machine, config)


def _processor(machine: Machine) -> Finding:
    cores = len({(cpu.socket, cpu.core) for cpu in machine.cpus})
    nodes = len({cpu.node for cpu in machine.cpus})
    usable = f"{len(machine.cpus)} of {machine.online} CPUs usable"
    text = f"{machine.processor or machine.architecture}: {usable}, cores {cores}, NUMA nodes {nodes}"
    if machine.architecture not in ("x86_64", "amd64"):
        return Finding(
            FAILURE,
            "processor",
            f"{text}; the packages of requirements/ are built for x86_64 only",
            "use an x86-64 machine",
        )
    return Finding(OK, "processor", text)


def _amx(machine: Machine) -> Finding:
    """Return which framework uses AMX. It is not a warning, because another framework may be faster for small
    images."""
    flags = ", ".join(name for name in AMX if name in machine.cpu_flags)
    users = " and ".join(traits.name for traits in frameworks.every().values() if traits.uses_amx)
    measured = sorted(
        (traits for traits in frameworks.every().values() if traits.rate_with_amx),
        key=lambda traits: -traits.rate_with_amx,
    )
    rates = ", ".join(f"{traits.name} {traits.rate_with_amx:g}" for traits in measured)
    return Finding(
        OK,
        "AMX",
        f"{flags}: used by {users} alone, the faster framework here for large images (images/s at 224x224 "
        f"in bfloat16 on an Intel Xeon: {rates}); rn50 bench throughput --frameworks times yours",
    )


def _precision(machine: Machine, config: Config) -> Finding:
    asked, has_bfloat16 = config.run.precision, bool(BFLOAT16 & machine.cpu_flags)
    traits = frameworks.traits(config.run.framework)
    if asked == "bfloat16" and not traits.bfloat16_flags <= machine.cpu_flags:
        return Finding(
            FAILURE,
            "precision",
            f"bfloat16, in which {traits.name} does not compute on this processor",
            "set PRECISION=auto in the configuration",
        )
    if asked == "bfloat16" and not has_bfloat16:
        return Finding(
            WARNING,
            "precision",
            "bfloat16, for which the processor has no instructions, so that it is slow",
            "set PRECISION=auto in the configuration",
        )
    if asked != "auto":
        return Finding(OK, "precision", asked)
    if not has_bfloat16:
        return Finding(
            OK, "precision", "auto: float32, because the processor has no instructions for bfloat16"
        )
    first, *others = traits.precisions["cpu"]
    if not others:
        return Finding(OK, "precision", f"auto: {first}, the only one on a CPU")
    return Finding(OK, "precision", f"auto: the faster of {' and '.join([first, *others])}, timed at warm-up")
