"""The output of ``rn50 score``: JSON (``Scores``) and CSV for scripts, a table with sentences for people.

The report and the summary of a campaign use some of the sentences.
"""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rn50.benchmark import rules
from rn50.printed import as_json
from rn50.results import other_load
from rn50.results.parse import UNFINISHED
from rn50.results.rcp import Convergence
from rn50.results.score import Accuracy, RunScore, SystemScore
from rn50.results.validity.result_rules import NOT_VALID
from rn50.terminal import Terminal, csv_text, minutes, table

_MOST_REASONS, _MOST_FINDINGS = 5, 3
"""Most reasons printed of a system, and findings of a log; ``rn50 check`` prints all."""


class Scores(NamedTuple):
    """Scores of systems."""

    systems: Sequence[SystemScore]


def to_csv(scores: Sequence[SystemScore]) -> str:
    """Return CSV with a row for each run: columns of the run, then columns of its system's score, which are
    equal in all rows of the system. All reasons are in one cell; findings are left out."""
    columns: tuple[str, ...] = ("system", "file", "seed", "epochs", "accuracy", "status", "minutes", "kept")
    columns += ("in_set", "valid", "olympic_minutes", "reasons", "label", "unverified", "spread")
    columns += ("accelerators", "images_per_second_per_accelerator")
    columns += ("rcp_ruleset", "rcp_passed", "rcp_factor", "scaled_minutes")
    rows: list[Sequence[Any]] = [columns]
    for system in as_json(scores):
        system["reasons"] = "; ".join(system["reasons"])
        convergence = system["convergence"] or {}
        # Columns such as "rcp_factor"; only "scaled_minutes" has no prefix.
        prefixed = {f"rcp_{name}": value for name, value in convergence.items()}
        for run in system["runs"]:
            # The run comes last, so that its "accuracy" counts, not that of the system.
            cells = {**system, **convergence, **prefixed, **run}
            rows.append([cells.get(column) for column in columns])
    return csv_text(rows)


def print_table(scores: Sequence[SystemScore], console: Terminal) -> None:
    """Print for each system a table of its runs, the findings on their logs, and its score with its label. If
    the systems are of several submitters, the submitter's name stands before the system's."""
    several = len({system.submitter for system in scores}) > 1
    for system in scores:
        name = f"{system.submitter}/{system.name}" if several and system.submitter else system.name
        headings = ("file", "seed", "epochs", "accuracy", "status", "minutes", "score")
        runs = table(headings, ("file", "status", "score"), name)
        runs.columns[0].no_wrap = True  # a name that is cut is no name
        for run in system.runs:
            numbers = [_cell(run.log.seed, "d"), _cell(run.epochs, "g"), _cell(run.accuracy, ".5f")]
            outcome = [run.log.status, minutes(run.minutes), _part_in_score(run, system)]
            runs.add_row(run.file.name, *numbers, *outcome)
        console.print(runs)
        for run in system.runs:
            for finding in run.log.findings[:_MOST_FINDINGS]:
                console.print(f"{run.file.name}: {finding}")
            if (more := len(run.log.findings) - _MOST_FINDINGS) > 0:
                console.print(f"{run.file.name}: {more} more findings")
        console.print(f"{name}: {_headline(system)}", style="bold")
        for line in filter(None, (*_further_reasons(system), *remarks(system), system.unverified)):
            console.print(line)


def _part_in_score(run: RunScore, system: SystemScore) -> str:
    """Return whether a run counts in the score, for a cell of the table: kept, dropped (the fastest or the
    slowest of the five), unused (none of the five), or "-" if there is no score."""
    if system.olympic_minutes is None:
        return "-"
    return "kept" if run.kept else "dropped" if run.in_set else "unused"


def _cell(value: Any, spec: str) -> str:
    """Return a value in the format ``spec``; "-" for None."""
    return "-" if value is None else format(value, spec)


def _headline(system: SystemScore) -> str:
    """Return the score, its label and the first reason why it is not valid."""
    reason = system.reasons[0] if system.reasons else ""
    if system.accuracy is not None:  # the runs have a target of their own, so minutes do not count
        return f"{top_1(system.accuracy)} [{system.label}]"
    if system.olympic_minutes is None:
        line = f"no score: {reason}"
    else:
        line = f"{minutes(system.olympic_minutes)} minutes{_unverified(system)}, "
        line += made_of(system) if system.valid else f"{NOT_VALID}: {reason}"
        for run in system.runs:
            if run.in_set and not run.converged:
                outcome = "is unfinished" if run.log.status == UNFINISHED else "did not converge"
                line += f"; {run.file.name} {outcome}"
    return f"{line} [{system.label}]" if system.label else line


