"""The score of a set of runs: the olympic mean of their minutes to target.

Source: MLPerf Training rules, sections "Run Results" (the time of a run) and "Benchmark Results" (the fastest and the slowest run
are dropped and the rest averaged; one run that did not converge may be the slowest, more make the result invalid). Of more runs
than the rules want, every five consecutive ones are a set, and the set with the median score is the result: so no one chooses.
The trimmed mean lives here and nowhere else.
"""

import json
import pathlib
from dataclasses import dataclass
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from rn50 import rules
from rn50.errors import UserError
from rn50.submission import rcp, system_description, tree
from rn50.submission.parse import ResultLog, find_result_files, read_log

HYPERPARAMETERS = (
    "global_batch_size", "opt_name", "lars_opt_base_learning_rate", "lars_opt_learning_rate_warmup_epochs",
    "lars_opt_learning_rate_decay_steps", "lars_opt_momentum", "lars_opt_weight_decay", "sgd_opt_base_learning_rate",
    "opt_learning_rate_warmup_epochs", "sgd_opt_learning_rate_decay_steps", "sgd_opt_momentum", "sgd_opt_weight_decay",
    "train_samples",
)
"""What has to be the same in all runs of a result, by the keys of the log (rules, section "Hyperparameters")."""
MANY_FILES = 100
"""From here on the reading takes long enough to show how far it has come."""


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
    in_set: bool = True
    """False for a run beyond the five that the score is made of."""


@dataclass(frozen=True)
class SystemScore:
    """The runs of one system and their mean in minutes. Without a valid score ``olympic_minutes`` is None and ``reason`` says
    why; ``label`` is ``rules.NOT_A_RESULT`` for runs on anything but ImageNet, else None.

    ``convergence`` compares a valid score on ImageNet with the reference, and ``scaled_minutes`` is what is published where it
    passes. ``images_per_second`` counts the training images of the kept runs over their whole time; ``spread`` is
    (slowest - fastest) / mean of the runs of the set that converged, as a fraction.
    """

    system: str
    valid: bool
    olympic_minutes: Optional[float]
    reason: Optional[str]
    label: Optional[str]
    runs: Tuple[RunScore, ...]
    convergence: Optional[rcp.Convergence] = None
    scaled_minutes: Optional[float] = None
    division: Optional[str] = None
    spread: Optional[float] = None
    accelerators: Optional[int] = None
    images_per_second: Optional[float] = None
    mean_minutes: Optional[float] = None
    """Of fewer runs than a score takes, where all converged: what it will be about."""

    @property
    def images_per_second_per_accelerator(self) -> Optional[float]:
        """None where the description of the system is not there, or names no accelerator."""
        return self.images_per_second / self.accelerators if self.images_per_second and self.accelerators else None


def score(
    paths: Sequence[pathlib.Path], ruleset: Optional[str] = None, progress: Callable[[int, int], None] = lambda done, total: None
) -> List[SystemScore]:
    """Scores result files, folders of them or published trees; the files of one folder are the runs of one system.

    ``ruleset`` is that of the reference convergence points: where None, that of the round which a folder of a published tree
    names, else the newest. ``progress(done, total)`` counts the files read, where they are many.

    Raises:
        UserError: a path does not exist, holds no result file, or holds a log that is none or is of another benchmark.
    """
    if ruleset is not None:
        tree.refuse_unknown([ruleset])
    folders: Dict[pathlib.Path, List[ResultLog]] = {}
    files = find_result_files(paths)
    for done, file in enumerate(files, 1):
        log = read_log(file)
        if len(files) >= MANY_FILES:
            progress(done, len(files))
        if log.benchmark not in (None, rules.BENCHMARK):
            raise UserError(f"{file}: a log of {log.benchmark}; only {rules.BENCHMARK} is scored, leave this file out")
        folders.setdefault(file.parent.resolve(), []).append(log)
    return [_score_system(folder, logs, ruleset) for folder, logs in folders.items()]


def _system(folder: pathlib.Path, logs: Sequence[ResultLog]) -> str:
    """In a published tree the folder above ``resnet/``: by that name people know the system, and logs of one system may differ in
    theirs. Elsewhere a folder can have any name, so ``submission_platform`` counts, and the folder only where no log has it."""
    if folder.name == rules.BENCHMARK:
        return folder.parent.name
    return next((log.platform for log in logs if log.platform), folder.name)


def _accelerators(place: Optional[tree.Place]) -> Optional[int]:
    try:
        return system_description.read(place.description).accelerators if place else None
    except UserError:
        return None  # a score needs no description; rn50 check says what is wrong with it


