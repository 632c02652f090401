"""Run the official checkers that need a whole submission tree: seeds, reference convergence, system
description and package of one system (``check_tree``), and all files of an organisation
(``check_repository``).

The checkers of a system run on a copy of the system with only the records of its logs: some checkers write a
file ``scaling.json`` into the tree, and one reads a log whole. Most exit with 0 whatever they find. Therefore
the verdict is the last line that they print, and a missing verdict is a crash.
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
"""Code that runs the seed checker, which is no program of its own, on the logs in the folder of its first
argument. The third is the ruleset; the second is ``_Checker.option``."""
# Lines of checkers are LEVEL - TEXT, as in "INFO - CHECKS FAILED.".
_PASSED = re.compile(
    "INFO - (ALL CHECKS PASSED.|.*RCP test PASSED|PACKAGE CHECKER FOUND NO ERRORS, SUCCESS !|SEEDS PASSED|"
    "  System description checker passed for.*)"
)
_FAILED = re.compile(
    "INFO - (CHECKS FAILED.|PACKAGE CHECKER FOUND ERRORS.*|SEEDS FAILED)|"
    "ERROR - (.*, RCP test FAILED.*|  System description checker failed for.*)"
)
"""Last lines of checkers that accept a system, and of checkers that refuse it."""
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
"""Refusal by the system description checker of words that were valid up to v4.0. It applies the words of v4.1
under every ruleset of v4."""
_MIXED_SIZES_CRASH = "the checker crashed: KeyError: None"
"""End of the message of our finding if runs of several batch sizes crash a checker."""
_REFUSALS = {
    r"ERROR - Incorrect number of files in .* found (\d+), expected (\d+)": r"\1 result files, \2 are wanted",
    r"ERROR -  (\d+) files do not comply": r"\1 files do not comply, and only one may",
}
"""Pattern for a line of the package checker, such as "ERROR - Incorrect number of files in dir, or wrong file
names in directory DIR, found 4, expected 5" -> the reason in our finding, with the groups of the pattern."""
_ONLY_OTHERS_ERRORS = "the checker found errors; they are those of the checkers it runs"
"""End of the message of our finding if the package checker gives no reason of its own."""


@dataclass(frozen=True)
class _Checker:
    """An official checker. They are listed behind the functions ``_explain_...``."""

    rule: str
    """Beginning of the field ``rule`` of its findings."""
    code: str
    """Name of a module of ``mlperf_logging``, or Python code, as for ``checkers.run``."""
    part: str
    """Name of the attribute of ``Place`` that is the folder or file to check."""
    explain: Callable[["_Job", list[str]], Iterator[Finding]]
    """Function that yields the findings from the lines of a checker that refused a system."""
    option: str = "training"
    """Argument before the ruleset: the kind of benchmark, or an option whose value the ruleset is."""


class _CrashError(Exception):
    """Error: a checker gave no verdict; the text is the reason."""


@dataclass(frozen=True)
class _Job:
    """A checker to run under a ruleset."""

    checker: _Checker
    ruleset: str
    place: Place
    """Place of the system, which findings name."""
    copy: Place
    """Place of the copy of the system on which the checker runs."""
    logs: Sequence[ResultLog] = ()
    """Logs of the system."""

    def findings(self) -> list[Finding]:
        """Run the checker, and return its findings, or the finding that it crashed."""
        try:
            lines = self.lines_unless_passed()
            return list(self.checker.explain(self, lines)) if lines else []
        except _CrashError as crash:
            fields = described(self.place.results)
            # A number in the system description crashes every checker that reads the description, with this
            # message of Python. The finding of one of them is enough.
            numbers = [name for name, value in fields.items() if not isinstance(value, (str, dict, list))]
            if not numbers or "expected str instance" not in str(crash):
                remedy = "fix what it could not take; nothing was checked"
                return [self.finding(ERROR, f"the checker crashed: {crash}", remedy)]
            message, remedy = f"{', '.join(numbers)}: no text", 'quote it, as in "8"; nothing was checked'
            return [self.finding(ERROR, message, remedy)] if self.checker is _DESCRIPTION else []

    def finding(self, severity: str, message: str, remedy: str) -> Finding:
        """Return a finding on the folder or file that the checker checks. In the message, paths of the copy
        become those of the original."""
        file = getattr(self.place, self.checker.part)
        message = message.replace(str(self.copy.organisation), str(self.place.organisation))
        return Finding(severity, file, None, self.checker.rule, message, remedy)

    def lines_unless_passed(self) -> list[str]:
        """Run the checker in the folder above the one that it checks. Return its lines without dividers if it
        refuses the system; an empty list if it accepts it.

        Raises _CrashError if its last line is no verdict.
        """
        checked: pathlib.Path = getattr(self.copy, self.checker.part)
        options = self.checker.option, self.ruleset
        status, printed = checkers.run(self.checker.code, str(checked), *options, cwd=checked.parent)
        lines = [line for line in printed.splitlines() if line.removeprefix("INFO - ").strip(" -")]
        last = lines[-1] if lines else "it wrote nothing"
        # A traceback and a failed exit status are a crash, whatever the last line says.
        crashed = status != 0 and any(line.startswith("Traceback (most recent call last)") for line in lines)
        if _PASSED.fullmatch(last) and not crashed:
            return []
        if crashed or not _FAILED.fullmatch(last):
            raise _CrashError(last)
        return lines


