"""Bounds of one value. The text of each follows "NAME=value "."""

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Bound:
    """A rule for one value."""

    text: str
    holds: Callable[[Any], bool]

    def up_to(self, most: int, reason: str) -> "Bound":
        """Return this bound with an upper limit. ``reason`` says why no value can be larger."""
        return Bound(f"{self.text} and at most {most:,}: {reason}", lambda v: self.holds(v) and v <= most)


POSITIVE = Bound("must be greater than 0", lambda v: v > 0)
NOT_NEGATIVE = Bound("must not be negative", lambda v: v >= 0)
AT_LEAST_1 = Bound("must be 1 or more", lambda v: v >= 1)
AT_LEAST_2 = Bound("must be 2 or more", lambda v: v >= 2)
FRACTION = Bound("must be at least 0 and at most 1", lambda v: 0 <= v <= 1)
BELOW_1 = Bound("must be at least 0 and below 1", lambda v: 0 <= v < 1)
AREA = Bound("must be above 0 and at most 1", lambda v: 0 < v <= 1)
SEED = Bound("must be from 0 to 2147483647", lambda v: 0 <= v < 2**31)
WIDTH = Bound(
    "must be from 0.01 to 16: narrower stages have no channel, wider ones no memory",
    lambda v: 0.01 <= v <= 16,
)
EPOCHS, EPOCHS_OR_0, POSITIVE_EPOCHS = (
    bound.up_to(10_000, "no schedule is longer") for bound in (AT_LEAST_1, NOT_NEGATIVE, POSITIVE)
)
MACHINE, MACHINE_OR_0 = (bound.up_to(1_024, "no machine has more") for bound in (AT_LEAST_1, NOT_NEGATIVE))
SAMPLES = AT_LEAST_1.up_to(100_000_000, "no data set of this form has more")
PIXELS = AT_LEAST_1.up_to(8_192, "no batch of such images fits into memory")
JPEG_SIDE = NOT_NEGATIVE.up_to(65_535, "a JPEG has no longer side")
MEBIBYTES = NOT_NEGATIVE.up_to(1 << 20, "that is a tebibyte")
BYTES = NOT_NEGATIVE.up_to(2**31 - 1, "DALI takes 32 bits")
