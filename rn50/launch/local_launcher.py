"""Start the ranks of a run on one machine, and end all of them when one fails.

    python -m rn50.launch.local_launcher RANKS COMMAND...

``launchers.py`` makes this command. Its output has the format of horovodrun's, which ``job.py`` reads: rank
and stream stand before every line that a rank prints, and a message names each rank that fails.
"""

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from typing import IO

import psutil

from rn50.process import MEMORY, RANK, SOCKETS, ask_to_end_with_parent, environment

ON_THEIR_OWN_S = 3
"""Time between the failure of a rank and the request to the other ranks to end. In it they may notice the
failure and report it themselves."""
GRACE_S = 10
"""Time between the request to end and the kill."""


def start(ranks: int, command: list[str]) -> list["subprocess.Popen[bytes]"]:
    """Start ``command`` once for each rank, and return the processes by rank. Each gets a socket to every
    other rank, and memory that all share: environment variables tell it their file descriptors, which
    ``rn50.run.local_ranks`` reads."""
    sockets: list[dict[int, socket.socket]] = [{} for _ in range(ranks)]  # by rank: other rank -> socket
    for rank in range(ranks):
        for peer in range(rank + 1, ranks):
            sockets[rank][peer], sockets[peer][rank] = socket.socketpair()
    memory = os.memfd_create("rn50")
    processes = []
    for rank, peers in enumerate(sockets):
        # Such as "7,,9" for rank 1 of 3, which has no socket to itself.
        descriptors = ",".join(str(peers[peer].fileno()) if peer in peers else "" for peer in range(ranks))
        process = subprocess.Popen(
            command,
            env={**environment(), RANK: str(rank), SOCKETS: descriptors, MEMORY: str(memory)},
            pass_fds=[memory, *(connection.fileno() for connection in peers.values())],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=ask_to_end_with_parent(),
        )
        processes.append(process)
    # When a rank ends, the others notice that its sockets close. They close only if this process, too, has
    # closed them.
    os.close(memory)
    for peers in sockets:
        for connection in peers.values():
            connection.close()
    return processes


def main(ranks: int, command: list[str]) -> int:
    """Run ``command`` as every rank. Return 0, or the exit status of the rank that failed first: 128 + n if
    signal n killed it."""
    # Hold back SIGTERM until all ranks are started, so that its handler ends all of them.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    processes = start(ranks, command)
    output = Output(sys.stdout.buffer)
    statuses: queue.Queue[int] = queue.Queue()
    for rank, process in enumerate(processes):
        threading.Thread(target=follow, args=(rank, process, output, statuses)).start()
    signal.signal(signal.SIGTERM, lambda *_: end(processes))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    job_status = 0
    for _ in processes:
        status = statuses.get()
        if status and not job_status:
            job_status = status if status > 0 else 128 - status
            later(ON_THEIR_OWN_S, lambda: end(processes))
    return job_status


class Output:
    """A stream to which several threads write, each a whole line at a time."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._lock, self._stream = threading.Lock(), stream

    def write(self, line: bytes) -> None:
        """Write a line, which ends in a newline. Do nothing if the pipe has no reader: the process that
        started this one was killed."""
        with self._lock, contextlib.suppress(BrokenPipeError):
            self._stream.write(line)
            self._stream.flush()


def follow(rank: int, process: "subprocess.Popen[bytes]", output: Output, statuses: queue.Queue[int]) -> None:
    """Pass on the output of a rank until it ends, then a message if it failed. Put its exit status into
    ``statuses``: -n if signal n killed it."""

    def pass_on(stream: IO[bytes], name: str) -> None:
        for line in stream:
            output.write(f"[{rank}]<{name}>:".encode() + line.rstrip(b"\n") + b"\n")

    assert process.stdout is not None and process.stderr is not None
    errors = threading.Thread(target=pass_on, args=(process.stderr, "stderr"))
    errors.start()
    pass_on(process.stdout, "stdout")
    errors.join()
    status = process.wait()
    if status:
        output.write(f"Process {rank} exit with status code {status}\n".encode())
    statuses.put(status)


def end(processes: list["subprocess.Popen[bytes]"]) -> None:
    """Ask processes to end, and kill them after ``GRACE_S`` seconds."""
    for process in processes:
        process.terminate()
    for process in processes:
        later(GRACE_S, process.kill)


def kill(processes: Iterable[psutil.Process]) -> None:
    """Kill processes; do nothing for a process that has ended. ``job.py`` calls this function, too."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def later(seconds: float, function: Callable[[], object]) -> None:
    """Call a function after some seconds, unless this process ends before."""
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
