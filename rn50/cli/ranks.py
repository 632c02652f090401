"""Verbs that run as every rank of a system: their configuration (``configured``), the start of the ranks
(``run_as_ranks``), and the cores of a rank (``bind``).

The process that a person starts calls ``run_as_ranks``. That starts ``rn50 rank`` or ``rn50 train`` for each
rank, which calls ``bind``.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from rn50.settings import named
from rn50.settings.config import Config
from rn50.terminal import say


def configured(name: str | None, values: Sequence[str] = ()) -> Config:
    """Return the configuration ``name`` with ``values``, those of ``--set``. Warn of environment variables
    that it replaces."""
    from rn50.doctor import doctor

    config = named.read(name, values)
    doctor.show_brief(doctor.overridden(config))
    return config


_is_rank = False


def is_rank() -> bool:
    """Return whether this process is a rank, which it is once ``bind`` was called."""
    return _is_rank


def bind(config: Config) -> None:
    """Bind this process to the cores of its rank, and print them. Call it before NumPy or a framework is
    imported, because they start threads."""
    from rn50.launch import launchers

    global _is_rank
    _is_rank = True
    say(launchers.bind(config), err=True)


def run_as_ranks(config: Config, module: str, **arguments: Any) -> NoReturn:
    """Run ``as_rank(config, **arguments)`` of ``rn50.<module>`` in a process for each rank of the system, and
    exit with the status of the job."""
    from rn50.launch.job import run_ranks

    sys.exit(run_ranks(config, ("rank", module, json.dumps(arguments, default=str))))
