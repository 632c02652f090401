"""``python -m rn50``."""

import gc
import os
import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as under nohup
    # Until the command line answers it; an import would answer with a traceback, or not at all.
    signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))

from rn50.errors import Status, UserError
from rn50.packages import needed_for


def _end_if_interrupted(ignored: "sys.UnraisableHookArgs") -> None:
    """End this process where Python would print and forget a KeyboardInterrupt, as it does while it forks."""
    if isinstance(ignored.exc_value, KeyboardInterrupt):
        os._exit(128 + (*ignored.exc_value.args, signal.SIGINT)[0])
    sys.__unraisablehook__(ignored)


sys.unraisablehook = _end_if_interrupted
# C code of a library that is interrupted while it loads prints that, and raises an error of its own.
sys.excepthook = lambda kind, *rest: None if kind is KeyboardInterrupt else sys.__excepthook__(kind, *rest)
# Libraries make 170,000 lasting objects; to look at them after every 700 took a tenth of the start of a rank.
gc.set_threshold(100_000)
try:
    with needed_for("the command line"):
        from rn50.cli import main
except UserError as error:
    sys.stderr.write(f"rn50: {error}\n")  # rn50.terminal needs the same packages
    sys.exit(Status.USER_ERROR)

if __name__ == "__main__":  # a spawned process imports this file under another name
    main()
