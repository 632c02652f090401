"""Write the code and the scripts of a submission: the code of the commit that ran (``find``, ``export``), and
for one system its configuration, scripts and README (``write_scripts``).

Layout: MLPerf submission rules, section "Directory structure", Training.
"""

import io
import json
import pathlib
import shlex
import tarfile
from collections.abc import Mapping
from typing import Any

from rn50 import files, frameworks
from rn50.benchmark import rules
from rn50.machine.software import git
from rn50.results import sidecar
from rn50.settings.fields import RUNS_OWN
from rn50.settings.writing import exported, remark
from rn50.submission.own_results import OwnResult

CHECKOUT = files.ROOT
_FOLDERS = ("configs", "implementations", "requirements", "rn50")
_FILES: tuple[str, ...] = ("run_and_time.sh", "run_experiments.sh", "run_with_docker.sh", "run.sub")
_FILES += ("Dockerfile", "Makefile", "pyproject.toml", "LICENSE", "README.md")
"""Tracked files outside of ``_FOLDERS`` that belong to a submission, for setup and runs. The pages of docs/
also belong to it, because README.md refers to them."""


def find(result: OwnResult) -> tuple[str, str | None]:
    """Return (full hash of the commit that made a result, None). If the code of the result cannot be had
    here, return ("", the problem and its remedy)."""
    commit = result.first_saved.get("commit")
    if not commit:
        remedy = "make the runs in a git checkout, or in an image of one (make image)"
        return "", f"{result.folder}: nobody knows which commit made it; {remedy}"
    if commit.endswith("-dirty"):
        problem = f"made with changes that were not committed ({commit}), so the code that ran cannot be"
        return "", f"{result.folder}: {problem} submitted; commit and make the runs again"
    status, printed, complaint = git(CHECKOUT, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    if status != 0:
        problem = f"its commit {commit} is not in {CHECKOUT}{f' ({complaint})' if complaint else ''}"
        remedy = "git fetch it, or package in the checkout that made the runs"
        return "", f"{result.folder}: {problem}; {remedy}"
    return printed.decode().strip(), None


def export(commit: str, folder: pathlib.Path) -> None:
    """Write the tracked files of a commit that belong to a submission into the new ``folder``."""
    status, archive, complaint = git(CHECKOUT, "archive", "--format=tar", commit)
    if status != 0:
        raise OSError(status, f"git archive: {complaint}")
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        members = [member for member in tar.getmembers() if _belongs(pathlib.PurePosixPath(member.name))]
        # Older releases of Python 3.10 and 3.11 have no filter.
        options: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        tar.extractall(str(folder), members, **options)


def _belongs(path: pathlib.PurePosixPath) -> bool:
    """Return whether a tracked file belongs to a submission. Names that begin with a dot do not, because the
    repository checker refuses them."""
    if any(part.startswith(".") for part in path.parts):
        return False
    top = path.parts[0]
    return top in _FOLDERS or str(path) in _FILES or (top == "docs" and path.suffix == ".md")


def write_scripts(result: OwnResult, system: str, code: str, commit: str, folder: pathlib.Path) -> None:
    """Write the files of one ``system`` into the new ``folder``: the configuration of ``result``, scripts
    that set up, prepare data and run, and a README. The scripts expect the code of ``commit`` beside
    ``folder``, in a folder whose name is ``code``."""
    folder.mkdir(parents=True)
    saved = result.first_saved
    shared_by_runs = {name: value for name, value in saved["config"]["run"].items() if name not in RUNS_OWN}
    metadata = {
        "implementation": code,
        "commit": commit,
        "config": {**saved["config"], "run": shared_by_runs},
        "environment": saved.get("environment", {}),
        "packages": saved.get("packages", {}),
        "python": saved.get("python"),
        # Name of each log in the package -> its name before.
        "runs": {f"result_{number}.txt": log.path.name for number, log in enumerate(result.logs)},
    }
    files.write(folder / f"{system}_{code}.json", json.dumps(metadata, indent=1, sort_keys=True) + "\n")
    label = f" ({result.score.label})" if result.score.label else ""
    config_file = f"config_{system}.sh"
    files.write(folder / config_file, configuration(saved, f"{system}{label}"))
    read_configuration = ("# shellcheck source=/dev/null", f'. "$here/{config_file}"')
    data_purpose = "Looks whether DATADIR holds the data set as the run reads it."
    refuse = '{ echo "pack ImageNet as README.md says" >&2; exit 1; }'
    prepare_data = f'ls "$DATADIR"/{{train,val}}.{{rec,idx}} || {refuse}'
    if result.score.label is not None:
        data_purpose = "Draws the demo data set."
        prepare_data = '.venv/bin/rn50 demo-data "$DATADIR"'
    # The packaged code is no checkout, which would tell a run its commit.
    run = (exported("RN50_COMMIT", commit), f'CONFIG_FILE="$here/{config_file}" exec ./run_and_time.sh')
    for name, purpose, lines in (
        ("setup.sh", "Installs the pinned packages into .venv.", _install(result)),
        ("init_datasets.sh", data_purpose, (*read_configuration, prepare_data)),
        ("run_and_time.sh", "One timed run as it was submitted; RESULT_FILE names the log.", run),
    ):
        files.write(folder / name, _script(code, purpose, lines))
        (folder / name).chmod(0o755)
    files.write(folder / "README.md", _readme(result, system, code, commit))


def _script(code: str, purpose: str, lines: tuple[str, ...]) -> str:
    """Return a bash script that runs ``lines`` in the folder ``code``, with ``purpose`` as its comment."""
    set_here = 'here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)'
    body = [f'cd "$here/../{code}"', *lines]
    return "\n".join(("#!/usr/bin/env bash", f"# {purpose}", "set -euo pipefail", set_here, *body, ""))


def _install(result: OwnResult) -> tuple[str, ...]:
    """Return the commands that install the sets of ``requirements/`` which the runs of a result need."""
    framework, device = result.run.get("framework", ""), result.run.get("device", "")
    traits = frameworks.every().get(framework)
    if traits is None:  # a framework of another checkout
        return (f"requirements/install.sh {shlex.quote(f'{framework}-{device}')}",)
    sets = [*traits.requirements.get(device, ())]
    if traits.horovod and result.run.get("ranks_per_node", 1) * result.run.get("nodes", 1) > 1:
        sets += ["horovod-build", "horovod-nccl" if device == "gpu" else "horovod"]
    return tuple(f"requirements/install.sh {set_name}" for set_name in sets)


def configuration(saved: Mapping[str, Any], system: str, data: str = "/data") -> str:
    """Return a configuration file for the runs of ``system``, from the sidecar contents ``saved`` of one run.
    It has the variables that all its runs share. DATADIR is ``data`` unless the environment sets it."""
    values, left_out = sidecar.variables(saved), sidecar.left_out(saved)
    lines = [exported(name, value) for name, value in values.items() if name != "DATADIR"]
    remarks = [f"Every variable of the runs of {system}, defaults included."]
    remarks += [f"Left out: {' '.join(left_out)}"] if left_out else []
    heading = [f"# {remark(text)}" for text in ("shellcheck shell=bash", *remarks)]
    return "\n".join([*heading, *lines, exported("DATADIR", data, overridable=True), ""])


def _readme(result: OwnResult, system: str, code: str, commit: str) -> str:
    """Return the README of one system; arguments as for ``write_scripts``."""
    score, label = result.score, result.score.label
    selection = ""
    if len(score.runs) > rules.RUNS:
        selection = f"""
{len(score.runs)} runs were made. These {rules.RUNS} consecutive ones are the set whose score is the median of
all such sets."""
    data = "The data set is the demo's: `./init_datasets.sh` generates it."
    if not label:
        data = f"""`DATADIR` holds ImageNet-1k as MXNet RecordIO: `train.rec`, `train.idx`, `val.rec`,
`val.idx`, the JPEG files of the {rules.TRAIN_SAMPLES:,} training and {rules.EVAL_SAMPLES:,} validation
images as they are, neither decoded nor resized, with labels 0 to 999."""
    warning = f"\n**{label}**\n" if label else ""
    return f"""# {system}: ResNet-50 v1.5
{warning}
The code is that of commit {commit}, in `../{code}`; its README describes it. The configuration is
`config_{system}.sh`, and `{system}_{code}.json` has it resolved, with the version of every package
and the names that the logs had.

    ./setup.sh
    DATADIR=/path/to/data ./init_datasets.sh
    DATADIR=/path/to/data RESULT_FILE=$PWD/result_0.txt ./run_and_time.sh

{data}

## The runs

Score: {score.olympic_minutes or 0:.4f} minutes, the mean of the middle {rules.RUNS - 2} of {rules.RUNS} runs.
`rn50 score` shows each run.{selection}
"""
