"""The two tiers of the tests: `make test`, and what `make test-all` has beyond it."""

import re

from rn50.files import ROOT

TESTS = ROOT / "tests"
TEST, TEST_ALL, BOTH = "test", "test-all", "both"
LONG_ROOMS = ("deploy", "fuzz", "implementations/paddle", "implementations/pytorch", "system")
LONG_FILES = (
    "cli/test_bare_machine", "hyperparameters/test_search", "hyperparameters/test_search_refused",
    "hyperparameters/test_search_workers", "implementations/mxnet/test_forward_agreement",
    "implementations/test_agreement", "implementations/test_precision", "implementations/test_quantization",
    "implementations/test_ranks_meet", "results/test_rounds", "speed/test_floor", "speed/test_profile",
    "speed/test_throughput", "speed/test_tuning")
"""What only `make test-all` runs, but for tests marked ``smoke``: these rooms, and these files of the others.
So are cases of other frameworks or launchers than MXNet's own, and tests marked ``slow`` or ``published``."""
_OF_ANY_FRAMEWORK = ("contract", "speed")
_SOME_SLOW = re.compile(r"mark\.slow|in_test_all\(|every_fourth\(|needs_published\n")
_OTHERS = re.compile("paddle|torch|horovod|mpirun|srun", re.IGNORECASE)


def name(path):
    """A file of the tests, as in ``LONG_FILES``."""
    return path.relative_to(TESTS).with_suffix("").as_posix()


def is_long(file):
    """Whether a file, by its ``name``, is of `make test-all` as a whole."""
    return file in LONG_FILES or file.startswith(tuple(f"{room}/" for room in LONG_ROOMS))


def is_of_another_framework(file, test):
    """Whether a test, as in test_it[pytorch-2], needs another framework or launcher than MXNet's own."""
    return file.split("/")[0] in _OF_ANY_FRAMEWORK and bool(_OTHERS.search(test.partition("[")[2]))


def of(path):
    """The tier of a file of the tests: ``TEST``, ``TEST_ALL`` or ``BOTH``."""
    text, file = path.read_text(encoding="utf-8"), name(path)
    if is_long(file):
        return BOTH if "mark.smoke" in text else TEST_ALL
    mixed = file.split("/")[0] in _OF_ANY_FRAMEWORK or _SOME_SLOW.search(text)
    return BOTH if mixed else TEST


def of_claim(paths):
    """The tier of a proof: of the files and rooms, relative to the checkout, that its command names."""
    files = [file for path in paths for file in sorted((ROOT / path).rglob("test_*.py")) or [ROOT / path]]
    found = {of(file) for file in files}
    return found.pop() if len(found) == 1 else BOTH
