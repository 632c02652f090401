"""Read the limits and out-of-memory kills of this process's control groups, of versions 1 and 2."""

import functools
import pathlib
import re
from collections.abc import Mapping
from typing import NamedTuple

from rn50.machine import cpu_list
from rn50.machine.sources import Sources


class Limits(NamedTuple):
    """The tightest limits of the group and of all groups around it. None: no limit."""

    cpus: tuple[int, ...] | None
    """CPUs of the cpuset."""
    quota: float | None
    """CPU time per second: 1.5 is the time of one and a half CPUs, on any of them."""
    memory: int | None
    """Bytes, page cache included. Version 1 writes "no limit" as a number larger than any memory."""


def read(sources: Sources) -> Limits:
    """Return the limits of this process (cgroups(7), and the kernel's admin-guide/cgroup-v2 and
    cgroup-v1)."""
    values = functools.partial(_values, sources, _mounted(sources))
    of_version_2 = (value.partition(" ")[::2] for value in values("", "cpu.max"))
    of_version_1 = zip(values("cpu", "cpu.cfs_quota_us"), values("cpu", "cpu.cfs_period_us"), strict=False)
    pairs = (*of_version_1, *of_version_2)  # "max" or -1: none
    quotas = [int(quota) / int(period) for quota, period in pairs if quota.isdigit() and period.isdigit()]
    memory = values("", "memory.max") + values("memory", "memory.limit_in_bytes")
    limits = [int(value) for value in memory if value.isdigit()]
    # Each set contains the next inner one, so the innermost is the smallest.
    sets = values("", "cpuset.cpus.effective") + values("cpuset", "cpuset.effective_cpus")
    sets += values("cpuset", "cpuset.cpus")
    cpus = cpu_list.parse(sets[0]) if sets else None
    return Limits(cpus, min(quotas, default=None), min(limits, default=None))


def _values(sources: Sources, mounts: Mapping[str, tuple[str, str]], controller: str, file: str) -> list[str]:
    """Return the contents of a controller's ``file``, from this process's group outwards; empty ones are left
    out."""
    if controller not in mounts:
        return []
    folder, below = mounts[controller]
    group = pathlib.PurePosixPath(f"/{below}")
    texts = (sources.text(f"{folder}/{outer}/{file}") for outer in (group, *group.parents))
    return [text for text in texts if text]


def _mounted(sources: Sources) -> dict[str, tuple[str, str]]:
    """Return controller ("" for version 2) -> (mount point of its hierarchy, path of this process's group
    below it)."""
    listed = re.findall(r"^\d+:([^:]*):(.*)$", sources.text("proc/self/cgroup"), re.MULTILINE)
    groups = {controller: path for controllers, path in listed for controller in controllers.split(",")}
    mounts: dict[str, tuple[str, str]] = {}
    mounted = r"^\S+ \S+ \S+ (\S+) (\S+) .* - (cgroup2?) \S+ (\S+)$"
    for root, folder, kind, options in re.findall(mounted, sources.text("proc/self/mountinfo"), re.MULTILINE):
        for controller in [""] if kind == "cgroup2" else options.split(","):
            if controller in groups:
                # In a container without its own cgroup namespace both the group and the root have the host's
                # paths.
                below = re.sub(rf"^{re.escape(root.rstrip('/'))}(?=/|$)", "", groups[controller])
                mounts[controller] = folder, below
    return mounts


def oom_kills(sources: Sources) -> int:
    """Return how many processes of this control group the kernel has killed for lack of memory; 0 if it does
    not report it.

    Source of the format: Linux, Documentation/admin-guide, cgroup-v1/memory.rst and cgroup-v2.rst.
    """
    mounts = _mounted(sources)
    texts = _values(sources, mounts, "", "memory.events")[:1]
    texts += _values(sources, mounts, "memory", "memory.oom_control")[:1]
    counts = (re.search(r"^oom_kill (\d+)$", text, re.MULTILINE) for text in texts)
    return max((int(count[1]) for count in counts if count), default=0)
