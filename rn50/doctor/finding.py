"""One thing that was looked at, whether it is well, and what to do where it is not."""

from typing import NamedTuple

OK, WARNING, FAILURE = "ok", "warning", "failure"
INSTALL_DRIVER = "sudo apt-get install nvidia-driver (Debian, non-free) or sudo ubuntu-drivers install (Ubuntu), then reboot"


class Finding(NamedTuple):
    """``severity`` is "failure" where a run cannot go well, "warning" where it can be slow or odd. ``remedy`` is a command."""

    severity: str
    subject: str
    found: str
    remedy: str = ""
