"""Sets of CPUs in the kernel's list format, as in "0-3,8,10-11" (cpuset(7), FORMATS)."""

import re
from collections.abc import Iterable


def parse(text: str) -> tuple[int, ...]:
    """Return the numbers in a list, in ascending order. Text that is no number or range is ignored."""
    ranges = ((int(first), int(last or first)) for first, last in re.findall(r"(\d+)(?:-(\d+))?", text))
    return tuple(sorted({number for first, last in ranges for number in range(first, last + 1)}))


def write(numbers: Iterable[int]) -> str:
    """Return the list of ``numbers``, the inverse of ``parse``."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
