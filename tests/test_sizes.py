"""No file of the tests is too long to be read at once, and none of the repository too large to be tracked.

Processes: git lists the files.
"""

import subprocess

import pytest

from rn50.files import ROOT

MOST_LINES = 430
MOST_BYTES = 500_000


def test_no_file_of_the_tests_is_too_long():
    lengths = {
        str(path): len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "tests").rglob("*.py")}
    assert {path: length for path, length in lengths.items() if length > MOST_LINES} == {}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the checkout")
def test_no_tracked_file_is_too_large():
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=str(ROOT), stdout=subprocess.PIPE, check=True).stdout
    paths = [ROOT / name for name in listed.decode().split("\0") if name]
    sizes = {str(path): path.stat().st_size for path in paths if path.is_file()}
    assert len(sizes) > 100
    assert {path: size for path, size in sizes.items() if size > MOST_BYTES} == {}
