"""Run the official checkers on all runs of one system, in the folders of a submission: seeds, reference
convergence, system description, package.

Each runs on a copy of one system with only the records of its logs, because some write into the checked tree
(``scaling.json``) and one reads a file whole. Most exit with 0 whatever they find, so the verdict is the last
line they print; a missing verdict is a crash.
"""

import ast
import pathlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.results.parse import ResultLog, copy_records
from rn50.results.tree import Place, described, read_description
from rn50.results.validity import checkers
from rn50.results.validity.findings import ERROR, WARNING, Finding

_SEEDS = """
import logging, pathlib, sys
logging.basicConfig(format="%(levelname)s - %(message)s", level=logging.INFO)
from mlperf_logging.package_checker.seed_checker import SeedChecker
logs = sorted(str(file) for file in pathlib.Path(sys.argv[1]).iterdir() if file.name != "scaling.json")
passed = SeedChecker(sys.argv[3]).check_seeds(logs)
logging.info("SEEDS PASSED" if passed else "SEEDS FAILED")
"""
_PASSED = re.compile(
    "INFO - (ALL CHECKS PASSED.|.*RCP test PASSED|PACKAGE CHECKER FOUND NO ERRORS, SUCCESS !|SEEDS PASSED|"
    "  System description checker passed for.*)"
)
_FAILED = re.compile(
    "INFO - (CHECKS FAILED.|PACKAGE CHECKER FOUND ERRORS.*|SEEDS FAILED)|"
    "ERROR - (.*, RCP test FAILED.*|  System description checker failed for.*)"
)
"""Last lines of the checkers that passed and that did not."""
_TRAINS_IMAGENET = f"a submission trains ResNet-50 on all {rules.TRAIN_SAMPLES:,} images of ImageNet"
_SHARED_SEED = "seed {0} is that of another run, or logged by several ranks"
_NO_SEED = "the checker refuses a log without a {0}"
_SEEDS_NOT_REQUIRED = "nothing: the rules ask for seeds from v4.1 on only, and in the closed division only"
_ONE_SEED = "log one seed a run, on rank 0 only, from the clock or the operating system"
_STATUS_WORDS = re.compile(
    "Field status contains a non valid value: "
    "(on.?prem(ise)?|cloud|research|preview|available( on.premise| cloud| in cloud)?),",
    re.IGNORECASE,
)
"""The checker's refusal of words that were valid up to v4.0: it applies the words of v4.1 under every ruleset
of v4."""
_MIXED_SIZES_CRASH = "the checker crashed: KeyError: None"
"""The message of the official checkers about runs of several batch sizes."""
_REFUSALS = {
    r"ERROR - Incorrect number of files in .* found (\d+), expected (\d+)": r"\1 result files, \2 are wanted",
    r"ERROR -  (\d+) files do not comply": r"\1 files do not comply, and only one may",
}
"""Reasons of the package checker, and their words here."""
_ONLY_OTHERS_ERRORS = "the checker found errors; they are those of the checkers it runs"


def only_says_not_imagenet(finding: Finding) -> bool:
    """Return True for a finding that only says that the task is not the benchmark's: the label, no reference
    convergence at such a batch size, and the package checker's refusal because of it."""
    return (
        finding.rule == _TRAINS_IMAGENET
        or finding.rule.startswith(_CONVERGENCE.rule)
        or (finding.rule.startswith(_PACKAGE.rule) and finding.message.endswith(_ONLY_OTHERS_ERRORS))
    )


@dataclass(frozen=True)
class _Checker:
    """An official checker: a module of ``mlperf_logging``, or code."""

    rule: str
    code: str
    part: str
    """Attribute of ``Place``: the folder or file that it checks."""
    explain: Callable[["_Job", list[str]], Iterator[Finding]]
    """Function that yields the findings in its lines."""
    option: str = "training"
    """Argument before the ruleset."""


class _CrashError(Exception):
    """A checker gave no verdict; the text is the reason."""


