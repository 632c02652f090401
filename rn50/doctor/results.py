"""Checks of the results that a run will write: ``diagnoses`` examines the folder, which may hold results of
the same campaign; ``of_submission`` looks for settings that keep a result out of a submission."""

import contextlib
import os
import pathlib
import shutil
from collections.abc import Iterator, Sequence

from rn50.benchmark import rules
from rn50.data.certification import certificate
from rn50.doctor.diagnosis import FAILURE, OK, WARNING, Diagnosis
from rn50.doctor.host import shown
from rn50.errors import UserError
from rn50.machine import software
from rn50.results import counted, sidecar
from rn50.results.parse import read_log
from rn50.results.validity.result_rules import differences, name_data_sets
from rn50.settings.config import Config
from rn50.settings.variables import UNNAMED_ORGANISATION

LEAST_SPACE = 100 << 20
"""Free space, in bytes, below which the doctor reports a failure. The logs of a campaign take only some
hundred kilobytes; but with less free space than this, something else is about to fill the disk."""


def diagnoses(result_file: pathlib.Path, config: Config) -> Iterator[Diagnosis]:
    """Yield the diagnoses of the folder of ``result_file``, the next result of the campaign of ``config``:
    free space, and whether the logs that are there already are of runs of this configuration that ended."""
    yield _free_space(result_file)
    logs = sorted(result_file.parent.glob("result_*.txt"))
    for file in logs:
        if fault := _fault(file):
            remedy = f"move {file} away, and the same command makes that run again"
            yield Diagnosis(FAILURE, "results", fault, remedy)
    yield from other_configuration(logs, config, "commit")


def other_configuration(logs: Sequence[pathlib.Path], config: Config, *more: str) -> Iterator[Diagnosis]:
    """Yield a failure if the runs with these ``logs``, all of one folder, differ from ``config`` in their
    data or in a variable that all runs of a campaign share, or from this code in ``more``, names of facts in
    their sidecar files. The data are compared by their certificates if all have one, else by their folder.
    """
    # Name of a run -> contents of its sidecar file.
    runs = {log.name: sidecar.read(log) for log in logs}
    env = config.as_environment()
    asked = {"variables": env, "commit": software.commit()}
    with contextlib.suppress(UserError):  # a run itself refuses a damaged certificate
        if certified := certificate.read(pathlib.Path(config.data.folder)):
            asked["data certificate"] = certified.content
    runs["the next run" if more else "this command"] = asked
    # A log without a sidecar file has no facts.
    facts = [
        counted.shared(run.get("variables", {}), env) | {name: run[name] for name in more if name in run}
        for run in runs.values()
    ]
    name_data_sets(facts, list(runs.values()), "DATADIR")
    if differences_in_words := differences(list(runs), facts):
        text = f"{logs[0].parent} has runs of another configuration: {differences_in_words}"
        remedy = "move them away, or set what they had; rn50 run -o or RESULTS names another folder"
        yield Diagnosis(FAILURE, "results", text, remedy)


def _fault(file: pathlib.Path) -> str | None:
    """Return the reason why an existing file is not the log of a run that ended; None: it is one."""
    try:
        log = read_log(file)
    except UserError as error:
        return f"{error.subject}: {error.problem}"
    if log.benchmark != rules.BENCHMARK:
        return f"{file}: is a log of {log.benchmark or 'no benchmark'}, not of {rules.BENCHMARK}"
    return f"{file}: its clock did not start, or never stopped" if log.minutes is None else None


def _free_space(result_file: pathlib.Path) -> Diagnosis:
    """Check the free space in the folder of ``result_file``, or, if it does not exist yet, in the innermost
    folder around it that exists."""
    folders = pathlib.Path(os.path.realpath(result_file)).parents
    folder = next(folder for folder in folders if os.path.exists(folder))
    free = shutil.disk_usage(str(folder)).free
    text = f"{shown(free)} free in {folder}"
    if free < LEAST_SPACE:
        return Diagnosis(FAILURE, "results", text, "make room there, or set RESULTS to a folder elsewhere")
    return Diagnosis(OK, "results", text)


def of_submission(config: Config | None, commit: str | None) -> Iterator[Diagnosis]:
    """Yield warnings of settings with which a run of ``config`` has no result, or a result that cannot be
    submitted.

    ``commit`` is the commit of this code, followed by "-dirty" if files differ from it; None: nobody knows
    it.
    """
    if config is not None and config.run.benchmark_steps is not None:
        text = f"an epoch ends after {config.run.benchmark_steps} steps, so the runs give no result"
        yield Diagnosis(WARNING, "BENCHMARK_STEPS", text, "unset it")
    if config is None or not config.is_imagenet:
        return
    if config.run.organisation == UNNAMED_ORGANISATION:
        text = "not set, so the logs name nobody and rn50 package refuses them"
        yield Diagnosis(WARNING, "SUBMISSION_ORG", text, "set SUBMISSION_ORG to the name of the submitter")
    if commit and not commit.endswith("-dirty"):
        yield Diagnosis(OK, "code", f"commit {commit}")
        return
    problem, remedy = "not in a git checkout", "run in a git checkout, or in an image of one (make image)"
    if commit:
        problem, remedy = "some changes are not committed", "commit them first"
    text = f"{problem}, so rn50 package cannot tell what ran and refuses the results"
    yield Diagnosis(WARNING, "code", text, remedy)
