"""``rn50 watch`` and ``rn50 run``: follow a campaign until it is over."""

import json
import os
import pathlib
import signal
import subprocess
import time
from typing import IO, Callable, Dict, Mapping, Optional

from rich.live import Live

from rn50.errors import UserError
from rn50.files import ROOT
from rn50.launch.campaign import state, view
from rn50.process import ask_to_end_with_parent
from rn50.run.display import PROGRESS, Progress
from rn50.terminal import Terminal, say

SCRIPT = ROOT / "run_experiments.sh"
POLL_S = 1.0
"""Seconds from one reading of the logs to the next."""


def watch(results: pathlib.Path, runs: int) -> None:
    """Show the campaign in a folder until all of its runs have ended. Ctrl-C ends the watching and nothing else.

    Raises UserError if there is no such folder, or a log cannot be read.
    """
    if not results.is_dir():
        raise UserError(results, "no such folder", "name the folder of a campaign, or begin one: rn50 run CONFIG")
    console = Terminal()
    now = state.read(results, runs)
    if not console.live:
        before = None
        while True:
            for line in view.events(before, now):
                say(line)
            if now.is_over:
                return
            time.sleep(POLL_S)
            before, now = now, state.read(results, runs)
    with Live(view.render(now, None), console=console, auto_refresh=False) as live:
        while not now.is_over:
            time.sleep(POLL_S)
            now = state.read(results, runs)
            live.update(view.render(now, None), refresh=True)