@dataclass(frozen=True)
class _Job:
    """A checker to run under a ruleset on ``copy``, a copy of the tree at ``place`` with these logs."""

    checker: _Checker
    ruleset: str
    place: Place
    copy: Place
    logs: Sequence[ResultLog] = ()

    def findings(self) -> list[Finding]:
        """Run the checker, and return what it finds or that it crashed."""
        try:
            lines = self.lines_unless_passed()
            return list(self.checker.explain(self, lines)) if lines else []
        except _CrashError as crash:
            remedy = "fix what it could not take; nothing was checked"
            message, fields = f"the checker crashed: {crash}", described(self.place.results)
            numbers = [name for name, value in fields.items() if not isinstance(value, (str, dict, list))]
            if numbers and "expected str instance" in message:
                message, remedy = f"{', '.join(numbers)}: no text", 'quote it, as in "8"; nothing was checked'
                return [self.finding(ERROR, message, remedy)] if self.checker is _DESCRIPTION else []
            return [self.finding(ERROR, message, remedy)]

    def finding(self, severity: str, message: str, remedy: str) -> Finding:
        """Return a finding on what is checked."""
        file = getattr(self.place, self.checker.part)
        message = message.replace(str(self.copy.organisation), str(self.place.organisation))
        return Finding(severity, file, None, self.checker.rule, message, remedy)

    def lines_unless_passed(self) -> list[str]:
        """Run the checker beside what it checks. Return its lines without dividers, none if it passed.

        Raises _CrashError if its last line is no verdict.
        """
        checked: pathlib.Path = getattr(self.copy, self.checker.part)
        options = self.checker.option, self.ruleset
        status, printed = checkers.run(self.checker.code, str(checked), *options, cwd=checked.parent)
        lines = [line for line in printed.splitlines() if line.removeprefix("INFO - ").strip(" -")]
        last = lines[-1] if lines else "it wrote nothing"
        traced = any(line.startswith("Traceback (most recent call last)") for line in lines)
        if traced and status != 0:
            raise _CrashError(last)
        if _PASSED.fullmatch(last):
            return []
        if not _FAILED.fullmatch(last):
            raise _CrashError(last)
        return lines


def check_repository(folder: pathlib.Path) -> list[Finding]:
    """Run the repository checker on every file of an organisation: names, sizes, links. Its rulesets do not
    differ. Its exit status is always a failure, so its last line decides."""
    place = Place(folder, "")
    return _Job(_REPOSITORY, rules.RULESETS[-1], place, place).findings()


def official_checks(place: Place | None, rulesets: Sequence[str]) -> list[tuple[_Checker, str]]:
    """Return the official checkers that ``check_tree`` runs, and the ruleset of each."""
    jobs = []
    for ruleset in rulesets if place else ():
        if ruleset in rules.RCP_RULESETS:  # the rules of v0.7 had neither
            jobs += [(_CONVERGENCE, ruleset), (_SEED, ruleset)]
        jobs.append((_PACKAGE, ruleset))
        if place and place.description.is_file():
            jobs.append((_DESCRIPTION, ruleset))
    return jobs


def check_tree(
    place: Place,
    logs: Sequence[ResultLog],
    rulesets: Sequence[str],
    label: str | None = None,
    count: Callable[[], None] = lambda: None,
) -> list[Finding]:
    """Return every finding on one system in its tree, with the rulesets under which a checker reports it.

    ``label`` is its runs' label; ``count`` is called when a checker ends.
    """
    findings = _description(place, logs)
    if label:
        problem, remedy = f"the runs are not of it: {label}", "train ResNet-50 on ImageNet"
        findings.append(Finding(ERROR, logs[0].path.parent, None, _TRAINS_IMAGENET, problem, remedy))
    with tempfile.TemporaryDirectory() as name:
        copy = replace(place, organisation=pathlib.Path(name) / place.organisation.name)
        copy.results.mkdir(parents=True)
        for log in logs:
            copy_records(log.path, copy.results / log.path.name)
        copy.description.parent.mkdir()
        if place.description.is_file():
            shutil.copyfile(str(place.description), str(copy.description))
        jobs = [_Job(*chosen, place, copy, logs) for chosen in official_checks(place, rulesets)]
        with checkers.at_once() as pool:
            official: list[tuple[str, Finding]] = []
            for job, reported in zip(jobs, pool.map(_Job.findings, jobs), strict=True):
                official += [(job.ruleset, finding) for finding in reported]
                count()
    if len({log.global_batch_size for log in logs}) > 1:  # another finding names the sizes
        official = [entry for entry in official if not entry[1].message.endswith(_MIXED_SIZES_CRASH)]
    rulesets_of: dict[Finding, list[str]] = {}
    for ruleset, finding in official:
        others = [other for under, other in official if under == ruleset and other is not finding]
        only_warnings = others and all(other.severity == WARNING for other in others)
        # The package checker repeats what the others found: it is no worse than that.
        if only_warnings and finding.message.endswith(_ONLY_OTHERS_ERRORS):
            finding = replace(finding, severity=WARNING)
        rulesets_of.setdefault(finding, []).append(ruleset)
    for finding, under_all in rulesets_of.items():
        findings.append(replace(finding, rule=f"{finding.rule} {', '.join(under_all)}"))
    return findings


def _of_repository(job: _Job, lines: list[str]) -> Iterator[Finding]:
    message = " ".join(line.replace("ERROR - ", "") for line in lines if not line.startswith("INFO - "))
    yield job.finding(ERROR, message, "rename or remove these files")


