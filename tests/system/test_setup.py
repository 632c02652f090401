"""What `make` finds on a machine before it installs anything, and what the pinned sets promise."""

import os
import pathlib
import re
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
        ["/bin/bash", str(ROOT / "requirements/find_python.sh")],
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("name", ["python3.10", "python3.12", "python3", "python"])
def test_a_python_that_fits_is_found_under_any_name(tmp_path, name):
    result = find_python(tmp_path, {name: None})
    assert (result.returncode, result.stdout.strip()) == (0, str(tmp_path / "bin" / name))


def test_a_shim_that_leads_nowhere_is_passed_over(tmp_path):
    shim = "echo 'command not found' >&2; exit 127"
    assert find_python(tmp_path, {"python3.11": shim, "python3": None}).stdout.strip() == str(
        tmp_path / "bin" / "python3"
    )


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
        ({"python3": None}, {"PYTHON": "/nowhere/python"}, "PYTHON=/nowhere/python"),
        ({"python3": None, "uname": "echo Darwin arm64"}, {}, "x86-64 Linux only"),
    ],
)
def test_one_line_says_what_is_missing(tmp_path, pythons, variables, words):
    result = find_python(tmp_path, pythons, **variables)
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert words in result.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "requirements").glob("*.txt")), ids=os.path.basename)
def test_every_requirement_is_pinned_and_hashed_and_names_no_registry(path):
    text = path.read_text()
    requirements = re.findall(r"^[a-z].*(?:\n    --hash.*)+", text, re.MULTILINE)
    assert len(requirements) == len(re.findall(r"^[^#\s]", text, re.MULTILINE))
    assert all(re.match(r"[a-z0-9.-]+==[0-9]\S* ", requirement) for requirement in requirements)
    assert "://" not in text


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="one test at a time")
def test_tests_of_one_group_stay_together(request):
    """pytest-xdist knows the group by the end of a test's name; with a pytest that does not fit, groups fall
    apart."""
    assert request.node.nodeid.endswith("@system/test_setup")
