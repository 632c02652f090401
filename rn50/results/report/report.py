"""``rn50 report``: everything known of one or several results, on one self-contained HTML page.

``write`` writes the page that ``render`` makes. ``render`` fills the template ``report.html.j2`` with one
dictionary per system (``_system``), and for several systems with an overview that compares them
(``_overview``).
"""

import itertools
import os
import pathlib
import shlex
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rn50 import docstrings, files
from rn50.benchmark import rules
from rn50.progress import Progress, silent
from rn50.results import compare, recipe, scoreboard, timing
from rn50.results import score as scoring
from rn50.results.report import plots, recipes, templates, what_ran
from rn50.results.score import RunScore, SystemScore
from rn50.results.validity import compliance, explain
from rn50.settings import header
from rn50.terminal import counted, minutes


class _Run:
    """A run on the page: its score, its curves, and its colour (``series``) and marker (``glyph``), which
    depend on its ``number`` in the system. ``verdict`` says whether the run counts in the score, and why not.
    Curves of a run that does not count are drawn ``faint``."""

    def __init__(self, score: RunScore, number: int, system: SystemScore) -> None:
        self.score = score
        self.series = number % plots.SERIES
        self.glyph = plots.GLYPHS[self.series]
        self.verdict = _part_in_score(score, system)
        self.faint = self.verdict.startswith(("dropped", "not in"))
        self.points = timing.accuracies(score.log)
        self.throughput = timing.throughput(score.log)
        self.times = timing.run_times(score.log)
        self.losses = timing.losses(score.log)

    def accuracy(self, over: str, series: int | None = None) -> plots.Curve:
        """Return the accuracy of the evaluations ``over`` "epochs" or "minutes", with a ring around the first
        at the target. The curve has the colour ``series``. If that is None, it has the run's own colour, and
        is faint if the run is."""
        points = [(epoch if over == "epochs" else minute, top_1) for epoch, minute, top_1 in self.points]
        accepted = next((point for point in points if point[1] >= self.score.log.target), None)
        if series is None:
            return plots.Curve(points, self.series, self.faint, accepted)
        return plots.Curve(points, series, False, accepted)


class Page(NamedTuple):
    """A page that was written."""

    report: pathlib.Path
    """File of the page."""


def write(
    paths: Sequence[pathlib.Path],
    rulesets: Sequence[str],
    output: pathlib.Path | None = None,
    progress: Progress = silent,
    audits: Mapping[pathlib.Path, Sequence[str]] = {},
) -> pathlib.Path:
    """Write the report of all results that ``paths`` mean, and return its path. The path is ``output``; if
    that is None, ``report.html`` in the folder of the logs, or in the current folder if these lie in several
    folders. The official checkers of ``rulesets`` run on the logs; if there are none, the page says that they
    run at the end of the campaign. ``progress(done, total)`` is called after each result is drawn. ``audits``
    has for the folder of a result the verdict of an audit, and a line for each test in which it stands out.

    Raises:
        UserError: as in ``score.score`` and ``compliance.check``, or the report cannot be written.
    """
    systems = scoring.score(paths)
    folders = {run.file.parent for system in systems for run in system.runs}
    folder = folders.pop() if len(folders) == 1 else pathlib.Path()
    target = output or folder / "report.html"
    remedy = "give another place with --output"
    files.refuse_to_replace(target, files.PAGE, remedy=remedy)  # before the work of checking and drawing
    files.write(target, render(systems, rulesets, progress, target.parent, audits), remedy=remedy)
    return target


def render(
    systems: Sequence[SystemScore],
    rulesets: Sequence[str],
    progress: Progress = silent,
    folder: pathlib.Path = pathlib.Path(),
    audits: Mapping[pathlib.Path, Sequence[str]] = {},
) -> str:
    """Return the page for ``systems``. The official checker runs on their logs under every ruleset of
    ``rulesets``. The reference convergence points are those of the last ruleset; if there is none, of the
    newest that rn50 knows. The links to the logs are relative to ``folder``, in which the page will lie;
    ``audits`` as for ``write``."""
    environment = templates.in_folder_of(__file__)
    environment.filters["number"] = recipes.number
    environment.filters["minutes"] = minutes
    environment.filters["link"] = lambda file: _link(file, folder)
    references = rulesets[-1] if rulesets else rules.RULESETS[-1]
    pages = []
    for system in systems:
        audit = audits.get(system.runs[0].file.parent.resolve(), ())
        pages.append({**_system(system, rulesets, references), "audit": audit})
        progress(len(pages), len(systems))
    return environment.get_template("report.html.j2").render(
        systems=pages,
        overview=_overview(pages) if len(pages) > 1 else None,
        labels=list(dict.fromkeys(system.label for system in systems if system.label)),
        rules=rules,
        rulesets=rulesets,
        references=references,
        scoreboard=scoreboard,
        compare=compare,
    )


