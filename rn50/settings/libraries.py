"""Variables passed unchanged to libraries and launchers: who reads them, and what some of them mean."""

import re

from rn50 import files, frameworks

_OF_FILES = re.compile("DIR|FILE|LIBRARY|PATH|PLUGIN|TIMELINE")
READERS: dict[str, str] = {
    **{prefix: traits.name for traits in frameworks.every().values() for prefix in traits.prefixes},
    **dict(files.table_beside(__file__, "libraries.csv")),
}
"""First part of the names of a library's variables -> the library."""

PASSED_THROUGH = tuple(READERS)
"""First parts of the names of all variables that are passed through."""

MEANINGS: dict[str, str] = {
    **{name: meaning for traits in frameworks.every().values() for name, meaning in traits.meanings.items()},
    **dict(files.table_beside(__file__, "library_variables.csv")),
}
"""Variable that published configurations often set -> its meaning."""

HARMLESS = frozenset(name for name in MEANINGS if not name.startswith("LD_") and not _OF_FILES.search(name))
"""Variables that may be taken from somebody's result: they neither load code nor name a file."""


def is_passed_through(name: str) -> bool:
    """Return True if a variable belongs to a library or launcher, to which it is passed unchanged."""
    return name.startswith(PASSED_THROUGH)


def reader(name: str) -> str:
    """Return the library that reads a variable that is passed through."""
    return next(library for prefix, library in READERS.items() if name.startswith(prefix))
