"""Packages that may be missing: errors that say how to install them."""

import contextlib
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator

from rn50.errors import UserError
from rn50.files import INSTALL, ROOT

VERSIONS = ROOT / "requirements" / "core.txt", ROOT / "requirements" / "rn50.txt"
"""Files with the pinned versions that this code was tested with. Without a checkout they do not exist."""
SETS = {"onnx": "deploy", "onnxruntime": "deploy"}
"""Distribution -> the set of ``requirements/`` that has it, for distributions that are neither in
``VERSIONS`` nor in the set of a framework."""

DISTRIBUTIONS = {"cv2": "opencv-python-headless", "PIL": "pillow", "yaml": "pyyaml"}
"""Import name -> distribution, where the two differ."""


@contextlib.contextmanager
def needed_for(what: str) -> Iterator[None]:
    """Context for imports that ``what``, a verb or an option, needs. Raises UserError, beginning with
    ``what``, if a package is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = distribution(error)
        raise UserError(what, f"the package {name} is not installed", install(name)) from error


@contextlib.contextmanager
def hidden(*names: str) -> Iterator[None]:
    """Context in which an import of these modules fails, as if they were not installed."""
    loaded = {name: module for name in names if (module := sys.modules.pop(name, None))}
    # An import of a name whose entry is None fails.
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
        sys.modules.update(loaded)


def distribution(error: ModuleNotFoundError) -> str:
    """Return the name of the distribution that has the missing module."""
    package = str(error.name).partition(".")[0]
    return DISTRIBUTIONS.get(package, package.replace("_", "-"))


def install(name: str) -> str:
    """Return the command that installs a distribution: the set that has it, else its pinned version, else its
    latest version."""
    if name in SETS:
        return f"{INSTALL} {SETS[name]}"
    return f"{sys.executable} -m pip install {pinned(name) or name}"


def pinned(name: str, files: Iterable[pathlib.Path] = VERSIONS) -> str | None:
    """Return NAME==VERSION of a distribution; None if the ``files`` do not have it."""
    versions = "".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
    # Lines are such as "psutil==7.2.2 \".
    match = re.search(rf"^{re.escape(name)}==\S+", versions, re.MULTILINE | re.IGNORECASE)
    return match[0] if match else None
