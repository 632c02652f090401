"""The page of a reproduction: five questions and their answers, then what an artefact evaluation asks for."""

import pathlib
import shlex
from collections.abc import Iterator, Sequence

from rn50 import files
from rn50.machine import software
from rn50.reproduction.reproduction import PLANNED, RESULTS, STOPPED, Reproduction
from rn50.results.equivalence import CONFIDENCE, DIFFERENT, EQUIVALENT, UNDECIDED
from rn50.settings.shell.exports import remark
from rn50.terminal import counted, markdown

PAGE = "reproduction.md"
_ANSWERS = {
    EQUIVALENT: "Yes: what can be compared here agrees within {margin:.1%}.",
    DIFFERENT: "No: it differs by more than {margin:.1%}.",
    UNDECIDED: "These runs cannot tell, with a margin of {margin:.1%}.",
    STOPPED: "No run was made: a minute's measurement is slower than expected.",
    PLANNED: "No run was made yet.",
}


def answer(outcome: Reproduction) -> str:
    """Return whether it is the same, in a sentence."""
    missed = f" {counted(outcome.missed, 'run')} missed the target." if outcome.missed else ""
    return _ANSWERS[outcome.verdict].format(margin=outcome.margin) + missed


def planned(outcome: Reproduction) -> Iterator[tuple[str, str]]:
    """Yield what a terminal shows before anything runs, as (what, text)."""
    yield "claimed", _claimed(outcome)
    yield "here", outcome.here.machine
    yield "configuration", " ".join(f"{name}={value}" for name, value in outcome.here.values.items())
    yield from (("expected", one.words) for one in outcome.expected)
    yield from (("differs", difference) for difference in outcome.here.differences)
    yield from (("prevents", f"{one.subject}: {one.found}; {one.remedy}") for one in outcome.here.prevented)


def found(outcome: Reproduction) -> Iterator[tuple[str, str]]:
    """Yield what it shows afterwards."""
    if outcome.measured:
        yield "measured", outcome.measured.words
        if outcome.measured.slow:
            yield "slow", outcome.measured.slow
    yield from (("found", one.words) for one in outcome.judged)
    yield "the same?", answer(outcome)
    yield "next", outcome.next


def _claimed(outcome: Reproduction) -> str:
    claim = outcome.claim
    sizes = f"{claim.accelerators or 'an unknown number of'} x {claim.accelerator}, {claim.framework}"
    runs = f"{len(claim.epochs)} run{'s' * (len(claim.epochs) > 1)} to the target"
    return f"{runs}, {_values(claim.minutes, '.2f')} minutes, epochs {_values(claim.epochs, 'g')}; {sizes}"


def _values(values: Sequence[float], form: str) -> str:
    return " ".join(format(value, form) for value in values)


def write(outcome: Reproduction, folder: pathlib.Path, arguments: Sequence[str]) -> pathlib.Path:
    """Write the page into a folder, whole or not at all, and return it."""
    here, name = outcome.here, remark(outcome.claim.origin.name)
    command = " ".join(map(shlex.quote, ["rn50", *arguments]))
    parts = [f"# Reproduction of {name}", f"<!-- {files.MARK} -->", f"**{answer(outcome)}**"]
    parts += ["## What was claimed?", _claimed(outcome) + "."]
    minute = f"In a minute: {outcome.measured.words}." if outcome.measured else "Nothing yet."
    parts += ["## What was found?", minute]
    if outcome.curve:
        curve = [
            [f"{at:g}", *(f"{low:.4f} to {high:.4f}" for low, high in ends)] for at, *ends in outcome.curve
        ]
        parts += ["Top-1 by epoch, lowest to highest run:", markdown(["epoch", "claimed", "found"], curve)]
    parts += ["## Is it the same?", _list([answer(outcome), *(one.words for one in outcome.judged)])]
    slow = [outcome.measured.slow] if outcome.measured and outcome.measured.slow else []
    why = [*slow, *outcome.why] or ["No difference is known that could matter."]
    parts += ["## Why not? What differs, the likely first", _list(why), "## What next?", outcome.next]
    kept = [
        f"artefact: {name}; code {software.commit() or 'of an unknown commit'}; `{here.config_file}`",
        f"hardware: {here.machine}",
        f"software: {here.config.run.framework}; each package: `{folder / RESULTS}/result_0.json`",
        f"data: {here.config.data.folder}, {here.config.data.train_samples:,} training images",
        *(f"time and expected variation: {one.words}" for one in outcome.expected),
        f"claims: minutes, epochs and images/s, within {outcome.margin:.1%} ({CONFIDENCE:.0%} interval)",
        f"command: `{command}`",
    ]
    parts += ["## Appendix for an artefact evaluation", _list(kept)]
    files.write(folder / PAGE, "\n\n".join(parts) + "\n", remedy="give another --output")
    return folder / PAGE


def _list(entries: Sequence[str]) -> str:
    return "\n".join(f"- {entry}" for entry in entries)
