"""What ``rn50 verify`` found, for a person and for a script."""

from typing import Any, Dict

from rn50.data.certification import Verdict
from rn50.data.finding import Findings
from rn50.terminal import Terminal


def to_json(verdict: Verdict) -> Dict[str, Any]:
    """The certificate and its hash."""
    return dict(verdict.certificate.content, certificate=str(verdict.certificate.path), sha256=verdict.certificate.sha256)


def print_findings(verdict: Verdict, console: Terminal) -> None:
    """A line a finding, faults last, then the verdict."""
    for heading, findings in (("remark", verdict.remarks), ("FAULT", verdict.faults)):
        for finding in findings.kept:
            _print(console, f"{heading}  {finding}")
        for kind, more in _not_kept(findings).items():
            _print(console, f"{heading}  and {more:,} more of the kind '{kind}'")
    content, expected = verdict.certificate.content, verdict.expected
    numbers = f"{expected.train:,} + {expected.val:,} images of {expected.classes:,} classes"
    if verdict.passed:
        looked = "every image decoded" if content["decoded"] else "every header read; --full decodes the images too"
        which = "ImageNet's numbers" if content["imagenet"] else f"as {expected.by} says; not the benchmark's data set"
        _print(console, f"whole: {numbers} ({which}); {looked}")
    else:
        _print(console, f"at fault: {sum(verdict.faults.counts.values()):,} faults; {numbers} were expected ({expected.by})")
    _print(console, f"{verdict.certificate.path}: sha256 {verdict.certificate.sha256}")


def _not_kept(findings: Findings) -> Dict[str, int]:
    kept: Dict[str, int] = {}
    for finding in findings.kept:
        kept[finding.kind] = kept.get(finding.kind, 0) + 1
    return {kind: count - kept[kind] for kind, count in findings.counts.items() if count > kept[kind]}


def _print(console: Terminal, line: str) -> None:
    console.print(line)
