"""Start the ranks of a run on one machine by the launcher of a framework, and leave none of its files or
processes behind.

    python -m rn50.launch.framework_launcher FRAMEWORK LAUNCHER RANKS COMMAND...

Such a launcher writes the output of ranks into files, or adds its own prefixes. So it starts
``launched_rank`` as every rank, which prints to the standard output of this process, as ``local_launcher``
does.
"""

import os
import signal
import subprocess
import sys
import tempfile

import psutil

from rn50.frameworks import traits
from rn50.launch.local_launcher import kill, later
from rn50.process import ask_to_end_with_parent, python

GRACE_S = 8
"""Time between the request to end and the kill; less than ``job`` grants, because the folder has to be
removed after it."""


def main(framework: str, launcher: str, ranks: str, command: list[str]) -> int:
    """Run ``command`` as every rank and return the launcher's exit status, -n for signal n."""
    # A signal is held back until there is a launcher to end.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    spec = traits(framework).launchers[launcher]
    rank = python("-m", "rn50.launch.launched_rank", str(os.getpid()), spec.rank, *command)
    with tempfile.TemporaryDirectory(prefix="rn50-") as folder:
        arguments = [argument.format(ranks=ranks, folder=folder) for argument in spec.arguments]
        process = subprocess.Popen(python("-m", *arguments, *rank), preexec_fn=ask_to_end_with_parent())
        signal.signal(signal.SIGTERM, lambda *_: _end(process))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        return process.wait()


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    later(GRACE_S, lambda: kill(psutil.Process().children(recursive=True)))


if __name__ == "__main__":
    ended = main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
    if ended < 0:  # end as the launcher did, so that its signal is not taken for a rank's
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), -ended)
    sys.exit(ended)
