"""Errors that a user can fix, and the exit statuses of all commands. ``rn50/cli/group.py`` prints the errors
and exits with their status."""

import difflib
import enum
from collections.abc import Iterable


class Status(enum.IntEnum):
    """Exit status of a command. If signal n ended the command, its status is 128 + n."""

    SUCCESS = 0
    """A run reached its target, a check found no error, or a search ended, with an improvement or without."""
    FAULT = 1
    """A fault of this code, or a check found errors."""
    USER_ERROR = 2
    """An error that the user can fix. The remedy has been printed."""
    TARGET_MISSED = 3
    """A run ended without reaching its target."""
    DIVERGED = 4
    """The training loss of a run became infinite or NaN."""


def did_you_mean(name: str, names: Iterable[str], nearness: float = 0.6) -> str:
    """Return a question that suggests the one of ``names`` that is nearest to ``name``, case ignored. Return
    "" if none is near.

    ``nearness`` is the smallest ``difflib`` ratio of a near name; equal names have a ratio of 1.
    """
    by_lower = {candidate.lower(): candidate for candidate in names}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=nearness)
    return f"did you mean {by_lower[near[0]]}?" if near else ""


def excerpt(text: str, longest: int = 100) -> str:
    """Return a text for an error message: cut off with "..." if it has more than ``longest`` characters."""
    return text if len(text) <= longest else text[: longest - 3] + "..."


class UserError(Exception):
    """An error that the user can fix.

    ``subject`` is the file or variable at fault, ``problem`` says what is wrong with it, and ``remedy`` what
    to do. ``str()`` is "subject: problem; remedy", without the parts that are empty. The command line prints
    it without a traceback, and exits with ``status``.
    """

    status = Status.USER_ERROR

    def __init__(self, subject: object, problem: object | None = None, remedy: object | None = None) -> None:
        super().__init__(subject, problem, remedy)
        parts = ("" if part is None else str(part) for part in (subject, problem, remedy))
        self.subject, self.problem, self.remedy = parts

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines to print: one for each error that this one consists of."""
        return (str(self),)

    def __str__(self) -> str:
        fault = ": ".join(filter(None, (self.subject, self.problem)))
        return "; ".join(filter(None, (fault, self.remedy)))


class UserErrors(UserError):
    """Several errors at once."""

    def __init__(self, *errors: "UserError") -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.args = self.errors = errors  # args: pickle makes UserErrors(*args) of them again

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines to print: one for each error."""
        return tuple(line for error in self.errors for line in error.lines)


class DivergedError(UserError):
    """The training loss is infinite or NaN."""

    status = Status.DIVERGED


class RankLostError(Exception):
    """Another rank of the job has stopped. That rank, or the launcher, prints why."""

    status = Status.FAULT
    lines = ("another rank of the run has stopped",)

    def __init__(self) -> None:
        super().__init__(*self.lines)
