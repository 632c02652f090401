"""No file of the tests is too long to be read at once."""

from rn50.files import ROOT

MOST_LINES = 420


def test_no_file_of_the_tests_is_too_long():
    lengths = {
        str(path): len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "tests").rglob("*.py")
    }
    assert {path: length for path, length in lengths.items() if length > MOST_LINES} == {}
