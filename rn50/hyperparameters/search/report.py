"""The results of a search, ``SearchOutcome``: ``rn50 search --json`` prints it, and its method ``write``
writes a report for people and the configuration file of the winner."""

import pathlib
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rn50 import files
from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.gathered import gathered
from rn50.hyperparameters.search import confirmation, journal, method, objective, subject
from rn50.hyperparameters.search.confirmation import BASELINE, WINNER, Confirmation
from rn50.hyperparameters.search.journal import Trial
from rn50.hyperparameters.search.method import Point
from rn50.hyperparameters.search.trial_scheduler import TrialScheduler
from rn50.printed import prints
from rn50.results import sidecar
from rn50.results.compare import Difference
from rn50.results.parse import Evaluation, partial_name, read_log
from rn50.settings import writing
from rn50.terminal import markdown, minutes

REPORT = "report.md"


class EpochsSaved(NamedTuple):
    """Epochs that the winner saves."""

    epochs: Difference
    """Difference of the winner's mean epochs from the baseline's."""

    @property
    def reduction(self) -> float:
        """Epochs saved, as a share of the baseline's."""
        return -self.epochs.difference / self.epochs.first


# What ``--json`` prints of it.
prints(
    EpochsSaved,
    lambda r: {"baseline": r.epochs.first, "winner": r.epochs.second},
    lambda r: (r.epochs.difference, r.epochs.low, r.epochs.high, r.epochs.p, r.reduction),
)


