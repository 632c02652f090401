"""What a result was made with, saved beside it."""

import importlib.metadata
import json
import pathlib
import platform
import subprocess
from typing import Any, Dict, Optional

import rn50
from rn50.config import Config, environment


def save(config: Config, seed: int, result_file: pathlib.Path) -> None:
    """Writes ``<result_file without suffix>.json``: resolved configuration, seed, code version, machine, package versions."""
    facts = {
        "seed": seed,
        "config": config.to_dict(),
        "rn50": rn50.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "machine": f"{platform.node()}: {platform.platform()}",
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


def _commit() -> Optional[str]:
    """The commit of the checkout, "-dirty" behind it where files differ; in an image, which is no checkout, RN50_COMMIT.
    None where neither is known."""
    root = pathlib.Path(__file__).resolve().parent.parent
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40"], cwd=str(root), capture_output=True, text=True, timeout=20
        )
        commit = done.stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        commit = ""
    return commit or environment().get("RN50_COMMIT") or None
