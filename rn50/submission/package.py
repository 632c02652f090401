"""``rn50 package``: make the submission tree from our results, or report everything that the results lack.

Layout: MLPerf submission rules, section "Directory structure", Training. ``package`` plans the tree, builds
it in a hidden folder beside its destination, runs the official checkers on it there, and renames it into
place. If something is refused, nothing is left behind.
"""

import contextlib
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rn50 import files
from rn50.benchmark import rules
from rn50.errors import UserError, UserErrors
from rn50.printed import Inline, Minutes, prints
from rn50.progress import Progress, silent
from rn50.results import power, sidecar, tree
from rn50.results.validity.findings import ERROR, Finding, print_findings
from rn50.submission import check, describe, own_results, package_checks, source
from rn50.terminal import Terminal, counted, minutes


@dataclass(frozen=True)
class Package:
    """One system of a submission tree."""

    place: Inline[tree.Place]
    """Place of the system in the destination."""
    implementation: str
    """Name of the folder with the code: the framework and the commit."""
    minutes: Minutes
    """Score in minutes."""
    label: str | None
    """Label of runs that are not the benchmark; null: they are."""
    runs: Mapping[str, pathlib.Path]
    """Name of each log in the package -> the log that is copied there."""


@dataclass(frozen=True)
class Packaging:
    """Outcome of packaging."""

    systems: tuple[Package, ...]
    findings: tuple[Finding, ...]
    """Findings of the official checkers and of our rules on the tree."""
    warnings: tuple[str, ...]
    """Questions that a reviewer will ask."""
    written: bool
    """True if the tree was written: no finding is an error, or the runs are a demo's and each error only says
    so."""

    @property
    def errors(self) -> int:
        """Number of findings that are errors."""
        return sum(finding.severity == ERROR for finding in self.findings)

    @property
    def ok(self) -> bool:
        """True if the tree was written and there is no error."""
        return self.written and not self.errors


# The fields of --json, in this order. Inline and Minutes above say how a field is printed: as the fields of
# the place, and rounded.
prints(Packaging, lambda r: (r.written, r.ok, r.findings, r.warnings, r.systems))


@dataclass(frozen=True)
class _Plan:
    """The files to write for one system."""

    result: own_results.OwnResult
    package: Package
    description: dict[str, Any]
    """Fields of the system description."""
    commit: str
    """Hash of the commit whose code is exported."""


def package(
    paths: Sequence[pathlib.Path],
    destination: pathlib.Path,
    details: pathlib.Path | None = None,
    rulesets: Sequence[str] = (),
    progress: Progress = silent,
) -> Packaging:
    """Package every folder of results below ``paths`` into ``destination``.

    ``details`` is a file with fields of the system description. Without ``rulesets``, the checkers run with
    the ruleset of the round that a folder of ``destination`` names, else with ``check.DEFAULT_RULESETS``.
    ``progress(done, total)`` counts the checkers.

    Raises:
        UserErrors: something is missing, contradictory or already there; an error each.
    """
    tree.refuse_unknown(rulesets)
    # Unlike Path.resolve, os.path.realpath does not raise where links form a loop.
    destination = pathlib.Path(os.path.realpath(destination))
    results = own_results.read(paths)
    try:
        plans, problems, warnings = _plans(results, destination, details)
        if problems:
            raise UserErrors(*map(UserError, problems))
        # The nearest folder that exists, perhaps the destination: a rename from it stays in one file system.
        base = next(folder for folder in (destination, *destination.parents) if folder.exists())
        with _hidden_folder(base) as folder:
            built = folder / destination.name  # same name, because it may name the round
            for plan in plans:
                _build(plan, _place_in(built, plan))
            organisations = list(dict.fromkeys(_place_in(built, plan).organisation for plan in plans))
            reported = [*check.check(organisations, rulesets, progress).findings]
            for organisation in organisations:
                reported += package_checks.check_repository(organisation)
            findings = tuple(_with_final_names(finding, built, destination) for finding in reported)
            # Without problems there is a plan, and all plans have the same label.
            is_demo = plans[0].package.label is not None
            errors = [finding for finding in findings if finding.severity == ERROR]
            refused = any(not (is_demo and package_checks.only_says_not_imagenet(error)) for error in errors)
            if not refused:
                _put_in_place(built, destination, plans)
    except OSError as error:
        problem = f"cannot write the package ({error.strerror})"
        raise UserError(error.filename or destination, problem, "name a folder to write to") from error
    return Packaging(tuple(plan.package for plan in plans), findings, tuple(warnings), not refused)


