"""``action.yml`` as GitHub's runner runs it: expressions filled in, each step a script of bash.

The environment of the tests stands in for what the step "Install" would install: that step runs with a Python
that makes no environment and downloads nothing, and notes what it was asked for.

Processes: GitHub's runner calls bash.
"""

import os
import re
import shlex
import subprocess
import sys

import pytest
import yaml

from rn50.files import ROOT
from tests.results.mutations import change
from tests.results.scored import write_runs

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STAND_IN = """#!/bin/bash
if [ "$1 $2 $3" = "-I -m venv" ]; then mkdir -p "$4/bin" && cp "$0" "$4/bin/python"; exit; fi
if [ "$1 $2 $3" = "-I -m pip" ]; then echo "$@" >>{notes}; exit; fi
if [ "$1" = -c ]; then echo "3.11 yes $0"; exit; fi
exec {python} "$@"
"""


@pytest.fixture
def workspace(tmp_path):
    """A repository with a result that breaks a rule, and one that does not."""
    write_runs(tmp_path / "work space" / "results" / "good one", 100, 101, 103, 106, 110)
    write_runs(tmp_path / "work space" / "results" / "bad", 120, 121, 123, 126, 130)
    file = tmp_path / "work space" / "results" / "bad" / "result_2.txt"
    file.write_text(change("lars_opt_weight_decay", value=3e-5)(file.read_text()))
    return tmp_path / "work space"


def act(workspace, **given):
    """Runs the steps up to the first that fails; returns its status, and what all wrote."""
    temporary = workspace.parent / "temporary"
    python = workspace.parent / "python"
    notes = workspace.parent / "notes"
    python.write_text(STAND_IN.format(notes=shlex.quote(str(notes)), python=shlex.quote(sys.executable)))
    python.chmod(0o755)
    inputs = {name: given.get(name, about.get("default")) for name, about in ACTION["inputs"].items()}
    assert None not in inputs.values() and set(given) <= set(inputs)
    values = {f"inputs.{name}": value for name, value in inputs.items()} | {"github.action_path": str(ROOT)}

    def filled(text):
        return re.sub(r"\$\{\{ *([\w.]+) *\}\}", lambda match: values[match[1]], text)

    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}, "CI": "true",
        "GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(workspace), "GITHUB_ACTION_PATH": str(ROOT),
        "RUNNER_TEMP": str(temporary), "PYTHON": str(python)}
    temporary.mkdir(exist_ok=True)
    written = ""
    for number, step in enumerate(ACTION["runs"]["steps"]):
        assert (
            step["shell"] == "bash" and "${{" not in step["run"]
        )  # an expression in a script is run as code
        script = temporary / f"step_{number}.sh"
        script.write_text(step["run"])
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)], cwd=str(workspace),
            env={**environment, **{name: filled(text) for name, text in step["env"].items()}},
            capture_output=True, text=True)
        written += done.stdout
        if done.returncode:
            return done.returncode, written, done.stderr
    return 0, written, done.stderr


def test_it_is_a_composite_action_that_github_takes():
    assert ACTION["runs"]["using"] == "composite" and {"name", "description"} <= set(ACTION)
    assert [name for name, about in ACTION["inputs"].items() if about.get("required")] == ["path"]


def test_lines_are_annotated_and_the_step_fails(workspace):
    status, written, said = act(workspace, path="results", ruleset="4.0.0")
    assert status == 1, said
    assert "::error file=results/bad/result_2.txt,line=" in written
    assert "not everything holds" in written and "results/good" not in written
    installed = (workspace.parent / "notes").read_text()
    assert "--require-hashes" in installed and f"-r {ROOT}/requirements/rn50.txt" in installed


def test_a_good_result_passes(workspace):
    status, written, said = act(workspace, path="results/good one", ruleset="4.0.0")
    assert (status, written) == (0, "everything holds (0 errors, 0 warnings)\n"), said


def test_several_paths_and_a_file(workspace):
    inputs = {
        "path": "results/good*\nresults/bad\n", "ruleset": "4.0.0", "format": "sarif", "output": "x.sarif"}
    status, written, _ = act(workspace, **inputs)
    assert (status, written) == (1, "") and '"startLine"' in (workspace / "x.sarif").read_text()


@pytest.mark.parametrize("form", ("text", "sarif", "github"))
def test_only_annotations_are_commands_of_the_job(workspace, form):
    status, written, said = act(workspace, path="results/good one", ruleset="4.0.0", format=form)
    fence = re.fullmatch(r"::stop-commands::(\w{32,})\n(.*)::\1::\n", written, re.DOTALL)
    assert status == 0 and bool(fence) == (form != "github"), said


@pytest.mark.parametrize(
    "output, says",
    [("results/good one/result_2.txt", "output: a result log; name another file"),
     ("results", "cannot overwrite directory"), ("nowhere/x", "No such file")])
def test_an_output_in_place_of_something_else_is_refused(workspace, output, says):
    before = {file: file.is_file() and file.read_text() for file in workspace.rglob("*")}
    status, written, said = act(workspace, path="results/good one", ruleset="4.0.0", output=output)
    assert (status, written) == (2, "") and says in said
    assert {file: file.is_file() and file.read_text() for file in workspace.rglob("*")} == before


@pytest.mark.parametrize("output", ("-f", "-", "--help"))
def test_the_name_of_an_output_is_no_option(workspace, output):
    for _ in range(2):
        status, written, said = act(
            workspace, path="results/bad", ruleset="4.0.0", format="text", output=output)
        assert (status, written) == (1, "") and "not everything holds" in (workspace / output).read_text(), (
            said)


def test_what_cannot_be_checked_writes_no_file(workspace):
    status, _, said = act(workspace, path="nowhere", format="sarif", output="x.sarif")
    assert status == 2 and "no such file or folder" in said and not (workspace / "x.sarif").exists()


def test_an_input_is_never_a_command(workspace):
    status, written, said = act(
        workspace, path="$(touch hacked)`touch hacked`; touch hacked", ruleset="4.0.0")
    assert status == 2 and "no such file or folder" in said and not (workspace / "hacked").exists()


def test_no_file_of_the_repository_is_imported(workspace):
    for name in ("json", "click", "runpy", "rn50", "ssl", "venv", "pip"):
        (workspace / f"{name}.py").write_text("open('hacked', 'w')")
    status, written, said = act(workspace, path="results/good one", ruleset="4.0.0")
    assert (status, written) == (0, "everything holds (0 errors, 0 warnings)\n"), said
    assert not (workspace / "hacked").exists()
