"""Describe what ran where, and the command that repeats it, from logs, sidecar files and system
descriptions."""

import datetime
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rn50 import frameworks
from rn50.errors import UserError
from rn50.results import sidecar, system_description, tree
from rn50.results.run import Run
from rn50.settings import config_file, header
from rn50.settings.fields import RUNS_OWN_NAMES, VARIABLES
from rn50.settings.shell import assignments

_SHORT = 12
"""Characters shown of a hash."""


@dataclass(frozen=True)
class Repetition:
    """How to repeat runs: commands, and the ``configuration`` that they need where no file of ``configs/``
    has it."""

    commands: str
    configuration: str | None


def head(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return what ran where as (name, value), without unknown facts. Values that differ between runs are
    joined."""
    facts: dict[str, Callable[[Run], str]] = {
        "trained": _trained,
        "expected": lambda run: header_of(run).get("expected", ""),
        "framework": _framework,
        "precision": _precision,
        "ranks": _ranks,
        "machine": _machine,
        "date (UTC)": _date,
        "commit": lambda run: _short(str(run.saved.get("commit") or "")),
        "data certificate": _certificate,
    }
    by_name = {name: list(dict.fromkeys(filter(None, map(read, runs)))) for name, read in facts.items()}
    days = by_name["date (UTC)"]
    by_name["date (UTC)"] = [f"{min(days)} to {max(days)}"] if len(days) > 1 else days
    return [(name, ", ".join(values)) for name, values in by_name.items() if values]


def header_of(run: Run) -> dict[str, str]:
    """Return the header of the configuration that a run was made with, nothing if it is not in
    ``configs/``."""
    system = str(sidecar.section(run.saved, "run").get("system", ""))
    return header.of_run(system, run.saved.get("variables", {}))


def gpus(run: Run) -> int | None:
    """Return the number of GPUs of one of our runs, which is its number of ranks; None for any other."""
    return run.accelerators if sidecar.section(run.saved, "run").get("device") == "gpu" else None


def _trained(run: Run) -> str:
    data = sidecar.section(run.saved, "data")
    size, classes, width = (data.get(key) for key in ("image_size", "classes", "width"))
    if not (size and classes and width):
        return ""
    part = "" if width == 1 else f" of {width:g} times the width" if isinstance(width, float) else ""
    return f"ResNet-50{part}, {classes} classes, {size}x{size}"


def _framework(run: Run) -> str:
    framework = sidecar.section(run.saved, "run").get("framework")
    if framework is None:
        return str(_described(run).get("framework") or "")
    traits = frameworks.every().get(framework)
    if traits is None:  # a framework of another checkout
        return str(framework)
    packages = run.saved.get("packages", {})
    version = next(
        (packages[name] for name in sorted(packages) if re.fullmatch(traits.package, name.lower())), ""
    )
    return f"{traits.name} {version}".strip()


def _precision(run: Run) -> str:
    configured = str(sidecar.section(run.saved, "run").get("precision") or "")
    used = run.saved.get("precision")
    return f"{used} (auto)" if used and configured == "auto" else configured


def _ranks(run: Run) -> str:
    settings = sidecar.section(run.saved, "run")
    if run.accelerators is None:
        return ""
    nodes = settings.get("nodes", 1)
    ranks = (
        f"{run.accelerators} {'rank' if run.accelerators == 1 else 'ranks'} on "
        f"{settings.get('device', 'cpu').upper()}"
    )
    return ranks if nodes == 1 else f"{ranks}, {nodes} nodes"


def _machine(run: Run) -> str:
    fields = run.saved.get("system") or _described(run)
    accelerator, count = fields.get("accelerator_model_name"), fields.get("accelerators_per_node")
    if accelerator:
        of_each = count or sidecar.section(run.saved, "run").get("ranks_per_node")
        nodes = str(fields.get("number_of_nodes") or "1")
        return (f"{nodes} nodes of " if nodes != "1" else "") + (
            f"{of_each} x {accelerator}" if of_each else str(accelerator)
        )
    processor, cores = fields.get("host_processor_model_name"), fields.get("host_processor_core_count")
    sockets = str(fields.get("host_processors_per_node") or "1")
    if not processor:
        return ""
    return (
        (f"{sockets} x " if sockets != "1" else "") + str(processor) + (f", {cores} cores" if cores else "")
    )


def _described(run: Run) -> Mapping[str, Any]:
    place = tree.place(run.log.path.resolve().parent)
    try:
        return system_description.read(place.description).fields if place else {}
    except UserError:
        return {}


def _date(run: Run) -> str:
    try:
        begin = datetime.datetime.fromtimestamp((run.log.run_start_ms or 0) / 1000, datetime.timezone.utc)
    except (OverflowError, ValueError, OSError):  # a log may name any time
        return ""
    return begin.strftime("%Y-%m-%d") if run.log.run_start_ms is not None else ""


def _certificate(run: Run) -> str:
    saved = run.saved.get("data certificate")
    samples = run.log.first("train_samples")
    digest = (
        saved.get("sha256")
        if isinstance(saved, dict)
        else samples and samples.metadata.get("certificate_sha256")
    )
    return _short(digest) if isinstance(digest, str) else "none" if run.saved else ""


def _short(name: str) -> str:
    digits, dash, remark = name.partition("-")
    return digits[:_SHORT] + dash + remark


def repetition(run: Run) -> Repetition | None:
    """Return how to repeat a run and its campaign; None where nothing was saved beside its log."""
    saved = run.saved
    if not saved.get("variables"):
        return None
    variables = {name: value for name, value in saved["variables"].items() if name not in RUNS_OWN_NAMES}
    system = variables.get("DGXSYSTEM", "")
    given = _beside_the_file(system, variables)
    configuration = None
    if given is None:
        everything = {**variables, **saved.get("environment", {})}
        configuration = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in everything.items())
        given = {"CONFIG_FILE": "config_REPEAT.sh"}
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in given.items())
    commit = str(saved.get("commit") or "")
    lines = [f"git checkout {commit}"] if commit and not commit.endswith("-dirty") else []
    beside = f"RESULTS=results/{system}_again "  # in the campaign's folder, its runs would be kept
    lines += ["# the campaign, with new seeds:", f"{beside}{settings} ./run_experiments.sh"]
    if run.log.seed is not None:
        lines += [
            "# its first run alone, with the same seed:",
            f"{settings} SEED={run.log.seed} ./run_and_time.sh",
        ]
    return Repetition("\n".join(lines), configuration)


def _beside_the_file(system: str, variables: Mapping[str, str]) -> dict[str, str] | None:
    """Return the environment with which a system's configuration file gives these variables. None where there
    is no such file, or it has changed since, because its values take precedence over the environment's."""
    if system not in config_file.systems():
        return None
    of_file = assignments.read(config_file.file_of(system)).values
    given = {"DGXSYSTEM": system}
    for variable in VARIABLES.values():
        name, value = variable.name, variables.get(variable.name)
        try:
            default = variable.read(of_file[name]) if name in of_file else variable.default
            if value is None or variable.read(value) == default:
                continue
        except ValueError:
            return None
        if name in of_file and name != "DATADIR":
            return None
        given[name] = value
    return given
