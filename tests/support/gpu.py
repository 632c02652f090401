"""Say in one line why the tests that need a GPU cannot run here, if they cannot: the first half of ``make
test-gpu``."""

from rn50.errors import UserError
from rn50.packages import needed_for

try:
    with needed_for("test-gpu"):
        from tests.conftest import HAS_GPU
except UserError as error:
    raise SystemExit(str(error)) from None
if not HAS_GPU:
    raise SystemExit(
        "test-gpu: no NVIDIA GPU, or no driver; install the driver, or use a machine that has a GPU")
