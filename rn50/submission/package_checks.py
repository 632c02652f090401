"""Run the official checkers of a whole result in its tree: seeds, reference convergence, system description,
package.

Each runs in a separate process on a copy of one system with only the records of its logs, because some write
into the checked tree (``scaling.json``) and one reads a file whole. Most exit with 0 whatever they find, so
the verdict is the last line they print; a missing verdict is a crash.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.process import environment, python
from rn50.results import system_description
from rn50.results.parse import ResultLog, copy_records
from rn50.results.tree import Place
from rn50.results.validity.explain import reasons_of_description
from rn50.results.validity.findings import ERROR, WARNING, Finding

_SEEDS = """
import logging, sys
logging.basicConfig(format="%(levelname)s - %(message)s", level=logging.INFO)
from mlperf_logging.package_checker.seed_checker import SeedChecker
passed = SeedChecker(sys.argv[1]).check_seeds(sys.argv[2:])
logging.info("SEEDS PASSED" if passed else "SEEDS FAILED")
"""
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


def check_repository(folder: pathlib.Path) -> list[Finding]:
    """Run the repository checker on every file of an organisation: names, sizes, links. Its rulesets do not
    differ. It returns a failure whatever it finds, so its last line counts."""
    rule = "repository checker"
    lines, crash = _run(
        folder.parent,
        "-m",
        "mlperf_logging.repo_checker",
        str(folder),
        "training",
        rules.RULESETS[-1],
        "--log_output",
        os.devnull,
    )
    last = lines[-1] if lines else "it wrote nothing"
    if not crash and last == "INFO - ALL CHECKS PASSED.":
        return []
    if crash or last != "INFO - CHECKS FAILED.":
        return [_crash(folder, rule, crash or last)]
    message = " ".join(line.replace("ERROR - ", "") for line in lines if not line.startswith("INFO - "))
    return [Finding(ERROR, folder, None, rule, message, "rename or remove these files")]


def labelled(folder: pathlib.Path, label: str) -> Finding:
    """Return the finding that a submission's folder holds results of another task."""
    return Finding(
        ERROR, folder, None, _OWN_TASK, f"the runs are not of it: {label}", "train ResNet-50 on ImageNet"
    )


def checkers(place: Place, rulesets: Sequence[str]) -> int:
    """Return the number of official checkers that ``check_tree`` runs."""
    with_rcp = sum(ruleset in rules.RCP_RULESETS for ruleset in rulesets)
    return 2 * with_rcp + (2 if place.description.is_file() else 1) * len(rulesets)


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
        findings.append(labelled(logs[0].path.parent, label))
    with tempfile.TemporaryDirectory() as name:
        organisation = pathlib.Path(name) / place.organisation.name
        results = organisation / "results" / place.system / rules.BENCHMARK
        results.mkdir(parents=True)
        for log in logs:
            copy_records(log.path, results / log.path.name)
        description = organisation / "systems" / place.description.name
        description.parent.mkdir()
        if place.description.is_file():
            shutil.copyfile(str(place.description), str(description))
        jobs: list[tuple[Callable[..., list[Finding]], tuple[Any, ...]]] = []
        for ruleset in rulesets:
            if ruleset in rules.RCP_RULESETS:  # the rules of v0.7 had neither
                jobs += [(_rcp, (place, logs, results, ruleset)), (_seeds, (logs, results, ruleset))]
            jobs.append((_package, (place, organisation, ruleset)))
            if description.is_file():
                jobs.append((_system_description, (place, description, ruleset)))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            official: list[Finding] = []
            for reported in pool.map(lambda job: job[0](*job[1]), jobs):
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


