"""Say which runs a study may count: those that are finished, of the configuration asked for, and nobody's
copy."""

import os
from collections.abc import Mapping, Sequence

from rn50.errors import UserError
from rn50.results import sidecar
from rn50.results.run import Run
from rn50.results.validity import result_rules, sidecar_rules
from rn50.settings.fields import RUNS_OWN_NAMES


def is_finished(run: Run) -> bool:
    """Return True if the clock of a run stopped after an evaluation."""
    return run.log.minutes is not None and any(evaluation.epoch > 0 for evaluation in run.log.evaluations)


def shared(variables: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, str]:
    """Return the ``variables`` that are the same in all runs of the configuration ``asked``."""
    # A run saves how many threads it took where they are chosen for it.
    ignored = RUNS_OWN_NAMES | ({"DALI_THREADS"} if asked.get("DALI_THREADS") == "0" else set())
    return {name: value for name, value in variables.items() if name not in ignored}


def refuse_others(runs: Sequence[Run], asked: Mapping[str, str], claimed: Sequence[Run] = ()) -> None:
    """Raise UserError for the first of ``runs`` that is not finished, contradicts the file beside it, was not
    made with the variables ``asked``, or is a copy of one before it or of one in ``claimed``.

    Without ``asked`` any configuration will do.
    """
    for number, run in enumerate(runs):
        beside, saved = sidecar.path(run.file), run.saved.get("variables", {})
        faults = [] if is_finished(run) else ["is no finished run"]
        if not saved and (asked or os.path.lexists(beside)):
            faults.append(f"{beside.name} beside it is missing, or not what rn50 saves")
        facts = [shared(variables, asked) for variables in (saved, asked or saved)]
        if different := result_rules.differences((run.file.name, "the configuration"), facts):
            faults.append(f"is of another configuration: {different}")
        findings = (*sidecar_rules.check(run), *result_rules.labels([run]))
        faults += [finding.message for finding in findings]
        alike = (
            earlier for earlier in (*claimed, *runs[:number]) if any(result_rules.alike(run.log, earlier.log))
        )
        faults += [f"is a copy of {earlier.file}" for earlier in alike]
        if faults:
            raise UserError(run.file, faults[0], "move it away; what this command makes is made again")
