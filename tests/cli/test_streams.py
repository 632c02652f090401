"""A verb whose output is full, closed or read by nobody.

Processes: streams are closed for a whole process.
"""

import os
import subprocess

import pytest

from rn50.files import ROOT
from tests.conftest import in_test_all
from tests.system.job import RN50

DONE, USER_ERROR, PIPE = 0, 2, 141
FULL = "rn50: standard output: No space left on device; name another file or folder, or fix this one\n"


def ended(verb, streams):
    """Return exit status, output and errors of a verb that a shell starts with these redirections."""
    shell = f'"$0" -m rn50 {verb} {streams}; exit ${{PIPESTATUS[0]}}'
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        ["bash", "-c", shell, RN50[0]], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("verb", ["config show DEMO_CPU", *in_test_all("--help")])
@pytest.mark.parametrize(
    "streams, status, err",
    [(">/dev/full", USER_ERROR, FULL), (">/dev/full 2>/dev/full", USER_ERROR, ""), (">&-", DONE, ""),
     ("<&- >&- 2>&-", DONE, "")])
def test_output_that_goes_nowhere(verb, streams, status, err):
    assert ended(verb, streams) == (status, "", err)


@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full"])
def test_without_standard_error_a_wrong_verb_is_still_one(streams):
    assert ended("no-such-verb", streams) == (USER_ERROR, "", "")


def test_output_that_nobody_reads():
    assert ended("config show DEMO_CPU", "| true") == (PIPE, "", "")


@pytest.mark.slow
def test_what_is_opened_does_not_take_the_place_of_a_closed_stream(tmp_path):
    file = tmp_path / "plan.svg"
    assert ended(f"plan --curve --plot {file}", "<&- >&- 2>&-") == (DONE, "", "")
    assert file.read_text().startswith("<?xml")
