"""The label of a result that is none of the benchmark: the one place that decides it.

A run on other data, of another network, or of a part of its steps is labelled by its log, and by the configuration and the
certificate of the data that it saved. Any of them is enough. A number of samples is no label: see ``log_rules``.
"""

from typing import Any, Mapping, Optional

from rn50.benchmark import rules
from rn50.results import sidecar
from rn50.results.parse import ResultLog


def of_run(log: ResultLog, saved: Mapping[str, Any]) -> Optional[str]:
    """``rules.NOT_A_RESULT``, or None; ``saved`` is what lies beside the log."""
    certificate = saved.get("data certificate")
    # What a certificate says of ImageNet is that these are its numbers and no fault was found.
    certified_other = isinstance(certificate, dict) and certificate.get("imagenet") is False
    steps = sidecar.section(saved, "run").get("benchmark_steps")
    other_task = not rules.is_task(sidecar.section(saved, "data"), steps)
    return rules.NOT_A_RESULT if logged(log) or other_task or certified_other else None


def logged(log: ResultLog) -> bool:
    """Whether the log itself is labelled."""
    return any(rules.NOT_A_RESULT in str(event.value) for event in log.by_key.get("submission_platform", ()))
