"""Decide which runs a study may count. ``rn50 reproduce``, ``rn50 search`` and the like find runs from an
earlier call in a folder: they count a run only if it is finished, has the requested configuration and is no
copy of another run.
"""

import os
from collections.abc import Mapping, Sequence

from rn50.errors import UserError
from rn50.results import sidecar
from rn50.results.run import Run
from rn50.results.validity import result_rules, sidecar_rules
from rn50.settings.fields import DEFAULTS, RUNS_OWN_NAMES


def is_finished(run: Run) -> bool:
    """Return True if the clock of a run stopped after an evaluation."""
    return run.log.minutes is not None and any(evaluation.epoch > 0 for evaluation in run.log.evaluations)


def shared(variables: Mapping[str, str], configured: Mapping[str, str]) -> dict[str, str]:
    """Return those of a run's ``variables`` that are the same in all runs of a configuration, which has the
    variables ``configured``: not those of one run alone, like its seed and its log."""
    # A run of an older rn50 has not saved a newer variable, which then has its default.
    variables = {**DEFAULTS, **variables} if variables else variables
    # With DALI_THREADS=0, the run chooses the number of threads, and saves its choice.
    ignored = RUNS_OWN_NAMES | ({"DALI_THREADS"} if configured.get("DALI_THREADS") == "0" else set())
    return {name: value for name, value in variables.items() if name not in ignored}


def refuse_others(runs: Sequence[Run], configured: Mapping[str, str], claimed: Sequence[Run] = ()) -> None:
    """Raise UserError for the first of ``runs`` that a study may not count: it is not finished, contradicts
    its sidecar file, was not made with the variables ``configured``, or is a copy of an earlier run of
    ``runs`` or of a run of ``claimed``.

    If ``configured`` is empty, the runs may have any configuration.
    """
    for number, run in enumerate(runs):
        sidecar_file = sidecar.path(run.file)
        saved = run.saved.get("variables", {})
        faults = [] if is_finished(run) else ["is no finished run"]
        if not saved and (configured or os.path.lexists(sidecar_file)):
            faults.append(f"{sidecar_file.name} beside it is missing, or not what rn50 saves")
        # Compare what the run saved with what is asked for. If nothing is asked for, the two are equal.
        facts = [shared(saved, configured), shared(configured or saved, configured)]
        if different := result_rules.differences((run.file.name, "the configuration"), facts):
            faults.append(f"is of another configuration: {different}")
        # ``result_rules.labels`` yields a finding if the sidecar file labels the run, and the log does not.
        faults += [finding.message for finding in (*sidecar_rules.check(run), *result_rules.labels([run]))]
        twins = [other for other in (*claimed, *runs[:number]) if any(result_rules.alike(run.log, other.log))]
        faults += [f"is a copy of {twin.file}" for twin in twins]
        if faults:
            raise UserError(run.file, faults[0], "move it away; what this command makes is made again")
