"""A measurement in a job of its own, started as a run is: what it leaves behind or runs out of is no matter to the next one."""

import json
import pathlib
import re
import signal
import subprocess
import sys
from typing import Any, List, Mapping, NamedTuple, Optional

from rn50 import files

OUT_OF_MEMORY = "out of memory"
_MARK = "rn50 measured "
_NO_MEMORY = re.compile(r"out of memory|OutOfMemory|bad_alloc|(cannot|failed to) allocate|MemoryError", re.IGNORECASE)


class Outcome(NamedTuple):
    """What rank 0 told; or why it told nothing."""

    told: Any
    failure: str
    """Empty, ``OUT_OF_MEMORY``, or what went wrong in a line."""


def tell(found: Any) -> None:
    """As rank 0 of a job: ``found``, plain data, is its outcome."""
    print(_MARK + json.dumps(found), flush=True)


def run(verb: List[str], environ: Mapping[str, str], log: pathlib.Path) -> Outcome:
    """Runs ``rn50 VERB`` as every rank of the system that ``environ`` describes; what is printed becomes ``log``.

    Raises UserError where ``log`` cannot be written, or another's file is there.
    """
    remedy = "give another folder with --to"
    files.refuse_to_replace(log, remedy=remedy)
    command = [sys.executable, "-m", "rn50", *verb, "--start-ranks"]
    done = subprocess.run(command, env=dict(environ), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = done.stdout.decode("utf-8", errors="replace")
    files.write(log, f"# {files.MARK}: rn50 {' '.join(verb)}\n{text}", remedy=remedy)
    told = re.search(rf"^{_MARK}(.*)$", text, re.MULTILINE)
    if done.returncode == 0 and told:
        return Outcome(json.loads(told[1]), "")
    return Outcome(None, failure(done.returncode, text))


def failure(status: int, text: str) -> str:
    """Why a job that printed ``text`` has ended with ``status``."""
    if _NO_MEMORY.search(text):
        return OUT_OF_MEMORY
    said: Optional[str] = next((line[len("rn50: "):] for line in text.splitlines() if line.startswith("rn50: ")), None)
    if said is None and status - 128 in set(signal.Signals):
        said = f"killed by {signal.Signals(status - 128).name}"
    return said or f"exit status {status}"
