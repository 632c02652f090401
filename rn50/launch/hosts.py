"""The machines of a run, by name."""

import re
from collections.abc import Sequence

from rn50.errors import UserError
from rn50.settings.config import Config


def of_run(config: Config) -> list[str]:
    """Return the names of the ``config.run.nodes`` machines, rank 0's first.

    A single machine is this one, and needs no name. Several come from HOSTS, else from Slurm's step, else
    from Slurm's job. Raises UserError if there are none, or if their number is not ``config.run.nodes``.
    """
    nodes, ranks = config.run.nodes, config.run.ranks_per_node
    if nodes == 1:
        return ["localhost"]
    if config.run.hosts is not None:
        hosts, where = _named(config.run.hosts, ranks), f"HOSTS={config.run.hosts}"
    else:
        environ = config.environment
        lists = [name for name in ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST") if environ.get(name)]
        if not lists:
            example = "HOSTS=" + ",".join(f"host{number}:{ranks}" for number in range(1, nodes + 1))
            problem = f"on which machines? Set HOSTS, for example {example}"
            remedy = "in Slurm use ./run.sub; for this machine alone set DGXNNODES=1"
            raise UserError(f"DGXNNODES={nodes}", problem, remedy)
        slurm = lists[0]
        hosts, where = expand(environ[slurm]), f"{slurm}={environ[slurm]}"
        if any(name.startswith("-") for name in hosts):
            raise UserError(where, "a name that begins with - is an option of mpirun", "set HOSTS")
    if len(hosts) != nodes:
        raise UserError(f"{where} names {len(hosts)} machines, DGXNNODES={nodes}; make them agree")
    return hosts


def first_of(config: Config, counts: Sequence[int]) -> list[list[str]]:
    """Return as many names of machines as each count says, from the first on. Raises UserError as ``of_run``
    does for the largest count."""
    names = of_run(config.replaced(DGXNNODES=max(counts)))
    return [names[:count] for count in counts]


def _named(hosts: str, ranks_per_node: int) -> list[str]:
    """Return the names in ``hosts``, which is "name:ranks,name:ranks". ":ranks" may be left out and has to be
    DGXNGPU."""
    names = []
    for entry in hosts.split(","):
        host = re.fullmatch(r"\s*(\w[\w.-]*)(?::(\d{1,4}))?\s*", entry, re.ASCII)
        if host is None or (host[2] is not None and int(host[2]) != ranks_per_node):
            problem = f"'{entry}' is not NAME:{ranks_per_node}, a host and its DGXNGPU ranks"
            raise UserError(f"HOSTS={hosts}", problem, "fix the list")
        names.append(host[1])
    if len(set(names)) < len(names):
        raise UserError(f"HOSTS={hosts} names a machine twice; give each once")
    return names


def expand(nodelist: str) -> list[str]:
    """Return the names in a node list of Slurm: "a[1-2,05],b" is a1, a2, a05, b.

    Replaces ``scontrol show hostnames``, which a container lacks.
    """
    names: list[str] = []
    for entry in re.findall(r"(?:[^,\[]|\[[^]]*\])+", nodelist):
        expanded = [""]
        for text, ranges in re.findall(r"([^\[]+)|\[([^]]*)\]", entry):
            parts = [text] if text else [number for span in ranges.split(",") for number in _numbers(span)]
            expanded = [head + part for head in expanded for part in parts]
        names += expanded
    return names


def _numbers(ranges: str) -> list[str]:
    """Expand a range: "08-10" is 08, 09, 10; "3" is 3."""
    if not re.fullmatch(r"\d{1,6}(-\d{1,6})?", ranges, re.ASCII):
        raise UserError(f"[{ranges}] in the list of Slurm's machines is not a range of numbers; set HOSTS")
    first, _, last = ranges.partition("-")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last or first) + 1)]
