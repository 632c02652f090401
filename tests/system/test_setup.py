"""What `make` finds on a machine before it installs anything, and what the pinned sets promise."""

import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def find_python(tmp_path, pythons, **variables):
    """Runs find_python.sh where ``pythons`` (name -> shell script, or None for the Python of this test) are
    all there is."""
    (tmp_path / "bin").mkdir()
    for name, script in {"bash": "", "uname": "exec /bin/uname $1", **pythons}.items():
        program = tmp_path / "bin" / name
        if name == "bash" or script is None:
            program.symlink_to("/bin/bash" if name == "bash" else sys.executable)
        else:
            program.write_text("#!/bin/sh\n" + script)
            program.chmod(0o755)
    environment = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path), **variables}
    return subprocess.run(
        ["/bin/bash", str(ROOT / "requirements/find_python.sh")], env=environment, capture_output=True,
        text=True)


@pytest.mark.parametrize("name", ["python3.10", "python3.12", "python3", "python"])
def test_a_python_that_fits_is_found_under_any_name(tmp_path, name):
    result = find_python(tmp_path, {name: None})
    assert (result.returncode, result.stdout.strip()) == (0, str(tmp_path / "bin" / name))


def test_a_shim_that_leads_nowhere_is_passed_over(tmp_path):
    shim = "echo 'command not found' >&2; exit 127"
    assert find_python(tmp_path, {"python3.11": shim, "python3": None}).stdout.strip() == str(
        tmp_path / "bin" / "python3")


def test_a_python_of_pyenv_is_found(tmp_path):
    python = tmp_path / "pyenv/versions/3.10.13/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    assert find_python(tmp_path, {}, PYENV_ROOT=str(tmp_path / "pyenv")).stdout.strip() == str(python)


@pytest.mark.parametrize(
    "pythons, variables, words",
    [
        ({}, {}, "no python3 at all"),
        # A newer Python says nothing when asked whether it fits.
        ({"python3": "[ $1 = -c ] || echo Python 3.14.0"}, {}, "(Python 3.14.0)"),
        ({"python3": "echo 3.11 no /usr/bin/python3"}, {}, "apt-get install python3.11-venv"),
        ({"python3": None}, {"PYTHON": "{folder}/absent"}, "PYTHON={folder}/absent"),
        ({"python3": None, "uname": "echo Darwin arm64"}, {}, "x86-64 Linux only"),
    ],
)
def test_one_line_says_what_is_missing(tmp_path, pythons, variables, words):
    variables = {name: value.format(folder=tmp_path) for name, value in variables.items()}
    result = find_python(tmp_path, pythons, **variables)
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert words.format(folder=tmp_path) in result.stderr


SETS = sorted((ROOT / "requirements").glob("*.txt"))


def bases(path):
    """The files that a set is on top of, and those that they are on top of."""
    for name in re.findall(r"^-r (\S+)$", path.read_text(), re.MULTILINE):
        yield path.with_name(name)
        yield from bases(path.with_name(name))


def requirements(path):
    return re.findall(r"^[a-z].*(?:\n    --hash.*)+", path.read_text(), re.MULTILINE)


@pytest.mark.parametrize("path", SETS, ids=os.path.basename)
def test_every_requirement_is_pinned_and_hashed_and_names_no_registry(path):
    text = path.read_text()
    assert len(requirements(path)) == len(re.findall(r"^[^#\s-]", text, re.MULTILINE))
    assert all(re.match(r"[a-z0-9.-]+==[0-9]\S* ", requirement) for requirement in requirements(path))
    assert "://" not in text


@pytest.mark.parametrize("path", SETS, ids=os.path.basename)
def test_a_set_holds_only_what_it_adds(path):
    below = [requirement for base in bases(path) for requirement in requirements(base)]
    assert not set(requirements(path)) & set(below)


def test_all_sets_agree_on_the_versions():
    """So that they share a .venv. PyTorch has two builds; Python decides on those of NumPy and Numba."""
    versions = {}
    for path in SETS:
        for requirement in requirements(path):
            name, version = re.match(r"(\S+)==(\S+)", requirement).groups()
            versions.setdefault(name, set()).add(version)
    several = {name for name, found in versions.items() if len(found) > 1}
    assert several == {"torch", "numpy", "numba", "llvmlite"}


def install(folder, *sets, **variables):
    """Runs install.sh in a copy of the checkout's requirements."""
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    return subprocess.run(
        [str(folder / "requirements" / "install.sh"), *sets], env={**os.environ, **variables},
        capture_output=True, text=True)


@pytest.mark.parametrize(
    "sets, words", [((), "no set named: there are "), (("test", "nowt"), "nowt: there are ")])
def test_a_set_that_there_is_not_is_one_line_before_anything_is_made(tmp_path, sets, words):
    result = install(tmp_path, *sets)
    assert result.returncode == 1 and len(result.stderr.splitlines()) == 1 and words in result.stderr
    assert not (tmp_path / ".venv").exists()


# A pip that records how it was called, and prints what pip does for programs.
PIP = """#!/bin/sh
[ "$1" != --version ] || { echo Python 3.11.7; exit; }
[ "$1" != -c ] || exit 0
echo "$*" >>pip.log
case $* in
  *--dry-run*) exit $NO_BUILD_FOR_CPUS ;;
  *" wheel "*) mkdir .venv/wheels && echo >.venv/wheels/horovod.whl ;;
  *raw*)
    echo "Downloading mxnet-1.9.1-py3-none-manylinux2014_x86_64.whl (49.1 MB)"
    echo "Progress 21000000 of 49100000"
    ;;
esac
"""


@pytest.fixture
def made(tmp_path):
    """A folder whose .venv has that pip."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(PIP)
    python.chmod(0o755)
    (tmp_path / ".venv" / "whole").write_text(f"{tmp_path}, Python 3.11.7\n")
    (tmp_path / "rn50").mkdir()
    for file in ("pyproject.toml", "rn50/__init__.py"):
        (tmp_path / file).touch()
    return tmp_path


def test_several_sets_are_installed_once(made):
    first = install(made, "mxnet-cpu", "test", PYTHON="")
    assert first.returncode == 0, first.stderr
    calls = (made / "pip.log").read_text().splitlines()
    assert [re.findall(r"requirements/(\S+)\.txt|(--editable)", call) for call in calls] == [
        [("mxnet-cpu", "")], [("test", "")], [("", "--editable")]]
    assert all("--require-hashes" in call and "--quiet" in call for call in calls[:2])
    again = subprocess.run(
        [str(made / "requirements" / "install.sh"), "test", "mxnet-cpu"], capture_output=True, text=True)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert (made / "pip.log").read_text().splitlines() == calls


@pytest.mark.parametrize("missing, sets", [("0", ["pytorch-cpu"]), ("1", ["dali", "pytorch-common"])])
def test_without_a_build_for_cpus_pytorch_is_the_ordinary_one(made, missing, sets):
    done = install(made, "pytorch-cpu", PYTHON="", NO_BUILD_FOR_CPUS=missing)
    assert done.returncode == 0, done.stderr
    call = (made / "pip.log").read_text().splitlines()[1]
    assert re.findall(r"requirements/(\S+)\.txt", call) == sets
    assert ("3 GB" in done.stdout and "PIP_EXTRA_INDEX_URL" in done.stdout) == (missing == "1")


def test_horovod_is_compiled_once_for_all_that_it_fits(made):
    """The wheel is kept for another .venv of the same pins, and replaced where the pins are others."""
    for program in ("g++", "make"):
        (made / program).symlink_to("/bin/true")
    path = f"{made}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path}
    assert install(made, "horovod", PYTHON="", PATH=path).returncode == 0
    again = ["bash", "-c", "rm -rf .venv/installed-horovod; exec requirements/install.sh horovod"]
    told, kept = [], []
    for pins in ("", "# Other pins.\n"):
        with (made / "requirements" / "horovod.txt").open("a") as stream:
            stream.write(pins)
        told.append(subprocess.check_output(again, cwd=str(made), env=environ, text=True))
        kept.append(list(made.glob("requirements/wheels/*/horovod.whl")))
    assert ", built before (" in told[0] and "building horovod from source" in told[1]
    assert len(kept[0]) == len(kept[1]) == 1 and kept[0] != kept[1]
    calls = (made / "pip.log").read_text()
    assert calls.count(" wheel ") == 2 == calls.count("--require-hashes")
    assert calls.count(" --no-index --no-deps requirements/wheels/") == 3


# A Python that makes a .venv with that pip.
BASE = """#!/bin/sh
case $1 in
  -c) echo 3.11 yes "$0" ;;
  --version) echo Python 3.11.7 ;;
  *) mkdir -p .venv/bin && cp pip .venv/bin/python ;;
