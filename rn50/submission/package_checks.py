"""Run the official checkers of a whole result in its tree: seeds, reference convergence, system description,
package.

Each runs in a separate process on a copy of one system with only the records of its logs, because some write
into the checked tree (``scaling.json``) and one reads a file whole. Most exit with 0 whatever they find, so
the verdict is the last line they print; a missing verdict is a crash.
"""

import concurrent.futures
import functools
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.process import environment, python
from rn50.results.parse import ResultLog, copy_records
from rn50.results.tree import Place, read_description
from rn50.results.validity.explain import reasons_of_description
from rn50.results.validity.findings import ERROR, WARNING, Finding

_SEEDS = """
import logging, sys
logging.basicConfig(format="%(levelname)s - %(message)s", level=logging.INFO)
from mlperf_logging.package_checker.seed_checker import SeedChecker
passed = SeedChecker(sys.argv[2]).check_seeds(sys.argv[3:])
logging.info("SEEDS PASSED" if passed else "SEEDS FAILED")
"""
_LAST_LINES = {
    "repo_checker": ("INFO - ALL CHECKS PASSED.", "INFO - CHECKS FAILED."),
    "rcp_checker": ("INFO - .*RCP test PASSED", "ERROR - (.*), RCP test FAILED.*"),
    "package_checker": (
        "INFO - PACKAGE CHECKER FOUND NO ERRORS, SUCCESS !",
        "INFO - PACKAGE CHECKER FOUND ERRORS.*",
    ),
    "system_desc_checker": (
        "INFO -   System description checker passed for.*",
        "ERROR -   System description checker failed for.*",
    ),
    "seeds": ("INFO - SEEDS PASSED", "INFO - SEEDS FAILED"),
}
"""Checker, a module of ``mlperf_logging`` or ``_SEEDS`` -> patterns of its last line, passed and failed."""
_TIMEOUT_S = 600
_OWN_TASK = f"a submission trains ResNet-50 on all {rules.TRAIN_SAMPLES:,} images of ImageNet"
_SHARED_SEED = "seed {0} is that of another run, or logged by several ranks"
_NO_SEED = "the checker refuses a log without a {0}"
_NO_RULE = "nothing: the rules ask for seeds from v4.1 on only, and in the closed division only"
_ONE_SEED = "log one seed a run, on rank 0 only, from the clock or the operating system"
_STATUS_WORDS = re.compile(
    "Field status contains a non valid value: "
    "(on.?prem(ise)?|cloud|research|preview|available( on.premise| cloud| in cloud)?),",
    re.IGNORECASE,
)
"""The checker's reason for words that rounds up to v4.0 accepted: its condition names v4.1 but covers all of
v4."""
_CONVERGENCE, _PACKAGE = "reference convergence", "package checker"
_DESCRIPTION = "system description checker"
_BY_MIXED_SIZES = "the checker crashed: KeyError: None"
"""The message of the official checkers about runs of several batch sizes."""
_OF_OTHERS = "the checker found errors; they are those of the checkers it runs"


def true_of_a_demo(finding: Finding) -> bool:
    """Return True for a finding that only says that the task is not the benchmark's: the label, no reference
    convergence at such a batch size, and the package checker's refusal because of it."""
    return (
        finding.rule == _OWN_TASK
        or finding.rule.startswith(_CONVERGENCE)
        or (finding.rule.startswith(_PACKAGE) and finding.message.endswith(_OF_OTHERS))
    )


@dataclass(frozen=True)
class _System:
    """A system, and the folder of an organisation that holds the copy to check."""

    place: Place
    logs: Sequence[ResultLog]
    organisation: pathlib.Path

    @property
    def results(self) -> pathlib.Path:
        """Folder of the copied logs."""
        return self.organisation / "results" / self.place.system / rules.BENCHMARK

    @property
    def description(self) -> pathlib.Path:
        return self.organisation / "systems" / self.place.description.name


_Judge = Callable[[_System, str, Callable[..., Finding]], Iterator[Finding]]
"""Function that runs a checker under a ruleset and yields findings, made by its last argument."""


def check_repository(folder: pathlib.Path) -> list[Finding]:
    """Run the repository checker on every file of an organisation: names, sizes, links. Its rulesets do not
    differ. It returns a failure whatever it finds, so its last line counts."""
    return list(_judged(folder, "repository checker", lambda finding: _repository(folder, finding)))


def _repository(folder: pathlib.Path, finding: Callable[..., Finding]) -> Iterator[Finding]:
    lines = _complaint("repo_checker", folder, "training", rules.RULESETS[-1])
    if lines:
        message = " ".join(line.replace("ERROR - ", "") for line in lines if not line.startswith("INFO - "))
        yield finding(ERROR, message=message, remedy="rename or remove these files")


def checkers(place: Place, rulesets: Sequence[str]) -> int:
    """Return the number of official checkers that ``check_tree`` runs."""
    return len(_jobs(place, rulesets))


