"""Make the system description of a result, from its sidecar files, its logs and a file of the user
(``describe``).

The fields, and which of them need a meaningful answer, are those of the MLPerf submission rules, section
"<system_desc_id>.json metadata". The system description checker requires all fields, as text.
"""

import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rn50 import files
from rn50.errors import UserError, did_you_mean
from rn50.machine import description
from rn50.results.report import what_ran
from rn50.results.validity.result_rules import MODEL_NAMES, differences
from rn50.settings.variables import UNNAMED
from rn50.submission import yaml_file
from rn50.submission.own_results import OwnResult

DETAILS = "system.yaml"
"""Name of the user's file, beside the result files, with the fields that no machine reports."""
NOT_APPLICABLE = "N/A"
FIELDS: dict[str, str] = dict(files.table_beside(__file__, "fields.csv"))
"""Field -> example for an error message; "" for a field that may be empty."""
STATUS = {
    "onprem": "Available on-premise",
    "cloud": "Available cloud",
    "research": "Research, Development, or Internal (RDI)",
    "preview": "Preview",
}
"""``submission_status`` of a log -> field ``status``, in the words that the system description checker of
ruleset 4.0.0 accepts; earlier ones accept any words."""

_STACK = {
    "cuda_version": r"nvidia-cuda-runtime(-cu\d+)?",
    **{f"{name}_version": rf"nvidia-{name}(-cu\d+)?" for name in ("cudnn", "cublas", "nccl")},
    "dali_version": r"nvidia-dali-cuda\d+",
    "horovod_version": r"horovod",
}
"""Name in the field ``other_software_stack`` -> pattern for the name of the package whose version it has."""


@dataclass(frozen=True)
class Description:
    """System description of a result."""

    fields: dict[str, Any]
    """Field -> value, in the order of ``FIELDS``."""
    problems: tuple[str, ...]
    """Missing or contradictory fields, with the remedy, a line each."""
    warnings: tuple[str, ...]
    """Questions that the user should answer, a line each."""


def describe(result: OwnResult, details: pathlib.Path | None) -> Description:
    """Return the description of the system of a result.

    ``details`` is a YAML or JSON file with fields, by default ``system.yaml`` beside the result files. A
    field gets its value from the logs, else from ``details``, else from the machine as the runs saved it. If
    the runs did not save their machine, the machine that this code runs on is described, with a warning.

    Raises:
        UserError: ``details`` cannot be read or is not a mapping of fields.
    """
    file = details or result.folder / DETAILS
    problems: list[str] = []
    warnings = []
    stated = _from_file(file, problems, required=details is not None)
    machine = _machine(result, stated, problems)
    if not machine:
        machine = dict(description.read())
        text = "its runs saved nothing of their machine, so this one is described; is it the same?"
        warnings.append(f"{result.folder}: {text}")
    logged = _from_logs(result)
    for field, value in logged.items():
        # The user may also give the status in the word of the log, as onprem.
        allowed = (value, result.logs[0].submission_status) if field == "status" else (value,)
        if field in stated and stated[field] not in allowed:
            text = f"{field} is {stated[field]!r}, but the results say {value!r}"
            problems.append(f"{file}: {text}; leave it out of {file.name}")
    reported = {**_software(result, machine), **machine}
    # Not applicable are fields on accelerators in a system without any, and on links between accelerators or
    # nodes if there is only one.
    if logged["accelerators_per_node"] == "0":
        for field, example in FIELDS.items():
            if field.startswith("accelerator_"):
                reported[field] = NOT_APPLICABLE if example else ""  # "": the field may be empty
    elif logged["accelerators_per_node"] == "1":
        reported.setdefault("accelerator_interconnect", NOT_APPLICABLE)
    if logged["number_of_nodes"] == "1":
        reported.setdefault("host_networking_topology", NOT_APPLICABLE)
    system = result.run.get("system", "")
    reported["system_name"] = "" if system == UNNAMED else system
    values = {**reported, **stated, **logged}  # of a field that several have, the last value counts
    fields = {field: values.get(field, "") for field in FIELDS}
    if result.score.label and result.score.label not in fields["sw_notes"]:
        fields["sw_notes"] = "; ".join(filter(None, (fields["sw_notes"], result.score.label)))
    return Description(fields, (*problems, *_missing(file, fields)), tuple(warnings))


