"""What the control groups of this process allow it, read from version 1 and version 2 hierarchies alike."""

import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from rn50.facts import cpu_list
from rn50.facts.sources import Sources


class Limits(NamedTuple):
    """None: no limit. Limits of all the groups that this one lies in count as well, the tightest decides."""

    cpus: Optional[Tuple[int, ...]]
    """CPUs of the cpuset."""
    quota: Optional[float]
    """CPUs' worth of time: 1.5 is one and a half CPUs, on whichever of them."""
    memory: Optional[int]
    """Bytes, page cache included. Version 1 writes "no limit" as a number that is larger than any memory."""


def read(sources: Sources) -> Limits:
    """The limits of this process (cgroups(7), and the kernel's admin-guide/cgroup-v2 and cgroup-v1)."""
    folders = _mounted(sources)

    def values(controller: str, file: str) -> List[str]:
        found = (sources.text(f"{folder}/{file}") for folder in _chain(folders.get(controller)))
        return [value for value in found if value]

    quotas = []
    for value in values("", "cpu.max"):
        quota, _, period = value.partition(" ")
        if quota.isdigit() and period.isdigit():
            quotas.append(int(quota) / int(period))
    for quota, period in zip(values("cpu", "cpu.cfs_quota_us"), values("cpu", "cpu.cfs_period_us")):
        if quota.isdigit() and period.isdigit():  # -1: none
            quotas.append(int(quota) / int(period))
    memory = values("", "memory.max") + values("memory", "memory.limit_in_bytes")
    limits = [int(value) for value in memory if value.isdigit()]
    # Nested sets lie in each other, so the innermost is the smallest.
    sets = values("", "cpuset.cpus.effective") + values("cpuset", "cpuset.effective_cpus") + values("cpuset", "cpuset.cpus")
    return Limits(cpu_list.parse(sets[0]) if sets else None, min(quotas, default=None), min(limits, default=None))


def _mounted(sources: Sources) -> Dict[str, Tuple[str, str]]:
    """Controller ("" for version 2) -> (where its hierarchy is mounted, the path of this process's group below that)."""
    groups: Dict[str, str] = {}
    for controllers, path in re.findall(r"^\d+:([^:]*):(.*)$", sources.text("proc/self/cgroup"), re.MULTILINE):
        groups.update(dict.fromkeys(controllers.split(","), path))
    mounts: Dict[str, Tuple[str, str]] = {}
    mounted = r"^\S+ \S+ \S+ (\S+) (\S+) .* - (cgroup2?) \S+ (\S+)$"
    for root, folder, kind, options in re.findall(mounted, sources.text("proc/self/mountinfo"), re.MULTILINE):
        for controller in [""] if kind == "cgroup2" else options.split(","):
            if controller in groups:
                # In a container without a namespace of its own the group is named as the host sees it, and so is the root.
                below = re.sub(rf"^{re.escape(root.rstrip('/'))}(?=/|$)", "", groups[controller])
                mounts[controller] = folder, below
    return mounts


def _chain(mount: Optional[Tuple[str, str]]) -> Iterator[str]:
    """Folders from this process's group up to the root of its hierarchy."""
    if mount is None:
        return
    folder, below = mount
    while below.strip("/"):
        yield f"{folder}/{below.strip('/')}"
        below = below.rpartition("/")[0]
    yield folder
