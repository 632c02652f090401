"""The names of the machines of a run, from HOSTS or from Slurm, for the launchers."""

import re
from collections.abc import Sequence

from rn50.errors import UserError
from rn50.settings.config import Config


def of_run(config: Config) -> list[str]:
    """Return the names of the ``config.run.nodes`` machines; rank 0 runs on the first.

    A run on one machine runs on this one, "localhost". The names of several come from HOSTS, else from the
    node list of Slurm's step, else from that of Slurm's job. Raises UserError if there is no list, or if its
    number of names is not ``config.run.nodes``.
    """
    nodes, ranks = config.run.nodes, config.run.ranks_per_node
    if nodes == 1:
        return ["localhost"]
    if config.run.hosts is not None:
        hosts, source = _names(config.run.hosts, ranks), f"HOSTS={config.run.hosts}"
    else:
        environ = config.environment
        lists = [name for name in ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST") if environ.get(name)]
        if not lists:
            example = "HOSTS=" + ",".join(f"host{number}:{ranks}" for number in range(1, nodes + 1))
            problem = f"on which machines? Set HOSTS, for example {example}"
            remedy = "in Slurm use ./run.sub; for this machine alone set DGXNNODES=1"
            raise UserError(f"DGXNNODES={nodes}", problem, remedy)
        slurm_list = environ[lists[0]]
        hosts, source = expand(slurm_list), f"{lists[0]}={slurm_list}"
        if any(name.startswith("-") for name in hosts):
            raise UserError(source, "a name that begins with - is an option of mpirun", "set HOSTS")
    if len(hosts) != nodes:
        raise UserError(f"{source} names {len(hosts)} machines, DGXNNODES={nodes}; make them agree")
    return hosts


def first_of(config: Config, counts: Sequence[int]) -> list[list[str]]:
    """Return, for each of ``counts``, the names of the first so many machines of the run. Raises UserError as
    ``of_run`` does for the largest count.

    ``rn50 bench throughput --nodes`` measures on each of these numbers of machines.
    """
    names = of_run(config.replaced(DGXNNODES=max(counts)))
    return [names[:count] for count in counts]


def _names(hosts: str, ranks_per_node: int) -> list[str]:
    """Return the names in ``hosts``, a text "name:ranks,name:ranks". The ranks have to be DGXNGPU; ":ranks"
    may be left out."""
    names = []
    for entry in hosts.split(","):
        # Group 1 is the name, group 2 the number of ranks, None if it is left out.
        host = re.fullmatch(r"\s*(\w[\w.-]*)(?::(\d{1,4}))?\s*", entry, re.ASCII)
        if host is None or (host[2] is not None and int(host[2]) != ranks_per_node):
            problem = f"'{entry}' is not NAME:{ranks_per_node}, a host and its DGXNGPU ranks"
            raise UserError(f"HOSTS={hosts}", problem, "fix the list")
        names.append(host[1])
    if len(set(names)) < len(names):
        raise UserError(f"HOSTS={hosts} names a machine twice; give each once")
    return names


def expand(nodelist: str) -> list[str]:
    """Return the names in a node list of Slurm: "a[1-2,05],b" becomes a1, a2, a05, b.

    ``scontrol show hostnames`` does the same, but containers do not have it.
    """
    names: list[str] = []
    # Split at commas outside of brackets, then each entry into texts and bracketed ranges: "a", "1-2,05".
    for entry in re.findall(r"(?:[^,\[]|\[[^]]*\])+", nodelist):
        heads = [""]  # beginnings of the names of this entry, which the loop makes longer
        # Append each text to all beginnings, and each number of bracketed ranges to a copy of all beginnings.
        for text, ranges in re.findall(r"([^\[]+)|\[([^]]*)\]", entry):
            parts = [text] if text else [number for span in ranges.split(",") for number in _numbers(span)]
            heads = [head + part for head in heads for part in parts]
        names += heads
    return names


def _numbers(span: str) -> list[str]:
    """Return the numbers of a range as texts: "08-10" becomes 08, 09, 10; "3" becomes 3."""
    if not re.fullmatch(r"\d{1,6}(-\d{1,6})?", span, re.ASCII):
        raise UserError(f"[{span}] in the list of Slurm's machines is not a range of numbers; set HOSTS")
    first, _, last = span.partition("-")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last or first) + 1)]
