"""Configuration, cores and start of the verbs that run as every rank of a system."""

import json
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from rn50.settings import named
from rn50.settings.config import Config
from rn50.terminal import say


def configured(name: str | None, values: Sequence[str] = ()) -> Config:
    """Return the configuration ``name`` with the values of ``--set``; warn of values in our environment that
    it replaces."""
    from rn50.doctor import doctor

    config = named.read(name, values)
    doctor.show_brief(doctor.overridden(config))
    return config


_bound = False


def is_rank() -> bool:
    """Return whether this process is a rank: whether ``bind`` was called."""
    return _bound


def bind(config: Config) -> None:
    """Bind this process to a rank's cores and say so. Call it before NumPy or a framework is imported,
    because they start threads."""
    from rn50.launch import launchers

    global _bound
    _bound = True
    say(launchers.bind(config), err=True)


def run_as_ranks(config: Config, module: str, **arguments: Any) -> NoReturn:
    """Call ``as_rank(config, **arguments)`` of a module of rn50 as every rank of the system, and exit with
    its status."""
    from rn50.launch.job import run_ranks

    sys.exit(run_ranks(config, ("rank", module, json.dumps(arguments, default=str))))
