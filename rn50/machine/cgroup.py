"""The limits of this process's control groups, as a container or Slurm sets them, and the out-of-memory kills
in them. Linux has two versions of control groups, and a machine may use either or both."""

import functools
import pathlib
import re
from collections.abc import Mapping
from typing import NamedTuple

from rn50.machine import cpu_list
from rn50.machine.sources import Sources


class Limits(NamedTuple):
    """The tightest limits of this process's group and of all groups that contain it. None: no limit."""

    cpus: tuple[int, ...] | None
    """The CPUs of the cpuset."""
    quota: float | None
    """CPU time per second, in seconds: with 1.5 all threads together may use the time of 1.5 CPUs."""
    memory: int | None
    """Bytes, page cache included. Version 1 has a number larger than any memory if there is no limit."""


def read(sources: Sources) -> Limits:
    """Return the limits of this process. Source of the files: cgroups(7), and the kernel's
    admin-guide/cgroup-v2 and cgroup-v1."""
    # values(controller, file); the controller "" stands for version 2.
    values = functools.partial(_values, sources, _mounts(sources))
    # Pairs of a quota and its period. Version 2 has both in one file: "150000 100000", or "max 100000" if
    # there is no quota. Version 1 has two files, and a quota of -1 if there is none.
    of_version_2 = (value.partition(" ")[::2] for value in values("", "cpu.max"))
    of_version_1 = zip(values("cpu", "cpu.cfs_quota_us"), values("cpu", "cpu.cfs_period_us"), strict=False)
    pairs = (*of_version_1, *of_version_2)
    quotas = [int(quota) / int(period) for quota, period in pairs if quota.isdigit() and period.isdigit()]
    memory = values("", "memory.max") + values("memory", "memory.limit_in_bytes")
    memory_limits = [int(value) for value in memory if value.isdigit()]
    # The first set is that of the innermost group. All groups around it contain it, so it is the smallest.
    sets = values("", "cpuset.cpus.effective") + values("cpuset", "cpuset.effective_cpus")
    sets += values("cpuset", "cpuset.cpus")
    cpus = cpu_list.parse(sets[0]) if sets else None
    return Limits(cpus, min(quotas, default=None), min(memory_limits, default=None))


def _values(sources: Sources, mounts: Mapping[str, tuple[str, str]], controller: str, file: str) -> list[str]:
    """Return the content of ``file`` of this process's group, of the group around it, and so on outwards.
    Empty and missing files are left out. ``mounts`` is the result of ``_mounts``. Without a hierarchy of
    ``controller`` the list is empty."""
    if controller not in mounts:
        return []
    folder, group_path = mounts[controller]
    group = pathlib.PurePosixPath(f"/{group_path}")
    texts = (sources.text(f"{folder}/{outer}/{file}") for outer in (group, *group.parents))
    return [text for text in texts if text]


def _mounts(sources: Sources) -> dict[str, tuple[str, str]]:
    """Return controller -> (mount point of its hierarchy, path of this process's group below the mount
    point). The controller is "" for version 2, which has a single hierarchy."""
    # Lines like "4:cpu,cpuacct:/job", in version 2 "0::/job" (proc(5)).
    lines = re.findall(r"^\d+:([^:]*):(.*)$", sources.text("proc/self/cgroup"), re.MULTILINE)
    groups = {controller: path for controllers, path in lines for controller in controllers.split(",")}
    mounts: dict[str, tuple[str, str]] = {}
    # Lines like "30 23 0:26 ROOT FOLDER rw shared:4 - cgroup cgroup rw,cpu,cpuacct".
    mount = r"^\S+ \S+ \S+ (\S+) (\S+) .* - (cgroup2?) \S+ (\S+)$"
    for root, folder, kind, options in re.findall(mount, sources.text("proc/self/mountinfo"), re.MULTILINE):
        for controller in [""] if kind == "cgroup2" else options.split(","):
            if controller in groups:
                # A container without a cgroup namespace of its own sees the group's path and the mount's root
                # as the host does. Only the part of the group's path behind the root exists below the mount.
                group_path = re.sub(rf"^{re.escape(root.rstrip('/'))}(?=/|$)", "", groups[controller])
                mounts[controller] = folder, group_path
    return mounts


def oom_kills(sources: Sources) -> int:
    """Return the number of processes of this control group that the kernel has killed for lack of memory; 0
    if it does not report the number.

    Source of the format: Linux, Documentation/admin-guide, cgroup-v1/memory.rst and cgroup-v2.rst.
    """
    mounts = _mounts(sources)
    # [:1]: this process's own group alone.
    texts = _values(sources, mounts, "", "memory.events")[:1]
    texts += _values(sources, mounts, "memory", "memory.oom_control")[:1]
    counts = (re.search(r"^oom_kill (\d+)$", text, re.MULTILINE) for text in texts)
    return max((int(count[1]) for count in counts if count), default=0)
