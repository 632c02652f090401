"""What a result was made with, saved beside it."""

import importlib.metadata
import json
import pathlib
import platform
import subprocess
from typing import Any, Dict, Optional

import rn50
from rn50 import system
from rn50.config import Config, environment
from rn50.config_file import is_passed_through, names_set_by


def save(config: Config, seed: int, result_file: pathlib.Path) -> None:
    """Writes ``<result_file without suffix>.json``: resolved configuration, seed, code version, machine, package versions.

    ``variables`` and ``environment`` make a configuration file that gives this run again; ``system`` is what ``rn50 package``
    describes the machine with, which often happens on another one.
    """
    facts = {
        "seed": seed,
        "config": config.to_dict(),
        "variables": config.as_environment(),
        "environment": _passed_through(),
        "rn50": rn50.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "machine": f"{platform.node()}: {platform.platform()}",
        "system": system.read(),
        "packages": {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()},
    }
    _write(result_file.with_suffix(".json"), facts)


def add(result_file: pathlib.Path, heading: str, facts: Dict[str, Any]) -> None:
    """Adds what only the run itself could find out to the file that ``save`` wrote."""
    target = result_file.with_suffix(".json")
    _write(target, {**json.loads(target.read_text(encoding="utf-8")), heading: facts})


def _write(target: pathlib.Path, facts: Dict[str, Any]) -> None:
    temporary = target.with_name(target.name + ".partial")
    temporary.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    temporary.replace(target)


def _passed_through() -> Dict[str, str]:
    """The libraries' variables that the configuration file sets; a launcher sets others for its own use, which say nothing."""
    environ = environment()
    file = environ.get("CONFIG_FILE")
    names = names_set_by(file) if file else []
    return {name: environ[name] for name in names if is_passed_through(name) and name in environ}


def commit() -> Optional[str]:
    """The commit of the checkout, "-dirty" behind it where files differ; in an image, which is no checkout, RN50_COMMIT.
    None where neither is known."""
    root = pathlib.Path(__file__).resolve().parent.parent
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40"], cwd=str(root), capture_output=True, text=True, timeout=20
        )
        described = done.stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        described = ""
    return described or environment().get("RN50_COMMIT") or None
