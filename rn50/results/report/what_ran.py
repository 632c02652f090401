"""Describe what ran where, its software and settings, and the command that repeats it, from logs, sidecar
files and system descriptions."""

import datetime
import itertools
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rn50 import frameworks
from rn50.benchmark import rules
from rn50.results import sidecar, tree
from rn50.results.run import Run
from rn50.settings.document import Document, file_of, systems
from rn50.settings.fields import RUNS_OWN_NAMES, VARIABLES
from rn50.settings.writing import exported

_PARTS = {0.25: "a quarter", 0.5: "half"}
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
        "expected": lambda run: run.header.get("expected", ""),
        "framework": _framework,
        "precision": _precision,
        "ranks": _ranks,
        "machine": _machine,
        "date (UTC)": date,
        "commit": lambda run: _short(str(run.saved.get("commit") or "")),
        "data certificate": _certificate,
    }
    by_name = {name: list(dict.fromkeys(filter(None, map(read, runs)))) for name, read in facts.items()}
    days = by_name["date (UTC)"]
    by_name["date (UTC)"] = [f"{min(days)} to {max(days)}"] if len(days) > 1 else days
    return [(name, ", ".join(values)) for name, values in by_name.items() if values]


def environment(runs: Sequence[Run]) -> dict[str, list[tuple[str, str]]]:
    """Return everything that was saved of runs, and the description of their system, as (name, value) by
    heading. A value that differs between runs is listed run by run."""
    facts = {run.log.path.name: sidecar.named(run.saved) for run in runs if run.saved}
    by_heading: dict[str, list[tuple[str, str]]] = {}
    for key in dict.fromkeys(itertools.chain(*facts.values())):
        values = {name: fact.get(key, "-") for name, fact in facts.items()}
        value, *others = dict.fromkeys(values.values())
        if others:
            value = "; ".join(f"{name}: {value}" for name, value in values.items())
        heading, _, name = key.rpartition(" / ")
        by_heading.setdefault(heading or "run", []).append((name, value))
    place = tree.place(runs[0].file.parent)
    described = [pair for pair in sidecar.flat(tree.described(runs[0].file.parent)) if pair[1]]
    if described and place:
        by_heading[f"system description, {place.description.name}"] = described
    return by_heading


def gpus(run: Run) -> int | None:
    """Return the number of GPUs of one of our runs, which is its number of ranks; None for any other."""
    return run.accelerators if sidecar.section(run.saved, "run").get("device") == "gpu" else None


def _trained(run: Run) -> str:
    data = sidecar.section(run.saved, "data")
    size, classes, width = (data.get(key) for key in ("image_size", "classes", "width"))
    if not (size and classes and width):
        return ""
    is_narrow = isinstance(width, float) and width != 1
    part = f" with {_PARTS.get(width, f'{width:g}')} of the channels" if is_narrow else ""
    return f"ResNet-50{part}, {classes} classes, {size}x{size}"


def _framework(run: Run) -> str:
    return framework_of(run.saved) or str(tree.described(run.file.parent).get("framework") or "")


def framework_of(saved: Mapping[str, Any]) -> str:
    """Return name and version of the framework of what was saved of a run; empty if it does not say which."""
    framework = sidecar.section(saved, "run").get("framework", "")
    traits = frameworks.every().get(framework)  # not one of another checkout
    name, pattern = (traits.name, traits.package) if traits else (framework, re.escape(framework))
    return " ".join(filter(None, (name, version_of(saved, pattern))))


def version_of(saved: Mapping[str, Any], pattern: str) -> str:
    """Return the version of the first of the saved packages whose names match; empty if there is none."""
    packages = saved.get("packages", {}).items()
    versions = {re.sub(r"[-_.]+", "-", name.lower()): version for name, version in packages}
    return next((versions[name] for name in sorted(versions) if re.fullmatch(pattern, name)), "")


def _precision(run: Run) -> str:
    configured = str(sidecar.section(run.saved, "run").get("precision") or "")
    used, logged = run.saved.get("precision"), run.log.first(rules.LOWEST_PRECISIONS[0])
    of_log = logged.value if logged else ""
    return f"{used} (auto)" if used and configured == "auto" else configured or str(of_log)


