"""Decide whether a run is labelled as no result of the benchmark; no other code decides it.

A run on other data, of another network, or of only a part of its steps is labelled in its log, or shown by the configuration or
the data certificate that it saved. Any one of them is enough. A number of samples is no label: see ``log_rules``.
"""

from typing import Any, Mapping, Optional

from rn50.benchmark import rules
from rn50.results import sidecar
from rn50.results.parse import ResultLog


def of_run(log: ResultLog, saved: Mapping[str, Any]) -> Optional[str]:
    """Return ``rules.NOT_A_RESULT`` or None; ``saved`` is the contents of the sidecar file."""
    certificate = saved.get("data certificate")
    # ``imagenet`` is true in a certificate where the numbers are ImageNet's and no fault was found.
    certified_other = isinstance(certificate, dict) and certificate.get("imagenet") is False
    steps = sidecar.section(saved, "run").get("benchmark_steps")
    other_task = not rules.is_task(sidecar.section(saved, "data"), steps)
    return rules.NOT_A_RESULT if logged(log) or other_task or certified_other else None


def logged(log: ResultLog) -> bool:
    """Return True if the log itself has the label."""
    return any(rules.NOT_A_RESULT in str(event.value) for event in log.by_key.get("submission_platform", ()))
