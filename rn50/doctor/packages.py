"""Checks of Python and the installed packages (``diagnoses``). A framework with a ``doctor.py`` checks its
packages there, with ``install`` and ``decoding`` of this file."""

from collections.abc import Iterator

from rn50 import frameworks
from rn50.doctor.diagnosis import FAILURE, OK, WARNING, Diagnosis
from rn50.machine.hardware import Machine
from rn50.machine.software import Software
from rn50.packages import install as install_package
from rn50.settings.config import Config

OLDEST_PYTHON, NEWEST_PYTHON = (3, 10), (3, 12)
"""The versions of Python on which rn50 and DALI 1.34 run."""
WITH_DALI = ", some 230 a second on a core; with DALI the GPU does, an H200 21,303 a second"
"""End of a warning, with rates of decoding images of 110 KB. The rate of a core is half of the rate of two
cores of an EPYC; the rate of the GPU is that of DALI alone, without training."""
PYTHON = "3.11"
"""Python version that every set of ``requirements/`` supports."""


def framework(machine: Machine, software: Software) -> str:
    """Return the framework to examine if there is no configuration: one that is installed, if any; among
    equals one that prefers these GPUs, then the default."""
    capabilities = [gpu.capability for gpu in machine.gpus if gpu.capability]

    def order(name: str) -> tuple[bool, bool, bool]:
        """Return a sort key: False comes before True."""
        traits = frameworks.traits(name)
        # ``preferred`` is (least compute capability of the GPUs that prefer the framework, reason), or None.
        preferred = traits.preferred and capabilities and min(capabilities) >= traits.preferred[0]
        return not software.has(traits), not preferred, not traits.is_default

    return min(frameworks.names(), key=order)


def diagnoses(software: Software, config: Config | None, framework: str) -> Iterator[Diagnosis]:
    """Yield the diagnoses of Python and of the packages that ``framework`` and the log of a run need.
    ``framework`` is that of ``config``, unless ``config`` is None."""
    device = config.run.device if config is not None else "cpu"
    yield _python(software, frameworks.traits(framework), device)
    checks = frameworks.unimported(framework, "doctor")  # the module doctor.py; None: there is none
    if checks is not None:
        yield from checks.packages(software, config)
    else:
        yield _packages(software, frameworks.traits(framework), device)
    can_log = bool({"mlperf-logging", "mlperf_logging"} & set(software.packages))
    if not can_log and software.has(frameworks.traits(framework)):
        text = "no mlperf-logging, which writes the log of a run"
        yield Diagnosis(FAILURE, "log", text, install_package("mlperf-logging"))


def install(software: Software, traits: frameworks.Traits, device: str) -> str:
    """Return the command that installs a framework for a device, with another Python if rn50 does not run on
    this one."""
    command = traits.install(device)
    if OLDEST_PYTHON <= _version(software) <= NEWEST_PYTHON:
        return command
    install_python = f"uv python install {PYTHON}, pyenv install {PYTHON}, or your system's package"
    return f"PYTHON=python{PYTHON} {command} (to get it: {install_python})"


def decoding(software: Software, config: Config | None, shown: str, command: str) -> Diagnosis:
    """Return the diagnosis of the packages of a framework that is installed and can decode images with DALI
    or in its DataLoader. ``shown`` is the packages in words, and ``command`` installs DALI."""
    library = "auto" if config is None else config.input_pipeline.library
    if library == "dataloader" or software.has_dali:
        return Diagnosis(OK, "packages", shown)
    if library == "dali":
        remedy = f"{command}, or set INPUT_LIBRARY=auto in the configuration"
        return Diagnosis(FAILURE, "packages", f"no DALI beside {shown}", remedy)
    text = f"{shown}; no DALI: the DataLoader decodes the images"
    if config is None or config.run.device == "cpu":
        return Diagnosis(OK, "packages", text)
    return Diagnosis(WARNING, "packages", text + WITH_DALI, command)


def _version(software: Software) -> tuple[int, ...]:
    """Return the major and the minor version of Python."""
    return tuple(map(int, software.python.split(".")[:2]))


def _python(software: Software, traits: frameworks.Traits, device: str) -> Diagnosis:
    """Check the version of Python."""
    if OLDEST_PYTHON <= _version(software) <= NEWEST_PYTHON:
        return Diagnosis(OK, "Python", software.python)
    versions = " to ".join("{}.{}".format(*version) for version in (OLDEST_PYTHON, NEWEST_PYTHON))
    text = f"{software.python}, but {traits.name} for DEVICE={device} needs {versions}"
    return Diagnosis(FAILURE, "Python", text, install(software, traits, device))


def _packages(software: Software, traits: frameworks.Traits, device: str) -> Diagnosis:
    """Check that a framework is installed that has no checks of its own."""
    shown = software.shown(traits)
    if software.has(traits):
        return Diagnosis(OK, "packages", shown)
    text = f"no {traits.name} beside {shown or 'this Python'}"
    return Diagnosis(FAILURE, "packages", text, install(software, traits, device))
