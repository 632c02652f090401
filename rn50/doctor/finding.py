"""The result of one check, with a remedy if it is not good."""

from typing import NamedTuple

OK, WARNING, FAILURE = "ok", "warning", "failure"


class Finding(NamedTuple):
    """The result of one check.

    ``severity`` is "failure" if a run cannot succeed, "warning" if it may be slow or unusual. ``remedy`` is a command.
    """

    severity: str
    subject: str
    found: str
    remedy: str = ""
