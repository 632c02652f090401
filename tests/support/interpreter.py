"""Tests of Triton's kernels: compiled on a GPU, elsewhere by its interpreter, in a process of their own."""

import os
import subprocess
import sys

import pytest

from tests.conftest import HAS_GPU, ON_GPU

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
interpreted = pytest.mark.skipif(not INTERPRETED, reason="runs in the process of test_by_the_interpreter")
"""The mark of a test, or of one case of it, that the interpreter runs."""
starts_it = pytest.mark.skipif(HAS_GPU or INTERPRETED, reason="the tests of this file run here themselves")
"""The mark of the test that calls ``assert_passes``."""
DEVICES = [pytest.param("cpu", marks=interpreted), pytest.param("cuda", marks=ON_GPU)]


def assert_passes(file):
    """Run the tests of a file by the interpreter."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=500, env={**os.environ, "TRITON_INTERPRET": "1"})
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr
