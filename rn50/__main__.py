"""``python -m rn50``: set up signals and errors for the time in which libraries load, then run the command
line."""

import gc
import os
import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, as under nohup
    # End at once on Ctrl-C, until ``main`` sets its own handler: during an import Python would print a
    # traceback, or do nothing.
    signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))

from rn50.errors import Status, UserError
from rn50.packages import needed_for


def _end_if_interrupted(ignored: "sys.UnraisableHookArgs") -> None:
    """End this process on a KeyboardInterrupt that Python would only print, as it does with an interrupt
    during a fork."""
    if isinstance(ignored.exc_value, KeyboardInterrupt):
        # A handler of ``main`` raises it with the number of the signal as argument, Python without.
        arguments = ignored.exc_value.args
        os._exit(128 + (arguments[0] if arguments else signal.SIGINT))
    sys.__unraisablehook__(ignored)


sys.unraisablehook = _end_if_interrupted
# Print nothing for a KeyboardInterrupt: C code of a library that is interrupted while it loads hands it to
# this hook, and then raises an error of its own.
sys.excepthook = lambda kind, *rest: None if kind is KeyboardInterrupt else sys.__excepthook__(kind, *rest)
# Collect garbage after 100,000 new objects in place of 700: libraries make 170,000 objects while they load,
# none of them garbage, and the collections took a tenth of the start of a rank.
gc.set_threshold(100_000)
try:
    with needed_for("the command line"):
        from rn50.cli import main
except UserError as error:
    sys.stderr.write(f"rn50: {error}\n")  # not by rn50.terminal, which may need the package that is missing
    sys.exit(Status.USER_ERROR)

if __name__ == "__main__":  # a spawned process imports this file under another name
    main()