def _of_convergence(job: _Job, lines: list[str]) -> Iterator[Finding]:
    reason = lines[-1].removeprefix("ERROR - ").rpartition(", RCP test FAILED")[0]
    epochs = next((line.split(":")[-1].strip() for line in lines if "Submission mean epochs:" in line), None)
    needed = "the runs are not comparable"
    if epochs and not reason.startswith("Missing RCP"):  # else there is no reference to compare them with
        needed = f"the runs need {float(epochs):g} epochs, fewer than chance allows"
    closed = any(log.division != "open" for log in job.logs)
    severity, note = (ERROR, "") if closed else (WARNING, "; the open division may")
    point = "a reference convergence point, or submit one for this batch size"
    remedy = f"train with the hyperparameters of {point}"
    yield job.finding(severity, f"the RCP check failed ({reason}): {needed}{note}", remedy)


def _of_seeds(job: _Job, lines: list[str]) -> Iterator[Finding]:
    output, named = "\n".join(lines), False
    for log in job.logs:
        copy = re.escape(str(job.copy.results / log.path.name))
        for pattern, message, severity, remedy in (
            (rf"Result file {copy} logs seed (\S+) on", _SHARED_SEED, ERROR, _ONE_SEED),
            (rf"Result file {copy} logs no (seed)", _NO_SEED, WARNING, _SEEDS_NOT_REQUIRED),
            (rf"querying seeds from {copy}: (.*)", "its seed cannot be read: {0}", ERROR, _ONE_SEED),
        ):
            match = re.search(pattern, output)
            if match:
                named = True
                line = next((event.line for event in log.events if event.key == "seed"), None)
                finding = job.finding(severity, message.format(match.group(1)[:160]), remedy)
                yield replace(finding, file=log.path, line=line)
    if not named:
        yield job.finding(ERROR, "the seeds are refused", "log one seed a run")


def _of_package(job: _Job, lines: list[str]) -> Iterator[Finding]:
    matches = ((re.match(reason, line), words) for line in lines for reason, words in _REFUSALS.items())
    reasons = [match.expand(words) for match, words in matches if match]
    message = f"{job.place.system} is refused: {'; '.join(reasons) or _ONLY_OTHERS_ERRORS}"
    remedy = f"submit {rules.RUNS} result files of which at most one missed the target, and fix what else is"
    yield job.finding(ERROR, message, f"{remedy} named here")


def _of_description(job: _Job, lines: list[str]) -> Iterator[Finding]:
    reasons = _reasons(lines[-1])
    if any(_STATUS_WORDS.match(reason) for reason in reasons):
        remedy = "nothing for a round up to v4.0: the checker's list of words came with v4.1"
        yield job.finding(WARNING, "; ".join(reasons), remedy)
        # This reason hides the checker's other reasons; the ruleset before has no such list.
        lines = replace(job, ruleset=rules.RULESETS[-2]).lines_unless_passed()
        reasons = _reasons(lines[-1]) if lines else []
    for reason in reasons:
        yield job.finding(ERROR, reason, "complete the description of the system")


def _reasons(text: str) -> list[str]:
    """Return the reasons in a line of the system description checker, which prints them as a Python list."""
    try:
        reasons = ast.literal_eval(text[text.index("[") :])
    except (ValueError, SyntaxError):
        return [text]
    return [str(reason) for reason in reasons]


_CONVERGENCE = _Checker("reference convergence", "rcp_checker", "results", _of_convergence, "--rcp_version")
_SEED = _Checker("seed checker", _SEEDS, "results", _of_seeds)
_PACKAGE = _Checker("package checker", "package_checker", "organisation", _of_package)
_DESCRIPTION = _Checker("system description checker", "system_desc_checker", "description", _of_description)
_REPOSITORY = _Checker("repository checker", "repo_checker", "organisation", _of_repository)


def _description(place: Place, logs: Sequence[ResultLog]) -> list[Finding]:
    """Return findings on the description that the system description checker does not make."""
    rule = "the description of the system belongs to its results"
    try:
        division = read_description(place.description).get("division")
    except UserError as error:
        return [Finding(ERROR, place.description, None, rule, error.problem, error.remedy)]
    logged = next((log.division for log in logs if log.division), division)
    problem, remedy = f"division is {division}, but the logs say {logged}", "write the same in both"
    if division not in ("closed", "open"):
        skipped = "the package checker then skips seeds and reference convergence without a word"
        problem, remedy = f"division is {division!r}: {skipped}", "write closed or open, in small letters"
    elif division == logged:
        return []
    return [Finding(ERROR, place.description, None, rule, problem, remedy)]
