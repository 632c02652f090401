"""``rn50 run`` and ``rn50 watch``: make a campaign, or follow one that is made elsewhere, until it is
over."""

import contextlib
import pathlib
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping

from rich.live import Live

from rn50.errors import UserError
from rn50.files import ROOT
from rn50.launch.campaign import state, view
from rn50.process import ask_to_end_with_parent
from rn50.run.display import PROGRESS, EpochProgress, read_progress
from rn50.terminal import Terminal, say

SCRIPT = ROOT / "run_experiments.sh"
POLL_S = 1.0
"""Seconds from one reading of the logs to the next."""


def refuse_missing(results: pathlib.Path) -> None:
    """Raise UserError if there is no such folder."""
    if not results.is_dir():
        raise UserError(
            results, "no such folder", "name the results of a campaign, or begin one: rn50 run CONFIG"
        )


def watch(results: pathlib.Path, runs: int) -> None:
    """Show the campaign in a folder until all of its runs have ended. Ctrl-C ends only the watching.

    Raises UserError if there is no such folder, or a log cannot be read.
    """
    refuse_missing(results)
    console = Terminal()
    before, now = None, state.read(results, runs)
    with Live(console=console, auto_refresh=False) if console.live else contextlib.nullcontext() as live:
        while True:
            if live:
                live.update(view.render(now, None), refresh=True)
            else:
                for line in view.events(before, now):
                    say(line)
            if now.is_over:
                return
            time.sleep(POLL_S)
            before, now = now, state.read(results, runs)


def run(results: pathlib.Path, runs: int, environ: Mapping[str, str], as_json: bool = False) -> int:
    """Make the campaign of ``runs`` runs that ``environ`` describes, as ``run_experiments.sh`` does; return
    its exit status.

    On a terminal it shows one live view below the lines of past events; elsewhere it prints those lines
    alone. With ``as_json`` they go to standard error.
    """
    environ = {**environ, "NEXP": str(runs), "RESULTS": str(results)}
    if as_json or not Terminal().live:
        child = subprocess.Popen(
            [str(SCRIPT)], env=environ, stdout=2 if as_json else None, preexec_fn=ask_to_end_with_parent()
        )
        with _signals_passed_on(child):
            return _status(child.wait())
    child = subprocess.Popen(
        [str(SCRIPT)],
        env={**environ, PROGRESS: "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=ask_to_end_with_parent(),
    )
    with _signals_passed_on(child):
        _show(child, results, runs)
        return _status(child.wait())


def _show(child: "subprocess.Popen[bytes]", results: pathlib.Path, runs: int) -> None:
    """Show the view until the last line of ``child`` has been read. What it prints stays above the view."""
    lines: queue.Queue[bytes | None] = queue.Queue()

    def read() -> None:
        assert child.stdout is not None
        for line in child.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    console = Terminal()
    progress: EpochProgress | None = None
    due = 0.0
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            with contextlib.suppress(queue.Empty):
                raw = lines.get(timeout=POLL_S / 4)
                if raw is None:
                    return
                text = raw.decode(errors="replace").rstrip("\n")
                now = read_progress(text)
                progress = now or (progress if text.startswith("epoch") else None)
                if now is None:
                    console.print(text)
            if time.monotonic() >= due:
                due = time.monotonic() + POLL_S
                campaign = state.read(results, runs)
                if campaign.current:
                    live.update(view.render(campaign, progress), refresh=True)
                else:
                    live.update("", refresh=True)


@contextlib.contextmanager
def _signals_passed_on(child: "subprocess.Popen[bytes]") -> Iterator["subprocess.Popen[bytes]"]:
    """Leave Ctrl-C to ``child``, which also gets it from the terminal, and pass on SIGTERM and SIGHUP:
    ``child`` ends the run."""
    handlers: dict[int, object] = {signal.SIGINT: lambda *_: None}
    handlers.update(
        {number: lambda *_: child.send_signal(signal.SIGTERM) for number in (signal.SIGTERM, signal.SIGHUP)}
    )
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}  # type: ignore[arg-type]
    try:
        yield child
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _status(returned: int) -> int:
    return 128 - returned if returned < 0 else returned
