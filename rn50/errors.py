"""Errors that a user can fix, and the exit statuses of every command."""

import difflib
import enum
from collections.abc import Iterable


class Status(enum.IntEnum):
    """Exit status of a command; 128 + n where signal n ended it."""

    SUCCESS = 0
    """Done; a run reached its target, a check found no error, a search came to its end, with something better
    or without."""
    FAULT = 1
    """A fault of this code; or a check found errors."""
    USER_ERROR = 2
    """Something that the user can fix; the remedy has been printed."""
    TARGET_MISSED = 3
    """A run came to its end without reaching its target."""
    DIVERGED = 4
    """The training loss of a run became infinite or no number."""


def did_you_mean(name: str, names: Iterable[str], nearness: float = 0.6) -> str:
    """Return the question for the nearest of ``names``, whatever their case; empty if none is near.

    ``nearness`` is the least ratio of ``difflib``: 1 for equal names.
    """
    by_lower = {each.lower(): each for each in names}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=nearness)
    return f"did you mean {by_lower[near[0]]}?" if near else ""


class UserError(Exception):
    """An error that the user can fix: ``subject`` (the file or variable at fault), ``problem`` and
    ``remedy``.

    ``str()`` joins them as "subject: problem; remedy", without those that are empty. The command line prints
    that without a traceback and exits with ``status``.
    """

    status = Status.USER_ERROR

    def __init__(self, subject: object, problem: object | None = None, remedy: object | None = None) -> None:
        super().__init__(subject, problem, remedy)
        self.subject, self.problem, self.remedy = (
            "" if each is None else str(each) for each in (subject, problem, remedy)
        )

    @property
    def lines(self) -> tuple[str, ...]:
        """A line for each error."""
        return (str(self),)

    def __str__(self) -> str:
        said = ": ".join(filter(None, (self.subject, self.problem)))
        return "; ".join(filter(None, (said, self.remedy)))


class UserErrors(UserError):
    """Several errors at once."""

    def __init__(self, *errors: "UserError") -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.args = self.errors = errors

    @property
    def lines(self) -> tuple[str, ...]:
        """A line for each error."""
        return tuple(line for error in self.errors for line in error.lines)


class DivergedError(UserError):
    """The training loss is infinite or no number."""

    status = Status.DIVERGED


class RankLostError(Exception):
    """Another rank of the job has stopped; its own message, or the launcher's, says why."""

    status = Status.FAULT

    def __init__(self) -> None:
        super().__init__("another rank of the run has stopped")
