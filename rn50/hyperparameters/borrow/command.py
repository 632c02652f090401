"""Command that borrows a recipe; ``rn50 plan`` and ``rn50 borrow --suggest`` print it last."""

import shlex
from collections.abc import Mapping

PLACEHOLDER = "CONFIG"
"""Stands for the user's configuration if the environment names none."""


def command(source: str, its_batch_size: int, global_batch_size: int, environ: Mapping[str, str]) -> str:
    """Return the command that borrows ``source`` at a batch size into the configuration of the
    environment."""
    config = environ.get("CONFIG_FILE") or environ.get("DGXSYSTEM") or PLACEHOLDER
    batch = "" if global_batch_size == its_batch_size else f" --global-batch-size {global_batch_size}"
    return f"rn50 borrow {shlex.quote(source)} {shlex.quote(config)}{batch} -o config_MINE.sh"