def _link(file: pathlib.Path, folder: pathlib.Path) -> str:
    """Return the relative URL of a file for a page in ``folder``."""
    return urllib.parse.quote(os.fsencode(os.path.relpath(os.path.realpath(file), os.path.realpath(folder))))


def _system(system: SystemScore, rulesets: Sequence[str], references: str) -> dict[str, Any]:
    """Return the variables of the template for one system. ``references`` is the ruleset whose reference
    convergence points stand beside the hyperparameters of the system."""
    runs = [_Run(run, number, system) for number, run in enumerate(system.runs)]
    logs = [run.file for run in system.runs]
    speeds = [plots.Curve(run.throughput.epochs, run.series, run.faint) for run in runs]
    losses = [plots.Curve(run.losses, run.series, run.faint) for run in runs]
    hyperparameters = recipes.read(system.runs, references, system.accelerators)
    last_epoch = max((epoch for run in runs for epoch, _, _ in run.points), default=0)
    schedule = recipe.learning_rates(hyperparameters.columns[0].recipe, last_epoch)
    verdicts = compliance.check(logs, rulesets) if rulesets else []
    by_file = {file: [verdict for verdict in verdicts if verdict.file == file] for file in logs}
    timed_runs = [run for run in runs if run.times]
    # A field of RunTimes is a part of the time of a run. Its docstring is the name of the part on the page.
    names = docstrings.of_attributes(timing.RunTimes).items()
    seconds = {name: [getattr(run.times, field) or 0.0 for run in timed_runs] for field, name in names}
    # Name of a part -> its seconds in each timed run, without parts that no run has.
    parts = {name: run_seconds for name, run_seconds in seconds.items() if any(run_seconds)}
    evaluations = [run.accuracy("epochs") for run in runs]
    has_evaluations = any(curve.points for curve in evaluations)
    expected = header.curve(system.runs[0].header)
    # A valid score allows a run that missed; the page then explains why the official checker fails it.
    missed = [run.file for run in system.runs if not run.converged] if system.valid else []
    return {
        "score": system,
        "folder": shlex.quote(str(logs[0].parent)),
        "runs": runs,
        "head": what_ran.head(system.runs),
        "expected": bool(expected),
        "schedule": schedule,
        "facts": _facts(system),
        "throughputs": list(_throughputs(system, runs)),
        "hyperparameters": hyperparameters,
        "figures": {
            "epochs": plots.accuracy(evaluations, "epochs", expected) if has_evaluations else None,
            "loss": plots.loss(losses) if any(curve.points for curve in losses) else None,
            "throughput": plots.throughput(speeds) if any(curve.points for curve in speeds) else None,
            "learning_rate": plots.learning_rate([plots.Curve(schedule)]) if schedule else None,
            "time": plots.time_parts([run.score.file.name for run in timed_runs], parts) if parts else None,
        },
        "in_blocks": any(run.throughput.in_blocks for run in runs),
        "parts": list(parts.items()),
        "parts_of": [run.score.file.name for run in timed_runs],
        "repetition": what_ran.repetition(system.runs[0]),
        "environment": what_ran.environment(system.runs),
        "verdicts": [(file.name, of_file) for file, of_file in by_file.items()],
        "passed": sum(verdict.ok for verdict in verdicts),
        "checks": len(verdicts),
        "only_missed": all(verdict.ok or verdict.file in missed for verdict in verdicts),
        "messages": [text for run in system.runs for text in explain.explain(by_file[run.file], run.log)],
    }


