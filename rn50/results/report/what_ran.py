"""Describe runs for people, from logs, sidecar files and system descriptions: network, framework, machine and
date (``head``), everything that was saved (``environment``), and the commands that repeat them
(``repetition``).

The report uses all three; packaging and ``rn50 rcp`` use single functions.
"""

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

_FRACTIONS = {0.25: "a quarter", 0.5: "half"}
"""Width of the network as a fraction of ResNet-50's channels -> the fraction in words."""
_SHORT = 12
"""Number of characters shown of a hash."""


@dataclass(frozen=True)
class Repetition:
    """How to repeat runs."""

    commands: str
    """Commands, one a line, with comments."""
    configuration: str | None
    """Content of the configuration file that the commands need; None if a file of ``configs/`` will do."""


def head(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return the known facts on what ran and where, as (name, value). If runs have different values, they are
    joined: dates as a range, other values by commas."""
    facts: dict[str, Callable[[Run], str]] = {
        "trained": _trained,
        # The entry "expected" in the header comment of the configuration file.
        "expected": lambda run: run.header.get("expected", ""),
        "framework": _framework,
        "precision": _precision,
        "ranks": _ranks,
        "machine": _machine,
        "date (UTC)": date,
        "commit": lambda run: _short(str(run.saved.get("commit") or "")),
        "data certificate": _certificate,
    }
    # name -> the different values of the runs, without empty ones
    by_name = {name: list(dict.fromkeys(filter(None, map(read, runs)))) for name, read in facts.items()}
    days = by_name["date (UTC)"]
    by_name["date (UTC)"] = [f"{min(days)} to {max(days)}"] if len(days) > 1 else days
    return [(name, ", ".join(values)) for name, values in by_name.items() if values]


def environment(runs: Sequence[Run]) -> dict[str, list[tuple[str, str]]]:
    """Return heading -> list of (name, value), with all values of the sidecar files of runs, and the
    description of their system. A value that differs between runs is listed run by run."""
    saved = {run.log.path.name: sidecar.named(run.saved) for run in runs if run.saved}
    by_heading: dict[str, list[tuple[str, str]]] = {}
    for key in dict.fromkeys(itertools.chain(*saved.values())):
        of_runs = {file: values.get(key, "-") for file, values in saved.items()}
        text, *others = dict.fromkeys(of_runs.values())
        if others:
            text = "; ".join(f"{file}: {value}" for file, value in of_runs.items())
        heading, _, name = key.rpartition(" / ")
        by_heading.setdefault(heading or "run", []).append((name, text))
    place = tree.place(runs[0].file.parent)
    described = [pair for pair in sidecar.flat(tree.described(runs[0].file.parent)) if pair[1]]
    if described and place:
        by_heading[f"system description, {place.description.name}"] = described
    return by_heading


def gpus(run: Run) -> int | None:
    """Return the number of GPUs of a run of rn50, which is its number of ranks. Return None for a run on the
    CPU and for a run of another program."""
    return run.accelerators if sidecar.section(run.saved, "run").get("device") == "gpu" else None


def _trained(run: Run) -> str:
    """Return the network, the number of classes and the image size; empty if they are not known."""
    data = sidecar.section(run.saved, "data")
    size, classes, width = (data.get(key) for key in ("image_size", "classes", "width"))
    if not (size and classes and width):
        return ""
    is_narrow = isinstance(width, float) and width != 1
    channels = f" with {_FRACTIONS.get(width, f'{width:g}')} of the channels" if is_narrow else ""
    return f"ResNet-50{channels}, {classes} classes, {size}x{size}"


def _framework(run: Run) -> str:
    """Return the framework, from the sidecar file or else from the system description; empty if it is not
    known."""
    return framework_of(run.saved) or str(tree.described(run.file.parent).get("framework") or "")


def framework_of(saved: Mapping[str, Any]) -> str:
    """Return name and version of the framework of a run, from its sidecar contents ``saved``; empty if they
    do not tell it."""
    framework = sidecar.section(saved, "run").get("framework", "")
    traits = frameworks.every().get(framework)  # None for a framework of another checkout
    name, pattern = (traits.name, traits.package) if traits else (framework, re.escape(framework))
    return " ".join(filter(None, (name, version_of(saved, pattern))))


def version_of(saved: Mapping[str, Any], pattern: str) -> str:
    """Return the version of the first saved package, in the order of names, whose whole name matches
    ``pattern``; empty if none does. Names are compared in lower case, with dashes."""
    packages = saved.get("packages", {}).items()
    versions = {re.sub(r"[-_.]+", "-", name.lower()): version for name, version in packages}
    return next((versions[name] for name in sorted(versions) if re.fullmatch(pattern, name)), "")


def _precision(run: Run) -> str:
    """Return the precision of a run; empty if it is not known."""
    configured = str(sidecar.section(run.saved, "run").get("precision") or "")
    # ``chosen`` is what PRECISION=auto became. The log has the precision of matrix products.
    chosen, logged = run.saved.get("precision"), run.log.first(rules.LOWEST_PRECISIONS[0])
    if chosen and configured == "auto":
        return f"{chosen} (auto)"
    return configured or str(logged.value if logged else "")


def _ranks(run: Run) -> str:
    """Return the number of ranks, their device and the number of nodes; empty if they are not known."""
    settings = sidecar.section(run.saved, "run")
    if run.accelerators is None:
        return ""
    nodes = f", {settings['nodes']} nodes" if settings.get("nodes", 1) != 1 else ""
    return f"{run.accelerators} on {settings.get('device', 'cpu').upper()}{nodes}"


def _machine(run: Run) -> str:
    """Return the accelerators of a run, or its processors if it has no accelerators; empty if neither is
    known."""
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
    """Return ``count``, ``text`` and a space, as "2 nodes of "; "" if the count is 1 or not known."""
    return f"{count} {text} " if str(count or "1") != "1" else ""


def date(run: Run) -> str:
    """Return the day on which the clock of a run started, in UTC, like 2026-11-28; empty if it is not
    known."""
    try:  # with 0 for a time that is not known, for which nothing is returned below
        begin = datetime.datetime.fromtimestamp((run.log.run_start_ms or 0) / 1000, datetime.timezone.utc)
    except (OverflowError, ValueError, OSError):  # a log may name any time
        return ""
    return begin.strftime("%Y-%m-%d") if run.log.run_start_ms is not None else ""


def _certificate(run: Run) -> str:
    """Return the shortened SHA-256 of the data certificate, from the sidecar file or the log. Without a
    certificate return "none" for a run that has a sidecar file, "" for another."""
    certificate, samples = run.saved.get("data certificate"), run.log.first("train_samples")
    digest = samples and samples.metadata.get("certificate_sha256")
    if isinstance(certificate, dict):
        digest = certificate.get("sha256")
    return _short(digest) if isinstance(digest, str) else "none" if run.saved else ""


def _short(name: str) -> str:
    """Return a hash, shortened, with what follows it after a dash, such as -dirty."""
    digits, dash, remark = name.partition("-")
    return digits[:_SHORT] + dash + remark


def repetition(run: Run) -> Repetition | None:
    """Return how to repeat a run and its campaign; None if it has no sidecar file."""
    saved = run.saved
    if not saved.get("variables"):
        return None
    variables = {name: value for name, value in saved["variables"].items() if name not in RUNS_OWN_NAMES}
    system = variables.get("DGXSYSTEM", "")
    exports = _environment_for(system, variables)
    configuration = None
    if exports is None:  # no file of ``configs/`` will do: make one with all variables of the run
        configuration = "".join(f"{exported(*variable)}\n" for variable in sidecar.variables(saved).items())
        exports = {"CONFIG_FILE": "config_REPEAT.sh"}
    # The first assignment, DGXSYSTEM=... or CONFIG_FILE=..., names the configuration. ``rn50 run`` takes its
    # value as an argument, the scripts take all assignments.
    naming, *others = (f"{name}={shlex.quote(value)}" for name, value in exports.items())
    settings = " ".join([naming, *others])
    commit = str(saved.get("commit") or "")
    lines = [f"git checkout {commit}"] if commit and not commit.endswith("-dirty") else []
    again = shlex.quote(f"results/{system}_again")  # in the campaign's own folder its old runs would count
    command = " ".join([*others, f"rn50 run {naming.partition('=')[2]} -o {again}"])
    lines += ["# the campaign, with new seeds:", command, "# the same by MLPerf's entry point:"]
    lines += [f"RESULTS={again} {settings} ./run_experiments.sh"]
    if run.log.seed is not None:
        first = f"{settings} SEED={run.log.seed} ./run_and_time.sh"
        lines += ["# its first run alone, with the same seed:", first]
    return Repetition("\n".join(lines), configuration)


def _environment_for(system: str, variables: Mapping[str, str]) -> dict[str, str] | None:
    """Return the environment in which the configuration file of ``system`` results in ``variables``: the
    name of the file, and the variables with other values than in the file. Return None if there is no such
    file, or if no environment does."""
    if system not in systems():
        return None
    assigned = Document(file_of(system)).assigned.values
    changed: dict[str, str] = {}
    for name, variable in VARIABLES.items():
        try:
            in_file = variable.read(assigned[name]) if name in assigned else variable.default
            if name in variables and variable.read(variables[name]) != in_file:
                changed[name] = variables[name]
        except ValueError:  # the run or the file has a value that this version of rn50 does not read
            return None
    # The environment cannot change a value that the file assigns, except that of DATADIR.
    return None if (changed.keys() & assigned.keys()) - {"DATADIR"} else {"DGXSYSTEM": system, **changed}
