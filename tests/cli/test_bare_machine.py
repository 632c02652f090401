"""On a machine without the packages that only some verbs need, every verb has help, and those of every room
work or say in one line what to install."""

import pathlib
import re
import subprocess
import sys
import sysconfig
import venv

import numpy as np
import pytest

from rn50 import packages
from rn50.benchmark import network
from rn50.cli.group import report
from rn50.errors import Status, UserError
from rn50.files import ROOT
from rn50.settings import named
from rn50.weights import weights_file
from tests.results.scored import write_runs
from tests.support import image_tree

MISSING = re.compile("mlperf_logging|nvidia|onnx|mxnet|horovod|torchvision|inotify_simple|hypothesis")
CHECKERS, FRAMEWORK = "pip install mlperf-logging==4.1.68", "requirements/install.sh mxnet-cpu"
DEPLOY = "requirements/install.sh deploy"
ROOMS = {
    "cli/data": ("pack {folder}/images {folder}/packed_again", None),
    "doctor": ("doctor DEMO_CPU", FRAMEWORK), "hyperparameters": ("plan --accelerators 8", CHECKERS),
    "results": ("score {folder}/runs", CHECKERS),
    "speed": ("bench input DEMO_CPU --set NUMEXAMPLES=64 --set NUMVALEXAMPLES=16", FRAMEWORK),
    "submission": ("package {folder}/runs -o {folder}/package", ""),
    "deploy": ("export {folder}/weights.safetensors -o {folder}/model.onnx", DEPLOY)}
"""Room of rn50 -> what is typed, and what the line names where it cannot work; None where it works; "" where
more is missing. The verbs of a room ask for its packages in one place."""


def test_without_any_package_the_line_names_the_first():
    done = subprocess.run(
        [sys.executable, "-S", "-m", "rn50", "--help"], cwd=str(ROOT), capture_output=True, text=True)
    line = (
        f"rn50: the command line: the package click is not installed; {sys.executable} -m pip install "
        f"{packages.pinned('click')}\n")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)


def python_without(missing, folder):
    """Return a Python with the packages of this one but those that ``missing`` matches."""
    ours = sysconfig.get_paths()
    venv.create(folder, symlinks=True)
    theirs = pathlib.Path(sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})["purelib"])
    for place in {pathlib.Path(ours["purelib"]), pathlib.Path(ours["platlib"])}:
        for entry in place.iterdir():
            if not missing.match(entry.name) and entry.suffix != ".pth":
                (theirs / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A Python without the packages of ``MISSING``."""
    return python_without(MISSING, tmp_path_factory.mktemp("venv"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory, tiny_folder, python):
    """Runs a verb with that Python, on images, a data set, weights, and the logs of a result."""
    folder = tmp_path_factory.mktemp("bare")
    image_tree.make(folder / "images")
    write_runs(folder / "runs", 100, 101, 102, 103, 104)
    facts = {"classes": "10", "width": "0.25", "image_size": "48", "eval_resize": "56"}
    arrays = {name: np.zeros(shape, np.float32) for name, shape in network.shapes(10, 0.25).items()}
    weights_file.write(folder / "weights.safetensors", weights_file.Weights(arrays, facts))
    environ = {**named.read("DEMO_CPU").environ(), "DATADIR": str(tiny_folder)}
    for name in ("PYTHONPATH", "RESULTS", "RESULT_FILE"):
        environ.pop(name, None)

    def run(*arguments):
        given = (each.format(folder=folder) for each in arguments)
        return subprocess.run(
            (str(python), "-m", "rn50", *given), cwd=str(ROOT), env=environ, capture_output=True, text=True,
            timeout=300)

    return run


IN_SHORT = pytest.mark.smoke("Python without packages")


@pytest.mark.parametrize(
    "room", [pytest.param(each, marks=IN_SHORT if each == "results" else ()) for each in ROOMS])
def test_it_works_or_says_what_to_install(bare, room):
    typed, install = ROOMS[room]
    done = bare(*typed.split())
    told = done.stdout + done.stderr
    assert "Traceback" not in told and "ModuleNotFoundError" not in told, told
    if install is None:
        assert done.returncode == 0, told
    else:
        assert done.returncode in (1, 2), told
        assert [line for line in told.splitlines() if install in line and line.partition(": ")[2]], told


def test_a_frameworks_engine_times_weights_without_onnx(bare):
    pytest.importorskip("torch")
    load = ["--batch-sizes", "1", "--cores", "1", "--seconds", "0.01", "--rounds", "1"]
    done = bare("bench", "inference", "{folder}/weights.safetensors", "--engines", "pytorch-eager", *load)
    assert done.returncode == 0 and "weights.safetensors pytorch-eager float32: latency" in done.stdout, done
    done = bare("bench", "inference", "{folder}/weights.safetensors", *load)
    assert done.returncode == 2 and DEPLOY in done.stderr and "Traceback" not in done.stderr, done


EVERY_HELP = """
import click
from click.testing import CliRunner
from rn50.cli import main

def verbs(group, path=()):
    yield path
    for name, command in group.commands.items():
        yield from verbs(command, (*path, name)) if isinstance(command, click.Group) else [(*path, name)]

for words in verbs(main):
    print(" ".join(words), CliRunner().invoke(main, [*words, "--help"]).output.startswith("Usage: "))
"""
"""Prints of every verb whether it has help."""


@IN_SHORT
def test_help_of_every_verb(python):
    done = subprocess.run((str(python), "-c", EVERY_HELP), cwd=str(ROOT), capture_output=True, text=True)
    told = [line.rpartition(" ") for line in done.stdout.splitlines()]
    assert len(told) > 30 and {help for _, _, help in told} == {"True"}, done.stdout + done.stderr


def test_without_pytest_the_tests_for_a_gpu_end_with_the_line_that_installs_it():
    done = subprocess.run(
        [sys.executable, "-S", "-m", "tests.support.gpu"], cwd=str(ROOT), capture_output=True, text=True)
    line = f"test-gpu: the package pytest is not installed; {sys.executable} -m pip install pytest\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", line)


def test_the_tests_for_a_gpu_are_found(tmp_path):
    missing = re.compile(f"{MISSING.pattern}|matplotlib|safetensors|pytest_timeout|pytest_xdist|xdist")
    python = python_without(missing, tmp_path / "venv")
    command = (str(python), "-m", "pytest", "-m", "gpu", "--collect-only", "-q", "-p", "no:cacheprovider")
    done = subprocess.run(command, cwd=str(ROOT), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "ERROR" not in done.stdout, done.stdout + done.stderr
    assert "test_augmentation.py::" in done.stdout and "needs mlperf_logging" in done.stdout
    assert "needs matplotlib" in done.stdout and "needs safetensors" in done.stdout


def test_a_package_that_is_missing_is_named_with_the_command():
    with pytest.raises(UserError) as refused, packages.needed_for("rn50 dance"):
        import no_such_package.steps  # type: ignore[import-not-found]  # noqa: F401
    assert str(refused.value) == (
        f"rn50 dance: the package no-such-package is not installed; {sys.executable} -m pip install "
        "no-such-package")
    assert packages.install("mlperf-logging").endswith(" mlperf-logging==4.1.68")


def test_any_package_that_is_ours_to_install_is_a_line(capsys):
    missing = ModuleNotFoundError("No module named 'jinja2'", name="jinja2")
    assert report(missing) == Status.USER_ERROR
    assert (
        capsys.readouterr().err
        == f"rn50: the package jinja2 is not installed; {sys.executable} -m pip install "
        f"{packages.pinned('jinja2')}\n")
    assert report(ModuleNotFoundError("No module named 'cv2'", name="cv2")) == Status.USER_ERROR
    assert capsys.readouterr().err.endswith(
        f"{sys.executable} -m pip install {packages.pinned('opencv-python-headless')}\n")
    assert report(ModuleNotFoundError("No module named 'rn50.x'", name="rn50.x")) == Status.FAULT
