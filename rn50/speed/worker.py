"""Measurements as jobs of their own, started like a run: what one leaves behind does not affect the next."""

import json
import pathlib
import re
import signal
from subprocess import PIPE, STDOUT, Popen
from typing import Any, NamedTuple

from rn50 import files, process
from rn50.process import OUT_OF_DEVICE_MEMORY, python
from rn50.settings.config import Config
from rn50.terminal import say

OUT_OF_MEMORY = "out of memory"
REMEDY = "give another --output"
TAKES = "timing takes about"
"""Beginning of the line that says how long a measurement takes; it is shown beside being logged."""
_MARK = "rn50 measured "
_OF_ALLOCATORS = re.compile("OutOfMemory|(cannot|failed to) allocate|MemoryError", re.IGNORECASE)


class JobReport(NamedTuple):
    """Data that rank 0 reported, or the reason why it reported none."""

    reported: Any
    failure: str
    """Empty, ``OUT_OF_MEMORY``, or one line that says what went wrong."""


def json_text(data: dict[str, Any]) -> str:
    """Return plain data as JSON, marked as ours."""
    return json.dumps({"file": files.MARK, **data}, indent=1) + "\n"


def write_json(file: pathlib.Path, data: dict[str, Any]) -> None:
    """Write plain data, marked as ours. Raises UserError if that is impossible."""
    files.write(file, json_text(data), remedy=REMEDY)


def report(data: Any) -> None:
    """Report plain data as the outcome of a job; rank 0 calls it."""
    print(_MARK + json.dumps(data), flush=True)


def run(module: str, config: Config, log: pathlib.Path, **arguments: Any) -> JobReport:
    """Call ``as_rank(config, **arguments)`` of a module of rn50 as every rank of its system; its output
    becomes ``log``.

    Raises UserError if ``log`` cannot be written or is a file that is not ours, and KeyboardInterrupt if
    Ctrl-C ended the job.
    """
    files.refuse_to_replace(log, files.TEXT, remedy=REMEDY)
    verb = ["rank", "--start-ranks", module, json.dumps(arguments, default=str)]
    command, prepare = python("-m", "rn50", *verb), process.ask_to_end_with_parent()
    text = ""
    # After Ctrl-C it ends itself; if it does not, the kernel ends it with this process.
    with Popen(command, env=config.environ(), stdout=PIPE, stderr=STDOUT, preexec_fn=prepare) as job:
        for line in job.stdout or ():
            text += line.decode("utf-8", errors="replace")
            if line.startswith(TAKES.encode()):
                say(line.decode().rstrip(), err=True)
    status = job.returncode
    files.write(log, f"# {files.MARK}: rn50 {' '.join(verb)}\n{text}", remedy=REMEDY)
    reported = re.search(rf"^{_MARK}(.*)$", text, re.MULTILINE)
    if status == 128 + signal.SIGINT:  # which this process may ignore: a script started it with &
        raise KeyboardInterrupt
    if status == 0 and reported:
        return JobReport(json.loads(reported[1]), "")
    return JobReport(None, failure(status, text))


def failure(status: int, text: str) -> str:
    """Return why a job that printed ``text`` has ended with ``status``."""
    if any(words.search(text) for words in (process.OUT_OF_MEMORY, OUT_OF_DEVICE_MEMORY, _OF_ALLOCATORS)):
        return OUT_OF_MEMORY
    if message := re.search("^rn50: (.+)$", text, re.MULTILINE):
        return message[1]
    if status - 128 in set(signal.Signals):
        return f"killed by {signal.Signals(status - 128).name}"
    return f"exit status {status}"
