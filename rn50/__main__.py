"""``python -m rn50``."""

import sys

from rn50.errors import Status, UserError
from rn50.packages import needed_for

try:
    with needed_for("the command line"):
        from rn50.cli import main
except UserError as error:
    sys.stderr.write(f"rn50: {error}\n")  # rn50.terminal needs the same packages
    sys.exit(Status.USER_ERROR)

if __name__ == "__main__":  # a spawned process imports this file under another name
    main()
