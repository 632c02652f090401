"""Packages that only a part of this code needs: where one is missing, the line that says how to install it."""

import contextlib
import re
import sys
from typing import Iterator, Optional

from rn50.errors import UserError
from rn50.files import ROOT

VERSIONS = ROOT / "requirements" / "core.in"
"""The versions that this code was tried with; a container image has no such file."""


@contextlib.contextmanager
def needed_for(what: str) -> Iterator[None]:
    """Import the packages of ``what`` in this context. Raises UserError, which begins with ``what``, if one is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise UserError(what, f"the package {package} is not installed", install(package.replace("_", "-"))) from error


def install(name: str) -> str:
    """Return the command that installs a distribution, in the version of ``VERSIONS`` if that has one."""
    return f"{sys.executable} -m pip install {pinned(name) or name}"


def pinned(name: str) -> Optional[str]:
    """Return NAME or NAME==VERSION of a distribution as ``VERSIONS`` has it, None if it has not."""
    versions = VERSIONS.read_text(encoding="utf-8") if VERSIONS.is_file() else ""
    found = re.search(rf"^({re.escape(name)}(==[^\s;]+)?)\s*(;|$)", versions, re.MULTILINE | re.IGNORECASE)
    return found[1] if found else None
