"""Run a measurement in a job of its own, whose ranks are started like those of a run. So nothing that it
leaves behind, such as memory of the device, affects the next measurement.

``run`` starts the job; in it every rank calls ``as_rank`` of the module that measures, and rank 0 hands the
result back with ``report``, as a line of output.
"""

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
"""Failure of a job that had too little memory. ``process.OUT_OF_MEMORY`` is another thing: a pattern of error
messages."""
REMEDY = "give another --output"
DURATION_LINE = "timing takes about"
"""Beginning of the line that says how long a measurement takes. ``run`` shows this line at once."""
_MARK = "rn50 measured "
"""Beginning of the line with the result."""
_NO_MEMORY = re.compile("OutOfMemory|(cannot|failed to) allocate|MemoryError", re.IGNORECASE)
"""Words for too little memory that the two patterns of ``rn50.process`` lack."""


class JobReport(NamedTuple):
    """Data that rank 0 reported, or the reason why it reported none."""

    reported: Any
    """Plain data; None: there is a failure."""
    failure: str
    """Empty, ``OUT_OF_MEMORY``, or one line that says what went wrong."""


def json_text(data: dict[str, Any]) -> str:
    """Return plain data as JSON, with the mark of the files that rn50 writes."""
    return json.dumps({"file": files.MARK, **data}, indent=1) + "\n"


def write_json(file: pathlib.Path, data: dict[str, Any]) -> None:
    """Write ``json_text`` of plain data. Raises UserError if the file cannot be written."""
    files.write(file, json_text(data), remedy=REMEDY)


def report(data: Any) -> None:
    """Hand plain data to the process that started the job. Rank 0 calls it."""
    print(_MARK + json.dumps(data), flush=True)


def run(module: str, config: Config, log: pathlib.Path, **arguments: Any) -> JobReport:
    """Start the ranks of ``config`` and have each call ``as_rank(config, **arguments)`` of ``module``, such
    as "speed.cell". Write what they print to ``log``. Return the data that rank 0 reported.

    Raises UserError if ``log`` cannot be written or is a file that rn50 has not written, and
    KeyboardInterrupt if Ctrl-C ended the job.
    """
    files.refuse_to_replace(log, files.TEXT, remedy=REMEDY)
    # The hidden verb ``rn50 rank``; paths among the arguments become texts.
    verb = ["rank", "--start-ranks", module, json.dumps(arguments, default=str)]
    command = python("-m", "rn50", *verb)
    prepare = process.ask_to_end_with_parent()
    text = ""
    # Ctrl-C reaches the job too, and ends it. If it does not, the kernel ends the job together with this
    # process.
    with Popen(command, env=config.environ(), stdout=PIPE, stderr=STDOUT, preexec_fn=prepare) as job:
        for line in job.stdout or ():
            text += line.decode("utf-8", errors="replace")
            if line.startswith(DURATION_LINE.encode()):
                say(line.decode().rstrip(), err=True)
    status = job.returncode
    files.write(log, f"# {files.MARK}: rn50 {' '.join(verb)}\n{text}", remedy=REMEDY)
    reported = re.search(rf"^{_MARK}(.*)$", text, re.MULTILINE)
    # The job has ended by Ctrl-C. This process may ignore the signal itself, if a script started it with &.
    if status == 128 + signal.SIGINT:
        raise KeyboardInterrupt
    if status == 0 and reported:
        return JobReport(json.loads(reported[1]), "")
    return JobReport(None, failure(status, text))


def failure(status: int, text: str) -> str:
    """Return why a job that printed ``text`` has ended with this exit status, in one line: too little memory,
    else its first error line ("rn50: ..."), else the signal or the exit status."""
    if any(words.search(text) for words in (process.OUT_OF_MEMORY, OUT_OF_DEVICE_MEMORY, _NO_MEMORY)):
        return OUT_OF_MEMORY
    if message := re.search("^rn50: (.+)$", text, re.MULTILINE):
        return message[1]
    if status - 128 in set(signal.Signals):
        return f"killed by {signal.Signals(status - 128).name}"
    return f"exit status {status}"
