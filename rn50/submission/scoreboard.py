"""Scores as a script reads them, JSON and CSV, and as a person does: a table and sentences."""

import csv
import io
from typing import Any, Dict, List, Optional, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rn50 import rules
from rn50.submission.rcp import Convergence
from rn50.submission.score import RunScore, SystemScore


def to_json(scores: Sequence[SystemScore]) -> Dict[str, Any]:
    """The scores as JSON values; minutes have the four decimals of published results, accuracies are as logged."""
    return {"systems": [_system_to_json(system) for system in scores]}


def _rounded(value: Optional[float], digits: int = 4) -> Optional[float]:
    return None if value is None else round(value, digits)


def _system_to_json(system: SystemScore) -> Dict[str, Any]:
    convergence = system.convergence
    return {
        "system": system.system,
        "valid": system.valid,
        "olympic_minutes": _rounded(system.olympic_minutes),
        "reason": system.reason,
        "mean_minutes": _rounded(system.mean_minutes),
        "label": system.label,
        "division": system.division,
        "convergence": convergence and {
            "ruleset": convergence.ruleset,
            "passed": convergence.passed,
            "message": convergence.message,
            "factor": convergence.factor,
            "scaled_minutes": _rounded(system.scaled_minutes),
        },
        "spread": _rounded(system.spread, 6),
        "accelerators": system.accelerators,
        "images_per_second": _rounded(system.images_per_second, 1),
        "images_per_second_per_accelerator": _rounded(system.images_per_second_per_accelerator, 1),
        "runs": [
            {
                "file": str(run.file),
                "seed": run.seed,
                "epochs": run.epochs,
                "accuracy": run.accuracy,
                "status": run.status,
                "minutes": _rounded(run.minutes),
                "kept": run.kept,
                "in_set": run.in_set,
                "findings": list(run.findings),
            }
            for run in system.runs
        ],
    }


def to_csv(scores: Sequence[SystemScore]) -> str:
    """A row a run, with the score of its system behind; findings are left to the other forms."""
    table = io.StringIO()
    of_run = ("file", "seed", "epochs", "accuracy", "status", "minutes", "kept", "in_set")
    of_system = ("olympic_minutes", "reason", "label", "spread", "accelerators", "images_per_second_per_accelerator")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(("system", *of_run, *of_system, "rcp_ruleset", "rcp_passed", "rcp_factor", "scaled_minutes"))
    for system in to_json(scores)["systems"]:
        convergence = system["convergence"] or {}
        behind = [convergence.get(key) for key in ("ruleset", "passed", "factor", "scaled_minutes")]
        for run in system["runs"]:
            row = (system["system"], *(run[key] for key in of_run), *(system[key] for key in of_system), *behind)
            writer.writerow(row)
    return table.getvalue()


def print_table(scores: Sequence[SystemScore], console: Console) -> None:
    """Prints for each system a table of its runs, what is wrong with their logs, and the score line with its label."""
    for system in scores:
        table = Table(title=escape(system.system), title_justify="left")
        for heading in ("file", "seed", "epochs", "accuracy", "status", "minutes", "score"):
            table.add_column(heading, justify="left" if heading in ("file", "status", "score") else "right", no_wrap=True)
        for run in system.runs:
            table.add_row(
                escape(run.file.name),
                _cell(run.seed, "d"),
                _cell(run.epochs, "g"),
                _cell(run.accuracy, ".5f"),
                escape(run.status),
                _cell(run.minutes, ".4f"),
                _became(run, system),
            )
        console.print(table)
        for run in system.runs:
            for finding in run.findings[:3]:
                console.print(f"{run.file.name}: {finding}", markup=False, highlight=False, soft_wrap=True)
            if len(run.findings) > 3:
                console.print(f"{run.file.name}: {len(run.findings) - 3} more findings", markup=False, highlight=False)
        console.print(headline(system), markup=False, highlight=False, soft_wrap=True, style="bold")
        for line in remarks(system):
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def _became(run: RunScore, system: SystemScore) -> str:
    if not system.valid:
        return "-"
    return "kept" if run.kept else "dropped" if run.in_set else "not in set"


def _cell(value: Any, form: str) -> str:
    return "-" if value is None else format(value, form)


def headline(system: SystemScore) -> str:
    """The score in a line, with its label; what is published of it stands in ``remarks``."""
    if system.olympic_minutes is None:
        line = f"{system.system}: no score: {system.reason}"
    else:
        line = f"{system.system}: {system.olympic_minutes:.4f} minutes, {made_of(system)}"
        line += "".join(f"; {run.file.name} did not converge" for run in system.runs if run.in_set and not run.converged)
    return f"{line} [{system.label}]" if system.label else line


def made_of(system: SystemScore) -> str:
    """What a score is the mean of."""
    text = f"mean of the middle {rules.RUNS - 2} of {rules.RUNS} runs"
    if not all(run.in_set for run in system.runs):
        text += f", the median set of five consecutive ones of {len(system.runs)}"
    return text


def remarks(system: SystemScore) -> List[str]:
    """Sentences on reference convergence, throughput and spread, as far as they are known."""
    lines = []
    if system.mean_minutes is not None:
        lines.append(f"{system.mean_minutes:.4f} minutes is the mean so far; all runs there are reached the target")
    if system.convergence:
        lines.append(f"reference convergence {system.convergence.ruleset}: {_convergence(system, system.convergence)}")
    if system.images_per_second:
        per_accelerator = system.images_per_second_per_accelerator
        each = f", {per_accelerator:,.0f} on each of {system.accelerators} accelerators" if per_accelerator else ""
        lines.append(f"{system.images_per_second:,.0f} images/s over the whole run{each}")
    if system.spread is not None:
        lines.append(f"spread of the runs that converged {system.spread:.2%}: slowest less fastest, over their mean")
    return lines


def _convergence(system: SystemScore, convergence: Convergence) -> str:
    if not convergence.passed:
        verdict = "FAILED, which the open division may" if system.division == "open" else "FAILED: no score that can be published"
    elif convergence.factor > 1:
        verdict = "passed; faster than the reference, so minutes x "
        verdict += f"{convergence.factor:.7f} = {system.scaled_minutes:.4f} minutes"
    else:
        verdict = "passed; not scaled"
    return f"{convergence.message}, {verdict}"
