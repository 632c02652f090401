"""The error that a user can mend."""


class UserError(Exception):
    """One line that names the file or variable at fault and the remedy; the command line prints it without a traceback."""
