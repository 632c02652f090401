"""Processes that have ended. A zombie has: in a container without an init nobody waits for orphans."""

import os
import time

import psutil


def is_alive(pid):
    """Whether a process runs."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_in(pid, group):
    """Whether a process is one of a process group."""
    try:
        return os.getpgid(pid) == group
    except ProcessLookupError:
        return False


def all_end(pids, limit_s=60):
    """Whether all processes end in time. ``pids()`` is asked again and again."""
    deadline = time.monotonic() + limit_s
    while any(map(is_alive, pids())):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def group_ends(group, limit_s=60):
    """Whether every process of a group ends in time."""
    return all_end(lambda: [pid for pid in psutil.pids() if is_in(pid, group)], limit_s)