@contextlib.contextmanager
def _hidden_folder(base: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a new hidden folder in ``base``, and remove it at the end. First remove the hidden folders that
    killed processes have left."""
    prefix = ".rn50-package-"
    with files.only_process(base, "packaging results"):
        for leftover in base.glob(f"{prefix}*"):
            shutil.rmtree(str(leftover), ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=prefix, dir=str(base)) as name:
            yield pathlib.Path(name)


def _plans(
    results: Sequence[own_results.OwnResult], destination: pathlib.Path, details: pathlib.Path | None
) -> tuple[list[_Plan], list[str], list[str]]:
    """Return the plans of all systems, the problems that prevent the package, and the warnings."""
    plans: list[_Plan] = []
    problems: list[str] = []
    warnings: list[str] = []
    for result in results:
        problems += own_results.problems(result)
        if own_results.made_elsewhere(result):
            continue  # ``problems`` has said so
        description = describe.describe(result, details)
        problems += description.problems
        warnings += description.warnings
        if left_out := ", ".join(sidecar.left_out(result.first_saved)):
            warnings.append(f"{result.folder}: the packaged configuration leaves out {left_out}")
        commit, reason = source.find(result)
        if reason:
            problems.append(reason)
        organisation = destination / files.path_part(description.fields["submitter"])
        packaged = Package(
            place=tree.Place(organisation, files.path_part(description.fields["system_name"])),
            implementation=f"{files.path_part(result.run.get('framework'))}-{commit[:12]}",
            minutes=result.score.olympic_minutes or 0.0,
            label=result.score.label,
            runs={f"result_{number}.txt": log.path for number, log in enumerate(result.logs)},
        )
        plans.append(_Plan(result, packaged, description.fields, commit))
    problems += _collisions(plans)
    if len({plan.package.label for plan in plans}) > 1:
        demos = ", ".join(str(plan.result.folder) for plan in plans if plan.package.label)
        problems.append(f"{demos}: {rules.NOT_A_RESULT}, the others are of ImageNet; package them apart")
    return plans, problems, warnings


def _collisions(plans: Sequence[_Plan]) -> Iterator[str]:
    """Yield a problem for each system whose place another system has, or whose files exist."""
    taken: dict[tree.Place, pathlib.Path] = {}
    for plan in plans:
        place, folder = plan.package.place, plan.result.folder
        if place in taken:
            text = f"its system is called {place.system}, as that of {taken[place]}"
            yield f"{folder}: {text}; give each a system_name in {describe.DETAILS}"
        taken[place] = folder
        parts = (place.results.parent, place.description, place.implementations / place.system)
        if existing := [str(part) for part in parts if part.exists()]:
            remedy = f"move {'it' if len(existing) == 1 else 'them'} away, or give another system_name in"
            yield f"{', '.join(existing)}: there already; {remedy} {folder / describe.DETAILS}"


def _place_in(built: pathlib.Path, plan: _Plan) -> tree.Place:
    """Return the place of a system in the tree ``built``."""
    return replace(plan.package.place, organisation=built / plan.package.place.organisation.name)


def _build(plan: _Plan, place: tree.Place) -> None:
    """Write the files of one system to ``place``. Its organisation may have other systems already."""
    place.results.mkdir(parents=True)
    for name, log in plan.package.runs.items():
        shutil.copyfile(str(log), str(place.results / name))
        if power.files_of(log):
            # The folder of the run's power logs, by way of the path that the log of node 0 would have.
            shutil.copytree(power.file_of(log, 0).parent, power.file_of(place.results / name, 0).parent)
    place.description.parent.mkdir(exist_ok=True)
    files.write(place.description, json.dumps(plan.description, indent=4, ensure_ascii=False) + "\n")
    implementation, folder = plan.package.implementation, place.implementations
    if not (folder / implementation).exists():
        source.export(plan.commit, folder / implementation)
    source.write_scripts(plan.result, place.system, implementation, plan.commit, folder / place.system)


def _with_final_names(finding: Finding, built: pathlib.Path, destination: pathlib.Path) -> Finding:
    """Return a finding on the tree ``built`` with the names that the files will have in ``destination``."""
    file = destination / finding.file.resolve().relative_to(built.resolve())
    return replace(finding, file=file, message=finding.message.replace(str(built), str(destination)))


def _put_in_place(built: pathlib.Path, destination: pathlib.Path, plans: Sequence[_Plan]) -> None:
    """Rename the files of the tree ``built`` into ``destination``, in as few steps as possible. If a step
    fails, undo the steps before it."""
    # If the destination has the code of a commit already, remove it from ``built``: it need not be moved.
    for plan in plans:
        code = _place_in(built, plan).implementations / plan.package.implementation
        existing = plan.package.place.implementations / plan.package.implementation
        if code.exists() and existing.exists():
            if _files(code) != _files(existing):
                raise UserError(existing, f"is not what commit {plan.commit} has", "move it away")
            shutil.rmtree(str(code))
    with contextlib.ExitStack() as undo:
        for folder in reversed([parent for parent in destination.parents if not parent.exists()]):
            folder.mkdir()
            undo.callback(folder.rmdir)
        for old, new in _renames(built, destination):
            old.rename(new)
            undo.callback(new.rename, old)
        undo.pop_all()  # all is in place: undo nothing


def _files(folder: pathlib.Path) -> dict[pathlib.Path, bytes]:
    """Return the content of each file below a folder, by relative path."""
    return {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def _renames(old: pathlib.Path, new: pathlib.Path) -> list[tuple[pathlib.Path, pathlib.Path]]:
    """Return the renames (old, new) that move the tree ``old`` into ``new``. A folder that does not exist yet
    is renamed as a whole, the parts of others one by one. results/ comes last, because it makes a system
    visible to readers."""
    if not new.exists():
        return [(old, new)]
    parts = sorted(old.iterdir(), key=lambda part: (part.name == "results", part.name))
    return [rename for part in parts for rename in _renames(part, new / part.name)]


def print_outcome(outcome: Packaging, console: Terminal) -> None:
    """Print every finding, then a line for each system, and the verdict on the whole."""
    print_findings(outcome.findings, console)
    for system in outcome.systems:
        label = f" [{system.label}]" if system.label else ""
        score = f"{minutes(system.minutes)} minutes, {len(system.runs)} runs"
        console.print(f"{system.place.system}: {score}, {system.place.results}{label}", style="bold")
    errors = counted(outcome.errors, "error")
    if not outcome.written:
        verdict = f"{errors}: nothing was written"
    elif outcome.errors:
        verdict = f"written; {errors}, each of them true of a demo: {rules.NOT_A_RESULT}"
    else:
        verdict = "written; the official checkers find no error"
    console.print(verdict, style="bold")