def _score_system(folder: pathlib.Path, logs: Sequence[ResultLog], ruleset: Optional[str]) -> SystemScore:
    place = tree.place(folder)
    converged = [log.status == "success" and log.reached is not None and log.minutes is not None for log in logs]
    chosen = _median_set(logs, converged)
    reason = _why_invalid([logs[i] for i in chosen], [converged[i] for i in chosen]) or _differing_configuration(logs)
    kept = _kept(chosen, logs, converged) if reason is None else []
    runs = tuple(_run(log, converged[i], i in kept, i in chosen) for i, log in enumerate(logs))
    minutes = [logs[i].minutes or 0.0 for i in kept]
    mean = sum(minutes) / len(minutes) if minutes else None
    # Another data set is told by its number of training samples. eval_samples does not tell: published ImageNet logs have 49,999
    # there, or a number of batches.
    other_data = any(log.train_samples not in (None, rules.TRAIN_SAMPLES) for log in logs)
    convergence = None
    batch_size = logs[chosen[0]].global_batch_size
    if mean is not None and batch_size and not other_data:
        epochs = [*sorted(_epochs(logs[i]) for i in chosen if converged[i]), *(None for i in chosen if not converged[i])]
        convergence = rcp.judge(ruleset or (place and place.ruleset) or rules.RULESETS[-1], batch_size, tuple(epochs))
    times = [logs[i].minutes or 0.0 for i in chosen if converged[i]]
    unfinished = len(logs) < rules.RUNS and all(converged) and _differing_configuration(logs) is None
    images = [_epochs(logs[i]) * (logs[i].train_samples or 0) for i in kept]
    return SystemScore(
        system=_system(folder, logs),
        valid=reason is None,
        olympic_minutes=mean,
        reason=reason,
        label=rules.NOT_A_RESULT if other_data else None,
        runs=runs,
        convergence=convergence,
        division=next((log.division for log in logs if log.division), None),
        scaled_minutes=mean * convergence.factor if mean is not None and convergence and convergence.passed else None,
        spread=(max(times) - min(times)) / (sum(times) / len(times)) if len(times) > 1 and any(times) else None,
        accelerators=_accelerators(place),
        images_per_second=sum(images) / sum(minutes) / 60 if all(images) and any(minutes) else None,
        mean_minutes=sum(times) / len(times) if unfinished else None,
    )


def _epochs(log: ResultLog) -> float:
    return log.reached.epoch if log.reached else 0.0


def _kept(chosen: Sequence[int], logs: Sequence[ResultLog], converged: Sequence[bool]) -> List[int]:
    """What is left of a set without its fastest and its slowest run. One that did not converge is the slowest whatever its clock
    says: it may have stopped early."""
    return sorted(chosen, key=lambda i: (not converged[i], logs[i].minutes or 0.0))[1:-1]


def _median_set(logs: Sequence[ResultLog], converged: Sequence[bool]) -> List[int]:
    """The runs that make the score, by their index: all, or of more than five the five consecutive ones whose score is the median
    of all such sets; of an even number of sets the slower of the middle two. Consecutive is by the start of the clock."""
    if len(logs) <= rules.RUNS:
        return list(range(len(logs)))
    in_time = sorted(range(len(logs)), key=lambda i: logs[i].run_start_ms or 0)
    sets = [in_time[first : first + rules.RUNS] for first in range(len(logs) - rules.RUNS + 1)]

    def minutes(chosen: List[int]) -> float:
        if sum(not converged[i] for i in chosen) > 1:
            return float("inf")
        return sum(logs[i].minutes or 0.0 for i in _kept(chosen, logs, converged))

    return sorted(sets, key=minutes)[len(sets) // 2]


def _why_invalid(logs: Sequence[ResultLog], converged: Sequence[bool]) -> Optional[str]:
    if len(logs) != rules.RUNS:
        return f"{len(logs)} {'run' if len(logs) == 1 else 'runs'} of {rules.RUNS}"
    failed = [log.path.name for log, ok in zip(logs, converged) if not ok]
    if len(failed) > 1:
        return f"{len(failed)} runs did not converge ({', '.join(failed)}), and only one may"
    return None


def _differing_configuration(logs: Sequence[ResultLog]) -> Optional[str]:
    for key in HYPERPARAMETERS:
        values = {json.dumps(event.value): log.path.name for log in logs for event in log.events if event.key == key}
        if len(values) > 1:
            differing = ", ".join(f"{value} in {name}" for value, name in values.items())
            return f"the runs are not of one configuration: {key} is {differing}"
    return None


def _run(log: ResultLog, converged: bool, kept: bool, in_set: bool) -> RunScore:
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
        in_set=in_set,
    )
