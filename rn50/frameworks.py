"""Access to ``implementations/``: the frameworks, their traits and their modules.

The rest of rn50 names no framework. Facts that it needs before it imports one are in its ``traits.py``.
"""

import functools
import importlib
import importlib.util
import pathlib
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from rn50.errors import UserError
from rn50.files import INSTALL, PACKAGES

TRAITS = "traits.py"


class Variables(NamedTuple):
    """Environment variables of a framework."""

    prefix: str
    read: frozenset[str]
    """Names with the prefix that have an effect; all others have none."""
    elsewhere: tuple[str, ...] = ()
    """Names without the prefix that published files set but the framework does not read."""


class Traits(NamedTuple):
    """A framework, described without importing it: ``TRAITS`` of
    ``implementations/<framework>/traits.py``."""

    name: str
    """Display name."""
    package: str
    """Pattern of the distributions that are the framework, in lower case."""
    packages: str
    """Pattern of the distributions whose versions are reported with a measurement."""
    requirements: Mapping[str, tuple[str, ...]]
    """Device -> sets of ``requirements/`` that one rank needs."""
    precisions: Mapping[str, tuple[str, ...]]
    """Device -> values of PRECISION beside "auto"; a missing device is not supported."""
    input_libraries: tuple[str, ...] = ("dali",)
    """Values of INPUT_LIBRARY beside "auto", which takes the last where DALI cannot be imported."""
    step_modes: tuple[str, ...] = ("eager",)
    """Values of STEP_MODE."""
    fused: tuple[tuple[int, int], str] | None = None
    """Least compute capability of a GPU at which a new configuration takes STEP_MODE=fused, and the package
    that it needs; None: at none."""
    inference: Mapping[str, tuple[str, ...]] = {}
    """Ways in which ``inference.py`` runs a network -> their precisions; empty without that file. A way on a
    GPU begins with "cuda-"."""
    capabilities: tuple[tuple[int, int], ...] = ()
    """Compute capabilities for which its GPU build has machine code; empty: any GPU."""
    ptx: tuple[int, int] | None = None
    """Compute capability of its PTX, which a driver compiles for every newer GPU; None: it has none."""
    cuda: int = 0
    """Major version of the CUDA of its set for GPUs; 0: it has none."""
    least_capabilities: Mapping[str, tuple[int, int]] = {}
    """Value of PRECISION -> the least compute capability that it needs, if any."""
    horovod: bool = False
    """True if ranks on GPUs or on several machines need Horovod."""
    gradient_buckets: bool = False
    """True if it splits the gradients into MXNET_HOROVOD_NUM_GROUPS buckets."""
    variables: Variables | None = None
    """Known names of its environment variables; None where any may have an effect."""
    library: tuple[str, str] = ("", "")
    """(package, shared library) whose dependencies ``rn50 doctor`` looks for; empty: none."""
    prefixes: tuple[str, ...] = ()
    """Prefixes of its environment variables, which are passed through."""
    of_one_rank: str = ""
    """Pattern of the variables that launchers set for each rank; not settings."""
    meanings: Mapping[str, str] = {}
    """Environment variable -> what it does, for those that configurations often set."""
    bfloat16_flags: frozenset[str] = frozenset()
    """CPU flags that its CPU build needs to compute in bfloat16."""
    uses_amx: bool = False
    """True if its CPU build multiplies bfloat16 on Intel's AMX."""
    rate_with_amx: float = 0
    """Images/s of a training step on an Intel Xeon with AMX, 224x224, batch 16, bfloat16
    (docs/measurements.md); 0: unknown."""
    container: str = ""
    """Environment variable that a vendor's container sets to its release."""
    profiling: Mapping[str, str] = {}
    """Environment variables that make its profiler count every operator separately."""
    is_default: bool = False
    """True for the default of FRAMEWORK."""
    gpu_package: str = ""
    """Pattern of the distributions of its GPU build; empty: those of ``package``."""
    preferred: tuple[tuple[int, int], str] | None = None
    """Least compute capability of a GPU at which a new configuration prefers it to the default, and why. On
    older GPUs it must be asked for."""

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Return True if its GPU build has code for a GPU: machine code of the same major version and no
        newer minor version, or PTX of no newer version.

        Source: CUDA C++ Programming Guide, "Binary compatibility" and "PTX compatibility".
        """
        if not self.capabilities or self.ptx is not None and self.ptx <= capability:
            return True
        return any(major == capability[0] and minor <= capability[1] for major, minor in self.capabilities)

    @property
    def code(self) -> str:
        """Compute capabilities of its code in words."""
        held = " ".join(f"{major}.{minor}" for major, minor in self.capabilities)
        return f"{held} and newer" if self.ptx else held

    def install(self, device: str) -> str:
        """Return the command that installs the sets of a device, empty if there are none."""
        sets = self.requirements.get(device, ())
        return f"{INSTALL} {' '.join(sets)}" if sets else ""


@functools.cache
def _folders() -> Mapping[str, pathlib.Path]:
    # A namespace package: PYTHONPATH may add folders named implementations to the one of the repository.
    package = importlib.util.find_spec("implementations")
    places = [str(PACKAGES / "implementations"), *((package and package.submodule_search_locations) or ())]
    files = (file for place in reversed(places) for file in pathlib.Path(place).glob(f"*/{TRAITS}"))
    return {file.parent.name: file.parent for file in files}


@functools.cache
def names() -> tuple[str, ...]:
    """Return the values of FRAMEWORK: the folders of ``implementations/`` that have traits."""
    return tuple(sorted(_folders()))


@functools.cache
def traits(framework: str) -> Traits:
    """Return the traits of a framework. Raises UserError where there is no such implementation."""
    if framework not in names():
        remedy = f"there is {', '.join(names())}" if names() else "run from the root of the repository"
        raise UserError(f"FRAMEWORK={framework}", "no such implementation", remedy)
    return _of_file(_folders()[framework] / TRAITS).TRAITS


@functools.cache
def default() -> str:
    """Return the default of FRAMEWORK."""
    return next(name for name in names() if traits(name).is_default)


def every() -> Mapping[str, Traits]:
    """Return the traits of every framework by its value of FRAMEWORK."""
    return {name: traits(name) for name in names()}


def instead(lacking: Traits, capabilities: Collection[tuple[int, int]] = ()) -> tuple[str, str] | None:
    """Return the options --set that train with another framework on GPUs for which one has no code, and the
    command that installs it; None if it has code for them, or nothing has.

    Without the compute capabilities of the GPUs, they are newer than all of its code.
    """
    runs = all(map(lacking.runs_on, capabilities)) if capabilities else lacking.ptx
    if not lacking.capabilities or runs:
        return None
    for name, other in sorted(every().items(), key=lambda item: not item[1].preferred):
        if other is not lacking and "gpu" in other.precisions and all(map(other.runs_on, capabilities)):
            fused = other.fused and all(capability >= other.fused[0] for capability in capabilities)
            options = f"--set FRAMEWORK={name}{' --set STEP_MODE=fused' if fused else ''}"
            return options, f"rm -rf .venv && {other.install('gpu')}"
    return None


def values(field: str) -> tuple[str, ...]:
    """Return the values that any framework has for a field of its traits."""
    all_values = (value for framework in every().values() for value in getattr(framework, field))
    return tuple(dict.fromkeys(all_values))


def module(framework: str, name: str) -> Any:
    """Import ``implementations.<framework>.<name>``, and with it the framework.

    Raises UserError where there is no such implementation, or a package that it needs is missing.
    """
    traits(framework)
    try:
        return importlib.import_module(f"implementations.{framework}.{name}")
    except ImportError as error:
        install = " or ".join(map(traits(framework).install, traits(framework).requirements))
        raise UserError(f"FRAMEWORK={framework}", error, f"{install}, and use .venv/bin/python") from error


@functools.cache
def is_importable(name: str) -> bool:
    """Import a module and return True if that works: an installed one may not fit this machine or its
    framework."""
    try:
        importlib.import_module(name)
        return True
    except (ImportError, OSError, RuntimeError):
        return False


def unimported(framework: str, name: str) -> Any | None:
    """Load a module that imports no framework, without importing its package; return None if there is
    none."""
    traits(framework)
    file = _folders()[framework] / f"{name}.py"
    return _of_file(file) if file.is_file() else None


@functools.cache
def _of_file(file: pathlib.Path) -> Any:
    # Not by its name, because that runs __init__.py of its package, which may import the framework.
    spec = importlib.util.spec_from_file_location(f"rn50_{file.stem}_of_{file.parent.name}", file)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded
