"""``python -m rn50``."""

from rn50.cli import main

main()
