"""Helpers of the verbs that run as every rank of a system."""

import json
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from rn50 import process
from rn50.settings import config as configuration
from rn50.terminal import say


def configured(name: str | None) -> tuple[configuration.Config, Mapping[str, str]]:
    """Return the configuration ``name`` and the environment of its runs; warn of values in our environment
    that it replaces."""
    from rn50.doctor import doctor

    inherited = process.environment()
    environ = configuration.environment_of(name, inherited)
    doctor.print_brief(doctor.overridden(environ, inherited))
    return configuration.from_environment(environ), environ


_bound = False


def is_rank() -> bool:
    """Return whether this process is a rank: whether ``bind`` was called."""
    return _bound


def bind(config: configuration.Config) -> None:
    """Bind this process to a rank's cores and say so. Call it before NumPy or a framework is imported,
    because they start threads."""
    from rn50.launch import launchers

    global _bound
    _bound = True
    say(launchers.bind(config, process.environment()), err=True)


def run_as_ranks(
    config: configuration.Config, environ: Mapping[str, str], module: str, **arguments: Any
) -> NoReturn:
    """Call ``as_rank(config, **arguments)`` of a module of rn50 as every rank of the system, and exit with
    its status."""
    from rn50.launch.job import run_ranks

    sys.exit(run_ranks(config, environ, ("rank", module, json.dumps(arguments, default=str))))