def _from_file(file: pathlib.Path, problems: list[str], required: bool) -> dict[str, Any]:
    """Return the fields of the user's file; add a problem to ``problems`` for each that cannot be used, and
    leave it out. A missing file is an error if it is ``required``, else it has no fields."""
    remedy = "write lines as in  cooling: air-cooled"
    try:
        content = yaml_file.read(file, remedy)
    except files.MissingError:
        if required:
            raise
        return {}
    content = {} if content in (None, "") else content
    if not isinstance(content, dict):
        raise UserError(file, "no fields and values", remedy)
    fields = {}
    for field, value in content.items():
        if field not in FIELDS:
            meant = did_you_mean(str(field), FIELDS) or "say it in hw_notes or sw_notes"
            problems.append(f"{file}: {field} is not a field of a system description; {meant}")
        elif not isinstance(value, str) and field != "other_software_stack":
            problems.append(f"{file}: {field} is a list or a mapping; write its value on one line")
        else:
            fields[field] = value
    return fields


def _machine(result: OwnResult, fields: Mapping[str, Any], problems: list[str]) -> dict[str, str]:
    """Return the fields of the machine that the first run with such fields saved. Add a problem to
    ``problems`` if the runs saved different values. ``fields``, those of the user's file, are not compared;
    nor are the names of processor and accelerator, which ``result_rules`` compares."""
    systems = [saved.get("system", {}) for saved in result.saved]
    ignored = {*fields, *MODEL_NAMES}
    compared = [{name: value for name, value in system.items() if name not in ignored} for system in systems]
    if different := differences([log.path.name for log in result.logs], compared):
        remedy = f"make all of them on one, or say in {DETAILS} what is right"
        problems.append(f"{result.folder}: the runs are not of one system: {different}; {remedy}")
    return next((dict(system) for system in systems if system), {})


def _from_logs(result: OwnResult) -> dict[str, str]:
    """Return the fields that the logs and the saved configuration tell. The user's file cannot change
    them."""
    log, run = result.logs[0], result.run
    on_gpu = run.get("device") == "gpu"
    return {
        "submitter": log.org or "",
        "division": log.division or "",
        "status": STATUS.get(log.submission_status or "", log.submission_status or ""),
        "number_of_nodes": str(run.get("nodes", "")),
        "accelerators_per_node": str(run.get("ranks_per_node", "")) if on_gpu else "0",
    }


def _software(result: OwnResult, machine: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields on the software. ``machine`` has fields, and also versions, such as the driver's,
    which go into other_software_stack."""
    stack = {key: version for key, version in machine.items() if key not in FIELDS}
    installed = {key: what_ran.version_of(result.first_saved, pattern) for key, pattern in _STACK.items()}
    stack.update({key: version for key, version in installed.items() if version})
    stack["python_version"] = result.first_saved.get("python", "")
    stack["rn50"] = f"{result.first_saved.get('rn50', '')}, commit {result.first_saved.get('commit', '')}"
    return {"framework": what_ran.framework_of(result.first_saved), "other_software_stack": stack}


def _missing(file: pathlib.Path, fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield a problem for each field that needs a value and has none, or needs a number and has another text;
    ``file`` is the file to mend."""
    for field, value in fields.items():
        line = f"as in  {field}: {FIELDS[field]}"
        # The official result summarizer calculates with host_processors_per_node.
        if field == "host_processors_per_node" and value and not value.isdigit():
            yield f"{file}: {field} is {value!r}, no whole number; write one, {line}"
        elif FIELDS[field] and not value:
            yield f"{file}: {field} is missing: no machine reports it, or this one did not; add a line {line}"
