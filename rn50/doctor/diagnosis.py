"""The result of one check, with a remedy if it is not good."""

from typing import NamedTuple

OK, WARNING, FAILURE = "ok", "warning", "failure"
INSTALL_DRIVER = (
    "sudo apt-get install nvidia-driver (Debian, non-free) or sudo ubuntu-drivers install "
    "(Ubuntu), then reboot"
)


class Diagnosis(NamedTuple):
    """The result of one check.

    ``severity`` is "failure" if a run cannot succeed, "warning" if it may be slow or unusual. ``remedy`` is a
    command.
    """

    severity: str
    subject: str
    found: str
    remedy: str = ""
