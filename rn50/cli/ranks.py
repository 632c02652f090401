"""Functions of the verbs that run in a process for each rank: read their configuration (``configured``),
start the ranks (``run_as_ranks``), and bind a rank to its cores (``bind``).

The process that a person starts calls ``run_as_ranks``, which starts ``rn50 rank`` for each rank. ``rn50
rank`` and ``rn50 train``, the process of a rank in training, call ``bind``.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from rn50.settings import named
from rn50.settings.config import Config
from rn50.terminal import say


def configured(name: str | None, values: Sequence[str] = (), system: str = "") -> Config:
    """Return the configuration ``name`` with the ``values`` of ``--set``. ``system`` names it if neither
    ``name`` nor the environment does. Print a warning for each environment variable to which it gives another
    value."""
    from rn50.doctor import doctor

    config = named.read(name, values, system=system)
    doctor.show_brief(doctor.overridden(config))
    return config


_is_rank = False
"""True once ``bind`` was called."""


def is_rank() -> bool:
    """Return whether this process is a rank."""
    return _is_rank


def bind(config: Config) -> None:
    """Bind this process to the cores of its rank, and print these cores. Call it before NumPy or a framework
    is imported, because their threads have to be bound too."""
    from rn50.launch import launchers

    global _is_rank
    _is_rank = True
    say(launchers.bind(config), err=True)


def run_as_ranks(config: Config, module: str, **arguments: Any) -> NoReturn:
    """Run ``as_rank(config, **arguments)`` of ``rn50.<module>`` in a process for each rank of the system, and
    exit with the status of the job."""
    from rn50.launch.job import run_ranks

    sys.exit(run_ranks(config, ("rank", module, json.dumps(arguments, default=str))))