def check_repository(folder: pathlib.Path) -> list[Finding]:
    """Run the repository checker on the folder of an organisation: names, sizes and links of every file. Its
    verdict is the same under every ruleset. Its exit status is always a failure, so its last line decides."""
    place = Place(folder, "")
    return _Job(_REPOSITORY, rules.RULESETS[-1], place, place).findings()


def official_checks(place: Place | None, rulesets: Sequence[str]) -> list[tuple[_Checker, str]]:
    """Return (checker, ruleset) of the official checkers that ``check_tree`` runs for a system; none for a
    result outside a published tree, whose ``place`` is None."""
    checks = []
    for ruleset in rulesets if place else ():
        if ruleset in rules.RCP_RULESETS:  # the rules of v0.7 had neither reference points nor seeds
            checks += [(_CONVERGENCE, ruleset), (_SEED, ruleset)]
        checks.append((_PACKAGE, ruleset))
        if place and place.description.is_file():
            checks.append((_DESCRIPTION, ruleset))
    return checks


def check_tree(
    place: Place,
    logs: Sequence[ResultLog],
    rulesets: Sequence[str],
    label: str | None = None,
    count: Callable[[], None] = lambda: None,
) -> list[Finding]:
    """Return every finding on one system in its tree. A finding that a checker reports under several rulesets
    is returned once, with all of them in its rule.

    ``logs`` are those of the system. ``label`` says why its runs are not of the benchmark; None: they are.
    ``count`` is called at the end of each checker.
    """
    findings = _of_description(place, logs)  # our own rules come first, the official checkers below
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
        checks = official_checks(place, rulesets)
        jobs = [_Job(checker, ruleset, place, copy, logs) for checker, ruleset in checks]
        with checkers.at_once() as pool:
            official: list[tuple[str, Finding]] = []
            for job, reported in zip(jobs, pool.map(_Job.findings, jobs), strict=True):
                official += [(job.ruleset, finding) for finding in reported]
                count()
    # Runs of several batch sizes crash some checkers. Drop these findings; another one names the sizes.
    if len({log.global_batch_size for log in logs}) > 1:
        official = [entry for entry in official if not entry[1].message.endswith(_MIXED_SIZES_CRASH)]
    rulesets_of: dict[Finding, list[str]] = {}  # finding -> rulesets under which it is made
    for ruleset, finding in official:
        # The other findings of the official checkers under this ruleset.
        others = [other for under, other in official if under == ruleset and other is not finding]
        only_warnings = others and all(other.severity == WARNING for other in others)
        # The package checker runs the other checkers, so its finding is no more severe than theirs, unless it
        # has reasons of its own.
        if only_warnings and finding.message.endswith(_ONLY_OTHERS_ERRORS):
            finding = replace(finding, severity=WARNING)
        rulesets_of.setdefault(finding, []).append(ruleset)
    for finding, under_rulesets in rulesets_of.items():
        findings.append(replace(finding, rule=f"{finding.rule} {', '.join(under_rulesets)}"))
    return findings


# The functions below yield the findings from the ``lines`` of a checker that refused the system of a ``job``.


def _explain_repository(job: _Job, lines: list[str]) -> Iterator[Finding]:
    # Behind each "ERROR - Files with git-unfriendly name: FILE" the other files follow, a line each.
    message = " ".join(line.replace("ERROR - ", "") for line in lines if not line.startswith("INFO - "))
    yield job.finding(ERROR, message, "rename or remove these files")


def _explain_rcp(job: _Job, lines: list[str]) -> Iterator[Finding]:
    # Such as "ERROR - Missing RCP, please submit RCP with BS = 96, RCP test FAILED, consider adding ...", and
    # before it, where there is a point to compare with, "INFO -  Submission mean epochs: 35.6000".
    reason = lines[-1].removeprefix("ERROR - ").rpartition(", RCP test FAILED")[0]
    epochs = next((line.split(":")[-1].strip() for line in lines if "Submission mean epochs:" in line), None)
    needed = "the runs are not comparable"
    if epochs and not reason.startswith("Missing RCP"):
        needed = f"the runs need {float(epochs):g} epochs, fewer than chance allows"
    is_closed = any(log.division != "open" for log in job.logs)
    severity, note = (ERROR, "") if is_closed else (WARNING, "; the open division may")
    point = "a reference convergence point, or submit one for this batch size"
    remedy = f"train with the hyperparameters of {point}"
    yield job.finding(severity, f"the RCP check failed ({reason}): {needed}{note}", remedy)