def top_1(accuracy: Accuracy) -> str:
    """Return the accuracy of runs with another target than the benchmark's, in words."""
    last = f"{accuracy.mean:.4f}{_plus_minus(accuracy.deviation)}"
    best = f"{accuracy.best_mean:.4f}{_plus_minus(accuracy.best_deviation)}"
    runs = "1 run" if accuracy.runs == 1 else f"mean and standard deviation of {accuracy.runs} runs"
    return f"top-1 {last}, {runs}; of their best evaluations {best}"


def _plus_minus(deviation: float | None) -> str:
    return "" if deviation is None else f" ± {deviation:.4f}"


def _unverified(system: SystemScore) -> str:
    """Return " (unverified)", which follows the minutes of a result that MLCommons has not reviewed; else
    ""."""
    return f" ({rules.UNVERIFIED})" if system.unverified else ""


def _further_reasons(system: SystemScore) -> list[str]:
    """Return a line for each reason after the first, which ``_headline`` has. If there are more than
    ``_MOST_REASONS``, the last line gives the number of those left out."""
    lines = [f"and: {reason}" for reason in system.reasons[1:_MOST_REASONS]]
    left = len(system.reasons) - _MOST_REASONS
    return [*lines, f"and {left} more reasons, which rn50 check tells"] if left > 0 else lines


def made_of(system: SystemScore) -> str:
    """Return the phrase on the runs whose mean the score is: "mean of the middle 3 of 5 runs"."""
    text = f"mean of the middle {rules.RUNS - 2} of {rules.RUNS} runs"
    if not all(run.in_set for run in system.runs):
        text += f", the median set of five consecutive ones of {len(system.runs)}"
    return text


def remarks(system: SystemScore, with_throughput: bool = True) -> Iterator[str]:
    """Yield sentences on the mean of runs that are too few for a score, reference convergence, throughput,
    energy, spread and other load on the machine, as far as these are known."""
    if system.mean_minutes is not None:
        mean = f"{minutes(system.mean_minutes)} minutes{_unverified(system)}"
        reached = "" if system.accuracy else "; every run so far reached the target"
        yield f"{mean} is the mean so far{reached}"
    if system.convergence:
        verdict = _convergence(system, system.convergence)
        yield f"reference convergence {system.convergence.ruleset}: {verdict}"
    if system.images_per_second and with_throughput:
        line = f"{system.images_per_second:,.0f} images/s over the whole run"
        if system.images_per_second_per_accelerator:
            rate = f"{system.images_per_second_per_accelerator:,.0f}"
            line += f", {rate} on each of {system.accelerators} accelerators"
        yield line
    if system.energy:
        yield system.energy.sentence
    if system.spread is not None:
        yield spread_in_words(system.spread) + _spread_of_equal_epochs(system)
    yield from other_load.caution(system.runs)


def spread_in_words(spread: float) -> str:
    """Return the ``spread`` of a ``SystemScore`` in words."""
    return f"slowest run {100 * spread:.1f} % above the fastest, relative to the mean"


def _spread_of_equal_epochs(system: SystemScore) -> str:
    """Return a phrase on the spread of the minutes within the largest group of runs that took equally many
    epochs. Return "" if all runs took equally many, or no two did."""
    # number of epochs -> minutes of each run that took so many
    by_epochs: dict[float, list[float]] = {}
    for run in system.runs:
        if run.in_set and run.converged and run.epochs is not None and run.minutes is not None:
            by_epochs.setdefault(run.epochs, []).append(run.minutes)
    epochs, times = max(by_epochs.items(), key=lambda group: len(group[1]), default=(0.0, []))
    if len(by_epochs) < 2 or len(times) < 2:
        return ""
    spread = (max(times) - min(times)) / statistics.mean(times)
    return f"; {100 * spread:.1f} % among the {len(times)} that took {epochs:g} epochs"


def scaled(convergence: Convergence, than: str = "the reference") -> str:
    """Return in words by what factor the minutes of a score are scaled, because its runs took fewer epochs
    than the reference. ``than`` names the reference."""
    if convergence.factor <= 1 or convergence.scaled_minutes is None:
        return "not scaled"
    changed = f"minutes x {convergence.factor:.7f} = {minutes(convergence.scaled_minutes)} minutes"
    return f"faster than {than}, so {changed}"


def _convergence(system: SystemScore, convergence: Convergence) -> str:
    """Return the verdict of the check of reference convergence, in words."""
    if not convergence.passed and system.division == "open":
        verdict = "FAILED, which the open division may"
    elif not convergence.passed:
        verdict = "FAILED: no score that can be published"
    elif convergence.factor <= 1 or convergence.scaled_minutes is not None:
        verdict = f"passed; {scaled(convergence)}" + (_unverified(system) if convergence.factor > 1 else "")
    else:
        since = rules.SCALED_RULESETS[0][:3]
        verdict = f"passed; faster than the reference, but scores are scaled from round v{since} on only"
    return f"{convergence.message}, {verdict}"
