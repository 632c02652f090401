"""The command that borrows a recipe, as ``rn50 plan`` and ``rn50 borrow --suggest`` end with it."""

import shlex
from collections.abc import Mapping

PLACEHOLDER = "CONFIG"
"""Stands for the configuration of the reader's system where the environment names none."""


def command(source: str, its_batch_size: int, global_batch_size: int, environ: Mapping[str, str]) -> str:
    """Return the command that borrows ``source`` for a batch size, for the configuration that the environment
    names."""
    config = environ.get("CONFIG_FILE") or environ.get("DGXSYSTEM") or PLACEHOLDER
    batch = "" if global_batch_size == its_batch_size else f" --global-batch-size {global_batch_size}"
    return f"rn50 borrow {shlex.quote(source)} {shlex.quote(config)}{batch} -o config_MINE.sh"
