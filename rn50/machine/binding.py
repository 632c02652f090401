"""Choose the CPUs of each rank of this machine, so that a rank uses near memory and the cores next to its
GPU.

Binding to CPUs binds memory too, because Linux allocates a page on the NUMA node of the CPU that touches it
first.
"""

import os
import zlib
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from rn50.gathered import gathered
from rn50.machine import cpu_list
from rn50.machine.hardware import Cpu, Machine

T = TypeVar("T")

Core = tuple[int, ...]
"""The usable hardware threads of one core."""


class RankBinding(NamedTuple):
    """The CPUs of one rank: first one of each core, then their siblings. ``numa_node`` is the node of the
    CPUs, else of the GPU."""

    local_rank: int
    cpus: tuple[int, ...]
    numa_node: int | None


def plan(machine: Machine, ranks_per_node: int, near_gpus: bool = True) -> list[RankBinding]:
    """Return a binding for every rank of this machine, on the assumption that the ranks share all CPUs this
    process may use.

    Ranks get different cores if there are enough, else they share all of them. Rank r uses the r-th visible
    GPU, so it gets cores of that GPU's NUMA node, and of nodes of the same socket to which no GPU in use is
    attached. If the machine does not report the nodes, or ``near_gpus`` is False, the cores are dealt out in
    order. A quota of CPU time limits the number of CPUs, because more threads than it allows would only be
    throttled together.
    """
    pools = _pools_near_gpus(machine, ranks_per_node) if near_gpus else None
    bindings = []
    for pool in pools or [Pool(None, range(ranks_per_node), [machine.cpus])]:
        cores_by_node = [_cores(cpus, machine) for cpus in pool.cpus]
        # The node near the GPUs has too few cores: use those of all nodes of the pool alike.
        if len(cores_by_node[0]) < len(pool.ranks):
            cores_by_node = [sum(cores_by_node, [])]
        shared = len(cores_by_node[0]) < len(pool.ranks)
        for place, rank in enumerate(pool.ranks):
            if shared:
                chosen, most = cores_by_node[0], machine.usable_cpus
            else:
                chosen = [core for cores in cores_by_node for core in _slice(cores, place, len(pool.ranks))]
                most = len(_slice(range(machine.usable_cpus), rank, ranks_per_node)) or 1
            numbers = _one_of_each_core_first(chosen)[: None if machine.quota is None else most]
            nodes = {cpu.node for cpu in machine.cpus if cpu.number in numbers}
            bindings.append(RankBinding(rank, numbers, nodes.pop() if len(nodes) == 1 else pool.node))
    return sorted(bindings)


def apply(binding: RankBinding) -> str:
    """Bind this process and the threads it will start. Returns a line that reports it; raises nothing."""
    try:
        os.sched_setaffinity(0, binding.cpus)
    except (OSError, ValueError, OverflowError) as error:
        return f"{describe(binding)}: not bound ({error}); the rank runs on any CPU it may use"
    return describe(binding)


def describe(binding: RankBinding) -> str:
    """Return the binding in words."""
    node = "" if binding.numa_node is None else f" (NUMA node {binding.numa_node})"
    return f"rank {binding.local_rank} of this machine: CPU {cpu_list.write(binding.cpus)}{node}"


class Pool(NamedTuple):
    """Ranks that share some CPUs, listed by NUMA node, and the node near these ranks."""

    node: int | None
    ranks: Sequence[int]
    cpus: list[Sequence[Cpu]]


def _pools_near_gpus(machine: Machine, ranks: int) -> list[Pool] | None:
    """Return a pool for each node with GPUs in use; None if a rank has no GPU, a node is unknown, or a pool
    has too few cores."""
    near = gathered((gpu.node, rank) for rank, gpu in enumerate(machine.gpus[:ranks]))
    cpus = gathered((cpu.node, cpu) for cpu in machine.cpus)
    if len(machine.gpus) < ranks or None in near or not set(near) <= set(cpus):
        return None
    pools = [Pool(node, near[node], [cpus[node]]) for node in near]
    for node in cpus:
        on_socket = [pool for pool in pools if pool.cpus[0][0].socket == cpus[node][0].socket]
        if node not in near and on_socket:
            poorest = min(on_socket, key=lambda pool: sum(map(len, pool.cpus)) / len(pool.ranks))
            poorest.cpus.append(cpus[node])
    for pool in pools:
        if len({(cpu.socket, cpu.core) for group in pool.cpus for cpu in group}) < len(pool.ranks):
            return None
    return pools


def _cores(cpus: Sequence[Cpu], machine: Machine) -> list[Core]:
    """Return the cores of some CPUs, node by node."""
    places = ((-1 if cpu.node is None else cpu.node, cpu.socket, cpu.core) for cpu in cpus)
    cores = gathered(zip(places, (cpu.number for cpu in cpus), strict=True))
    in_order = [tuple(cores[key]) for key in sorted(cores)]
    # A quota means that other jobs run here, perhaps with the same plan, so they should not all start at the
    # first core.
    start = 0 if machine.quota is None else zlib.crc32(machine.host.encode()) % len(in_order)
    return in_order[start:] + in_order[:start]


def _slice(items: Sequence[T], place: int, parts: int) -> Sequence[T]:
    """Return one of ``parts`` consecutive parts whose sizes differ by at most one. With fewer items than
    parts some are empty."""
    return items[len(items) * place // parts : len(items) * (place + 1) // parts]


def _one_of_each_core_first(cores: Sequence[Core]) -> tuple[int, ...]:
    threads = max(map(len, cores))
    return tuple(core[thread] for thread in range(threads) for core in cores if thread < len(core))
