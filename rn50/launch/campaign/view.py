"""Show a campaign (several runs of one configuration) to a person: ``render`` for a live view on a terminal,
``events`` for a plain line about each event elsewhere."""

from collections.abc import Iterator
from datetime import timedelta

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rn50.launch.campaign.state import ENDED, RUNNING, STOPPED, Campaign, RunState
from rn50.results.parse import UNFINISHED
from rn50.run.display import EpochProgress
from rn50.terminal import minutes, safe, styled

SILENT_S = 60
"""Seconds without a new record, beyond four epochs, after which the view reports that time."""


def render(campaign: Campaign, live: EpochProgress | None) -> RenderableType:
    """Return the view of a campaign. ``live`` is the progress within the current epoch, if this process gets
    it."""
    run = campaign.current
    parts: list[RenderableType] = [*_title(campaign)]
    if run:
        epoch, done = _position(campaign, run, live)
        seconds_left = campaign.seconds_left(done)
        latest = live or run
        numbers = f"{_text(latest.images_per_second, ',.0f')} img/s  loss {_text(latest.loss, '.3f')}"
        last = campaign.last_epoch
        # "~": the run will probably end before the last evaluation, as earlier runs did.
        sign = "~" if last and last < campaign.evaluated[-1] else ""
        parts.append(_row(f"epoch {epoch}/{sign}{last or '-'}", last, done, numbers, seconds_left.of_run))
        runs_done = len(campaign.ended) + (done / last if last else 0)  # with the part of the current run
        number, runs = run.number, len(campaign.runs)
        parts.append(_row(f"run {number} of {runs}", runs, runs_done, "", seconds_left.of_campaign))
        parts += [Text(safe(line)) for line in _top1(campaign, run)]
        if run.silent_s > SILENT_S + 4 * (run.epoch_seconds or 0) and not live:
            silent = timedelta(seconds=round(run.silent_s))
            parts.append(styled(f"no news for {silent}: has it been stopped?", "yellow"))
    past_runs = (past for past in campaign.runs if past.state in (ENDED, STOPPED))
    parts += [Text(f"run {past.number}: {outcome(past)}") for past in past_runs]
    if not run and not campaign.is_over:
        parts.append(Text("no run is going on; waiting for the next one (Ctrl-C ends the watching)"))
    return Group(*parts)


def _title(campaign: Campaign) -> list[Text]:
    """Return the name of the system and the label of the runs, a line each. A line is cut at the width of the
    terminal, because a view whose height changes jumps."""
    texts = (campaign.system or str(campaign.results), "bold"), (campaign.label or "", "yellow")
    return [Text(safe(text), style, no_wrap=True, overflow="ellipsis") for text, style in texts if text]


def _row(what: str, total: float, done: float, numbers: str, left: float | None) -> Table:
    """Return a line: ``what``, a bar with ``done`` of ``total``, ``numbers``, and the time ``left`` in
    seconds (None: it is not known). A ``total`` of 0 is not known; the bar is then empty."""
    row = Table.grid(padding=(0, 1), expand=True)
    row.add_column(width=14, no_wrap=True)
    row.add_column(ratio=1)
    row.add_column(no_wrap=True)
    row.add_column(width=13, no_wrap=True, justify="right")
    bar = ProgressBar(total=total or 1, completed=min(done, total))
    row.add_row(what, bar, numbers, "ETA -" if left is None else f"ETA {timedelta(seconds=round(left))}")
    return row


def _position(campaign: Campaign, run: RunState, live: EpochProgress | None) -> tuple[int, float]:
    """Return the number of the current epoch, and how many epochs are done, as a fraction. Without ``live``
    the time since the last record tells which part of the current epoch is done. That part stays below 1
    until the log says that the epoch has ended."""
    if live:
        return live.epoch, live.epoch - 1 + live.share
    if not run.epoch_seconds:
        return run.epoch + 1, run.epoch
    return run.epoch + 1, run.epoch + min(0.99, max(0.0, run.silent_s / run.epoch_seconds))


def _top1(campaign: Campaign, run: RunState) -> Iterator[str]:
    """Yield a line with the latest top-1, beside the top-1 that was expected after this epoch, and a line
    with what is expected at the next evaluation."""
    if run.evaluations:
        latest = run.evaluations[-1]
        line = f"top-1 {latest.accuracy:.4f} at epoch {latest.epoch:g}"
        yield f"{line}{_expected_at(campaign, int(latest.epoch))}; target {campaign.target}"
    next_epoch = next((epoch for epoch in campaign.evaluated if epoch > run.epoch), None)
    if next_epoch is not None and campaign.curve.get(next_epoch):
        yield f"next at epoch {next_epoch}{_expected_at(campaign, next_epoch)}"
    elif not run.evaluations and campaign.expected:
        yield f"expected: {campaign.expected}"


def _expected_at(campaign: Campaign, epoch: int) -> str:
    """Return the top-1 that earlier runs had after an epoch, as the end of a sentence; "" if none is
    known."""
    if epoch not in campaign.curve:
        return ""
    low, high = campaign.curve[epoch]
    return f", expected {low:.2f} to {high:.2f}"


def outcome(run: RunState) -> str:
    """Return how a run has ended, in words."""
    took = f" in {minutes(run.minutes)} min" if run.minutes is not None else ""
    if run.state == STOPPED:
        return f"stopped after epoch {run.epoch}"
    if run.reached:
        return f"top-1 {run.reached.accuracy:.4f} at epoch {run.reached.epoch:g}{took}"
    if run.log and run.log.status == UNFINISHED:
        return f"no run_stop in its log, which ends in epoch {run.epoch + 1}"
    best = max((evaluation.accuracy for evaluation in run.evaluations), default=None)
    return f"missed the target{took}, best top-1 {_text(best, '.4f')}"


def _text(value: float | None, form: str) -> str:
    """Return a number in the format ``form``; "-" for None."""
    return "-" if value is None else format(value, form)


def events(before: Campaign | None, now: Campaign) -> Iterator[str]:
    """Yield a plain line for each event between the states ``before`` and ``now`` of a campaign. None stands
    for the state before any run has begun."""
    for index, run in enumerate(now.runs):
        previous = before.runs[index] if before and index < len(before.runs) else RunState(run.number)
        label = f"run {run.number} of {len(now.runs)}"
        if run.state == RUNNING and previous.state != RUNNING:
            yield f"{label} begins"
        # If a run was over before it was seen running, only its outcome is told.
        if RUNNING in (run.state, previous.state):
            for new in run.evaluations[len(previous.evaluations) :]:
                expected = _expected_at(now, int(new.epoch))
                yield f"{label}: top-1 {new.accuracy:.4f} at epoch {new.epoch:g}{expected}"
        if run.state != previous.state and run.state in (ENDED, STOPPED):
            yield f"{label}: {outcome(run)}"
