"""Check that a log and its sidecar file agree, because one run has written both, and the hyperparameters that
only the sidecar file has: ``check``.

``result_rules`` compares the label of a run in both.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rn50.benchmark.recipe import HYPERPARAMETERS, of_configuration
from rn50.errors import excerpt
from rn50.results import recipe, sidecar
from rn50.results.run import Run
from rn50.results.validity.findings import Finding
from rn50.results.validity.log_rules import finding
from rn50.settings.fields import variables
from rn50.settings.variables import Variable

_MOST_NAMED = 3
"""Most contradictions that a finding names."""


def check(run: Run) -> Iterator[Finding]:
    """Yield one finding if the log of a run and its sidecar file contradict each other, or the sidecar file
    contradicts itself, and one for each saved hyperparameter that the closed division does not allow and
    MLPerf has no log key for."""
    different = [
        f"{name} is {excerpt(str(logged))} in the log and {excerpt(str(saved))} beside it"
        for name, logged, saved in _facts(run)
        if saved is not None and saved != logged
    ]
    different += _contradictions_within(run.saved)
    if different:
        more = f"; {len(different) - _MOST_NAMED} more differ" if len(different) > _MOST_NAMED else ""
        rule = "a log and the file beside it are of one run"
        remedy = f"put the log and the {sidecar.path(run.log.path).name} of one run beside each other"
        yield finding(run.log, None, rule, "; ".join(different[:_MOST_NAMED]) + more, remedy)
    saved = sidecar.section(run.saved, "hyperparameters")
    closed_rules = {name: row.closed for name, row in HYPERPARAMETERS.items() if not row.keys and row.closed}
    for name, closed in closed_rules.items() if run.log.division != "open" else ():
        if name in saved and not closed.allows(saved[name]):
            message = f"{HYPERPARAMETERS[name].shown} is {excerpt(str(saved[name]))}"
            yield finding(run.log, None, closed.rule, message, closed.remedy)


def _facts(run: Run) -> Iterator[tuple[str, Any, Any]]:
    """Yield (name, logged value, saved value) of each fact that both files may have. A saved value of None is
    unknown."""
    log, saved = run.log, run.saved
    sections = ("hyperparameters", "run", "data")
    hyperparameters, run_section, data = (sidecar.section(saved, section) for section in sections)
    yield "seed", log.seed, saved.get("seed")
    logged, configured = recipe.of_log(log), of_configuration(hyperparameters, run.accelerators)
    yield "global_batch_size", logged.global_batch_size, configured.global_batch_size
    for name, row in HYPERPARAMETERS.items():
        if row.keys and name != "global_batch_size":
            yield row.shown, getattr(logged, name), getattr(configured, name)
    yield "train_samples", log.train_samples, data.get("train_samples")
    yield "eval_samples", log.eval_samples, data.get("eval_samples")
    yield "submission_org", log.org, run_section.get("organisation")
    yield "submission_status", log.submission_status, run_section.get("status")
    # A run with hyperparameters of the open division logs open, even if closed is configured.
    if run_section.get("division") == "open":
        yield "submission_division", log.division, "open"
    # Logs of rn50 have these facts as metadata of ``train_samples``.
    samples = log.first("train_samples")
    saved_certificate = saved.get("data certificate")
    certificate = saved_certificate if isinstance(saved_certificate, dict) else {}
    metadata_facts = {name: saved.get(name) for name in ("precision", "input_library")}
    metadata_facts["certificate_sha256"] = certificate.get("sha256")
    metadata_facts["data_set_sha256"] = certificate.get("set_sha256")
    metadata = samples.metadata if samples else {}
    yield from ((name, metadata[name], value) for name, value in metadata_facts.items() if name in metadata)


def _contradictions_within(saved: Mapping[str, Any]) -> Iterator[str]:
    """Yield a phrase on each variable whose saved text contradicts the saved configuration. A package is made
    from the texts of the variables, but a run is judged by its configuration."""
    texts = saved.get("variables", {})
    for section, field, variable in variables():
        value = sidecar.section(saved, section).get(field)
        text = texts.get(variable.name)
        if None not in (value, text) and text != Variable.write(value):
            configured = f"{excerpt(Variable.write(value))} in the configuration"
            yield f"{variable.name} is {excerpt(text)} in the variables beside it, and {configured}"
