"""``Diagnosis``, the result of a check of ``rn50 doctor``."""

from typing import NamedTuple

OK, WARNING, FAILURE = "ok", "warning", "failure"
"""The severities of a diagnosis."""
INSTALL_DRIVER = "sudo apt-get install nvidia-driver (Debian, non-free) or "
INSTALL_DRIVER += "sudo ubuntu-drivers install (Ubuntu), then reboot"


class Diagnosis(NamedTuple):
    """The result of a check."""

    severity: str
    """ok, warning (a run may be slow or unusual) or failure (it cannot succeed)."""
    subject: str
    """Part of the machine, software or configuration."""
    found: str
    """Finding."""
    remedy: str = ""
    """The command that fixes it, or empty."""
