"""Progress of a long task: a bar on a terminal, plain lines elsewhere. Verbs wrap their work in
``counting``."""

import contextlib
from collections.abc import Callable, Iterator

from rn50.terminal import Terminal

Progress = Callable[[int, int], None]
"""Function called with (number done so far, number in all) of steps, files or images."""
LONGEST_STEPS_S = 7200
"""Time over which the speed is averaged for the ETA. It is long because a step may be a run of many
minutes."""


def silent(done: int, total: int) -> None:
    """Show no progress."""


@contextlib.contextmanager
def counting(task: str, shown: bool = True) -> Iterator[Progress]:
    """Yield a function ``progress(done, total)``, which shows the progress of ``task`` on standard error: a
    bar with ETA on a terminal, elsewhere a line for each tenth. With ``shown`` False, as on all ranks but
    one, the function does nothing.
    """
    if not shown:
        yield silent
        return
    console = Terminal(stderr=True)
    if not console.live:
        tenth = 0  # the last tenth that was printed

        def line(done: int, total: int) -> None:
            nonlocal tenth
            if total and done * 10 // total > tenth:
                tenth = done * 10 // total
                console.print(f"{task}: {done:,} of {total:,}")

        yield line
        return
    # Not imported at the top, because the import takes a tenth of the start of a command.
    from rich import progress as bars

    remaining = bars.TextColumn("ETA"), bars.TimeRemainingColumn()
    columns = (bars.TextColumn(task, markup=False), bars.BarColumn(), bars.MofNCompleteColumn(), *remaining)
    bar = bars.Progress(*columns, console=console, transient=True, speed_estimate_period=LONGEST_STEPS_S)
    bar_id = bar.add_task("", start=False)

    def draw(done: int, total: int) -> None:
        bar.update(bar_id, completed=done, total=total)
        if not bar.live.is_started:  # the bar appears at the first call, because only now ``total`` is known
            bar.start_task(bar_id)
            bar.start()

    try:
        yield draw
    finally:
        bar.stop()
