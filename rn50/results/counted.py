"""Say which runs a study may count: those that are finished, of the configuration asked for, and nobody's
copy."""

from collections.abc import Mapping, Sequence

from rn50.errors import UserError
from rn50.results.run import Run
from rn50.results.validity import result_rules
from rn50.settings.fields import RUNS_OWN_NAMES

MADE_AGAIN = "move it away, and the same command makes that run again"


def is_finished(run: Run) -> bool:
    """Return True if the clock of a run stopped after an evaluation."""
    return run.log.minutes is not None and any(one.epoch > 0 for one in run.log.evaluations)


def shared(variables: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, str]:
    """Return the ``variables`` that are the same in all runs of the configuration ``asked``."""
    # A run saves how many threads it took where they are chosen for it.
    ignored = RUNS_OWN_NAMES | ({"DALI_THREADS"} if asked.get("DALI_THREADS") == "0" else set())
    return {name: value for name, value in variables.items() if name not in ignored}


def refuse_others(
    runs: Sequence[Run], asked: Mapping[str, str], claimed: Sequence[Run] = (), remedy: str = MADE_AGAIN
) -> None:
    """Raise UserError for the first of ``runs`` that is not finished, was not made with the variables
    ``asked``, or is a copy of one before it or of one in ``claimed``.

    Without variables any configuration will do.
    """
    for number, run in enumerate(runs):
        names = (run.file.name, "the configuration")
        its, wanted = (shared(given, asked) for given in (run.saved.get("variables", {}), asked))
        others = [*claimed, *runs[:number]]
        copied = next((one.file for one in others if result_rules.is_copy(run.log, one.log)), None)
        if not is_finished(run):
            raise UserError(run.file, "is no finished run", remedy)
        if wanted and not its:
            raise UserError(run.file, "nothing beside it says its configuration", remedy)
        if wanted and its != wanted:
            different = result_rules.differences(names, (its, wanted))
            raise UserError(run.file, f"is of another configuration: {different}", remedy)
        if copied:
            raise UserError(run.file, f"is a copy of {copied}", remedy)
