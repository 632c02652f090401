"""The end of a run before its time.

Processes: a process ends while a thread hangs.
"""

import subprocess
import sys

import pytest

HANGS = """
import time, types
from rn50.run import ending

ending.LAST_WORDS_S = 0.2
ending.at_once(types.SimpleNamespace(run_stop=lambda status: time.sleep({seconds})), 130, {line!r})
"""


@pytest.mark.parametrize("line", ["stopped", None])
def test_the_log_is_ended_the_line_printed_and_the_process_gone(line):
    done = subprocess.run([sys.executable, "-c", HANGS.format(seconds=0, line=line)], capture_output=True)
    assert (done.returncode, done.stderr) == (130, b"rn50: stopped\n" if line else b"")


def test_a_disk_that_hangs_delays_the_end_by_seconds_alone():
    done = subprocess.run(
        [sys.executable, "-c", HANGS.format(seconds=3600, line="stopped")], capture_output=True)
    assert (done.returncode, done.stderr) == (130, b"")
