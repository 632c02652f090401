"""On a machine without the packages that only some verbs need, every verb works, or says in one line what to
install."""

import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import venv

import click
import numpy as np
import pytest

from rn50 import packages
from rn50.benchmark import network
from rn50.cli import main
from rn50.cli.group import report
from rn50.errors import Status, UserError
from rn50.files import ROOT
from rn50.results import weights
from rn50.settings.config import environment_of
from tests.results.scored import write_runs
from tests.support import image_tree

MISSING = re.compile("mlperf_logging|nvidia|onnx|mxnet|horovod|torchvision|optuna|inotify_simple|hypothesis")
CHECKERS, FRAMEWORK = "pip install mlperf-logging==4.1.68", "requirements/install.sh mxnet-cpu"
DEPLOY = "requirements/install.sh deploy"
VERBS = {
    "doctor": ("DEMO_CPU", FRAMEWORK),
    "config show": ("DEMO_CPU", None),
    "config new": ("MINE -o {folder}/mine.sh", None),
    "demo-data": ("{folder}/demo", None),
    "pack": ("{folder}/images {folder}/packed_again", None),
    "unpack": ("{folder}/packed {folder}/unpacked", None),
    "verify": ("{folder}/packed", None),
    "run": (
        "DEMO_CPU --follow -o {folder}/runs",
        None,
    ),  # its scripts take .venv, if there is one, and call launch and summary
    "watch": ("{folder}/runs --json", None),
    "bench storage": ("{folder}/packed --seconds 1 --rounds 1", None),
    "bench input": ("DEMO_CPU", FRAMEWORK),
    "bench comm": ("{folder}/two_ranks.sh", FRAMEWORK),
    "bench throughput": ("DEMO_CPU", FRAMEWORK),
    "tune input": ("DEMO_CPU", FRAMEWORK),
    "profile": ("DEMO_CPU -o {folder}/profile", FRAMEWORK),
    "plan": ("--accelerators 8", CHECKERS),
    "borrow": ("v1.0/Inspur/nf5688m6_mxnet DEMO_CPU", None),
    "search": ("DEMO_CPU -o {folder}/search", f"pip install {packages.pinned('optuna')}"),
    "score": ("{folder}/runs", CHECKERS),
    "check": ("{folder}/runs", CHECKERS),
    "report": ("{folder}/runs -o {folder}/report.html", CHECKERS),
    "compare": ("{folder}/runs {folder}/others", CHECKERS),
    "package": ("{folder}/runs -o {folder}/package", ""),
    "bench inference": ("{folder}/weights.safetensors", DEPLOY),
    "evaluate": ("{folder}/weights.safetensors DEMO_CPU", FRAMEWORK),
    "export": ("{folder}/weights.safetensors -o {folder}/model.onnx", DEPLOY),
    "quantize": ("{folder}/model.onnx DEMO_CPU -o {folder}/int8.onnx", DEPLOY),
    "launch": ("", CHECKERS),
    "train": ("", CHECKERS),
    "summary": ("{folder}/runs --system=DEMO_CPU", CHECKERS),
}
"""Verb -> its arguments, and what the line names where it cannot work; None where it works; "" where more is
missing."""


def verbs(group, path=""):
    for name, command in group.commands.items():
        yield from verbs(command, f"{path}{name} ") if isinstance(command, click.Group) else [path + name]


def test_without_any_package_the_line_names_the_first():
    done = subprocess.run(
        [sys.executable, "-S", "-m", "rn50", "--help"], cwd=str(ROOT), capture_output=True, text=True
    )
    line = (
        f"rn50: the command line: the package click is not installed; {sys.executable} -m pip install "
        f"{packages.pinned('click')}\n"
    )
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
    """Runs a verb with that Python, on images, a data set, and the logs of two results."""
    folder = tmp_path_factory.mktemp("bare")
    image_tree.make(folder / "images")
    (folder / "packed").symlink_to(tiny_folder)
    configuration = (ROOT / "configs" / "config_DEMO_CPU.sh").read_text()
    (folder / "two_ranks.sh").write_text(f"{configuration}\nexport DGXNGPU=2\n")
    for name in ("runs", "others"):
        write_runs(folder / name, 100, 101, 102, 103, 104)
    facts = {"classes": "10", "width": "0.25", "image_size": "48", "eval_resize": "56"}
    arrays = {name: np.zeros(shape, np.float32) for name, shape in network.shapes(10, 0.25).items()}
    weights.write(folder / "weights.safetensors", weights.Weights(arrays, facts))
    environ = {**environment_of("DEMO_CPU", os.environ), "DATADIR": str(tiny_folder)}
    for name in ("PYTHONPATH", "RESULTS", "RESULT_FILE"):
        environ.pop(name, None)

    def run(*arguments):
        given = (each.format(folder=folder) for each in arguments)
        return subprocess.run(
            (str(python), "-m", "rn50", *given),
            cwd=str(ROOT),
            env=environ,
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


def test_every_verb_is_tried():
    assert set(VERBS) == set(verbs(main))


@pytest.mark.parametrize("verb", VERBS)
def test_it_works_or_says_what_to_install(bare, verb):
    arguments, install = VERBS[verb]
    done = bare(*verb.split(), *arguments.split())
    told = done.stdout + done.stderr
    assert "Traceback" not in told and "ModuleNotFoundError" not in told, told
    if install is None:
        assert done.returncode == 0, told
    else:
        assert done.returncode in (1, 2), told
        assert [line for line in told.splitlines() if install in line and line.partition(": ")[2]], told


def test_help(bare):
    for arguments in ([], *map(str.split, VERBS)):
        done = bare(*arguments, "--help")
        assert done.returncode == 0 and done.stdout.startswith("Usage: "), done.stderr


def test_without_pytest_the_tests_for_a_gpu_end_with_the_line_that_installs_it():
    done = subprocess.run(
        [sys.executable, "-S", "-m", "tests.support.gpu"], cwd=str(ROOT), capture_output=True, text=True
    )
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
        import no_such_package.steps  # noqa: F401
    assert str(refused.value) == (
        f"rn50 dance: the package no-such-package is not installed; {sys.executable} -m pip install "
        "no-such-package"
    )
    assert packages.install("mlperf-logging").endswith(" mlperf-logging==4.1.68")


def test_any_package_that_is_ours_to_install_is_a_line(capsys):
    missing = ModuleNotFoundError("No module named 'jinja2'", name="jinja2")
    assert report(missing) == Status.USER_ERROR
    assert (
        capsys.readouterr().err
        == f"rn50: the package jinja2 is not installed; {sys.executable} -m pip install "
        f"{packages.pinned('jinja2')}\n"
    )
    assert report(ModuleNotFoundError("No module named 'cv2'", name="cv2")) == Status.USER_ERROR
    assert capsys.readouterr().err.endswith(
        f"{sys.executable} -m pip install {packages.pinned('opencv-python-headless')}\n"
    )
    assert report(ModuleNotFoundError("No module named 'rn50.x'", name="rn50.x")) == Status.FAULT
