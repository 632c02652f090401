"""Save beside a result how it was made."""

import json
import pathlib
import platform
from typing import Any

import rn50
from rn50 import files
from rn50.errors import UserError
from rn50.machine import description, software
from rn50.process import environment
from rn50.results import sidecar
from rn50.run import input_library
from rn50.settings.config import Config
from rn50.settings.document import Document
from rn50.settings.libraries import is_passed_through

_VERSION = "rn50"
_REMEDY = "move it away or set another RESULT_FILE"


def save(config: Config, seed: int, result_file: pathlib.Path, resumed_after: int | None = None) -> None:
    """Write ``<result_file without suffix>.json``: resolved configuration, seed, epoch of the checkpoint that
    the run goes on from, code version, machine, package versions.

    ``variables`` and ``environment`` make a configuration file that repeats this run. ``system`` is the
    description of the machine for ``rn50 package``, which often runs on another one.

    Raises UserError if the file cannot be written, or exists and was not saved by a run, or was saved with
    another log.
    """
    target = result_file.with_suffix(".json")
    _refuse_another(target, result_file.name)
    facts = {
        "seed": seed,
        **({} if resumed_after is None else {"resumed_after": resumed_after}),
        "config": config.to_dict(),
        "variables": config.as_environment(),
        "environment": _passed_through(),
        _VERSION: rn50.__version__,
        "commit": software.commit(),
        "python": platform.python_version(),
        "input_library": input_library.chosen(config),  # that of "auto" depends on the machine
        "machine": _machine(),
        "system": description.read(),
        "packages": software.packages(),
    }
    _write(target, facts)


def add(result_file: pathlib.Path, facts: dict[str, Any]) -> None:
    """Add facts that only the run itself could find out to the file that ``save`` wrote."""
    target = result_file.with_suffix(".json")
    _write(target, {**files.read_json(target), **facts})


def earlier_precision(config: Config) -> str | None:
    """Return the precision of an earlier run of this configuration on this machine, whose log is in the
    folder of RESULT_FILE; None if there is none."""
    from rn50.results import counted  # only here: its imports take 50 ms, which most ranks need not spend

    if config.run.result_file is None:
        return None
    asked = config.as_environment()
    for log in sorted(pathlib.Path(config.run.result_file).parent.glob("result_*.txt")):
        saved = sidecar.read(log)
        is_same = counted.shared(saved.get("variables", {}), asked) == counted.shared(asked, asked)
        if is_same and saved.get("machine") == _machine():
            return saved.get("precision")
    return None


def _machine() -> str:
    return f"{platform.node()}: {platform.platform()}"


def _refuse_another(target: pathlib.Path, log: str) -> None:
    try:
        saved = files.read_json(target, remedy=_REMEDY)
    except files.MissingError:
        return
    if not isinstance(saved, dict) or _VERSION not in saved:
        raise UserError(target, "exists, and no run has saved it", _REMEDY)
    its = pathlib.Path(str(sidecar.section(sidecar.read(target), "run").get("result_file")))
    other = target.with_suffix(its.suffix)
    if its.suffix and other.name != log and other.exists():
        raise UserError(target, f"was saved with {other.name}", _REMEDY)


def _write(target: pathlib.Path, facts: dict[str, Any]) -> None:
    text = json.dumps(facts, indent=1, sort_keys=True) + "\n"
    files.write(target, text, files.ANY, "free the disk and run again")


def _passed_through() -> dict[str, str]:
    """Return the libraries' variables that the configuration file sets, without those that a launcher sets
    for its own use."""
    environ = environment()
    file = environ.get("CONFIG_FILE")
    names = Document(pathlib.Path(file)).names if file else []
    return {name: environ[name] for name in names if is_passed_through(name) and name in environ}