def _ranks(run: Run) -> str:
    settings = sidecar.section(run.saved, "run")
    if run.accelerators is None:
        return ""
    nodes = f", {settings['nodes']} nodes" if settings.get("nodes", 1) != 1 else ""
    return f"{run.accelerators} on {settings.get('device', 'cpu').upper()}{nodes}"


def _machine(run: Run) -> str:
    fields = run.saved.get("system") or tree.described(run.file.parent)
    accelerator, processor = fields.get("accelerator_model_name"), fields.get("host_processor_model_name")
    if accelerator:
        count = fields.get("accelerators_per_node") or sidecar.section(run.saved, "run").get("ranks_per_node")
        nodes = _times(fields.get("number_of_nodes"), "nodes of")
        return nodes + (f"{count} x {accelerator}" if count else str(accelerator))
    if not processor:
        return ""
    cores = fields.get("host_processor_core_count")
    sockets = _times(fields.get("host_processors_per_node"), "x")
    return f"{sockets}{processor}" + (f", {cores} cores" if cores else "")


def _times(count: Any, text: str) -> str:
    """Return a number and the text behind it; nothing for one, or an unknown number."""
    return f"{count} {text} " if str(count or "1") != "1" else ""


def date(run: Run) -> str:
    """Return the day on which the clock of a run started, in UTC; empty if that is not known."""
    try:
        begin = datetime.datetime.fromtimestamp((run.log.run_start_ms or 0) / 1000, datetime.timezone.utc)
    except (OverflowError, ValueError, OSError):  # a log may name any time
        return ""
    return begin.strftime("%Y-%m-%d") if run.log.run_start_ms is not None else ""


def _certificate(run: Run) -> str:
    certificate, samples = run.saved.get("data certificate"), run.log.first("train_samples")
    digest = samples and samples.metadata.get("certificate_sha256")
    if isinstance(certificate, dict):
        digest = certificate.get("sha256")
    unknown = "none" if run.saved else ""
    return _short(digest) if isinstance(digest, str) else unknown


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
    exports = _beside_the_file(system, variables)
    configuration = None
    if exports is None:
        configuration = "".join(f"{exported(*variable)}\n" for variable in sidecar.variables(saved).items())
        exports = {"CONFIG_FILE": "config_REPEAT.sh"}
    config, *beside = (f"{name}={shlex.quote(value)}" for name, value in exports.items())
    settings = " ".join([config, *beside])
    commit = str(saved.get("commit") or "")
    lines = [f"git checkout {commit}"] if commit and not commit.endswith("-dirty") else []
    again = shlex.quote(f"results/{system}_again")  # in the campaign's folder, its runs would be kept
    command = " ".join([*beside, f"rn50 run {config.partition('=')[2]} -o {again}"])
    lines += ["# the campaign, with new seeds:", command, "# the same by MLPerf's entry point:"]
    lines += [f"RESULTS={again} {settings} ./run_experiments.sh"]
    if run.log.seed is not None:
        first = f"{settings} SEED={run.log.seed} ./run_and_time.sh"
        lines += ["# its first run alone, with the same seed:", first]
    return Repetition("\n".join(lines), configuration)


def _beside_the_file(system: str, variables: Mapping[str, str]) -> dict[str, str] | None:
    """Return the environment with which a system's configuration file gives these variables. None where there
    is no such file, or it has changed since, because its values take precedence over the environment's."""
    if system not in systems():
        return None
    of_file = Document(file_of(system)).assigned.values
    changed: dict[str, str] = {}
    for name, variable in VARIABLES.items():
        try:
            default = variable.read(of_file[name]) if name in of_file else variable.default
            if name in variables and variable.read(variables[name]) != default:
                changed[name] = variables[name]
        except ValueError:
            return None
    return {"DGXSYSTEM": system, **changed} if changed.keys() & of_file.keys() <= {"DATADIR"} else None