def _jobs(place: Place, rulesets: Sequence[str]) -> list[tuple[str, _Judge, str]]:
    """Return the checkers to run: name, function, ruleset."""
    jobs: list[tuple[str, _Judge, str]] = []
    for ruleset in rulesets:
        if ruleset in rules.RCP_RULESETS:  # the rules of v0.7 had neither
            jobs += [(_CONVERGENCE, _rcp, ruleset), ("seed checker", _seeds, ruleset)]
        jobs.append((_PACKAGE, _package, ruleset))
        if place.description.is_file():
            jobs.append((_DESCRIPTION, _system_description, ruleset))
    return jobs


def check_tree(
    place: Place,
    logs: Sequence[ResultLog],
    rulesets: Sequence[str],
    label: str | None = None,
    count: Callable[[], None] = lambda: None,
) -> list[Finding]:
    """Return every finding on one system in its tree, under every ruleset. ``label`` is its runs' label;
    ``count`` is called when a checker ends."""
    findings = _description(place, logs)
    if label:
        problem, remedy = f"the runs are not of it: {label}", "train ResNet-50 on ImageNet"
        findings.append(Finding(ERROR, logs[0].path.parent, None, _OWN_TASK, problem, remedy))
    with tempfile.TemporaryDirectory() as name:
        system = _System(place, logs, pathlib.Path(name) / place.organisation.name)
        system.results.mkdir(parents=True)
        for log in logs:
            copy_records(log.path, system.results / log.path.name)
        system.description.parent.mkdir()
        if place.description.is_file():
            shutil.copyfile(str(place.description), str(system.description))
        files = {_PACKAGE: place.organisation, _DESCRIPTION: place.description}

        def run(job: tuple[str, _Judge, str]) -> list[Finding]:
            checker, judge, ruleset = job
            file = files.get(checker, logs[0].path.parent)
            return list(_judged(file, f"{checker} {ruleset}", functools.partial(judge, system, ruleset)))

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            official: list[Finding] = []
            for reported in pool.map(run, _jobs(place, rulesets)):
                official += reported
                count()
    if len({log.global_batch_size for log in logs}) > 1:  # which another finding reports
        official = [finding for finding in official if not finding.message.endswith(_BY_MIXED_SIZES)]
    return _merged([*findings, *(_as_severe_as_others(finding, official) for finding in official)])


def _as_severe_as_others(finding: Finding, official: Sequence[Finding]) -> Finding:
    """Downgrade the package checker's refusal for errors of other checkers to a warning, if they have only
    warnings under its ruleset."""
    if not finding.message.endswith(_OF_OTHERS):
        return finding
    ruleset = finding.rule.rsplit(" ", 1)[-1]
    others = [other for other in official if other.rule.endswith(ruleset) and other is not finding]
    only_warnings = others and all(other.severity == WARNING for other in others)
    return replace(finding, severity=WARNING if only_warnings else ERROR)


def _merged(findings: Sequence[Finding]) -> list[Finding]:
    """Merge equal findings of several rulesets; the rule then names the checker, followed by the rulesets."""
    merged: dict[Finding, list[str]] = {}
    for finding in findings:
        checker, ruleset = re.fullmatch(r"(.*?)((?: \d\.\d\.\d)?)", finding.rule).groups()  # type: ignore[union-attr]
        merged.setdefault(replace(finding, rule=checker), []).append(ruleset.strip())
    return [
        replace(finding, rule=f"{finding.rule} {', '.join(behind)}".strip())
        for finding, behind in merged.items()
    ]


class _CrashError(Exception):
    """A checker gave no verdict; the text is the reason."""


def _judged(
    file: pathlib.Path, rule: str, judge: Callable[[Callable[..., Finding]], Iterator[Finding]]
) -> Iterator[Finding]:
    """Yield what ``judge`` yields, which is given a maker of findings on ``file``, and its crash."""
    finding = functools.partial(Finding, file=file, line=None, rule=rule)
    try:
        yield from judge(finding)
    except _CrashError as crash:
        remedy = "fix what it could not take; nothing was checked"
        yield finding(ERROR, message=f"the checker crashed: {crash}", remedy=remedy)


