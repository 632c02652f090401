"""``rn50 run`` and ``rn50 watch``: make a campaign (the runs of a result), or follow one that is made
elsewhere, until it is over."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from rich.console import RenderableType
from rich.live import Live

from rn50 import files
from rn50.errors import UserError
from rn50.files import ROOT
from rn50.launch.campaign import state, view
from rn50.process import ask_to_end_with_parent, environment, handling, not_ignored
from rn50.run.display import PROGRESS, EpochProgress, read_progress
from rn50.terminal import Terminal, say

SCRIPT = ROOT / "run_experiments.sh"
POLL_S = 1.0
"""Seconds from one reading of the logs to the next."""


def refuse_missing(results: pathlib.Path) -> None:
    """Raise UserError if there is no such folder."""
    if not results.is_dir():
        remedy = "name the results of a campaign, or begin one: rn50 run CONFIG"
        raise UserError(results, "no such folder", files.nearest(results) or remedy)


def watch(results: pathlib.Path, runs: int | None) -> None:
    """Show the campaign in a folder until all of its runs have ended. Ctrl-C ends only the watching. ``runs``
    is as in ``state.read``.

    Raises UserError if there is no such folder, or a log cannot be read.
    """
    refuse_missing(results)
    console = Terminal()
    before, now = None, state.read(results, runs)
    with Live(console=console, auto_refresh=False) if console.live else contextlib.nullcontext() as live:
        while True:
            if live:
                live.update(view.render(now, None), refresh=True)  # None: progress in an epoch is not logged
            else:
                for line in view.events(before, now):
                    say(line)
            if now.is_over:
                return
            time.sleep(POLL_S)
            before, now = now, state.read(results, runs)


def make_missing(
    config_file: pathlib.Path,
    results: pathlib.Path,
    runs: int,
    as_json: bool = False,
    variables: Mapping[str, str] = MappingProxyType({}),
    other: pathlib.Path | None = None,
) -> int:
    """Complete a campaign: call ``run_experiments.sh``, which makes the runs that are missing among ``runs``
    runs in the folder ``results``. ``variables`` are environment variables for it. Return its exit status,
    128 + n if signal n ended it.

    ``other`` is the folder of another campaign whose runs are made in turn with these: the time that is left
    counts them too.

    On a terminal show a live view below the lines that the script prints; elsewhere let it print its lines
    alone. With ``as_json`` they go to standard error.
    """
    # In a checkout without .venv the scripts take python3 from the PATH: let it be this process's Python.
    path = f"{os.path.dirname(sys.executable)}:{environment().get('PATH', os.defpath)}"
    environ = {**environment(), **variables, "NEXP": str(runs), "PATH": path}
    environ |= {"CONFIG_FILE": str(config_file.resolve()), "RESULTS": str(results.absolute())}
    stdout: int | None = 2 if as_json else None  # 2: standard error; None: as this process
    stderr: int | None = None
    is_shown = Terminal().live and not as_json
    if is_shown:
        environ[PROGRESS] = "1"
        stdout, stderr = subprocess.PIPE, subprocess.STDOUT
    prepare = ask_to_end_with_parent()
    child = subprocess.Popen([str(SCRIPT)], env=environ, stdout=stdout, stderr=stderr, preexec_fn=prepare)
    with _signals_passed_on(child):
        if is_shown:
            _show(child, results, runs, other)
        status = child.wait()
    return 128 - status if status < 0 else status


def _show(
    child: "subprocess.Popen[bytes]", results: pathlib.Path, runs: int, other: pathlib.Path | None
) -> None:
    """Show the view until ``child`` ends its output. The lines that ``child`` prints stay above the view.
    ``other`` is as in ``make_missing``."""
    console = Terminal()
    progress: EpochProgress | None = None

    def current_view() -> RenderableType:
        # A log that cannot be read is no reason to end the view: the end of the campaign names it.
        with contextlib.suppress(UserError):
            campaign = state.read(results, runs)
            if other:
                # The folder's name has the values of --set, by which the two campaigns may differ.
                left = state.read(other, runs).left.of_campaign
                campaign = replace(campaign, system=results.name, others_s=left)
            return view.render(campaign, progress) if campaign.current else ""
        return ""

    assert child.stdout is not None
    with Live(console=console, get_renderable=current_view, refresh_per_second=1 / POLL_S, transient=True):
        for raw in child.stdout:
            text = raw.decode(errors="replace").rstrip("\n")
            new_progress = read_progress(text)  # None: the line is not one of progress
            # A line of progress replaces the progress shown. The line of an evaluation, "epoch  3: top-1
            # 0.7512", leaves it; any other line ends it.
            progress = new_progress or (progress if text.startswith("epoch") else None)
            if new_progress is None:
                console.print(text)


def _signals_passed_on(child: "subprocess.Popen[bytes]") -> contextlib.AbstractContextManager[None]:
    """Return a context in which this process ignores Ctrl-C, because the terminal sends it to ``child`` too,
    and answers SIGTERM and SIGHUP with a SIGTERM to ``child``, which then ends the run."""
    ending = (signal.SIGTERM, *not_ignored(signal.SIGHUP))
    passed_on = dict.fromkeys(ending, lambda *_: child.send_signal(signal.SIGTERM))
    return handling({signal.SIGINT: lambda *_: None, **passed_on})
