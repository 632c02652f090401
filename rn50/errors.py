"""The error that a user can mend."""

DIVERGED = "the training loss is"
"""How the line begins that ends a run whose loss is infinite or no number; to a search that is an answer like others."""


class UserError(Exception):
    """One line that names the file or variable at fault and the remedy; the command line prints it without a traceback."""


class RankLostError(Exception):
    """Another rank of the job has stopped; its own message, or the launcher's, says why."""

    def __init__(self) -> None:
        super().__init__("another rank of the run has stopped")
