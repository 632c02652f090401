"""No verb runs Python files of the working folder: a stranger may name some as Python's modules or ours."""

import pathlib
import re
import sys

import pytest

from rn50 import process
from rn50.weights import weights_file
from tests.support import campaigns, image_tree
from tests.support.typed import ROOT, assert_well, in_pipe

RN50 = str(pathlib.Path(sys.executable).parent / "rn50")
PLANTED = ("json", "logging", "multiprocessing", "numpy", "pickle", "runpy", "subprocess", "yaml")
MEASURE = ("--seconds", "1", "--rounds", "1")
VERBS = {
    "check": ("{campaign}", "--ruleset", "4.0.0"),
    "report": ("{campaign}", "--ruleset", "4.0.0", "-o", "report.html"),
    "plan": ("--curve", "--plot", "plan.svg"), "pack": ("{images}", "out", "--workers", "2"), "launch": (),
    "evaluate": ("{weights}",), "bench comm": ("--largest-mib", "1"), "bench input": MEASURE,
    "bench throughput": (*MEASURE, "-o", "rates"), "profile": (*MEASURE, "--steps", "2", "-o", "profile")}
"""Those that start further processes of Python or draw, and what is typed behind them."""
IN_SHORT = pytest.mark.smoke("Python reads the folder as it starts")


@pytest.fixture
def folder(tmp_path):
    """Files that say that they ran, and the folder of a clone beside them."""
    ran = tmp_path / "ran"
    here = tmp_path / "submission"
    for package in ("rn50", "implementations", "mlperf_logging"):
        (here / package).mkdir(parents=True)
    for file in (*(f"{name}.py" for name in PLANTED), "rn50/__init__.py", "mlperf_logging/__init__.py"):
        (here / file).write_text(f"open({str(ran)!r}, 'a').write({file!r})\n")
    (here / "matplotlibrc").write_text("text.usetex: True\n")  # to draw it would start LaTeX
    return here


def given(tmp_path, tiny_environment, argument):
    """An argument, and what it stands for."""
    if argument == "{campaign}":
        return campaigns.make(tmp_path / "results", "0" * 40, {})
    if argument == "{images}":
        (tmp_path / "images").mkdir()
        image_tree.make(tmp_path / "images")
        return tmp_path / "images"
    if argument == "{weights}":
        log = tmp_path / "result_0.txt"
        values = {**tiny_environment, "SAVE_WEIGHTS": "1", "RESULT_FILE": str(log)}
        assert_well(in_pipe([RN50, "launch"], **values), {3})
        return weights_file.path(log)
    return argument


@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=IN_SHORT if verb in ("check", "pack") else ()) for verb in VERBS])
def test_nothing_of_it_runs(verb, folder, tmp_path, tiny_environment):
    arguments = [given(tmp_path, tiny_environment, each) for each in VERBS[verb]]
    values = {**tiny_environment, "DGXNGPU": "2" if verb in ("launch", "bench comm") else "1"}
    shown = in_pipe([RN50, *verb.split(), *arguments], cwd=folder, **values)
    assert_well(shown, {3} if verb == "launch" else {0})
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()


@pytest.mark.smoke("starts nothing")
def test_one_place_starts_python():
    starts = re.compile(r"\[\s*sys\.executable|\(\s*sys\.executable, \"-|os\.spawn|runpy\.")
    files = {
        file.relative_to(ROOT).as_posix() for package in ("rn50", "implementations")
        for file in (ROOT / package).rglob("*.py") if starts.search(file.read_text())}
    forks = "rn50/results/validity/checkers.py"  # of a Python that process.py started
    assert files == {"rn50/process.py", forks}


@IN_SHORT
def test_python_3_10_has_no_option_for_it(folder, monkeypatch, tmp_path):
    """It removes the folder from the path itself, for a module and for code."""
    monkeypatch.setattr(sys, "version_info", (3, 10))
    for command in (
        process.python("-m", "json.tool", "--help"),
        process.python("-c", "import json, sys; print(sys.argv[1], 'usage')", "usage: python -m json.tool"),
    ):
        shown = in_pipe(command, cwd=folder)
        assert shown.status == 0 and "usage: " in shown.text and "json.tool" in shown.text
    assert not (tmp_path / "ran").exists()
