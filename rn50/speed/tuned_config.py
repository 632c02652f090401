"""``rn50 tune input`` around the search of ``tuning.py``: the ranks run it (``as_rank``), rank 0 writes the
configuration with the best settings (``text``) and prints the outcome (``show``)."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from rn50 import process
from rn50.errors import UserError
from rn50.printed import Inline
from rn50.run.loop import opened
from rn50.settings import named, writing
from rn50.settings.config import Config
from rn50.settings.document import Document
from rn50.settings.writing import Base, exported
from rn50.speed import input_settings
from rn50.speed.tuning import Tuner, Tuning
from rn50.terminal import Terminal, print_json, table

_EARLIER = re.compile(r"^#   tuned .*\n(?:^# {15}.*\n)*", re.MULTILINE)
"""Entry "tuned" of the header, from an earlier search: a line "#   tuned       by `rn50 tune input`: ...",
and the lines that continue it, whose text begins in the same column."""
_HEADER = re.compile(r"\A(?:#.*\n)*")
"""The comment at the beginning of a file."""


class Tuned(NamedTuple):
    """Outcome of a search for input settings."""

    outcome: Inline[Tuning]
    base: Path
    """File of the initial configuration."""
    written: Path | None
    """File that was written; null: none was written."""


def configured(base: Document) -> Config:
    """Return the configuration in the file ``base``. Variables of the input pipeline in the environment of
    this process are ignored, because the search is for values of the file.

    Raises UserError if the file cannot be sourced or run.
    """
    names = input_settings.NAMES.values()
    inherited = {name: value for name, value in process.environment().items() if name not in names}
    return named.Choice(base, environ=inherited).config


def refuse_output(output: Path, force: bool) -> None:
    """Raise UserError if ``output`` cannot be written. The verb calls this before it measures."""
    writing.refuse_output(output, force)
    if not os.access(output.parent, os.W_OK):
        raise UserError(output, "cannot be written there", "give another --output")


def text(base: Base, outcome: Tuning) -> str:
    """Return the text of the file ``base`` with the new settings, and with an entry "tuned" in its header
    that says what they gain.

    Raises UserError if the file also sets them outside its input pipeline section.
    """
    # Replace the line that sets a variable; if there is none, add one.
    inside = base.inside.rstrip("\n")
    for name, value in outcome.new_values.items():
        line = exported(name, value)
        inside, replaced = re.subn(rf"^(?:export[ \t]+)?{name}=.*$", line, inside, flags=re.MULTILINE)
        if not replaced:
            inside += f"\n{line}"
    change = f"by `rn50 tune input`: {_changes(outcome)}"
    # An entry without a name continues the entry before it.
    tuned = "".join(f"{row}\n" for row in writing.header_lines([("tuned", change), ("", gain(outcome))]))
    # Remove the entry of an earlier search, and put the new one at the end of the header.
    before = _HEADER.sub(lambda header: header[0] + tuned, _EARLIER.sub("", base.before))
    result = before + inside + ("\n\n" if base.behind else "\n") + base.behind
    writing.check(base, result, outcome.new_values)
    return result


def _changes(outcome: Tuning) -> str:
    """Return one line with every variable that the search changed, its new and its old value."""
    return ", ".join(f"{name}={new} (was {old})" for name, (old, new) in outcome.changes.items())


def gain(outcome: Tuning) -> str:
    """Return the result of the comparison at the end, in words. There must have been one:
    ``outcome.compared`` is not None."""
    assert outcome.compared is not None
    old, new = outcome.images_per_second_before, outcome.images_per_second_after
    times = f"{outcome.compared.median:.3f} times ({outcome.compared.spread})"
    rates = f"{old:,.0f} -> {new:,.0f} images/s of training on real data: {times}"
    return f"{rates}, {outcome.of_synthetic:.1%} of synthetic"


def as_rank(
    config: Config, base: str, output: str | None, force: bool, seconds: float, as_json: bool
) -> None:
    """Search as one rank, for ``seconds``. ``rn50 tune input`` starts a process for each rank, which calls
    this function. Rank 0 prints the outcome and, if the new settings are faster, writes the file ``base``
    with them to ``output``, if that is not None.

    Raises UserError if ``base`` cannot be rewritten or ``output`` cannot be written.
    """
    base_parts = writing.split(Document(Path(base)), "input_pipeline")
    with opened(config) as rank:
        outcome = Tuner(config, rank, len(os.sched_getaffinity(0)), seconds).run()
        if rank.communicator.rank == 0:
            written = Path(output) if output and outcome.faster else None
            if written is not None:
                writing.write(text(base_parts, outcome), written, force)
            tuned = Tuned(outcome, Path(base), written)
            print_json(tuned) if as_json else show(tuned, Terminal())


def show(tuned: Tuned, console: Terminal) -> None:
    """Print a row for every trial, the overlap of input and step, and the result of the search."""
    outcome, base, written = tuned
    title = f"{base.name}: each against the best so far, and kept if every round finds it faster"
    trials = table(("trial", "images/s", "times as fast", ""), ("trial", ""), title)
    for trial in outcome.trials:
        if trial.compared is None:
            trials.add_row(trial.change, "-", "-", f"cannot run: {trial.reason}")
            continue
        # Median, lowest and highest ratio.
        times = "{:.3f} ({:.3f} to {:.3f})".format(*trial.compared[:3])
        trials.add_row(trial.change, f"{trial.images_per_second:,.0f}", times, "kept" if trial.kept else "")
    console.print(trials)
    if not outcome.in_time:
        console.print("the time was over before every value had its trial; --seconds gives more")
    console.print(outcome.overlap.sentence)
    if outcome.compared is None:
        speed = f"trains on real data at {outcome.of_synthetic:.1%} of the speed of synthetic data"
        console.print(f"nothing was faster than {base.name}, which {speed}")
    elif outcome.faster:
        console.print(f"{_changes(outcome)}: {gain(outcome)}")
        console.print(f"written: {written}" if written else "-o FILE writes it")
    else:
        console.print(f"{_changes(outcome)} did not stand: {gain(outcome)}; nothing was written")
