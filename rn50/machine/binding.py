"""The binding of ranks to CPUs: ``plan`` chooses the CPUs of each rank of this machine, so that a rank uses
cores and memory near its GPU; ``apply`` binds this process to them.

A process that is bound to CPUs of a NUMA node also uses the memory of that node, because Linux allocates a
page on the node of the CPU that touches it first. In this file a CPU is a hardware thread, and a core has one
or several of them.
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
    """The CPUs of a rank."""

    local_rank: int
    cpus: tuple[int, ...]
    """First one CPU of each core, then the second CPU of each core, and so on."""
    numa_node: int | None
    """The NUMA node of the CPUs; if they are of several nodes, the node of the GPU; None: not known."""


class Pool(NamedTuple):
    """Ranks that share some CPUs."""

    node: int | None
    """NUMA node of the GPUs of these ranks; None: not known."""
    ranks: Sequence[int]
    cpus: list[Sequence[Cpu]]
    """The CPUs of each NUMA node; those of ``node`` come first."""


def plan(machine: Machine, ranks_per_node: int, near_gpus: bool = True) -> list[RankBinding]:
    """Return a binding for each rank of this machine. The ranks share all CPUs that this process may use.

    Ranks get different cores if there are enough cores; else they share all of them. Rank r uses the r-th
    visible GPU. It gets cores of that GPU's NUMA node, and of other nodes on the same socket that have no GPU
    in use. If the machine does not report the nodes, or ``near_gpus`` is False, each rank gets the next cores
    in order. A quota of CPU time limits the number of CPUs, because the kernel stops all threads together as
    soon as they have used the quota up.
    """
    pools = _pools_near_gpus(machine, ranks_per_node) if near_gpus else None
    bindings = []
    # Without pools all ranks share all CPUs.
    for pool in pools or [Pool(None, range(ranks_per_node), [machine.cpus])]:
        node_cores = [_cores(cpus, machine) for cpus in pool.cpus]  # the cores of each node
        # Each rank gets a slice of every node's cores. If the first node, that of the GPUs, has fewer cores
        # than the pool has ranks, the cores of all nodes are divided as one list.
        if len(node_cores[0]) < len(pool.ranks):
            node_cores = [sum(node_cores, [])]
        is_shared = len(node_cores[0]) < len(pool.ranks)  # too few cores in all nodes together
        for index, rank in enumerate(pool.ranks):
            if is_shared:
                rank_cores, cpu_limit = node_cores[0], machine.usable_cpus
            else:
                rank_cores = [core for cores in node_cores for core in _slice(cores, index, len(pool.ranks))]
                # Number of CPUs: this rank's part of those that the quota allows, but at least one.
                cpu_limit = len(_slice(range(machine.usable_cpus), rank, ranks_per_node)) or 1
            # Without a quota a rank gets all hardware threads of its cores.
            cpus = _one_of_each_core_first(rank_cores)[: None if machine.quota is None else cpu_limit]
            nodes = {cpu.node for cpu in machine.cpus if cpu.number in cpus}
            bindings.append(RankBinding(rank, cpus, nodes.pop() if len(nodes) == 1 else pool.node))
    return sorted(bindings)


def apply(binding: RankBinding) -> str:
    """Bind this process, and the threads that it will start, to the CPUs of ``binding``. Return a line that
    reports the binding, or why it failed; raise nothing."""
    try:
        os.sched_setaffinity(0, binding.cpus)
    except (OSError, ValueError, OverflowError) as error:
        return f"{describe(binding)}: not bound ({error}); the rank runs on any CPU it may use"
    return describe(binding)


def describe(binding: RankBinding) -> str:
    """Return the binding in words."""
    node = "" if binding.numa_node is None else f" (NUMA node {binding.numa_node})"
    return f"rank {binding.local_rank} of this machine: CPU {cpu_list.write(binding.cpus)}{node}"


def _pools_near_gpus(machine: Machine, ranks: int) -> list[Pool] | None:
    """Return a pool for each NUMA node with GPUs in use. Return None if a rank has no GPU, the node of a GPU
    is not known or has no usable CPU, or a pool has fewer cores than ranks."""
    ranks_of_node = gathered((gpu.node, rank) for rank, gpu in enumerate(machine.gpus[:ranks]))
    cpus_of_node = gathered((cpu.node, cpu) for cpu in machine.cpus)
    if len(machine.gpus) < ranks or None in ranks_of_node or not set(ranks_of_node) <= set(cpus_of_node):
        return None
    pools = [Pool(node, node_ranks, [cpus_of_node[node]]) for node, node_ranks in ranks_of_node.items()]
    # A node without GPUs goes to the pool on its socket that has the fewest CPUs for a rank.
    for node, cpus in cpus_of_node.items():
        on_socket = [pool for pool in pools if pool.cpus[0][0].socket == cpus[0].socket]
        if node not in ranks_of_node and on_socket:
            poorest = min(on_socket, key=lambda pool: sum(map(len, pool.cpus)) / len(pool.ranks))
            poorest.cpus.append(cpus)
    for pool in pools:
        if len({(cpu.socket, cpu.core) for group in pool.cpus for cpu in group}) < len(pool.ranks):
            return None
    return pools


def _cores(cpus: Sequence[Cpu], machine: Machine) -> list[Core]:
    """Return the cores of ``cpus``, in the order of their nodes, sockets and numbers."""
    # A node that is not known counts as -1, so that the keys can be sorted.
    keys = ((-1 if cpu.node is None else cpu.node, cpu.socket, cpu.core) for cpu in cpus)
    cores = gathered(zip(keys, (cpu.number for cpu in cpus), strict=True))
    in_order = [tuple(cores[key]) for key in sorted(cores)]
    # With a quota other containers may run here and make the same plan. So each container starts at another
    # core, which its host name decides.
    start = 0 if machine.quota is None else zlib.crc32(machine.host.encode()) % len(in_order)
    return in_order[start:] + in_order[:start]


def _slice(items: Sequence[T], index: int, parts: int) -> Sequence[T]:
    """Return part number ``index``, from 0, of ``items`` divided into ``parts`` consecutive parts, whose
    sizes differ by at most one. A part may be empty."""
    return items[len(items) * index // parts : len(items) * (index + 1) // parts]


def _one_of_each_core_first(cores: Sequence[Core]) -> tuple[int, ...]:
    """Return the CPUs of ``cores`` in the order of ``RankBinding.cpus``."""
    threads = max(map(len, cores))
    return tuple(core[thread] for thread in range(threads) for core in cores if thread < len(core))