def _part_in_score(run: RunScore, system: SystemScore) -> str:
    """Return in words whether a run counts in the score of its system, and if not, why."""
    if run.kept:
        return "in the score" if system.valid else "in the mean"
    if system.olympic_minutes is None:  # no score: too few runs, or too few at the target
        return "-" if run.converged else "did not converge"
    if not run.in_set:
        return "not in the median set" + ("" if run.converged else ", did not converge")
    if not run.converged:
        return "dropped, did not converge"
    # The mean leaves out the fastest and the slowest run of the median set, and this run is one of them.
    kept = [other.log.minutes or 0.0 for other in system.runs if other.kept]
    return "dropped, fastest" if (run.minutes or 0.0) <= min(kept) else "dropped, slowest"


def _facts(system: SystemScore) -> list[tuple[str, str]]:
    """Return the known facts of a system as (name, value)."""
    log = system.runs[0].log
    converged = [run for run in system.runs if run.converged]
    demo = rules.NOT_A_RESULT in (system.label or "")
    organisation = system.runs[0].organisation
    images = (f"{samples:,}" if samples else "-" for samples in (log.train_samples, log.eval_samples))
    facts = [
        ("converged", f"{len(converged)} of {counted(len(system.runs), 'run')}"),
        ("top-1 at the end", recipes.span((run.accuracy for run in system.runs), "{:.4f}".format)),
        ("epochs to target", recipes.span((run.epochs for run in converged), "{:g}".format)),
        ("minutes", recipes.span((run.minutes for run in converged), minutes)),
        ("global batch", f"{log.global_batch_size:,}" if log.global_batch_size else None),
        ("training / validation images", " / ".join(images)),
        ("organisation", organisation if organisation != system.label else None),
        ("division, status", "demo" if demo else f"{log.division or '-'}, {log.submission_status or '-'}"),
    ]
    return [(name, value) for name, value in facts if value]


def _throughputs(system: SystemScore, runs: Sequence[_Run]) -> Iterator[tuple[str, float, str]]:
    """Yield the known throughputs as (name, images/s, sentence that explains the figure)."""
    accelerators = system.accelerators or what_ran.gpus(system.runs[0])
    part = "a block of epochs" if any(run.throughput.in_blocks for run in runs) else "an epoch"
    training = timing.training_rate([run.log for run in system.runs])
    end_to_end = system.images_per_second
    if training is not None:
        text = f"Training images over the time of {part}, less the evaluations in it: the median of all but "
        yield "training", training, f"{text}the first of each run."
    if end_to_end is not None:
        text = "Training images of the runs in the mean over their whole time on the clock, evaluations and "
        yield "end to end", end_to_end, f"{text}gaps included."
    if end_to_end and accelerators:
        text = f"End to end, on each of {accelerators} accelerators."
        yield "per accelerator", end_to_end / accelerators, text


def _overview(pages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the variables of the template that compare several systems. ``pages`` are the results of
    ``_system``."""
    systems = [page["score"] for page in pages]
    dots = [[(run.minutes, run.kept) for run in system.runs if run.converged] for system in systems]
    # In the overview a run has the colour of its system. Runs that do not count are left out.
    runs = [(number, run) for number, page in enumerate(pages) for run in page["runs"] if not run.faint]
    losses = [plots.Curve(run.losses, number) for number, run in runs]
    schedules = [plots.Curve(page["schedule"], i) for i, page in enumerate(pages) if page["schedule"]]
    comparisons = compare.compare(systems)
    heads = [dict(page["head"]) for page in pages]
    names = dict.fromkeys(itertools.chain(*heads))
    return {
        "names": compare.names(systems),
        "glyphs": plots.GLYPHS,
        "head": [(name, [head.get(name, "-") for head in heads]) for name in names],
        "minutes": plots.minutes(dots, [system.olympic_minutes for system in systems]),
        "accuracy": plots.accuracy([run.accuracy("minutes", number) for number, run in runs], "minutes"),
        "loss": plots.loss(losses) if any(curve.points for curve in losses) else None,
        "learning_rate": plots.learning_rate(schedules) if schedules else None,
        "comparisons": comparisons,
        # Without the label of demo data, which stands at the top of the page.
        "cautions": [[line for line in c.cautions if rules.NOT_A_RESULT not in line] for c in comparisons],
        "correction": compare.correction(comparisons),
    }