def _complaint(checker: str, checked: pathlib.Path, *arguments: str) -> list[str]:
    """Run a checker of ``_LAST_LINES`` on a file or folder, beside which it starts. Return the lines of its
    standard error without dividers, none if it passed.

    Raises _CrashError if its last line is of neither pattern.
    """
    passed, failed = _LAST_LINES[checker]
    module = ("-m", f"mlperf_logging.{checker}", "--log_output", os.devnull)
    code = ("-c", _SEEDS) if checker == "seeds" else module
    try:
        process = subprocess.run(
            python(*code, str(checked), *arguments),
            cwd=str(checked.parent),
            env={**environment(), "PYTHONUTF8": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise _CrashError(f"it did not end within {_TIMEOUT_S} s") from None
    lines = [
        line for line in process.stderr.splitlines() if line.strip() and not line.startswith("INFO - -----")
    ]
    last = lines[-1] if lines else "it wrote nothing"
    traced = any(line.startswith("Traceback (most recent call last)") for line in lines)
    if traced and process.returncode != 0:
        raise _CrashError(last)
    if re.fullmatch(passed, last):
        return []
    if not re.fullmatch(failed, last):
        raise _CrashError(last)
    return lines


def _rcp(system: _System, ruleset: str, finding: Callable[..., Finding]) -> Iterator[Finding]:
    lines = _complaint("rcp_checker", system.results, "--rcp_version", ruleset)
    if not lines:
        return
    reason = re.sub(_LAST_LINES["rcp_checker"][1], r"\1", lines[-1])
    epochs = next((line.split(":")[-1].strip() for line in lines if "Submission mean epochs:" in line), None)
    needed = "the runs are not comparable"
    if epochs and not reason.startswith("Missing RCP"):  # else there is no reference to compare them with
        needed = f"the runs need {float(epochs):g} epochs, fewer than chance allows"
    closed = any(log.division != "open" for log in system.logs)
    severity, may = (ERROR, "") if closed else (WARNING, "; the open division may")
    yield finding(
        severity,
        message=f"the RCP check failed ({reason}): {needed}{may}",
        remedy="train with the hyperparameters of a reference convergence point, or submit one for this "
        "batch size",
    )


def _seeds(system: _System, ruleset: str, finding: Callable[..., Finding]) -> Iterator[Finding]:
    copies = [str(system.results / log.path.name) for log in system.logs]
    lines = _complaint("seeds", system.results, ruleset, *copies)
    output, named = "\n".join(lines), False
    for log, copy in zip(system.logs, copies, strict=True):
        query = rf"querying seeds from {re.escape(copy)}: (.*)"
        for pattern, message, severity, remedy in (
            (rf"Result file {re.escape(copy)} logs seed (\S+) on", _SHARED_SEED, ERROR, _ONE_SEED),
            (rf"Result file {re.escape(copy)} logs no (seed)", _NO_SEED, WARNING, _NO_RULE),
            (query, "its seed cannot be read: {0}", ERROR, _ONE_SEED),
        ):
            match = re.search(pattern, output) if lines else None
            if match:
                named = True
                line = next((event.line for event in log.events if event.key == "seed"), None)
                message = message.format(match.group(1)[:160])
                yield finding(severity, file=log.path, line=line, message=message, remedy=remedy)
    if lines and not named:
        yield finding(ERROR, message="the seeds are refused", remedy="log one seed a run")


def _package(system: _System, ruleset: str, finding: Callable[..., Finding]) -> Iterator[Finding]:
    lines = _complaint("package_checker", system.organisation, "training", ruleset)
    if not lines:
        return
    reasons = []
    for line in lines:
        count = re.match(r"ERROR - Incorrect number of files in dir.* found (\d+), expected (\d+)", line)
        refused = re.match(r"ERROR -  (\d+) files do not comply", line)
        if count:
            reasons.append(f"{count.group(1)} result files, {count.group(2)} are wanted")
        elif refused:
            reasons.append(f"{refused.group(1)} files do not comply, and only one may")
    yield finding(
        ERROR,
        message=f"{system.place.system} is refused: {'; '.join(reasons) or _OF_OTHERS}",
        remedy=f"submit {rules.RUNS} result files of which at most one missed the target, and fix what else "
        "is named here",
    )


def _system_description(system: _System, ruleset: str, finding: Callable[..., Finding]) -> Iterator[Finding]:
    lines = _complaint("system_desc_checker", system.description, "training", ruleset)
    reasons = reasons_of_description(lines[-1]) if lines else []
    if any(_STATUS_WORDS.match(reason) for reason in reasons):
        remedy = "nothing for a round up to v4.0: the checker's list of words came with v4.1"
        yield finding(WARNING, message="; ".join(reasons), remedy=remedy)
        # This reason hides the checker's other reasons; the previous ruleset shows them.
        yield from _system_description(system, rules.RULESETS[-2], finding)
        return
    for reason in reasons:
        yield finding(ERROR, message=reason, remedy="complete the description of the system")


def _description(place: Place, logs: Sequence[ResultLog]) -> list[Finding]:
    """Return findings on the description that the system description checker does not make."""
    try:
        division = read_description(place.description).get("division")
    except UserError as error:
        problem, remedy = error.problem, error.remedy
    else:
        logged = next((log.division for log in logs if log.division), division)
        if division not in ("closed", "open"):
            problem = (
                f"division is {division!r}: the package checker then skips seeds and reference "
                "convergence without a word"
            )
            remedy = "write closed or open, in small letters"
        elif division != logged:
            problem, remedy = f"division is {division}, but the logs say {logged}", "write the same in both"
        else:
            return []
    rule = "the description of the system belongs to its results"
    return [Finding(ERROR, place.description, None, rule, problem, remedy)]
