"""Decide whether a run is labelled as not a result of the benchmark, and whether a result is unverified; no
other code does.

A run is labelled if it used other data, another network, trained weights or only part of its steps, or was
resumed. Its log says so, or its saved configuration, data certificate or checkpoint epoch does. Any one of
them is enough. A number of samples is not a label: see ``log_rules``.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from rn50.benchmark import rules
from rn50.results import sidecar
from rn50.results.parse import ResultLog

_OUR_WRITER = "rn50/run/mlperf_log.py"
"""Source file that each record of our logs names."""


def of_run(log: ResultLog, saved: Mapping[str, Any]) -> str | None:
    """Return the ``rules.LABELS`` of a run in one text, or None; ``saved`` is the contents of the sidecar
    file."""
    certificate = saved.get("data certificate")
    # ``imagenet`` is true in a certificate where the numbers are ImageNet's and no fault was found.
    certified_other = isinstance(certificate, dict) and certificate.get("imagenet") is False
    labels = {*logged(log), *rules.labels(sidecar.section(saved, "data"), sidecar.section(saved, "run"))}
    labels |= {rules.NOT_A_RESULT} if certified_other else set()
    labels |= {rules.RESUMED} if saved.get("resumed_after") else set()
    return "; ".join(label for label in rules.LABELS if label in labels) or None


def logged(log: ResultLog) -> tuple[str, ...]:
    """Return the labels that the log itself has."""
    platforms = [str(event.value) for event in log.by_key.get("submission_platform", ())]
    other = log.target != rules.TARGET_ACCURACY
    return tuple(
        label
        for label in rules.LABELS
        if any(label in platform for platform in platforms) or (other and label == rules.OTHER_TARGET)
    )


def unverified(
    runs: Iterable[tuple[ResultLog, Mapping[str, Any]]], labelled: bool, of_a_round: bool
) -> str | None:
    """Return ``rules.NOT_VERIFIED`` for our own result on the benchmark's task, else None; ``runs`` are (log,
    contents of the sidecar file). A demo, which is ``labelled``, is not a result to verify. A result
    ``of_a_round``, in the tree of a round that MLCommons publishes, has been reviewed. Whether other people's
    logs have been is unknown."""
    ours = any(
        saved or any(event.metadata.get("file") == _OUR_WRITER for event in log.events[:1])
        for log, saved in runs
    )
    return rules.NOT_VERIFIED if ours and not labelled and not of_a_round else None
