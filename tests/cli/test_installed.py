"""rn50 as pip installs it, without a checkout and without a framework, in an empty folder.

Processes: an installation has its own Python.
"""

import re
import shutil
import subprocess
import venv

import pytest

from rn50.files import ROOT
from tests.results.scored import write_runs

pytestmark = pytest.mark.slow
PARTS = ("configs", "implementations", "requirements", "rn50")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Runs rn50 in an empty folder beside the logs of two results."""
    folder = tmp_path_factory.mktemp("installed")
    for part in PARTS:
        shutil.copytree(
            ROOT / part, folder / "copy" / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder / "copy")
    venv.create(folder / "venv", with_pip=True, symlinks=True)
    pip = [str(folder / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    for what in (["setuptools<81", "wheel"], ["--no-build-isolation", str(folder / "copy")]):
        done = subprocess.run([*pip, *what], capture_output=True, text=True)
        if "No matching distribution" in done.stderr:
            pytest.skip("needs a package index")
        assert done.returncode == 0, done.stderr
    (folder / "empty").mkdir()
    write_runs(folder / "runs", 100, 101, 102, 103, 104)
    write_runs(folder / "others", 110, 111, 112, 113, 114)

    def run(arguments):
        given = [each.format(folder=folder) for each in arguments.split()]
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
        return subprocess.run(
            [str(folder / "venv" / "bin" / "rn50"), *given], cwd=folder / "empty", env=environ,
            capture_output=True, text=True)

    return run


@pytest.mark.parametrize(
    "arguments, shown",
    [("--help", "Usage: rn50 "), ("config show NF5688M6", "OPTIMIZER"),
     ("borrow v1.0/Inspur/nf5688m6_mxnet DGXH100", "epochs to expect"),
     ("plan --accelerators 8 --accelerator H100-SXM-80GB", "images/s per accelerator"),
     ("score {folder}/runs", "minutes"), ("check {folder}/runs", "errors"),
     ("compare {folder}/runs {folder}/others", "minutes"),
     ("report {folder}/runs -o {folder}/report.html", "report.html"),
     ("atlas {folder}/runs -o {folder}/atlas.html", "atlas.html")])
def test_it_works_in_an_empty_folder(installed, arguments, shown):
    done = installed(arguments)
    assert "Traceback" not in done.stderr and shown in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments, line",
    [("run DEMO_CPU",
      "rn50: rn50 run: needs the scripts of a checkout; git clone rn50, and make setup in it"),
     ("search DEMO_CPU -o search",
      "rn50: /[^ ]*/empty/data/demo: No such file or directory; set DATADIR to "),
     ("demo-data demo", "rn50: the package opencv-python-headless is not installed; ")])
def test_what_more_is_needed_is_a_line(installed, arguments, line):
    done = installed(arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert re.match(line, done.stderr) and len(done.stderr.splitlines()) == 1, done.stderr
