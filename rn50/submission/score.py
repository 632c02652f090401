"""The score of a set of runs: the olympic mean of their minutes to target.

Source: MLPerf Training rules, sections "Run Results" (the time of a run) and "Benchmark Results" (the fastest and the slowest run
are dropped and the rest averaged; one run that did not converge may be the slowest, more make the result invalid). The trimmed
mean lives here and nowhere else.
"""

import json
import pathlib
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rn50 import rules
from rn50.errors import UserError
from rn50.submission.parse import ResultLog, find_result_files, read_log

HYPERPARAMETERS = (
    "global_batch_size", "opt_name", "lars_opt_base_learning_rate", "lars_opt_learning_rate_warmup_epochs",
    "lars_opt_learning_rate_decay_steps", "lars_opt_momentum", "lars_opt_weight_decay", "train_samples",
)
"""What has to be the same in all runs of a result, by the keys of the log (rules, section "Hyperparameters")."""


@dataclass(frozen=True)
class RunScore:
    """One run. ``epochs`` and ``accuracy`` (a fraction) are those of the evaluation that decided it: the first one at the target,
    or the last one where none reached it. ``kept`` says whether its ``minutes`` are in the mean."""

    file: pathlib.Path
    seed: Optional[int]
    epochs: Optional[float]
    accuracy: Optional[float]
    status: str
    minutes: Optional[float]
    converged: bool
    kept: bool
    findings: Tuple[str, ...]


@dataclass(frozen=True)
class SystemScore:
    """The runs of one system and their mean in minutes. Without a valid score ``olympic_minutes`` is None and ``reason`` says
    why; ``label`` is ``rules.NOT_A_RESULT`` for runs on anything but ImageNet, else None."""

    system: str
    valid: bool
    olympic_minutes: Optional[float]
    reason: Optional[str]
    label: Optional[str]
    runs: Tuple[RunScore, ...]


def score(paths: Sequence[pathlib.Path]) -> List[SystemScore]:
    """Scores result files, folders of them or published trees; the files of one folder are the runs of one system.

    Raises:
        UserError: a path does not exist, holds no result file, or holds a log that is none or is of another benchmark.
    """
    folders: Dict[pathlib.Path, List[ResultLog]] = {}
    for file in find_result_files(paths):
        log = read_log(file)
        if log.benchmark not in (None, rules.BENCHMARK):
            raise UserError(f"{file}: a log of {log.benchmark}; only {rules.BENCHMARK} is scored, leave this file out")
        folders.setdefault(file.parent.resolve(), []).append(log)
    return [_score_system(_system(folder, logs), logs) for folder, logs in folders.items()]


def _system(folder: pathlib.Path, logs: Sequence[ResultLog]) -> str:
    """In a published tree the folder above ``resnet/``: by that name people know the system, and logs of one system may differ in
    theirs. Elsewhere a folder can have any name, so ``submission_platform`` counts, and the folder only where no log has it."""
    if folder.name == rules.BENCHMARK:
        return folder.parent.name
    return next((log.platform for log in logs if log.platform), folder.name)


def _score_system(system: str, logs: Sequence[ResultLog]) -> SystemScore:
    converged = [log.status == "success" and log.reached is not None and log.minutes is not None for log in logs]
    reason = _why_invalid(logs, converged)
    kept: List[int] = []
    if reason is None:
        # A run that did not converge is the slowest whatever its clock says: it may have stopped early.
        fastest_first = sorted(range(len(logs)), key=lambda i: (not converged[i], logs[i].minutes or 0.0))
        kept = fastest_first[1:-1]
    runs = tuple(_run(log, converged[i], i in kept) for i, log in enumerate(logs))
    minutes = [run.minutes for run in runs if run.kept and run.minutes is not None]
    # Another data set is told by its number of training samples. eval_samples does not tell: published ImageNet logs have 49,999
    # there, or a number of batches.
    other_data = any(log.train_samples not in (None, rules.TRAIN_SAMPLES) for log in logs)
    return SystemScore(
        system=system,
        valid=reason is None,
        olympic_minutes=sum(minutes) / len(minutes) if minutes else None,
        reason=reason,
        label=rules.NOT_A_RESULT if other_data else None,
        runs=runs,
    )


def _why_invalid(logs: Sequence[ResultLog], converged: Sequence[bool]) -> Optional[str]:
    if len(logs) != rules.RUNS:
        return f"{len(logs)} {'run' if len(logs) == 1 else 'runs'} of {rules.RUNS}"
    failed = [log.path.name for log, ok in zip(logs, converged) if not ok]
    if len(failed) > 1:
        return f"{len(failed)} runs did not converge ({', '.join(failed)}), and only one may"
    for key in HYPERPARAMETERS:
        values = {json.dumps(event.value): log.path.name for log in logs for event in log.events if event.key == key}
        if len(values) > 1:
            differing = ", ".join(f"{value} in {name}" for value, name in values.items())
            return f"the runs are not of one configuration: {key} is {differing}"
    return None


def _run(log: ResultLog, converged: bool, kept: bool) -> RunScore:
    decided = log.reached or (log.evaluations[-1] if log.evaluations else None)
    return RunScore(
        file=log.path,
        seed=log.seed,
        epochs=decided.epoch if decided else None,
        accuracy=decided.accuracy if decided else None,
        status=log.status,
        minutes=log.minutes,
        converged=converged,
        kept=kept,
        findings=log.findings,
    )


def to_json(scores: Sequence[SystemScore]) -> Dict[str, Any]:
    """The scores as JSON values; minutes have the four decimals of published results, accuracies are as logged."""

    def four(minutes: Optional[float]) -> Optional[float]:
        return None if minutes is None else round(minutes, 4)

    return {
        "systems": [
            {
                "system": system.system,
                "valid": system.valid,
                "olympic_minutes": four(system.olympic_minutes),
                "reason": system.reason,
                "label": system.label,
                "runs": [
                    {
                        "file": str(run.file),
                        "seed": run.seed,
                        "epochs": run.epochs,
                        "accuracy": run.accuracy,
                        "status": run.status,
                        "minutes": four(run.minutes),
                        "kept": run.kept,
                        "findings": list(run.findings),
                    }
                    for run in system.runs
                ],
            }
            for system in scores
        ]
    }


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
                "kept" if run.kept else "dropped" if system.valid else "-",
            )
        console.print(table)
        for run in system.runs:
            for finding in run.findings[:3]:
                console.print(f"{run.file.name}: {finding}", markup=False, highlight=False, soft_wrap=True)
            if len(run.findings) > 3:
                console.print(f"{run.file.name}: {len(run.findings) - 3} more findings", markup=False, highlight=False)
        console.print(_score_line(system), markup=False, highlight=False, soft_wrap=True, style="bold")


def _cell(value: Any, form: str) -> str:
    return "-" if value is None else format(value, form)


def _score_line(system: SystemScore) -> str:
    if system.olympic_minutes is None:
        line = f"{system.system}: no score: {system.reason}"
    else:
        line = f"{system.system}: {system.olympic_minutes:.4f} minutes, mean of the middle {rules.RUNS - 2} of {rules.RUNS} runs"
        line += "".join(f"; {run.file.name} did not converge" for run in system.runs if not run.converged)
    return f"{line} [{system.label}]" if system.label else line
