"""A configuration file: which names it sets, whether it is one of ours, and what the shell makes of it."""

import difflib
import re
import subprocess
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Set

from rn50.config_variables import PASSED_THROUGH
from rn50.errors import UserError

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
"""Where our own files lie; in them an unknown name is an error, in anybody else's it is ignored."""

TIME_LIMIT_S = 10


def is_ours(path: str) -> bool:
    """Whether a file lies in this repository's ``configs/``."""
    return Path(path).resolve().parent == CONFIGS


def is_passed_through(name: str) -> bool:
    """Whether a variable belongs to a library or launcher, which it reaches untouched."""
    return name.startswith(PASSED_THROUGH)


def names_set_by(path: str) -> List[str]:
    """Names that a file sets, read from its text and never executed; those of a file beside it that it sources come after.

    Raises UserError where the file cannot be read.
    """
    names: Dict[str, None] = {}
    waiting, seen = [Path(path)], {Path(path)}
    while waiting:
        file = waiting.pop()
        try:
            content = file.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise UserError(f"{file}: cannot be read ({error.strerror}); name an existing configuration file") from None
        names.update(dict.fromkeys(re.findall(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)=", content, re.MULTILINE)))
        for sourced in re.findall(r"^[ \t]*(?:source|\.)[ \t].*?([\w.+-]+\.sh)\b", content, re.MULTILINE):
            neighbour = file.parent / sourced
            if neighbour not in seen and neighbour.is_file():
                seen.add(neighbour)
                waiting.append(neighbour)
    return list(names)


def unknown_names(path: str, known: Set[str]) -> List[str]:
    """One line, with the nearest known name, for every name set by a file that means nothing here."""
    problems = []
    for name in names_set_by(path):
        if name not in known and not is_passed_through(name):
            nearest = difflib.get_close_matches(name, known, n=1)
            remedy = f"did you mean {nearest[0]}?" if nearest else "remove it"
            problems.append(f"{name} in {path} is no known variable; {remedy}")
    return problems


def source(path: str, environ: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """The variables that a shell holds after sourcing a file, exported or not; what the file prints is dropped.

    The shell is a clean one, or one that starts with the variables of ``environ``.

    Raises UserError where the file cannot be read, the shell reports an error or it takes longer than ``TIME_LIMIT_S``.
    """
    names_set_by(path)  # says what is wrong with the path, in our words
    script = 'set -a; . "$1" >/dev/null || exit; command -p env -0'
    # timeout ends the shell together with whatever the file has started.
    shell = subprocess.run(
        ["timeout", str(TIME_LIMIT_S), "bash", "--noprofile", "--norc", "-c", script, "bash", str(Path(path).resolve())],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", **(environ or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    if shell.returncode == 124:
        raise UserError(f"{path}: sourcing it takes longer than {TIME_LIMIT_S} s; keep plain `export NAME=value` lines")
    if shell.returncode != 0:
        reason = shell.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {shell.returncode}"]
        raise UserError(f"{path}: cannot be sourced ({reason[-1]}); keep plain `export NAME=value` lines")
    pairs = (entry.split("=", 1) for entry in shell.stdout.decode(errors="replace").split("\0") if "=" in entry)
    return {name: value for name, value in pairs if name not in ("PATH", "PWD", "SHLVL", "_")}
