"""The software with which this Python would train: the packages, the shared libraries that frameworks load,
what it takes to compile an extension, and the commit of the checkout."""

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import itertools
import pathlib
import platform
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping

from rn50 import frameworks, process
from rn50.files import ROOT
from rn50.machine.sources import HERE, Sources

GIT_LIMIT_S = 60
"""Time limit of a command of git."""


@dataclasses.dataclass(frozen=True)
class Software:
    """The software of this Python."""

    python: str
    """Version of Python."""
    packages: Mapping[str, str]
    """Name in lower case -> version."""
    missing_libraries: tuple[str, ...]
    """Libraries that a framework's library needs, such as libmxnet.so, and that the loader does not find."""
    libraries_off_path: tuple[pathlib.Path, ...]
    """Folders of installed packages that hold some of the missing libraries."""
    nvidia_container: str | None
    """Release of NVIDIA's framework container, whose framework is not the one of PyPI; None: this process is
    not in one."""
    missing_to_compile: tuple[str, ...] = ()
    """Debian packages that are missing here and without which an extension of this Python cannot be compiled,
    as Triton and PyTorch's compiler do."""

    def has(self, traits: frameworks.Traits, device: str = "cpu") -> bool:
        """Return whether a build of the framework for ``device``, "cpu" or "gpu", is installed. Every build
        runs on a CPU; a build whose version ends in +cpu runs on nothing else."""
        # Without a package for GPUs, one package serves both devices.
        pattern = traits.package if device == "cpu" else traits.gpu_package or traits.package
        builds = (version for name, version in self.packages.items() if re.fullmatch(pattern, name))
        return any(device != "gpu" or not version.endswith("+cpu") for version in builds)

    @property
    def has_dali(self) -> bool:
        """True if a build of DALI is installed."""
        return any(name.startswith("nvidia-dali-") for name in self.packages)

    def shown(self, traits: frameworks.Traits) -> str:
        """Return, in a line, names and versions of the installed packages that matter for a framework."""
        names = (name for name in sorted(self.packages) if re.fullmatch(traits.packages, name))
        return ", ".join(f"{name} {self.packages[name]}" for name in names)


def read(source: Sources = HERE) -> Software:
    """Return the software of this Python, without importing a framework. ``source`` runs ldd and has the
    environment variables; Python and packages are always those of this process."""
    libraries = list(filter(None, map(_library, frameworks.every().values())))
    ldd_output = "\n".join(source.run(["ldd", str(library)])[1] for library in libraries)
    # A line of ldd: "libcudart.so.12 => not found".
    missing = tuple(dict.fromkeys(re.findall(r"^\s*(\S+) => not found", ldd_output, re.MULTILINE)))
    # pip installs NVIDIA's libraries beside the frameworks, such as in site-packages/nvidia/nccl/lib.
    folders = itertools.chain(*(sorted(path.parent.parent.glob("nvidia/*/lib")) for path in libraries))
    off_path = [folder for folder in folders if any((folder / name).exists() for name in missing)]
    return Software(
        python=platform.python_version(),
        packages=packages(),
        missing_libraries=missing,
        libraries_off_path=tuple(off_path),
        nvidia_container=next(filter(None, map(source.environ.get, container_variables())), None),
        missing_to_compile=tuple(_missing_to_compile()),
    )


def packages() -> dict[str, str]:
    """Return name in lower case -> version of the packages of this Python. A package whose metadata lack name
    or version is left out."""
    versions: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        with contextlib.suppress(UnicodeDecodeError):
            metadata = distribution.metadata
            # If two packages have the same name, Python imports the first one on its path.
            if all(key in metadata and metadata[key] for key in ("Name", "Version")):
                versions.setdefault(metadata["Name"].lower(), metadata["Version"])
    return versions


def _missing_to_compile() -> Iterator[str]:
    """Yield the elements of ``Software.missing_to_compile``."""
    if not shutil.which("g++"):  # the command and its package have the same name
        yield "g++"
    # Debian's default scheme has the folder of packages that an administrator installs. The headers of Python
    # itself are in the folder of this scheme.
    if not pathlib.Path(sysconfig.get_path("include", "posix_prefix"), "Python.h").exists():
        yield "python3-dev"


def container_variables() -> tuple[str, ...]:
    """Return the environment variables in which NVIDIA's framework containers have their release."""
    return tuple(traits.container for traits in frameworks.every().values() if traits.container)


def _library(traits: frameworks.Traits) -> pathlib.Path | None:
    """Return the path of the shared library that ``traits.library`` names; None: the framework is not
    installed, or its traits name none."""
    name, file = traits.library
    package = importlib.util.find_spec(name) if name else None
    library = pathlib.Path(package.origin).with_name(file) if package and package.origin else None
    return library if library and library.exists() else None


def git(checkout: pathlib.Path, *arguments: str) -> tuple[int, bytes, str]:
    """Run git in a checkout. Return its exit status, its standard output, and the last line of its standard
    error."""
    try:
        ended = subprocess.run(["git", *arguments], cwd=checkout, capture_output=True, timeout=GIT_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, b"", f"git: {getattr(error, 'strerror', error)}"
    error_lines = ended.stderr.decode(errors="replace").strip().splitlines()
    return ended.returncode, ended.stdout, error_lines[-1] if error_lines else ""


def commit() -> str | None:
    """Return the commit of this code, followed by "-dirty" if files differ from it; None: nobody knows it.

    A container image is not a checkout: the commit is in RN50_COMMIT there.
    """
    # git prints nothing where there is no checkout, or no git.
    _, described, _ = git(ROOT, "describe", "--always", "--dirty", "--abbrev=40")
    return described.decode().strip() or process.environment().get("RN50_COMMIT") or None
