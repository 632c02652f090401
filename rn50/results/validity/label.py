"""Decide whether a run is labelled as no result of the benchmark, and whether a result is unverified; no
other code decides it.

A run on other data, of another network, of only a part of its steps, of trained weights, or resumed is
labelled in its log, or shown by the configuration, the data certificate or the epoch of the checkpoint that
it saved. Any one of them is enough. A number of samples is no label: see ``log_rules``.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from rn50.benchmark import rules
from rn50.results import sidecar
from rn50.results.parse import ResultLog

_OUR_WRITER = "rn50/run/mlperf_log.py"
"""The file that each record of a log of ours names as its source."""


def of_run(log: ResultLog, saved: Mapping[str, Any]) -> str | None:
    """Return those of ``rules.LABELS`` that a run has in one text, or None; ``saved`` is the contents of the
    sidecar file."""
    certificate = saved.get("data certificate")
    # ``imagenet`` is true in a certificate where the numbers are ImageNet's and no fault was found.
    certified_other = isinstance(certificate, dict) and certificate.get("imagenet") is False
    found = {*logged(log), *rules.labels(sidecar.section(saved, "data"), sidecar.section(saved, "run"))}
    found |= {rules.NOT_A_RESULT} if certified_other else set()
    found |= {rules.RESUMED} if saved.get("resumed_after") else set()
    return "; ".join(each for each in rules.LABELS if each in found) or None


def logged(log: ResultLog) -> tuple[str, ...]:
    """Return the labels that the log itself has."""
    platforms = [str(event.value) for event in log.by_key.get("submission_platform", ())]
    return tuple(each for each in rules.LABELS if any(each in platform for platform in platforms))


def unverified(runs: Iterable[tuple[ResultLog, Mapping[str, Any]]], of_a_round: bool) -> str | None:
    """Return ``rules.NOT_VERIFIED`` for a result of ours on the benchmark's own task, else None; ``runs`` are
    (log, contents of the sidecar file). A demo is no result that could be verified. A result ``of_a_round``,
    in the tree of a round that MLCommons publishes, has been reviewed; of other people's logs we do not know
    whether they have."""
    runs = list(runs)
    ours = any(
        saved or any(event.metadata.get("file") == _OUR_WRITER for event in log.events[:1])
        for log, saved in runs
    )
    labelled = any(of_run(log, saved) for log, saved in runs)
    return rules.NOT_VERIFIED if ours and not labelled and not of_a_round else None
