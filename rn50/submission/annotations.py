"""Forms of a check that machines read: GitHub's annotations, JUnit's XML and SARIF.

Sources: "Workflow commands for GitHub Actions" and "SARIF support for code scanning" in GitHub's
documentation; the JUnit format as Jenkins and GitLab read it; SARIF 2.1.0, an OASIS standard. Paths are
relative to the working folder where they lie below it, because GitHub shows a line of no other file.
"""

import os
import pathlib
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import rn50
from rn50.results.validity.explain import CHECKER
from rn50.results.validity.findings import ERROR, Finding
from rn50.submission.check import CheckReport, summary
from rn50.terminal import inert, json_text, safe

_MESSAGE, _PROPERTY = "%\r\n", "%\r\n:,"
"""Characters that a message of a workflow command escapes, and a property of one."""


def lines(report: CheckReport, form: str) -> Iterator[str]:
    """Return the lines of a report as ``form``: github, junit or sarif. A finding on a folder names the first
    of its runs, because no machine shows a folder."""
    runs = [(v.file.parent.resolve() / v.file.name, v.file) for v in reversed(report.verdicts)]
    first = {folder: file for run, file in runs for folder in run.parents}
    on_files = (
        replace(finding, file=first.get(finding.file.resolve(), finding.file)) for finding in report.findings
    )
    report = replace(report, findings=tuple(on_files))
    return map(safe, {"github": _github, "junit": _junit, "sarif": _sarif}[form](report))


def _github(report: CheckReport) -> Iterator[str]:
    for finding in report.findings:
        place = {"file": str(_relative(finding.file)), "line": finding.line, "title": finding.rule}
        properties = (f"{name}={_escaped(str(value), _PROPERTY)}" for name, value in place.items() if value)
        yield f"::{finding.severity} {','.join(properties)}::{_escaped(_text(finding), _MESSAGE)}"
    yield inert(summary(report))


def _escaped(text: str, characters: str) -> str:
    return re.sub(f"[{characters}]", lambda match: f"%{ord(match[0]):02X}", inert(text))


def _text(finding: Finding) -> str:
    return safe(f"{finding.message}; {finding.remedy}")


def _relative(path: pathlib.Path) -> pathlib.Path:
    absolute, here = pathlib.Path(os.path.abspath(path)), pathlib.Path.cwd()
    return absolute.relative_to(here) if absolute.is_relative_to(here) else absolute


def _junit(report: CheckReport) -> Iterator[str]:
    """Yield a test case for each ruleset and each rule that any run breaks, of every run."""
    cases: dict[tuple[pathlib.Path, str], list[Finding]] = {}
    broken = dict.fromkeys(rule for finding in report.findings for rule in _rules(finding))
    for verdict in report.verdicts:
        cases.update({(verdict.file, rule): [] for rule in (f"{CHECKER} {verdict.ruleset}", *broken)})
    for finding in report.findings:
        for rule in _rules(finding):
            cases.setdefault((finding.file, rule), []).append(finding)
    for verdict in report.verdicts:
        findings = cases[verdict.file, f"{CHECKER} {verdict.ruleset}"]
        is_said = any(finding.severity == ERROR for finding in findings)
        if not (verdict.ok or is_said or verdict.file in report.excused):
            message, remedy = "the official checker fails the file", "see the other findings"
            findings.append(Finding(ERROR, verdict.file, None, CHECKER, message, remedy))
    suite = ElementTree.Element("testsuite", name="rn50 check", tests=str(len(cases)), errors="0")
    for (file, rule), findings in cases.items():
        name = safe(str(_relative(file)))
        case = ElementTree.SubElement(suite, "testcase", classname=name, name=safe(rule), file=name)
        for finding in findings:
            tag = "failure" if finding.severity == ERROR else "system-out"
            about = {"message": _text(finding), "type": safe(rule)} if finding.severity == ERROR else {}
            place = name if finding.line is None else f"{name}:{finding.line}"
            ElementTree.SubElement(case, tag, about).text = f"{place}: {_text(finding)}"
    suite.set("failures", str(len(suite.findall("testcase[failure]"))))
    ElementTree.indent(suite)
    yield from ElementTree.tostring(suite).decode("ascii").replace("##[", "#&#35;[").splitlines()


def _rules(finding: Finding) -> list[str]:
    """Return the rules that a finding breaks: of the official checker one for each ruleset."""
    rulesets = finding.rule.removeprefix(CHECKER).split(",") if finding.rule.startswith(CHECKER) else ()
    return [f"{CHECKER} {ruleset.strip()}" for ruleset in rulesets] or [finding.rule]


def _sarif(report: CheckReport) -> Iterator[str]:
    rules: dict[str, dict[str, Any]] = {}
    results = []
    for finding in report.findings:
        name = re.sub("[^a-z0-9]+", "-", finding.rule.lower()).strip("-")
        # GitHub takes no rule without all three, and no result without a line.
        about = {"shortDescription": finding.rule, "fullDescription": finding.rule, "help": finding.remedy}
        rules.setdefault(name, {"id": name, **{what: {"text": safe(text)} for what, text in about.items()}})
        path = _relative(finding.file)
        uri = path.as_uri() if path.is_absolute() else quote(os.fsencode(path))
        place = {"artifactLocation": {"uri": uri}, "region": {"startLine": finding.line or 1}}
        result = {"ruleId": name, "level": finding.severity, "message": {"text": _text(finding)}}
        results.append({**result, "locations": [{"physicalLocation": place}]})
    driver = {"name": "rn50", "version": rn50.__version__, "rules": list(rules.values())}
    schema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
    run = {"tool": {"driver": driver}, "results": results}
    yield from json_text({"$schema": schema, "version": "2.1.0", "runs": [run]}).splitlines()
