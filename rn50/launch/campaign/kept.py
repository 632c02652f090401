"""Examine the finished runs of a campaign, which are kept as they are, before anything else is done: each has
to be of the configuration that is asked for, and to have the weights, power log or curves that are asked of
every run."""

import pathlib
import shlex
from collections.abc import Sequence

from rn50 import process
from rn50.data.certification import certificate
from rn50.doctor import doctor, results
from rn50.errors import UserError
from rn50.results import power
from rn50.run import tensorboard
from rn50.run.display import CURVES
from rn50.settings import named
from rn50.settings.config import Config
from rn50.weights import weights_file


def examine(logs: Sequence[pathlib.Path], system: str, config: Config) -> None:
    """Raise UserError if there are finished runs of a campaign and the data have other numbers of classes and
    images than ``config``, if a finished run is of another configuration, or as ``refuse_lacking`` does.
    ``logs`` are those of all runs of the campaign, some of which may be still to make.

    If none is, warn of variables of the environment that have no effect, as the doctor does before a run.
    """
    finished = [log for log in logs if log.exists()]
    if finished == list(logs):
        doctor.show_brief(doctor.overridden(config))
    if finished:
        certificate.refuse_other_numbers(config)
    for other in results.other_configuration(finished, config):
        raise UserError(other.subject, other.found, other.remedy)
    refuse_lacking(finished, system, config)


def refuse_lacking(logs: Sequence[pathlib.Path], system: str, config: Config) -> None:
    """Raise UserError for the first of these kept runs that has no weights, power log or curves although
    ``config`` or the environment asks every run for them. The error names the command that makes them.

    SAVE_WEIGHTS=first asks only one run for weights, and POWER=auto only a machine with meters for power
    logs, so a kept run may lack them.
    """
    run, curves = config.run, process.environment().get(CURVES)
    again = f"rn50 run {named.arguments(system)} -o results/"
    for log in logs:
        # ``missing`` is what the run lacks, ``command`` makes a run with it.
        if run.save_weights not in ("0", "first") and not weights_file.path(log).exists():
            best = " best" if run.save_weights == "best" else ""
            missing, command = "weights", f"{again}weights --runs 1 --save-weights{best}"
        elif run.power not in ("off", "auto") and not power.files_of(log):
            missing, command = "power", f"POWER={shlex.quote(run.power)} {again}power"
        elif curves and not tensorboard.folder_of(curves, log).exists():
            missing, command = "curves", f"{again}curves --tensorboard {shlex.quote(curves)}"
        else:
            continue
        raise UserError(log, f"is kept as it is, without {missing}", f"to have them: {command}")
