"""A progress bar with ETA on a terminal, plain lines elsewhere."""

import contextlib
from collections.abc import Callable, Iterator

from rn50.terminal import Terminal

Progress = Callable[[int, int], None]
"""Called with the number of steps, files or images done so far, and of all."""
LONGEST_STEPS_S = 7200
"""Time over which the ETA takes the speed: a step may be a run of many minutes."""


def silent(done: int, total: int) -> None:
    """Show no progress."""


@contextlib.contextmanager
def counting(what: str, shown: bool = True) -> Iterator[Progress]:
    """Yield a ``progress(done, total)`` that shows a bar with ETA on a terminal, a line per tenth elsewhere;
    on standard error.

    With ``shown`` False it does nothing, because only one of several ranks reports.
    """
    if not shown:
        yield silent
        return
    console = Terminal(stderr=True)
    if not console.live:
        tenths = [0]

        def line(done: int, total: int) -> None:
            if total and done * 10 // total > tenths[0]:
                tenths[0] = done * 10 // total
                console.print(f"{what}: {done:,} of {total:,}")

        yield line
        return
    from rich import progress as bars  # not before: it takes a tenth of the time that a command starts in

    remaining = bars.TextColumn("ETA"), bars.TimeRemainingColumn()
    columns = (bars.TextColumn(what, markup=False), bars.BarColumn(), bars.MofNCompleteColumn(), *remaining)
    bar = bars.Progress(*columns, console=console, transient=True, speed_estimate_period=LONGEST_STEPS_S)
    task = bar.add_task("", start=False)

    def draw(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)
        if not bar.live.is_started:  # only once there is something to show
            bar.start_task(task)
            bar.start()

    try:
        yield draw
    finally:
        bar.stop()
