"""Rows of a reproduction on a terminal, and its page."""

import pathlib
import shlex
from collections.abc import Iterator, Sequence

from rn50 import files
from rn50.machine import software
from rn50.reproduction.reproduction import PLANNED, RESULTS, STOPPED, Reproduction
from rn50.results.equivalence import CONFIDENCE, DIFFERENT, EQUIVALENT, UNDECIDED
from rn50.settings.shell.exports import remark
from rn50.terminal import counted, markdown, minutes

PAGE = "reproduction.md"
_ANSWERS = {
    EQUIVALENT: "Yes: what can be compared here agrees within {margin:.1%}.",
    DIFFERENT: "No: it differs by more than {margin:.1%}.",
    UNDECIDED: "These runs cannot tell, with a margin of {margin:.1%}.",
    STOPPED: "No run was made: a minute's measurement is slower than expected.",
    PLANNED: "No run was made yet.",
}
Row = tuple[str, str]


def answer(outcome: Reproduction) -> str:
    """Return whether it is the same, in a sentence."""
    missed = f" {counted(outcome.missed, 'run')} missed the target." if outcome.missed else ""
    refused = "".join(f" The {side} is {text}." for side, text in outcome.refused.items() if outcome.judged)
    return _ANSWERS[outcome.verdict].format(margin=outcome.margin) + missed + refused


def planned(outcome: Reproduction) -> Iterator[Row]:
    """Yield the rows that are known before anything runs, as (name, text)."""
    claim, here = outcome.claim, outcome.here
    taken = " ".join(map(minutes, claim.minutes))
    epochs = " ".join(f"{value:g}" for value in claim.epochs)
    machine = f"{claim.accelerators or 'an unknown number of'} x {claim.accelerator}, {claim.framework}"
    runs = f"{counted(len(claim.epochs), 'run')} to the target"
    yield "claimed", f"{runs}, {taken} minutes, epochs {epochs}; {machine}"
    yield "here", here.machine
    yield "configuration", " ".join(f"{name}={value}" for name, value in here.values.items())
    if len(claim.epochs) < 2:
        yield "caution", "one run cannot be told from another; name a result of two runs or more"
    yield from (("caution", f"the {side} is {text}") for side, text in outcome.refused.items())
    yield from (("expected", one.words) for one in outcome.expected)
    yield from (("differs", difference) for difference in here.differences)
    yield from (("prevents", f"{one.subject}: {one.found}; {one.remedy}") for one in here.prevented)


def found(outcome: Reproduction) -> Iterator[Row]:
    """Yield the rows of what was measured and judged."""
    if outcome.measured:
        yield "measured", outcome.measured.words
        if outcome.measured.slow:
            yield "slow", outcome.measured.slow
    yield from (("found", one.words) for one in outcome.judged)
    yield "the same?", answer(outcome)
    yield "next", outcome.next


def _evidence(outcome: Reproduction, folder: pathlib.Path, arguments: Sequence[str]) -> Iterator[Row]:
    """Yield the rows that artefact evaluations ask for beside the others."""
    config = outcome.here.config
    yield "code", f"{software.commit() or 'of an unknown commit'}; {outcome.here.config_file}"
    yield "software", f"{config.run.framework}; each package: {folder / RESULTS}/result_0.json"
    yield "data", f"{config.data.folder}, {config.data.train_samples:,} training images"
    yield "margin", f"{outcome.margin:.1%} in minutes, epochs and images/s ({CONFIDENCE:.0%} interval)"
    yield "command", shlex.join(["rn50", *arguments])


def write(outcome: Reproduction, folder: pathlib.Path, arguments: Sequence[str]) -> pathlib.Path:
    """Write the page into a folder, whole or not at all, and return it."""
    settings = [("differs", setting) for setting in outcome.why[len(outcome.here.differences) :]]
    parts = [f"# Reproduction of {remark(outcome.claim.origin.name)}", f"<!-- {files.MARK} -->"]
    for title, rows in (
        (answer(outcome), [*planned(outcome), *found(outcome), *settings]),
        ("For an artefact evaluation", _evidence(outcome, folder, arguments)),
    ):
        parts += [f"## {title}", markdown(("", ""), list(rows))]
    if outcome.curve:
        curve = [
            [f"{at:g}", *(f"{low:.4f} to {high:.4f}" for low, high in ends)] for at, *ends in outcome.curve
        ]
        parts += ["## Top-1 by epoch, lowest to highest run", markdown(("epoch", "claimed", "found"), curve)]
    files.write(folder / PAGE, "\n\n".join(parts) + "\n", remedy="give another --output")
    return folder / PAGE
