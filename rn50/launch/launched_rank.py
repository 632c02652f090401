"""One rank that the launcher of a framework starts.

    python -m rn50.launch.launched_rank LAUNCHER VARIABLE COMMAND...

VARIABLE names the environment variable with the number of the rank. LAUNCHER is the process number of
``framework_launcher``, to whose standard output this process passes on what COMMAND prints.
"""

import signal
import subprocess
import sys

import psutil

from rn50.launch.local_launcher import Output, end, follow
from rn50.process import ask_to_end_with_parent, end_with_parent, environment
from rn50.run.local_ranks import RANK


def main(launcher: int, variable: str, command: list[str]) -> int:
    """Run ``command`` as this rank and return its status, 128 + n for signal n."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    end_with_parent()
    if launcher not in (parent.pid for parent in psutil.Process().parents()):
        return 1  # the launcher ended before end_with_parent took effect
    rank = int(environment()[variable])
    with open(f"/proc/{launcher}/fd/1", "wb") as stream:
        process = subprocess.Popen(
            command,
            env={**environment(), RANK: str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a launcher may signal its whole process group
            # A launcher may kill this process, without a word to the rank: then the kernel ends it.
            preexec_fn=ask_to_end_with_parent(signal.SIGKILL),
        )
        signal.signal(signal.SIGTERM, lambda *_: end([process]))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        status = follow(rank, process, Output(stream))
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
