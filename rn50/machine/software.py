"""The software installed beside this code: Python, packages, and the shared libraries that MXNet loads."""

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
    """The environment of this Python."""

    python: str
    packages: Mapping[str, str]
    """Name in lower case -> version."""
    missing_libraries: tuple[str, ...]
    """Libraries of libmxnet.so that the loader does not find."""
    libraries_off_path: tuple[pathlib.Path, ...]
    """Folders of installed packages that hold some of the missing libraries."""
    nvidia_container: str | None
    """Release of NVIDIA's MXNet container if this is one; its MXNet is not PyPI's."""
    missing_to_compile: tuple[str, ...] = ()
    """Debian packages missing to compile an extension of this Python, as Triton and PyTorch's compiler do."""

    def has(self, traits: frameworks.Traits, device: str = "cpu") -> bool:
        """Return True if a framework's build for the device is installed. Every build runs on a CPU; a
        version ending in +cpu runs there alone."""
        pattern = device == "gpu" and traits.gpu_package or traits.package
        return any(
            re.fullmatch(pattern, name) and not (device == "gpu" and version.endswith("+cpu"))
            for name, version in self.packages.items()
        )

    @property
    def has_dali(self) -> bool:
        """True if a build of DALI is installed."""
        return any(name.startswith("nvidia-dali-") for name in self.packages)

    def shown(self, traits: frameworks.Traits) -> str:
        """Return names and versions of the packages that count for a framework."""
        named = (name for name in sorted(self.packages) if re.fullmatch(traits.packages, name))
        return ", ".join(f"{name} {self.packages[name]}" for name in named)


def read(source: Sources = HERE) -> Software:
    """Return the software that this process would train with, without importing it. ``source`` runs ldd and
    has the environment; Python and packages are always those of this process."""
    libraries = list(filter(None, map(_library, frameworks.every().values())))
    linked = "\n".join(source.run(["ldd", str(library)])[1] for library in libraries)
    missing = tuple(dict.fromkeys(re.findall(r"^\s*(\S+) => not found", linked, re.MULTILINE)))
    folders = (sorted(library.parent.parent.glob("nvidia/*/lib")) for library in libraries)
    every = itertools.chain(*folders)
    off_path = [folder for folder in every if any((folder / name).exists() for name in missing)]
    return Software(
        python=platform.python_version(),
        packages=packages(),
        missing_libraries=missing,
        libraries_off_path=tuple(off_path),
        nvidia_container=next(filter(None, map(source.environ.get, container_variables())), None),
        missing_to_compile=tuple(_missing_to_compile()),
    )


def packages() -> dict[str, str]:
    """Return name in lower case -> version of this Python's packages, without those whose files lack
    either."""
    versions: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        with contextlib.suppress(UnicodeDecodeError):
            about = distribution.metadata
            # Of two packages of a name, Python imports the first on the path.
            if all(key in about and about[key] for key in ("Name", "Version")):
                versions.setdefault(about["Name"].lower(), about["Version"])
    return versions


def _missing_to_compile() -> Iterator[str]:
    if not shutil.which("g++"):
        yield "g++"
    # The scheme is named, because Debian's default scheme is for packages that an administrator installs.
    if not pathlib.Path(sysconfig.get_path("include", "posix_prefix"), "Python.h").exists():
        yield "python3-dev"


def container_variables() -> tuple[str, ...]:
    """Return the variables that hold the release of vendors' framework containers."""
    return tuple(traits.container for traits in frameworks.every().values() if traits.container)


def _library(traits: frameworks.Traits) -> pathlib.Path | None:
    name, file = traits.library
    package = importlib.util.find_spec(name) if name else None
    library = pathlib.Path(package.origin).with_name(file) if package and package.origin else None
    return library if library and library.exists() else None


def git(checkout: pathlib.Path, *arguments: str) -> tuple[int, bytes, str]:
    """Return exit status and standard output of git in a checkout, and the last line of standard error."""
    try:
        done = subprocess.run(["git", *arguments], cwd=checkout, capture_output=True, timeout=GIT_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, b"", f"git: {getattr(error, 'strerror', error)}"
    complaints = done.stderr.decode(errors="replace").strip().splitlines()
    return done.returncode, done.stdout, complaints[-1] if complaints else ""


def commit() -> str | None:
    """Return the commit of the checkout, with "-dirty" if files differ; in an image, which is not a checkout,
    RN50_COMMIT.

    Returns None if neither is known.
    """
    _, described, _ = git(ROOT, "describe", "--always", "--dirty", "--abbrev=40")
    return described.decode().strip() or process.environment().get("RN50_COMMIT") or None
