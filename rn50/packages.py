"""Packages that only a part of this code needs: where one is missing, the line that says how to install
it."""

import contextlib
import re
import sys
from collections.abc import Iterator

from rn50.errors import UserError
from rn50.files import INSTALL, ROOT

VERSIONS = ROOT / "requirements" / "core.txt", ROOT / "requirements" / "rn50.txt"
"""The versions that this code was tried with; where it was installed without a checkout there are no such
files."""
SETS = {"onnx": "deploy", "onnxruntime": "deploy"}
"""Distribution -> the set of ``requirements/`` that has it, for those of no framework that ``VERSIONS``
lacks."""

DISTRIBUTIONS = {"cv2": "opencv-python-headless", "PIL": "pillow", "yaml": "pyyaml"}
"""Package as it is imported -> the distribution that has it, where that is called otherwise."""


@contextlib.contextmanager
def needed_for(what: str) -> Iterator[None]:
    """Import the packages of ``what`` in this context. Raises UserError, which begins with ``what``, if one
    is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = distribution(error)
        raise UserError(what, f"the package {name} is not installed", install(name)) from error


def distribution(error: ModuleNotFoundError) -> str:
    """Return the distribution that has the module that was not found."""
    package = str(error.name).partition(".")[0]
    return DISTRIBUTIONS.get(package, package.replace("_", "-"))


def install(name: str) -> str:
    """Return the command that installs a distribution: its set, else in the version of ``VERSIONS`` if that
    has one."""
    if name in SETS:
        return f"{INSTALL} {SETS[name]}, and use .venv/bin/python"
    return f"{sys.executable} -m pip install {pinned(name) or name}"


def pinned(name: str) -> str | None:
    """Return NAME==VERSION of a distribution as ``VERSIONS`` has it, None if it has not."""
    versions = "".join(each.read_text(encoding="utf-8") for each in VERSIONS if each.is_file())
    found = re.search(rf"^{re.escape(name)}==\S+", versions, re.MULTILINE | re.IGNORECASE)
    return found[0] if found else None
