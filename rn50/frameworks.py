"""The one door to ``implementations/``: which frameworks there are, their traits, and their modules.

The rest of rn50 names no framework. What it has to know of one before anything is imported is in its
``traits.py``.
"""

import functools
import importlib
import importlib.util
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from rn50.errors import UserError
from rn50.files import INSTALL, PACKAGES

TRAITS = "traits.py"


class Variables(NamedTuple):
    """Environment variables of a framework."""

    prefix: str
    read: frozenset[str]
    """Names with the prefix that it reads; others with it have no effect."""
    elsewhere: tuple[str, ...] = ()
    """Names without the prefix that published files set and that it does not read."""


class Launcher(NamedTuple):
    """A framework's own program that starts the ranks of one machine, as ``python -m <arguments>
    COMMAND...``."""

    arguments: tuple[str, ...]
    """Its module and options; {ranks} and {folder} stand for the number of ranks and a folder for its files,
    which is removed."""
    rank: str
    """Environment variable that it gives each rank: its number."""


class Traits(NamedTuple):
    """A framework, described without importing it: ``TRAITS`` of
    ``implementations/<framework>/traits.py``."""

    name: str
    """As a person calls it."""
    package: str
    """Pattern of the distributions that are the framework, in lower case."""
    packages: str
    """Pattern of the distributions whose versions are reported of a measurement."""
    requirements: Mapping[str, tuple[str, ...]]
    """Device -> sets of ``requirements/`` that one rank needs."""
    precisions: Mapping[str, tuple[str, ...]]
    """Device -> values of PRECISION beside "auto"; without a device the framework cannot use it."""
    input_libraries: tuple[str, ...] = ("dali",)
    """Values of INPUT_LIBRARY beside "auto"."""
    automatic_input: Mapping[str, Mapping[str, str]] = {}
    """Device -> libraries of which INPUT_LIBRARY=auto takes the first that can be used: library -> the module
    to import, or "module:function", which returns why the library is not to be taken, empty if it is. Without
    a device it takes the first of ``input_libraries``."""
    step_modes: tuple[str, ...] = ("eager",)
    """Values of STEP_MODE."""
    inference: Mapping[str, tuple[str, ...]] = {}
    """Ways in which its ``inference.py`` runs a network on a CPU -> the precisions in which it does; empty
    without that file."""
    exports: tuple[str, ...] = ()
    """Ends of the names of the files in its own format that ``inference.py`` writes and reads; empty:
    none."""
    calibrations: Mapping[str, str] = {}
    """Ways to calibrate int8 -> its own names of them; empty if ``inference.py`` does not quantise."""
    capabilities: tuple[tuple[int, int], ...] = ()
    """Compute capabilities for which its GPU build has machine code; empty: any GPU."""
    ptx: tuple[int, int] | None = None
    """Compute capability of its PTX, which a driver compiles for every newer GPU; None: it has none."""
    least_capabilities: Mapping[str, tuple[int, int]] = {}
    """Value of PRECISION -> the least compute capability of a GPU that computes in it, where it needs one."""
    horovod: bool = False
    """True if ranks on GPUs or on several machines need Horovod."""
    launchers: Mapping[str, Launcher] = {}
    """Value of LAUNCHER -> the framework's own launcher of that name."""
    gradient_buckets: bool = False
    """True if it splits the gradients into MXNET_HOROVOD_NUM_GROUPS buckets."""
    variables: Variables | None = None
    """Known names of its environment variables; None where any may have an effect."""
    library: tuple[str, str] = ("", "")
    """(package, its shared library), whose own libraries ``rn50 doctor`` looks for; empty: none."""
    prefixes: tuple[str, ...] = ()
    """First parts of the names of its environment variables, which are passed through."""
    of_one_rank: str = ""
    """Pattern of those that launchers set for each rank, which are no settings."""
    meanings: Mapping[str, str] = {}
    """Environment variable -> what it does, for those that configurations often set."""
    bfloat16_flags: frozenset[str] = frozenset()
    """Flags of the processor without which its build for CPUs does not compute in bfloat16."""
    uses_amx: bool = False
    """True if its build for CPUs multiplies bfloat16 on Intel's AMX."""
    rate_with_amx: float = 0
    """Images/s of a training step on an Intel Xeon with AMX, 224x224, batch 16, bfloat16
    (docs/measurements.md); 0: unknown."""
    container: str = ""
    """Environment variable that a vendor's container of it sets to its release."""
    profiling: Mapping[str, str] = {}
    """Environment variables under which its profiler counts every operator on its own."""
    is_default: bool = False
    """True for the default of FRAMEWORK."""
    gpu_package: str = ""
    """Pattern of the distributions that are its build for GPUs; empty: those of ``package``."""
    preferred: tuple[tuple[int, int], str] | None = None
    """The least compute capability of GPUs for which a new configuration takes it before the default, and
    why. On older ones it is taken only if it is asked for."""

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
        known = f"there is {', '.join(names())}" if names() else "run from the root of the repository"
        raise UserError(f"FRAMEWORK={framework}", "no such implementation", known)
    found: Traits = _of_file(_folders()[framework] / TRAITS).TRAITS
    return found


@functools.cache
def default() -> str:
    """Return the default of FRAMEWORK."""
    return next(name for name in names() if traits(name).is_default)


def every() -> Mapping[str, Traits]:
    """Return the traits of every framework by its value of FRAMEWORK."""
    return {name: traits(name) for name in names()}


def values(field: str) -> tuple[str, ...]:
    """Return the values that any framework has for a field of its traits."""
    return tuple(dict.fromkeys(value for each in every().values() for value in getattr(each, field)))


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
    """Return True if a module can be imported, which it then is: it may be there and not fit this machine or
    its framework."""
    try:
        importlib.import_module(name)
        return True
    except (ImportError, OSError, RuntimeError):
        return False


@functools.cache
def why_not(library: str) -> str:
    """Return why a value of ``Traits.automatic_input`` cannot be used, empty if it can."""
    module, _, function = library.partition(":")
    if not is_importable(module):
        return f"{module} cannot be imported"
    return str(getattr(importlib.import_module(module), function)()) if function else ""


def unimported(framework: str, name: str) -> Any | None:
    """Return a module of an implementation that imports no framework, without importing its package; None if
    there is none."""
    traits(framework)
    file = _folders()[framework] / f"{name}.py"
    return _of_file(file) if file.is_file() else None


@functools.cache
def _of_file(file: pathlib.Path) -> Any:
    # Not by its name: that would run __init__.py of its package, which may import the framework.
    spec = importlib.util.spec_from_file_location(f"rn50_{file.stem}_of_{file.parent.name}", file)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded
