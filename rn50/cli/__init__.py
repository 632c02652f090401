"""The command line. A file has the verbs of a group, and adds them to ``main`` when it is imported. A verb
parses its arguments, calls another room for the work, and prints the outcome."""

# Imported in the order in which the help lists the verbs.
from rn50.cli import run, data, speed, hyperparameters, results, after_training  # noqa: F401, I001
from rn50.cli.group import main

__all__ = ["main"]
