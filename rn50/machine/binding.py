"""Which CPUs each rank of this machine runs on, so that it keeps to memory that is near and to the cores next to its GPU.

Binding to CPUs binds memory too: Linux gives a page from the NUMA node of the CPU that touches it first.
"""

import os
import zlib
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

from rn50.machine import cpu_list
from rn50.machine.hardware import Cpu, Machine

T = TypeVar("T")

Core = Tuple[int, ...]
"""The hardware threads of one core that may be used."""


class RankBinding(NamedTuple):
    """The CPUs of one rank, one of each core first and their siblings behind; ``numa_node`` is theirs or its GPU's."""

    local_rank: int
    cpus: Tuple[int, ...]
    numa_node: Optional[int]


def plan(machine: Machine, ranks_per_node: int, near_gpus: bool = True) -> List[RankBinding]:
    """A binding for every rank of this machine, out of what this process may use; ranks are taken to share all of that.

    Ranks get different cores where there are enough, and the same ones where there are not. Rank r uses the r-th GPU that is
    visible, so it gets cores of that GPU's NUMA node, and of nodes of the same socket to which no GPU in use is attached. Where
    the machine does not tell, or ``near_gpus`` is False, the cores are dealt out in order. A quota of CPU time limits how many
    CPUs the ranks get: more threads than it allows would only be stopped together.
    """
    pools = _pools_near_gpus(machine, ranks_per_node) if near_gpus else None
    bindings = []
    for pool in pools or [Pool(None, range(ranks_per_node), [machine.cpus])]:
        nodes = [_cores(cpus, machine) for cpus in pool.cpus]
        if len(nodes[0]) < len(pool.ranks):
            nodes = [sum(nodes, [])]
        shared = len(nodes[0]) < len(pool.ranks)
        for place, rank in enumerate(pool.ranks):
            own = nodes[0] if shared else [core for cores in nodes for core in _slice(cores, place, len(pool.ranks))]
            share = machine.usable_cpus if shared else len(_slice(range(machine.usable_cpus), rank, ranks_per_node)) or 1
            numbers = _one_of_each_core_first(own)[: None if machine.quota is None else share]
            near = {cpu.node for cpu in machine.cpus if cpu.number in numbers}
            bindings.append(RankBinding(rank, numbers, near.pop() if len(near) == 1 else pool.node))
    return sorted(bindings)


def apply(binding: RankBinding) -> str:
    """Binds this process, and the threads it will start, and returns the line that says so. Raises nothing."""
    line = describe(binding)
    try:
        os.sched_setaffinity(0, binding.cpus)
    except (OSError, ValueError, OverflowError) as error:
        return f"{line}: not bound ({error}); the rank runs on any CPU it may use"
    return line


def describe(binding: RankBinding) -> str:
    """The binding in words."""
    node = "" if binding.numa_node is None else f" (NUMA node {binding.numa_node})"
    return f"rank {binding.local_rank} of this machine: CPU {cpu_list.write(binding.cpus)}{node}"


class Pool(NamedTuple):
    """Ranks that share some CPUs, listed by NUMA node, and the node that these ranks are near to."""

    node: Optional[int]
    ranks: Sequence[int]
    cpus: List[Sequence[Cpu]]


def _pools_near_gpus(machine: Machine, ranks: int) -> Optional[List[Pool]]:
    """A pool for each node with GPUs in use; None where a rank has no GPU, or there are too few cores near it."""
    near: Dict[Optional[int], List[int]] = {}
    for rank, gpu in enumerate(machine.gpus[:ranks]):
        near.setdefault(gpu.node, []).append(rank)
    cpus: Dict[Optional[int], List[Cpu]] = {}
    for cpu in machine.cpus:
        cpus.setdefault(cpu.node, []).append(cpu)
    if len(machine.gpus) < ranks or None in near or not set(near) <= set(cpus):
        return None
    pools = [Pool(node, near[node], [cpus[node]]) for node in near]
    for node in cpus:
        on_socket = [pool for pool in pools if pool.cpus[0][0].socket == cpus[node][0].socket]
        if node not in near and on_socket:
            min(on_socket, key=lambda pool: sum(map(len, pool.cpus)) / len(pool.ranks)).cpus.append(cpus[node])
    enough = all(len({(cpu.socket, cpu.core) for each in pool.cpus for cpu in each}) >= len(pool.ranks) for pool in pools)
    return pools if enough else None


def _cores(cpus: Sequence[Cpu], machine: Machine) -> List[Core]:
    """The cores of some CPUs, node by node."""
    cores: Dict[Tuple[int, int, int], List[int]] = {}
    for cpu in cpus:
        cores.setdefault((-1 if cpu.node is None else cpu.node, cpu.socket, cpu.core), []).append(cpu.number)
    in_order = [tuple(cores[key]) for key in sorted(cores)]
    # A quota means that others run here too, as likely as not with the same plan: not all of them are to start at the first core.
    start = 0 if machine.quota is None else zlib.crc32(machine.host.encode()) % len(in_order)
    return in_order[start:] + in_order[:start]


def _slice(items: Sequence[T], place: int, parts: int) -> Sequence[T]:
    """One of ``parts`` consecutive parts whose sizes differ by one at most; some are empty where there are fewer items."""
    return items[len(items) * place // parts : len(items) * (place + 1) // parts]


def _one_of_each_core_first(cores: Sequence[Core]) -> Tuple[int, ...]:
    threads = max(map(len, cores))
    return tuple(core[thread] for thread in range(threads) for core in cores if thread < len(core))
