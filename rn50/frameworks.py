"""Access to ``implementations/``, which has a folder for each framework: which there are, what their
``traits.py`` says, and their modules.

No file of rn50 names a framework, or imports one except through ``module``. What rn50 has to know about a
framework without importing it is in its ``traits.py``.
"""

import functools
import importlib
import importlib.util
import pathlib
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.files import INSTALL, PACKAGES

TRAITS = "traits.py"


class Variables(NamedTuple):
    """The environment variables that a framework reads."""

    prefix: str
    """Beginning of their names."""
    read: frozenset[str]
    """All names with the prefix that the framework reads. Any other name with the prefix has no effect."""
    elsewhere: tuple[str, ...] = ()
    """Names without the prefix that published configurations set, although the framework does not read
    them: ``rn50 config show`` says that they have no effect."""


class Traits(NamedTuple):
    """Facts about a framework that rn50 needs without importing it: ``TRAITS`` of
    ``implementations/<framework>/traits.py``. A compute capability of GPUs is a pair (major, minor)."""

    name: str
    """Name of the framework in messages."""
    package: str
    """Pattern of the names, in lower case, of the distributions that are the framework."""
    packages: str
    """Pattern of the names of the distributions whose versions are reported with a measurement."""
    requirements: Mapping[str, tuple[str, ...]]
    """Device -> sets of ``requirements/`` that one rank needs."""
    precisions: Mapping[str, tuple[str, ...]]
    """Device -> values of PRECISION besides "auto". A device that is missing is not supported."""
    input_libraries: tuple[str, ...] = ("dali",)
    """Values of INPUT_LIBRARY besides "auto". If DALI cannot be imported, "auto" takes the last."""
    step_modes: tuple[str, ...] = ("eager",)
    """Values of STEP_MODE."""
    optimizers: tuple[str, ...] = rules.OPTIMIZERS
    """Values of OPTIMIZER that the engine implements."""
    open_recipe: tuple[str, ...] = ()
    """Variables of the open recipe that the engine implements. LR_DECAY needs no engine."""
    fused: tuple[tuple[int, int], str] | None = None
    """(least compute capability, package): a new configuration for such GPUs sets STEP_MODE=fused, which
    needs the package. None: no new configuration sets it."""
    inference: Mapping[str, tuple[str, ...]] = {}
    """Ways in which ``inference.py`` of the framework runs a network, such as "eager" or "compiled" -> their
    precisions. Ways on a GPU begin with "cuda-". Empty: there is no such file."""
    capabilities: tuple[tuple[int, int], ...] = ()
    """Compute capabilities for which the GPU build has machine code. Empty: it runs on any GPU."""
    ptx: tuple[int, int] | None = None
    """Compute capability of the PTX code of the GPU build, which a driver compiles for every newer GPU. None:
    there is no PTX."""
    cuda: int = 0
    """Major version of CUDA in the set for GPUs; 0: the set has no CUDA."""
    least_capabilities: Mapping[str, tuple[int, int]] = {}
    """Value of PRECISION -> least compute capability that it needs. A missing value runs on every GPU."""
    horovod: bool = False
    """True if ranks on GPUs or on several machines need Horovod."""
    gradient_buckets: bool = False
    """True if the framework all-reduces the gradients in MXNET_HOROVOD_NUM_GROUPS buckets."""
    variables: Variables | None = None
    """The environment variables that the framework reads. None: not known, so any may have an effect."""
    library: tuple[str, str] = ("", "")
    """(package, shared library in it) whose dependencies ``rn50 doctor`` looks for. Empty: it looks for
    none."""
    prefixes: tuple[str, ...] = ()
    """Beginnings of the names of environment variables that are passed through to the framework."""
    of_one_rank: str = ""
    """Pattern of the names of variables that launchers set for each rank, and that are no settings."""
    meanings: Mapping[str, str] = {}
    """Environment variable -> what it does, for variables that configurations often set."""
    bfloat16_flags: frozenset[str] = frozenset()
    """CPU flags that the CPU build needs to compute in bfloat16."""
    uses_amx: bool = False
    """True if the CPU build multiplies bfloat16 on Intel's AMX."""
    rate_with_amx: float = 0
    """Images/s of a training step on an Intel Xeon with AMX, 224x224, batch 16, bfloat16
    (docs/measurements.md); 0: unknown."""
    container: str = ""
    """Environment variable that a vendor's container sets to its release."""
    profiling: Mapping[str, str] = {}
    """Environment variables with which the framework's profiler counts every operator separately."""
    is_default: bool = False
    """True if the framework is the default of FRAMEWORK."""
    gpu_package: str = ""
    """Pattern of the names of the distributions of the GPU build; empty: ``package``."""
    preferred: tuple[tuple[int, int], str] | None = None
    """(least compute capability, reason): a new configuration for such GPUs takes this framework in place of
    the default. None, or for older GPUs: only if --framework names it."""

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Return True if the GPU build has code for a GPU of this compute capability: machine code of the
        same major and the same or a lower minor version, or PTX of the same or a lower version.

        Source: CUDA C++ Programming Guide, "Binary compatibility" and "PTX compatibility".
        """
        if not self.capabilities or self.ptx is not None and self.ptx <= capability:
            return True
        return any(major == capability[0] and minor <= capability[1] for major, minor in self.capabilities)

    @property
    def code(self) -> str:
        """The compute capabilities for which the GPU build has code, in words."""
        versions = " ".join(f"{major}.{minor}" for major, minor in self.capabilities)
        return f"{versions} and newer" if self.ptx else versions

    def install(self, device: str) -> str:
        """Return the command that installs the framework for a device; "" if it does not support the
        device."""
        sets = self.requirements.get(device, ())
        return f"{INSTALL} {' '.join(sets)}" if sets else ""


@functools.cache
def _folders() -> Mapping[str, pathlib.Path]:
    """Return the value of FRAMEWORK -> folder of the implementation."""
    # ``implementations`` is a namespace package: PYTHONPATH may have more folders of that name.
    package = importlib.util.find_spec("implementations")
    places = [str(PACKAGES / "implementations"), *((package and package.submodule_search_locations) or ())]
    # If two places have a folder for a framework, this repository's counts, else that of the place that
    # PYTHONPATH names first. The dictionary keeps the last of equal names, hence the reversed order.
    files = (file for place in reversed(places) for file in pathlib.Path(place).glob(f"*/{TRAITS}"))
    return {file.parent.name: file.parent for file in files}


@functools.cache
def names() -> tuple[str, ...]:
    """Return the values of FRAMEWORK: the names of the folders of ``implementations/`` that have a
    ``traits.py``."""
    return tuple(sorted(_folders()))


@functools.cache
def traits(framework: str) -> Traits:
    """Return the traits of a framework. Raises UserError if there is no such implementation."""
    if framework not in names():
        remedy = f"there is {', '.join(names())}" if names() else "run from the root of the repository"
        raise UserError(f"FRAMEWORK={framework}", "no such implementation", remedy)
    return _load(_folders()[framework] / TRAITS).TRAITS


@functools.cache
def default() -> str:
    """Return the default of FRAMEWORK."""
    return next(name for name in names() if traits(name).is_default)


def every() -> Mapping[str, Traits]:
    """Return the value of FRAMEWORK -> traits, for all frameworks."""
    return {name: traits(name) for name in names()}


def instead(lacking: Traits, capabilities: Collection[tuple[int, int]] = ()) -> tuple[str, str] | None:
    """Return a framework to use instead of ``lacking`` if that has no code for GPUs of these compute
    capabilities: (options --set that choose it, command that installs it). Return None if ``lacking`` has
    code for them, or no framework has.

    Without ``capabilities``, assume GPUs that are newer than all machine code of ``lacking``.
    """
    # Newer GPUs run the build of ``lacking`` if it has PTX.
    has_code = all(map(lacking.runs_on, capabilities)) if capabilities else lacking.ptx
    if not lacking.capabilities or has_code:  # without ``capabilities`` of its own, it runs on any GPU
        return None
    # Try the frameworks that a new configuration may prefer before the others (False sorts before True).
    for name, other in sorted(every().items(), key=lambda item: not item[1].preferred):
        if other is not lacking and "gpu" in other.precisions and all(map(other.runs_on, capabilities)):
            fused = other.fused and all(capability >= other.fused[0] for capability in capabilities)
            options = f"--set FRAMEWORK={name}{' --set STEP_MODE=fused' if fused else ''}"
            return options, f"rm -rf .venv && {other.install('gpu')}"
    return None


def values(field: str) -> tuple[str, ...]:
    """Return the values that any framework has in a field of its traits, which is a tuple."""
    all_values = (value for framework in every().values() for value in getattr(framework, field))
    return tuple(dict.fromkeys(all_values))


def module(framework: str, name: str) -> Any:
    """Import ``implementations.<framework>.<name>``, which imports the framework.

    Raises UserError if there is no such implementation, or if a package that it needs is not installed.
    """
    traits(framework)
    try:
        return importlib.import_module(f"implementations.{framework}.{name}")
    except ImportError as error:
        install = " or ".join(map(traits(framework).install, traits(framework).requirements))
        raise UserError(f"FRAMEWORK={framework}", error, f"{install}, and use .venv/bin/python") from error


@functools.cache
def is_importable(name: str) -> bool:
    """Return True if a module can be imported, and import it. A module may be installed and still not fit
    this machine, or the version of its framework."""
    try:
        importlib.import_module(name)
        return True
    except (ImportError, OSError, RuntimeError):
        return False


def unimported(framework: str, name: str) -> Any | None:
    """Load ``<name>.py`` of a framework's folder without importing the framework, which the module itself
    must not import. Return None if there is no such file."""
    traits(framework)
    file = _folders()[framework] / f"{name}.py"
    return _load(file) if file.is_file() else None


@functools.cache
def _load(file: pathlib.Path) -> Any:
    """Return the module of a file. It is not imported by its name, because that would run ``__init__.py`` of
    its package, which may import the framework."""
    spec = importlib.util.spec_from_file_location(f"rn50_{file.stem}_of_{file.parent.name}", file)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded
