"""Start the ranks of a run on one machine, and end all of them when one fails.

    python -m rn50.launch.local_launcher RANKS COMMAND...

Like horovodrun it puts rank and stream before every line that a rank prints, and prints a message if a rank
fails.
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
"""Time that the other ranks get to notice a failed rank and report it, before they are asked to end."""
GRACE_S = 10
"""Time between the request to end and the kill."""


def start(ranks: int, command: list[str]) -> list["subprocess.Popen[bytes]"]:
    """Start ``command`` as every rank, each with a socket to every other one and with the memory they
    share."""
    sockets: list[dict[int, socket.socket]] = [{} for _ in range(ranks)]
    for first in range(ranks):
        for second in range(first + 1, ranks):
            sockets[first][second], sockets[second][first] = socket.socketpair()
    memory = os.memfd_create("rn50")
    processes = []
    for rank, peers in enumerate(sockets):
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
    # A rank's sockets have to close when it ends, so no other process may hold them.
    os.close(memory)
    for peers in sockets:
        for connection in peers.values():
            connection.close()
    return processes


def main(ranks: int, command: list[str]) -> int:
    """Run ``command`` as every rank; return 0, or the status of the rank that failed first, 128 + n for
    signal n."""
    # A signal during the start of the ranks is held back until all of them can be ended.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    processes = start(ranks, command)
    output = Output(sys.stdout.buffer)
    ended: queue.Queue[int] = queue.Queue()

    def follow_one(rank: int, process: "subprocess.Popen[bytes]") -> None:
        ended.put(follow(rank, process, output))

    for ranked in enumerate(processes):
        threading.Thread(target=follow_one, args=ranked).start()
    signal.signal(signal.SIGTERM, lambda *_: end(processes))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    failed = 0
    for _ in processes:
        status = ended.get()
        if status and not failed:
            failed = status if status > 0 else 128 - status
            later(ON_THEIR_OWN_S, lambda: end(processes))
    return failed


class Output:
    """A stream to which any thread may write a line at a time."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._lock, self._stream = threading.Lock(), stream

    def write(self, line: bytes) -> None:
        """Write a line, with its end. Do nothing if nobody reads it any more, because the starter of this
        process was killed."""
        with self._lock, contextlib.suppress(BrokenPipeError):
            self._stream.write(line)
            self._stream.flush()


def follow(rank: int, process: "subprocess.Popen[bytes]", output: Output) -> int:
    """Pass on the output of a rank until it has ended, and a message if it failed; return its status, -n for
    signal n."""

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
    return status


def end(processes: list["subprocess.Popen[bytes]"]) -> None:
    """Ask processes to end, and kill them after a while."""
    for process in processes:
        process.terminate()
    for process in processes:
        later(GRACE_S, process.kill)


def kill(processes: Iterable[psutil.Process]) -> None:
    """Kill those of the processes that have not ended since."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def later(seconds: float, function: Callable[[], object]) -> None:
    """Call a function after some seconds, unless this process has ended by then."""
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
