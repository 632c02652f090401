"""Rows (name, text) that ``rn50 reproduce`` prints of a ``Reproduction``: ``planned`` before anything runs,
and ``found`` at the end."""

from collections.abc import Iterator

from rn50.reproduction.reproduction import PLANNED, STOPPED, Reproduction
from rn50.results.equivalence import DIFFERENT, EQUIVALENT, UNDECIDED
from rn50.terminal import counted, minutes

_ANSWERS = {
    EQUIVALENT: "Yes: what can be compared here agrees within {margin:.1%}.",
    DIFFERENT: "No: it differs by more than {margin:.1%}.",
    UNDECIDED: "These runs cannot tell, with a margin of {margin:.1%}.",
    STOPPED: "No run was made: a minute's measurement is slower than expected.",
    PLANNED: "No run was made yet.",
}
"""Verdict -> answer to the question whether the result of this machine is that of the claim."""
Row = tuple[str, str]
"""Name and text of a row."""


def answer(outcome: Reproduction) -> str:
    """Return the verdict in a sentence, followed by the number of runs that missed the target, and by the
    results that are not valid."""
    missed = f" {counted(outcome.missed, 'run')} missed the target." if outcome.missed else ""
    # Before the runs are compared, ``planned`` says which results are not valid.
    refused = outcome.refused if outcome.judged else {}  # side (claim, or result of this machine) -> why
    invalid = "".join(f" The {side} is {text}." for side, text in refused.items())
    return _ANSWERS[outcome.verdict].format(margin=outcome.margin) + missed + invalid


def planned(outcome: Reproduction) -> Iterator[Row]:
    """Yield the rows that are known before anything runs."""
    claim, here = outcome.claim, outcome.here
    epochs = " ".join(f"{value:g}" for value in claim.epochs)
    machine = f"{claim.accelerators or 'an unknown number of'} x {claim.accelerator}, {claim.framework}"
    runs = f"{counted(len(claim.epochs), 'run')} to the target"
    yield "claimed", f"{runs}, {' '.join(map(minutes, claim.minutes))} minutes, epochs {epochs}; {machine}"
    yield "here", here.machine
    yield "configuration", " ".join(f"{name}={value}" for name, value in here.values.items())
    if len(claim.epochs) < 2:
        yield "caution", "one run cannot be told from another; name a result of two runs or more"
    yield from (("caution", f"the {side} is {text}") for side, text in outcome.refused.items())
    yield from (("expected", expectation.words) for expectation in outcome.expected)
    yield from (("differs", difference) for difference in here.differences)
    yield from (("prevents", f"{row.subject}: {row.found}; {row.remedy}") for row in here.prevented)


def found(outcome: Reproduction) -> Iterator[Row]:
    """Yield the rows on the measurement, the runs and the verdict."""
    if outcome.measured:
        yield "measured", outcome.measured.words
        if outcome.measured.slow:
            yield "slow", outcome.measured.slow
    yield from (("found", judged.words) for judged in outcome.judged)
    # ``why`` begins with the differences that ``planned`` has listed.
    yield from (("differs", setting) for setting in outcome.why[len(outcome.here.differences) :])
    yield "the same?", answer(outcome)
    yield "next", outcome.next
