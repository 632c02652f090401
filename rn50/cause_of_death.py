"""Why a process may have been killed: what the kernel counted, and what a signal usually means here."""

import pathlib
import re
import signal
from typing import List

OOM_FILES = {"memory": "memory.oom_control", "": "memory.events"}
"""cgroup controller, "" for version 2 -> the file with its count "oom_kill"."""
MOUNT = pathlib.Path("/sys/fs/cgroup")

USUAL = {
    signal.SIGBUS: "a file of DATADIR was cut short or its storage is gone, or /dev/shm is full",
    signal.SIGILL: "this processor lacks an instruction that a package was built for",
}


def oom_kills() -> int:
    """How many processes of this process's own control group the kernel has killed for memory so far; 0 where it does not say.

    Source of the format: Linux, Documentation/admin-guide, cgroup-v1/memory.rst and cgroup-v2.rst.
    """
    return max((_oom_kills(path) for path in _oom_files()), default=0)


def _oom_files() -> List[pathlib.Path]:
    try:
        lines = pathlib.Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            if controller in OOM_FILES:
                # In a container the path may be the host's, and the group is what is mounted.
                found += [MOUNT / controller / part / OOM_FILES[controller] for part in (path.lstrip("/"), "")]
    return found


def _oom_kills(path: pathlib.Path) -> int:
    try:
        count = re.search(r"^oom_kill (\d+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return 0
    return int(count[1]) if count else 0


def explain(number: int, oom_kills_before: int) -> str:
    """`` (cause)`` to stand after "killed by <signal>", or nothing where none is known."""
    if number == signal.SIGKILL and oom_kills() > oom_kills_before:
        return " (out of memory: give the job more, or lower BATCHSIZE or DALI_PREFETCH_QUEUE)"
    return f" ({USUAL[signal.Signals(number)]})" if number in USUAL else ""
