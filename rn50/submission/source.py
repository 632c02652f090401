"""Code and scripts of a submission: the commit that ran, and how to run it again on one system.

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
"""Files for setup and runs, beside the folders. The pages of docs/ belong too, because README refers to
them."""


def find(result: OwnResult) -> tuple[str, str | None]:
    """Return the full hash of the commit that made a result, and why this checkout lacks its code, or
    None."""
    commit = result.first.get("commit")
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
    """Write the tracked files of a commit that belong to a submission to ``folder``."""
    status, archive, complaint = git(CHECKOUT, "archive", "--format=tar", commit)
    if status != 0:
        raise OSError(status, f"git archive: {complaint}")
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        kept = [member for member in tar.getmembers() if _belongs(pathlib.PurePosixPath(member.name))]
        safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        tar.extractall(str(folder), kept, **safely)


def _belongs(path: pathlib.PurePosixPath) -> bool:
    """Return whether a submission needs a tracked file. Names that begin with a dot are left out, because the
    repository checker refuses them."""
    if any(part.startswith(".") for part in path.parts):
        return False
    top = path.parts[0]
    return top in _FOLDERS or str(path) in _FILES or (top == "docs" and path.suffix == ".md")


def write_scripts(
    result: OwnResult, system: str, implementation: str, commit: str, folder: pathlib.Path
) -> None:
    """Write the files of one system: its configuration, setup and run scripts, and a page about them."""
    folder.mkdir(parents=True)
    saved, demo = result.first, result.score.label is not None
    of_all = {name: value for name, value in saved["config"]["run"].items() if name not in RUNS_OWN}
    metadata = {
        "implementation": implementation,
        "commit": commit,
        "config": {**saved["config"], "run": of_all},
        "environment": saved.get("environment", {}),
        "packages": saved.get("packages", {}),
        "python": saved.get("python"),
        "runs": {f"result_{number}.txt": log.path.name for number, log in enumerate(result.logs)},
    }
    described = json.dumps(metadata, indent=1, sort_keys=True) + "\n"
    files.write(folder / f"{system}_{implementation}.json", described)
    label = f" ({result.score.label})" if result.score.label else ""
    config_file = f"config_{system}.sh"
    files.write(folder / config_file, configuration(saved, f"{system}{label}"))
    configured = ("# shellcheck source=/dev/null", f'. "$here/{config_file}"')
    purpose = "Looks whether DATADIR holds the data set as the run reads it."
    refused = '{ echo "pack ImageNet as README.md says" >&2; exit 1; }'
    data = f'ls "$DATADIR"/{{train,val}}.{{rec,idx}} || {refused}'
    if demo:
        purpose, data = "Draws the demo data set.", '.venv/bin/rn50 demo-data "$DATADIR"'
    run = (exported("RN50_COMMIT", commit), f'CONFIG_FILE="$here/{config_file}" exec ./run_and_time.sh')
    for name, comment, lines in (
        ("setup.sh", "Installs the pinned packages into .venv.", _install(result)),
        ("init_datasets.sh", purpose, (*configured, data)),
        ("run_and_time.sh", "One timed run as it was submitted; RESULT_FILE names the log.", run),
    ):
        files.write(folder / name, _script(implementation, comment, lines))
        (folder / name).chmod(0o755)
    files.write(folder / "README.md", _readme(result, system, implementation, commit))


def _script(implementation: str, purpose: str, lines: tuple[str, ...]) -> str:
    set_here = 'here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)'
    body = [f'cd "$here/../{implementation}"', *lines]
    return "\n".join(("#!/usr/bin/env bash", f"# {purpose}", "set -euo pipefail", set_here, *body, ""))


def _install(result: OwnResult) -> tuple[str, ...]:
    framework, device = result.run.get("framework", ""), result.run.get("device", "")
    traits = frameworks.every().get(framework)
    if traits is None:  # a framework of another checkout
        return (f"requirements/install.sh {shlex.quote(f'{framework}-{device}')}",)
    packages = [*traits.requirements.get(device, ())]
    if traits.horovod and result.run.get("ranks_per_node", 1) * result.run.get("nodes", 1) > 1:
        packages += ["horovod-build", "horovod-nccl" if device == "gpu" else "horovod"]
    return tuple(f"requirements/install.sh {set_name}" for set_name in packages)


def configuration(saved: Mapping[str, Any], system: str, data: str = "/data") -> str:
    """Return a configuration file of the settings that runs share, of what rn50 saved beside one of them.
    DATADIR may be anywhere, by default in ``data``."""
    values, left_out = sidecar.variables(saved), sidecar.left_out(saved)
    lines = [exported(name, value) for name, value in values.items() if name != "DATADIR"]
    remarks = [f"Every variable of the runs of {system}, defaults included."]
    remarks += [f"Left out: {' '.join(left_out)}"] if left_out else []
    heading = [f"# {remark(text)}" for text in ("shellcheck shell=bash", *remarks)]
    return "\n".join([*heading, *lines, exported("DATADIR", data, overridable=True), ""])


def _readme(result: OwnResult, system: str, implementation: str, commit: str) -> str:
    score, demo = result.score, result.score.label
    chosen = ""
    if len(score.runs) > rules.RUNS:
        chosen = f"""
{len(score.runs)} runs were made. These {rules.RUNS} consecutive ones are the set whose score is the median of
all such sets."""
    data = "The data set is the demo's: `./init_datasets.sh` generates it."
    if not demo:
        data = f"""`DATADIR` holds ImageNet-1k as MXNet RecordIO: `train.rec`, `train.idx`, `val.rec`,
`val.idx`, the JPEG files of the {rules.TRAIN_SAMPLES:,} training and {rules.EVAL_SAMPLES:,} validation
images as they are, neither decoded nor resized, with labels 0 to 999."""
    shown = f"\n**{demo}**\n" if demo else ""
    return f"""# {system}: ResNet-50 v1.5
{shown}
The code is that of commit {commit}, in `../{implementation}`; its README describes it. The configuration is
`config_{system}.sh`, and `{system}_{implementation}.json` has it resolved, with the version of every package
and the names that the logs had.

    ./setup.sh
    DATADIR=/path/to/data ./init_datasets.sh
    DATADIR=/path/to/data RESULT_FILE=$PWD/result_0.txt ./run_and_time.sh

{data}

## The runs

Score: {score.olympic_minutes or 0:.4f} minutes, the mean of the middle {rules.RUNS - 2} of {rules.RUNS} runs.
`rn50 score` shows each run.{chosen}
"""