def _explain_seeds(job: _Job, lines: list[str]) -> Iterator[Finding]:
    output = "\n".join(lines)
    explained = False
    for log in job.logs:
        copy = re.escape(str(job.copy.results / log.path.name))
        # The lines are such as "Result file COPY logs seed 5 on FILE:LINE. However, ...",
        # "Result file COPY logs no seed." and "Error found when querying seeds from COPY: REASON".
        for pattern, message, severity, remedy in (
            (rf"Result file {copy} logs seed (\S+) on", _SHARED_SEED, ERROR, _ONE_SEED),
            (rf"Result file {copy} logs no (seed)", _NO_SEED, WARNING, _SEEDS_NOT_REQUIRED),
            (rf"querying seeds from {copy}: (.*)", "its seed cannot be read: {0}", ERROR, _ONE_SEED),
        ):
            match = re.search(pattern, output)
            if match:
                explained = True
                event = log.first("seed")
                finding = job.finding(severity, message.format(match.group(1)[:160]), remedy)
                yield replace(finding, file=log.path, line=event.line if event else None)
    if not explained:
        yield job.finding(ERROR, "the seeds are refused", "log one seed a run")


def _explain_package(job: _Job, lines: list[str]) -> Iterator[Finding]:
    matches = ((re.match(pattern, line), reason) for line in lines for pattern, reason in _REFUSALS.items())
    reasons = [match.expand(reason) for match, reason in matches if match]
    message = f"{job.place.system} is refused: {'; '.join(reasons) or _ONLY_OTHERS_ERRORS}"
    remedy = f"submit {rules.RUNS} result files of which at most one missed the target, and fix what else is"
    yield job.finding(ERROR, message, f"{remedy} named here")


def _explain_system(job: _Job, lines: list[str]) -> Iterator[Finding]:
    reasons = _reasons(lines[-1])
    if any(_STATUS_WORDS.match(reason) for reason in reasons):
        remedy = "nothing for a round up to v4.0: the checker's list of words came with v4.1"
        yield job.finding(WARNING, "; ".join(reasons), remedy)
        # The checker stops at this reason. For the others, run it under the ruleset before, which has no list
        # of words.
        lines = replace(job, ruleset=rules.RULESETS[-2]).lines_unless_passed()
        reasons = _reasons(lines[-1]) if lines else []
    for reason in reasons:
        yield job.finding(ERROR, reason, "complete the description of the system")


def _reasons(text: str) -> list[str]:
    """Return the reasons in the last line of the system description checker, which prints them as a Python
    list; the line itself if it has no list."""
    try:
        reasons = ast.literal_eval(text[text.index("[") :])
    except (ValueError, SyntaxError):
        return [text]
    return [str(reason) for reason in reasons]


_CONVERGENCE = _Checker("reference convergence", "rcp_checker", "results", _explain_rcp, "--rcp_version")
_SEED = _Checker("seed checker", _SEEDS, "results", _explain_seeds)
_PACKAGE = _Checker("package checker", "package_checker", "organisation", _explain_package)
_DESCRIPTION = _Checker("system description checker", "system_desc_checker", "description", _explain_system)
_REPOSITORY = _Checker("repository checker", "repo_checker", "organisation", _explain_repository)


def only_says_not_imagenet(finding: Finding) -> bool:
    """Return True if a finding only says that the runs are not of the benchmark: their label, a refusal by
    the checker of reference convergence, or one by the package checker without a reason of its own. The demo
    is packaged in spite of such findings."""
    return (
        finding.rule == _TRAINS_IMAGENET
        or finding.rule.startswith(_CONVERGENCE.rule)
        or (finding.rule.startswith(_PACKAGE.rule) and finding.message.endswith(_ONLY_OTHERS_ERRORS))
    )


def _of_description(place: Place, logs: Sequence[ResultLog]) -> list[Finding]:
    """Return findings on the system description that the official checkers do not make: it cannot be read, or
    its division is not that of the logs."""
    rule = "the description of the system belongs to its results"
    try:
        division = read_description(place.description).get("division")
    except UserError as error:
        return [Finding(ERROR, place.description, None, rule, error.problem, error.remedy)]
    logged = next((log.division for log in logs if log.division), division)
    if division not in ("closed", "open"):
        skipped = "the package checker then skips seeds and reference convergence without a word"
        problem, remedy = f"division is {division!r}: {skipped}", "write closed or open, in small letters"
    elif division != logged:
        problem, remedy = f"division is {division}, but the logs say {logged}", "write the same in both"
    else:
        return []
    return [Finding(ERROR, place.description, None, rule, problem, remedy)]
