"""A third framework takes a folder alone: every verb knows the toy of tests/toy, and not a line of rn50/
names it.

Processes: a framework is found as a rank starts.
"""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from rn50.files import ROOT
from rn50.results import parse
from tests.support.campaigns import change, packaged


@pytest.fixture
def rn50(tiny_environment, tmp_path):
    """Runs a verb with FRAMEWORK=toy; returns its standard output."""

    def run(*arguments, status=0, **variables):
        own = {
            "FRAMEWORK": "toy", "PYTHONPATH": str(ROOT / "tests" / "toy"),
            "RESULT_FILE": str(tmp_path / "result_0.txt")}
        environment = {**os.environ, **tiny_environment, **own, **variables}
        done = subprocess.run(
            [sys.executable, "-m", "rn50", *arguments], env=environment, cwd=str(ROOT), capture_output=True,
            text=True, timeout=300)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    return run


def test_rn50_does_not_name_it():
    assert not [
        path for path in (ROOT / "rn50").rglob("*.py")
        if re.search(r"\btoy\b", path.read_text(), re.IGNORECASE)]


def test_it_trains_and_its_log_is_scored(rn50, tmp_path):
    rn50("train", status=3)  # a linear classifier misses the target
    stop = parse.read_log(tmp_path / "result_0.txt").events[-1]
    assert (stop.key, stop.metadata["status"]) == ("run_stop", "aborted")


def test_a_teardown_that_aborts_does_not_spoil_a_result(rn50, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n" "class Native:\n" "    def __del__(self, abort=os.abort):\n" "        abort()\n"
        "sys.native_library = Native()\n")
    rn50("train", status=3, PYTHONPATH=os.pathsep.join((str(tmp_path), str(ROOT / "tests" / "toy"))))


def test_the_doctor_and_config_show_list_it(rn50, tiny_environment, tmp_path):
    file = tmp_path / "config_TOY.sh"
    lines = [
        f"export {name}={shlex.quote(value)}"
        for name, value in {**tiny_environment, "FRAMEWORK": "toy"}.items()]
    file.write_text("\n".join((*lines, "export DGXSYSTEM=TOY", "")))
    found = rn50("doctor", CONFIG_FILE=str(file), DGXSYSTEM="TOY")
    assert re.search(r"packages.*numpy", found)
    assert re.search(r"FRAMEWORK\W+toy\b", rn50("config", "show", str(file)))


@pytest.mark.slow
def test_its_throughput_and_profile_are_measured(rn50, tmp_path):
    matrix = ("--frameworks", "toy", "--ranks", "1,2", "--seconds", "1", "--rounds", "1")
    rn50("bench", "throughput", *matrix, "-o", str(tmp_path / "t"))
    cells = json.loads((tmp_path / "t" / "cells.json").read_text())["cells"]
    assert [(each["framework"], each["ranks"], each["failure"]) for each in cells] == [
        ("toy", 1, ""), ("toy", 2, "")]
    assert all(
        each["images_per_second"][kind]["median"] > 0 for each in cells for kind in ("synthetic", "real"))
    shown = rn50("profile", "--seconds", "1", "--rounds", "1", "--steps", "3", "-o", str(tmp_path / "p"))
    assert re.search(r"linear\b.* 1 ", shown) and "of the operators linear takes most" in shown


def test_its_results_are_packaged(results, checkout, tmp_path):
    for log in sorted(results.glob("result_*.txt")):
        saved = json.loads(log.with_suffix(".json").read_text())
        saved["config"]["run"].update(framework="toy", device="cpu")
        saved["variables"].update(FRAMEWORK="toy", DEVICE="cpu")
        change(log, config=saved["config"], variables=saved["variables"])
    outcome = packaged(results, tmp_path / "to", checkout)
    assert outcome.written
    (script,) = (tmp_path / "to").rglob("setup.sh")
    assert "requirements/install.sh mxnet-cpu" in script.read_text()
