"""The command line: argument parsing only, one line of work per verb. Each file adds its own to ``main``."""

# In the order of the help.
from rn50.cli import run, data, speed, hyperparameters, results, after_training  # noqa: F401, I001
from rn50.cli.group import main

__all__ = ["main"]
