"""Write a configuration with the values of ``--set NAME=VALUE``: a file like any other."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from rn50 import files
from rn50.errors import UserError, did_you_mean, excerpt
from rn50.settings import config, config_file
from rn50.settings.fields import RUNS_OWN_NAMES
from rn50.settings.shell.exports import exported, remark

_LONGEST = 100
"""Most characters of a system's name, which becomes the name of a folder."""
_COPY = "change a copy of the file"
_SOURCES = re.compile(r"^\s*(\.|source)\s", re.MULTILINE)


def write(folder: Path, name: str | None, values: Sequence[str], environ: Mapping[str, str]) -> Path:
    """Write the configuration ``name`` (as for ``config_file.find``) with ``values``, each NAME=VALUE, and
    return its file in ``folder``. Its system is named like DEMO_CPU+LR=1.

    Raises UserError for an unknown configuration or variable, or a value that it cannot have.
    """
    base = config_file.find(name, environ).resolve()
    given = dict(_pair(assignment) for assignment in values)
    parts = [f"{variable}={re.sub(r'[^A-Za-z0-9_.-]+', '_', value)}" for variable, value in given.items()]
    system = "+".join([config_file.system_of(base), *parts])
    if len(system) > _LONGEST:
        raise UserError("--set", f"the system would be called {excerpt(system)}", _COPY)
    text = files.read_text(base, errors="surrogateescape")
    if _SOURCES.search(text):  # a copy would not find the files beside it
        text = f". {shlex.quote(str(base))}\n"
    given |= config_file.absolute_paths(given)  # as of the environment: from where the user is
    label = " ".join(["", *parts])
    lines = [f"# {remark(base.name)}; {files.MARK}, --set", text, "# --set"]
    lines += [exported(variable, value) for variable, value in given.items()]
    lines.append(f'export SUBMISSION_PLATFORM="${{SUBMISSION_PLATFORM:-$DGXSYSTEM}}"{shlex.quote(label)}')
    file = folder / f"config_{system}.sh"
    files.write(file, ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape"))
    sourced = config_file.sourced_environment(file, environ)
    config.from_environment(sourced)
    lost = [name for name, value in given.items() if sourced.get(name, "").removesuffix(label) != value]
    if lost or not sourced.get("SUBMISSION_PLATFORM", "").endswith(label):
        raise UserError(f"--set {' '.join(lost or parts)}", f"{base} keeps its own value", _COPY)
    return file


def _pair(given: str) -> tuple[str, str]:
    """Return name and value. Refuse a variable that no configuration can set, or that differs from run to
    run."""
    name, equals, value = given.partition("=")
    given = excerpt(given)
    if not equals or not value.isprintable():
        raise UserError(f"--set {given}", "no NAME=VALUE", "write --set LR=1")
    if name in RUNS_OWN_NAMES:
        raise UserError(f"--set {given}", "each run has its own", f"set {name} in the environment")
    if name not in config.known_names() and not config_file.is_passed_through(name):
        meant = did_you_mean(name, config.known_names()) or "rn50 config show lists all"
        raise UserError(f"--set {given}", "no such variable", meant)
    return name, value
