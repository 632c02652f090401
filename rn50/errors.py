"""The error that a user can mend."""

DIVERGED = "the training loss is"
"""How the line begins that ends a run whose loss is infinite or no number; to a search that is an answer like others."""


class UserError(Exception):
    """An error that the user can mend: each argument is a line that names the file or variable at fault and the remedy.

    The command line prints the lines without a traceback, and exits with status 2.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__(*lines)
        self.lines = lines

    def __str__(self) -> str:
        return "\n".join(self.lines)


class RankLostError(Exception):
    """Another rank of the job has stopped; its own message, or the launcher's, says why."""

    def __init__(self) -> None:
        super().__init__("another rank of the run has stopped")