def _run(folder: pathlib.Path, kind: str, what: str, *arguments: str) -> tuple[list[str], str | None]:
    """Run a checker. Return its standard error without divider lines, and the reason if it crashed or timed
    out, else None."""
    try:
        process = subprocess.run(
            python(kind, what, *arguments),
            cwd=str(folder),
            env={**environment(), "PYTHONUTF8": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return [], f"it did not end within {_TIMEOUT_S} s"
    lines = [
        line for line in process.stderr.splitlines() if line.strip() and not line.startswith("INFO - -----")
    ]
    crashed = (
        any(line.startswith("Traceback (most recent call last)") for line in lines)
        and process.returncode != 0
    )
    return lines, lines[-1] if crashed else None


def _crash(file: pathlib.Path, rule: str, reason: str) -> Finding:
    return Finding(
        ERROR,
        file,
        None,
        rule,
        f"the checker crashed: {reason}",
        "fix what it could not take; nothing was checked",
    )


def _closed(logs: Sequence[ResultLog]) -> bool:
    return any(log.division != "open" for log in logs)


def _rcp(place: Place, logs: Sequence[ResultLog], results: pathlib.Path, ruleset: str) -> list[Finding]:
    folder, rule = logs[0].path.parent, f"{_CONVERGENCE} {ruleset}"
    lines, crash = _run(
        results.parent,
        "-m",
        "mlperf_logging.rcp_checker",
        str(results),
        "--rcp_version",
        ruleset,
        "--log_output",
        os.devnull,
    )
    last = lines[-1] if lines else "it wrote nothing"
    if not crash and last.startswith("INFO - ") and last.endswith("RCP test PASSED"):
        return []
    match = re.fullmatch(r"ERROR - (.*), RCP test FAILED.*", last)
    if crash or not match:
        return [_crash(folder, rule, crash or last)]
    epochs = next((line.split(":")[-1].strip() for line in lines if "Submission mean epochs:" in line), None)
    if match.group(1).startswith("Missing RCP"):
        epochs = None  # there is no reference to compare them with
    needed = (
        f"the runs need {float(epochs):g} epochs, fewer than chance allows"
        if epochs
        else "the runs are not comparable"
    )
    severity, may = (ERROR, "") if _closed(logs) else (WARNING, "; the open division may")
    return [
        Finding(
            severity,
            folder,
            None,
            rule,
            f"the RCP check failed ({match.group(1)}): {needed}{may}",
            "train with the hyperparameters of a reference convergence point, or submit one for this "
            "batch size",
        )
    ]


def _seeds(logs: Sequence[ResultLog], results: pathlib.Path, ruleset: str) -> list[Finding]:
    rule = f"seed checker {ruleset}"
    lines, crash = _run(
        results.parent, "-c", _SEEDS, ruleset, *(str(results / log.path.name) for log in logs)
    )
    last = lines[-1] if lines else "it wrote nothing"
    if not crash and last == "INFO - SEEDS PASSED":
        return []
    if crash or last != "INFO - SEEDS FAILED":
        return [_crash(logs[0].path.parent, rule, crash or last)]
    findings = []
    output = "\n".join(lines)
    for log in logs:
        copy = str(results / log.path.name)
        query = rf"querying seeds from {re.escape(copy)}: (.*)"
        for pattern, message, severity, remedy in (
            (rf"Result file {re.escape(copy)} logs seed (\S+) on", _SHARED_SEED, ERROR, _ONE_SEED),
            (rf"Result file {re.escape(copy)} logs no (seed)", _NO_SEED, WARNING, _NO_RULE),
            (query, "its seed cannot be read: {0}", ERROR, _ONE_SEED),
        ):
            match = re.search(pattern, output)
            if match:
                line = next((event.line for event in log.events if event.key == "seed"), None)
                findings.append(
                    Finding(severity, log.path, line, rule, message.format(match.group(1)[:160]), remedy)
                )
    return findings or [
        Finding(ERROR, logs[0].path.parent, None, rule, "the seeds are refused", "log one seed a run")
    ]


def _package(place: Place, organisation: pathlib.Path, ruleset: str) -> list[Finding]:
    rule = f"{_PACKAGE} {ruleset}"
    lines, crash = _run(
        organisation.parent,
        "-m",
        "mlperf_logging.package_checker",
        str(organisation),
        "training",
        ruleset,
        "--log_output",
        os.devnull,
    )
    last = lines[-1] if lines else "it wrote nothing"
    if not crash and last == "INFO - PACKAGE CHECKER FOUND NO ERRORS, SUCCESS !":
        return []
    if crash or not last.startswith("INFO - PACKAGE CHECKER FOUND ERRORS"):
        return [_crash(place.organisation, rule, crash or last)]
    findings = []
    for line in lines:
        count = re.match(r"ERROR - Incorrect number of files in dir.* found (\d+), expected (\d+)", line)
        refused = re.match(r"ERROR -  (\d+) files do not comply", line)
        if count:
            findings.append(f"{count.group(1)} result files, {count.group(2)} are wanted")
        elif refused:
            findings.append(f"{refused.group(1)} files do not comply, and only one may")
    message = "; ".join(findings) or _OF_OTHERS
    return [
        Finding(
            ERROR,
            place.organisation,
            None,
            rule,
            f"{place.system} is refused: {message}",
            f"submit {rules.RUNS} result files of which at most one missed the target, and fix what else is "
            "named here",
        )
    ]


def _system_description(place: Place, description: pathlib.Path, ruleset: str) -> list[Finding]:
    rule = f"system description checker {ruleset}"
    lines, crash = _run(
        description.parent,
        "-m",
        "mlperf_logging.system_desc_checker",
        str(description),
        "training",
        ruleset,
        "--log_output",
        os.devnull,
    )
    last = lines[-1] if lines else "it wrote nothing"
    if not crash and last.startswith("INFO -   System description checker passed for"):
        return []
    if crash or not last.startswith("ERROR -   System description checker failed for"):
        return [_crash(place.description, rule, crash or last)]
    reasons = reasons_of_description(last)
    if any(_STATUS_WORDS.match(reason) for reason in reasons):
        remedy = "nothing for a round up to v4.0: the checker's list of words came with v4.1"
        word = Finding(WARNING, place.description, None, rule, "; ".join(reasons), remedy)
        # This reason hides the checker's other reasons; the previous ruleset shows them.
        others = _system_description(place, description, rules.RULESETS[-2])
        return [word, *(replace(other, rule=rule) for other in others)]
    return [
        Finding(ERROR, place.description, None, rule, reason, "complete the description of the system")
        for reason in reasons
    ]


def _description(place: Place, logs: Sequence[ResultLog]) -> list[Finding]:
    """Return findings on the description that the system description checker does not make."""
    rule = "the description of the system belongs to its results"
    try:
        fields = system_description.read(place.description)
    except UserError as error:
        return [Finding(ERROR, place.description, None, rule, error.problem, error.remedy)]
    division = fields.get("division")
    logged = next((log.division for log in logs if log.division), None)
    findings = []
    if division not in ("closed", "open"):
        message = (
            f"division is {division!r}: the package checker then skips seeds and reference "
            "convergence without a word"
        )
        findings.append(
            Finding(ERROR, place.description, None, rule, message, "write closed or open, in small letters")
        )
    elif logged and division != logged:
        findings.append(
            Finding(
                ERROR,
                place.description,
                None,
                rule,
                f"division is {division}, but the logs say {logged}",
                "write the same in both",
            )
        )
    return findings
