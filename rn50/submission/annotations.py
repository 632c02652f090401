"""Forms of a check that machines read: GitHub's annotations and SARIF.

Sources: "Workflow commands for GitHub Actions" and "SARIF support for code scanning" in GitHub's
documentation; SARIF 2.1.0, an OASIS standard. Paths are relative to the working folder where they lie below
it, because GitHub shows a line of no other file.
"""

import os
import pathlib
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import rn50
from rn50.results.validity.findings import Finding
from rn50.submission.check import CheckReport, summary
from rn50.terminal import inert, json_text, safe

_MESSAGE, _PROPERTY = "%\r\n", "%\r\n:,"
"""Characters that a message of a workflow command escapes, and a property of one."""


def lines(report: CheckReport, form: str) -> Iterator[str]:
    """Return the lines of a report as ``form``: github or sarif. A finding on a folder names the first of its
    runs, because no machine shows a folder."""
    runs = [(v.file.parent.resolve() / v.file.name, v.file) for v in reversed(report.verdicts)]
    first = {folder: file for run, file in runs for folder in run.parents}
    on_files = (
        replace(finding, file=first.get(finding.file.resolve(), finding.file)) for finding in report.findings
    )
    report = replace(report, findings=tuple(on_files))
    return map(safe, (_github if form == "github" else _sarif)(report))


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
