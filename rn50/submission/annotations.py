"""Write the report of ``rn50 check`` in a form for machines (``lines``): GitHub's annotations or SARIF. Paths
below the working folder are relative to it, because GitHub shows findings only in such files.

Sources: "Workflow commands for GitHub Actions" and "SARIF support for code scanning" in GitHub's
documentation; SARIF 2.1.0, an OASIS standard.
"""

import os
import pathlib
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import rn50
from rn50 import files
from rn50.results.validity.findings import Finding
from rn50.submission.check import CheckReport, summary
from rn50.terminal import inert, json_text, safe

_MESSAGE, _PROPERTY = "%\r\n", "%\r\n:,"
"""Characters that are escaped in the message of a workflow command, and in a property of it."""


def lines(report: CheckReport, form: str) -> Iterator[str]:
    """Return the lines of a report in a ``form``: github or sarif. A finding on a folder becomes one on the
    first log below the folder, because neither form can point to a folder."""
    first_log: dict[pathlib.Path, pathlib.Path] = {}  # folder -> first log below it
    for log in [verdict.file for verdict in report.verdicts]:
        # If the log is a link, take the folders above the link, not those above its target.
        for folder in (log.parent.resolve() / log.name).parents:
            first_log.setdefault(folder, log)
    findings = [replace(f, file=first_log.get(f.file.resolve(), f.file)) for f in report.findings]
    report = replace(report, findings=tuple(findings))
    return map(safe, _github(report) if form == "github" else _sarif(report))


def _github(report: CheckReport) -> Iterator[str]:
    """Yield a workflow command for each finding, then the verdict."""
    for finding in report.findings:
        place = {"file": str(files.relative(finding.file)), "line": finding.line, "title": finding.rule}
        properties = (f"{name}={_escaped(str(value), _PROPERTY)}" for name, value in place.items() if value)
        yield f"::{finding.severity} {','.join(properties)}::{_escaped(_text(finding), _MESSAGE)}"
    yield inert(summary(report))


def _escaped(text: str, characters: str) -> str:
    """Return a text with each of ``characters`` as %XX. ``inert`` spoils workflow commands in the text, which
    would else be carried out."""
    return re.sub(f"[{characters}]", lambda match: f"%{ord(match[0]):02X}", inert(text))


def _text(finding: Finding) -> str:
    """Return message and remedy of a finding, on one line."""
    return safe(f"{finding.message}; {finding.remedy}")


def _sarif(report: CheckReport) -> Iterator[str]:
    """Yield the lines of a SARIF document with all findings and their rules."""
    rules: dict[str, dict[str, Any]] = {}
    results = []
    for finding in report.findings:
        name = re.sub("[^a-z0-9]+", "-", finding.rule.lower()).strip("-")
        # GitHub accepts no rule without all three texts, and no result without a line.
        texts = {"shortDescription": finding.rule, "fullDescription": finding.rule, "help": finding.remedy}
        rules.setdefault(name, {"id": name, **{key: {"text": safe(text)} for key, text in texts.items()}})
        path = files.relative(finding.file)
        uri = path.as_uri() if path.is_absolute() else quote(os.fsencode(path))
        location = {"artifactLocation": {"uri": uri}, "region": {"startLine": finding.line or 1}}
        result = {"ruleId": name, "level": finding.severity, "message": {"text": _text(finding)}}
        results.append({**result, "locations": [{"physicalLocation": location}]})
    driver = {"name": "rn50", "version": rn50.__version__, "rules": list(rules.values())}
    schema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
    run = {"tool": {"driver": driver}, "results": results}
    yield from json_text({"$schema": schema, "version": "2.1.0", "runs": [run]}).splitlines()
