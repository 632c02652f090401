"""Optional packages: the error for a missing one says how to install it."""

import contextlib
import re
import sys
from collections.abc import Iterator

from rn50.errors import UserError
from rn50.files import INSTALL, ROOT

VERSIONS = ROOT / "requirements" / "core.txt", ROOT / "requirements" / "rn50.txt"
"""Pinned versions that this code was tested with; without a checkout the files are missing."""
SETS = {"onnx": "deploy", "onnxruntime": "deploy"}
"""Distribution -> its set of ``requirements/``, for those in neither a framework's set nor ``VERSIONS``."""

DISTRIBUTIONS = {"cv2": "opencv-python-headless", "PIL": "pillow", "yaml": "pyyaml"}
"""Import name -> distribution, where the two differ."""


@contextlib.contextmanager
def needed_for(what: str) -> Iterator[None]:
    """Import the packages of ``what`` in this context. Raises UserError, beginning with ``what``, if one is
    missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = distribution(error)
        raise UserError(what, f"the package {name} is not installed", install(name)) from error


@contextlib.contextmanager
def hidden(*names: str) -> Iterator[None]:
    """Let imports in this context find these modules missing."""
    before = {name: module for name in names if (module := sys.modules.pop(name, None))}
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
        sys.modules.update(before)


def distribution(error: ModuleNotFoundError) -> str:
    """Return the distribution of the missing module."""
    package = str(error.name).partition(".")[0]
    return DISTRIBUTIONS.get(package, package.replace("_", "-"))


def install(name: str) -> str:
    """Return the command that installs a distribution: its set, else its pinned version, else any version."""
    if name in SETS:
        return f"{INSTALL} {SETS[name]}"
    return f"{sys.executable} -m pip install {pinned(name) or name}"


def pinned(name: str) -> str | None:
    """Return NAME==VERSION of a distribution pinned in ``VERSIONS``, or None."""
    versions = "".join(file.read_text(encoding="utf-8") for file in VERSIONS if file.is_file())
    match = re.search(rf"^{re.escape(name)}==\S+", versions, re.MULTILINE | re.IGNORECASE)
    return match[0] if match else None