esac
"""


def test_sets_that_are_not_for_one_venv_are_refused_with_the_command_of_readme(made):
    for name, script in (("pip", PIP), ("base", BASE)):
        (made / name).write_text(script)
        (made / name).chmod(0o755)
    assert install(made, "mxnet-cpu", PYTHON="").returncode == 0  # as make demo does
    refused = subprocess.run(
        [str(made / "requirements" / "install.sh"), "pytorch-gpu"], capture_output=True, text=True)
    assert refused.returncode == 1
    assert "pytorch-gpu has files of the same names as mxnet-cpu" in refused.stderr
    remedy = refused.stderr.strip().partition("to have it instead: ")[2]
    assert f"\n{remedy} " in (ROOT / "README.md").read_text(encoding="utf-8")
    done = subprocess.run(
        ["bash", "-c", remedy], cwd=str(made), env={**os.environ, "PYTHON": str(made / "base")},
        capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in made.glob(".venv/installed-*-*pu")] == ["installed-pytorch-gpu"]


def test_it_says_why_it_begins_anew(made):
    """Where the checkout was copied, and where an installation was interrupted."""
    for name, script in (("pip", PIP), ("base", BASE)):
        (made / name).write_text(script)
        (made / name).chmod(0o755)
    copied = made.parent / f"{made.name}-copied"
    subprocess.run(["cp", "-a", str(made), str(copied)], check=True)
    done = install(copied, "mxnet-cpu", PYTHON=str(copied / "base"))
    assert done.returncode == 0, done.stderr
    why = f"for {made}, Python 3.11.7, and here is {copied}, Python 3.11.7; it is made anew"
    begun = f"setup: .venv with Python 3.11.7 ({copied}/base)"
    assert done.stdout.splitlines()[:2] == [f"setup: .venv was made {why}", begun]
    again = [str(copied / "requirements" / "install.sh"), "mxnet-cpu"]
    environ = {**os.environ, "PYTHON": str(copied / "base")}
    assert subprocess.check_output(again, env=environ, text=True) == ""
    (copied / ".venv" / "whole").unlink()
    assert subprocess.check_output(again, env=environ, text=True).startswith(
        "setup: .venv is not whole, as after ")


def test_a_terminal_shows_what_is_downloaded(made):
    shutil.copytree(ROOT / "requirements", made / "requirements")
    command = [str(made / "requirements" / "install.sh"), "mxnet-cpu"]
    written, read = pty.openpty()
    done = subprocess.run(command, stdout=read, stderr=read, env={**os.environ, "PYTHON": ""})
    os.close(read)
    shown = os.read(written, 10_000).decode()
    os.close(written)
    assert done.returncode == 0, shown
    assert "\r\033[Ksetup: mxnet-1.9.1, 21 of 50 MB; 21 MB in all" in shown and "Downloading" not in shown


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="one test at a time")
def test_tests_of_one_group_stay_together(request):
    """pytest-xdist knows the group by the end of a test's name; with a pytest that does not fit, groups fall
    apart."""
    assert request.node.nodeid.endswith("@system/test_setup")