class SearchOutcome:
    """Outcome of a search, by its journal and its logs.

    A search first makes trials of points, which are sets of hyperparameters. If one of them beats the
    baseline, it is the winner, and both run again with fresh seeds: the confirmation.
    """

    trials: list[Trial]
    """Trials of the search."""
    config_file: pathlib.Path | None = None
    """Configuration file of the winner; null: no confirmation."""
    verdict: Confirmation | None = None
    """Outcome of the confirmation; None: it has not ended."""

    def __init__(self, search: TrialScheduler, arguments: Sequence[str]):
        """``arguments`` are those of the command line, after ``rn50``."""
        self.search = search
        self.command = f"DATADIR={shlex.quote(str(search.subject.data))} rn50 {shlex.join(arguments)}"
        self.trials = search.journal.trials
        self.plan = search.plan(self.trials)
        """Next runs of the search, and the best point so far."""
        self.pair = search.pair
        """Baseline and winner of the confirmation; None: no confirmation."""
        if self.pair and not confirmation.runs_left(search.folder, self.pair):
            self.verdict = confirmation.verdict(search.folder)

    @property
    def stands(self) -> bool:
        """True if the confirmation shows that the winner needs fewer epochs."""
        return self.verdict is not None and self.verdict.stands

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        if self.verdict:
            return self.verdict.sentence
        if confirmation.baseline_of(self.search.subject.start, self.trials) is None:
            return "No trial reached the target; there is nothing to confirm."
        return "Nothing better than the baseline was found; there is nothing to confirm."

    @property
    def baseline(self) -> dict[str, str] | None:
        """Variables of the baseline; null: no confirmation."""
        return subject.variables(self.pair.points[BASELINE]) if self.pair else None

    @property
    def winner(self) -> dict[str, str] | None:
        """Variables of the winner; null: no confirmation."""
        return subject.variables(self.pair.points[WINNER]) if self.pair else None

    @property
    def epochs(self) -> EpochsSaved | None:
        """Epochs that the winner saves; null: no confirmation."""
        return EpochsSaved(self.verdict.difference) if self.verdict and self.verdict.difference else None

    @property
    def report(self) -> pathlib.Path:
        """Path of the report."""
        return self.search.folder / REPORT

    def write(self) -> None:
        """Write the report and, after a confirmation, the configuration of the winner, each completely or not
        at all. An existing configuration is kept."""
        if self.verdict and self.pair:
            name = f"config_{files.path_part(self.search.subject.config.run.system)}.sh"
            self.config_file = self.search.folder / name
            if not self.config_file.exists():
                text = self._config(self.pair.points[WINNER], self.verdict)
                files.write(self.config_file, text, files.NOTHING, "move it away")
        files.write(self.report, self._markdown(), remedy="give another --output")

    def _config(self, winner: Point, verdict: Confirmation) -> str:
        """Return the content of the winner's configuration file."""
        searched = self.search.subject
        epochs = verdict.epochs[WINNER]
        values = {**writing.hyperparameters(searched.base.config), **subject.variables(winner)}
        # Evaluations are after epoch EVAL_OFFSET + 1, and from then on every EVAL_PERIOD epochs. Choose the
        # offset, below the period, with which one of them is after the epoch that the slowest run needed.
        if epochs:
            values["EVAL_OFFSET"] = str((int(max(epochs)) - 1) % int(values["EVAL_PERIOD"]))
        needed = ", ".join(f"{epoch:g}" for epoch in sorted(epochs)) or "no"
        base = searched.base.document.path.name
        rows = [
            ("expected", f"{needed} epochs in its confirmation, evaluated after every one"),
            ("found", f"by `{self.command}`"),
            ("", f"from {base}: {', '.join(subject.changes(winner, searched.start))}"),
            ("verdict", verdict.sentence),
        ]
        if searched.config.data.train_samples != rules.TRAIN_SAMPLES:
            rows.append(("note", f"found on other data than ImageNet: {rules.NOT_A_RESULT}"))
        # ``render`` returns the text, and the configuration that it makes.
        return writing.render(searched.base, "with hyperparameters that a search found", rows, values)[0]

    # The report

    def _markdown(self) -> str:
        """Return the report."""
        searched = self.search.subject
        parts = [
            f"# Search for hyperparameters of {searched.config.run.system}",
            f"<!-- {files.MARK} -->",
            f"**{self.sentence}**",
            f"`{self.command}`",
            "\n".join(self._facts()),
        ]
        if self.pair:
            parts += ["## Baseline and winner", self._points(self.pair.points)]
        elif self.plan.best is not None:
            both = {"configuration": searched.start, "best": self.plan.best}
            parts += ["## Best so far", self._points(both)]
        if self.verdict:
            parts += ["## Confirmation", *self._confirmation(self.verdict)]
        parts += ["## Trials", self._table()]
        return "\n\n".join(parts) + "\n"

    def _facts(self) -> list[str]:
        """Return the report's list of data sets, machine, software and options."""
        searched, options = self.search.subject, self.search.options
        finished = [trial.number for trial in self.trials if trial.state == "finished"]
        # One run speaks for the machine and the data of all.
        first = self.search.journal.result_file(finished[0]) if finished else None
        saved = sidecar.named(sidecar.read(first)) if first else {}
        data = "the same"
        if options.confirm_data and options.confirm_data != searched.data:
            winner = self.search.folder / confirmation.FOLDER / WINNER
            saved_of_winner = sidecar.named(sidecar.read(winner / journal.RESULT))
            data = f"`{options.confirm_data}`{_certified(saved_of_winner)}"
        minutes_of_runs = sum(trial.seconds or 0 for trial in self.trials) / 60
        facts = [
            f"- searched on `{searched.data}`{_certified(saved)}; confirmed on {data}",
            f"- {len(self.trials)} trials, {minutes_of_runs:.0f} minutes of runs; "
            f"{options.workers} at a time in this call",
            f"- machine: {saved.get('machine', 'not saved')}; "
            f"{saved.get('system / host_processor_vcpu_count', '?')} CPUs, "
            f"{saved.get('system / host_processor_model_name', 'of unknown model')}",
            f"- {self._commits()}; Python and packages are in the file beside each log, result_0.json",
            f"- runs that decide a point: {options.repeats}; its value is the mean number of epochs at "
            f"which accuracy crosses {rules.TARGET_ACCURACY}, on a line between evaluations, which are "
            "after every epoch (EVAL_OFFSET=0, EVAL_PERIOD=1)",
        ]
        if not searched.config.is_imagenet:
            facts.append(f"- {rules.NOT_A_RESULT}")
        if departures := searched.config.departures:
            broken = "; ".join(f"{name}: {rule}" for name, rule in departures.items())
            closed = "the rules of the closed division, as the configuration was before"
            facts.append(f"- not by {closed}: {broken}")
        return facts

    def _commits(self) -> str:
        """Return in words the commit of most runs, and the runs with other commits. There may be several
        commits, because a search may take several calls."""
        saved = ((run, sidecar.named(sidecar.read(log))) for run, log in self._logs())
        # Commit -> its runs. A run that was killed before it had begun has saved nothing.
        runs_of = gathered((facts.get("commit", "unknown"), run) for run, facts in saved if facts)
        if not runs_of:
            return "commit unknown"
        most, *others = sorted(runs_of, key=lambda commit: len(runs_of[commit]), reverse=True)
        exceptions = [f"but {commit} in {', '.join(runs_of[commit])}" for commit in others]
        return "; ".join([f"commit {most}", *exceptions])

    def _logs(self) -> Iterator[tuple[str, pathlib.Path]]:
        """Yield (name, log) of each run."""
        for trial in self.trials:
            yield f"trial {trial.number}", self.search.journal.result_file(trial.number)
        if self.pair:
            # A slot is a run of the confirmation: baseline or winner, its number, its log.
            for slot in confirmation.slots(self.search.folder, self.pair):
                yield f"{slot.who} {slot.number}", slot.result_file

    def _points(self, points: dict[str, Point]) -> str:
        """Return a table of two points, with a row for each variable. ``points`` maps the heading of a column
        to its point."""
        first, second = (subject.variables(point) for point in points.values())  # both have the same keys
        return markdown(["variable", *points], [[name, value, second[name]] for name, value in first.items()])

    def _confirmation(self, verdict: Confirmation) -> list[str]:
        """Return the table of the confirmation's runs, and the verdict."""
        rows = []
        for who, result in verdict.scores.items():
            for run in result.runs:
                epochs = f"{run.epochs:g}" if run.converged else f"missed ({run.epochs or 0:g})"
                rows.append([who, run.log.seed, epochs, f"{run.accuracy or 0:.4f}", minutes(run.minutes)])
        where = self.search.folder / confirmation.FOLDER
        return [
            markdown(["", "seed", "epochs", "top-1", "minutes"], rows),
            f"{verdict.sentence} Minutes are of runs that may have shared the machine; "
            f"`rn50 compare {where / BASELINE} {where / WINNER}` compares them too.",
        ]

    def _table(self) -> str:
        """Return the table of the trials."""
        rows = []
        for trial in self.trials:
            log = self.search.journal.result_file(trial.number)
            evaluations = _evaluations(log if log.exists() else partial_name(log))
            changes = subject.in_words(trial.point, self.search.subject.start)
            value = "-" if trial.value is None else f"{trial.value:.2f}"
            # A value from MISSED on only orders the runs that missed the target; it is no number of epochs.
            if trial.value is not None and trial.value >= method.MISSED:
                value = "missed"
            ended = trial.state + (f": {trial.note}" if trial.note else "")
            top = f"{objective.best_accuracy(evaluations):.4f}"
            rows.append([trial.number, trial.stage, changes, value, len(evaluations), top, ended, trial.seed])
        headings = ["", "stage", "values", "epochs to target", "epochs run", "best top-1", "ended", "seed"]
        return markdown(headings, rows)


# What ``--json`` prints of it.
prints(
    SearchOutcome,
    lambda r: (r.stands, r.sentence, r.baseline, r.winner, r.epochs, r.verdict and r.verdict.missed),
    lambda r: (r.report, r.trials, {"config": r.config_file}),
)


def _certified(saved: dict[str, str]) -> str:
    """Return in words the data certificate that a run has saved; empty: it has saved none."""
    digest = saved.get("data certificate / set_sha256")
    return f" (SHA-256 of the set {digest})" if digest else ""


def _evaluations(file: pathlib.Path) -> Sequence[Evaluation]:
    """Return the evaluations in a log; empty if there is no log."""
    try:
        return read_log(file).evaluations
    except UserError:  # the run was killed before it had begun
        return ()
