"""Variables that rn50 passes unchanged to libraries and launchers: which library reads them, and the meaning
of some.

The tables are ``libraries.csv`` and ``library_variables.csv`` beside this file, and what each framework adds
in its ``traits.py``.
"""

import re

from rn50 import files, frameworks

_FILES = re.compile("DIR|FILE|LIBRARY|PATH|PLUGIN|TIMELINE")
"""Part of the name of a variable whose value is a file or folder."""
READERS: dict[str, str] = {
    **{prefix: traits.name for traits in frameworks.every().values() for prefix in traits.prefixes},
    **dict(files.table_beside(__file__, "libraries.csv")),
}
"""Prefix of the names of a library's variables, such as ``NCCL_`` -> the library."""

PASSED_THROUGH = tuple(READERS)
"""Prefixes of the names of all variables that are passed through."""

MEANINGS: dict[str, str] = {
    **{name: meaning for traits in frameworks.every().values() for name, meaning in traits.meanings.items()},
    **dict(files.table_beside(__file__, "library_variables.csv")),
}
"""Variable that published configurations often set -> its meaning."""

HARMLESS = frozenset(name for name in MEANINGS if not name.startswith("LD_") and not _FILES.search(name))
"""Variables that may be copied from a stranger's result, because they neither load code nor name a file."""


def is_passed_through(name: str) -> bool:
    """Return True if a variable belongs to a library or launcher, to which it is passed unchanged."""
    return name.startswith(PASSED_THROUGH)
