"""Make the table of published results from the result trees that MLCommons publishes, one repository per
round.

    python -m tests.support.published_table training_results_v1.0 training_results_v1.1 ... > published.csv

A tree holds ``<organisation>/results/<system>/resnet/result_<N>.txt`` and
``<organisation>/systems/<system>.json`` below a folder that names the round. Sources of the columns:

- epochs, minutes, olympic mean and images per second: ``rn50.results.score``;
- hyperparameters: the first log of a result (``rn50.results.recipe``);
- verdict on reference convergence: the official checker under the ruleset of the round;
- organisation and system: the names of the folders;
- machine: the system description.
"""

import argparse
import csv
import io
import json
import operator
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rn50.benchmark.recipe import Recipe
from rn50.errors import UserError
from rn50.progress import counting
from rn50.results import recipe, score, tree
from rn50.results.parse import ResultLog
from rn50.results.published import COLUMNS, PublishedResult
from rn50.results.result_files import find_result_files
from rn50.terminal import say

_ROUND = re.compile(r"v\d+\.\d+$")


def collect(
    paths: Sequence[pathlib.Path], progress: Callable[[int, int], None] = lambda done, total: None
) -> tuple[list[PublishedResult], list[str]]:
    """Return the results below ``paths``, sorted by round, organisation and system, and one line for each
    folder left out.

    Raises:
        UserError: a path does not exist or holds no result file.
    """
    folders = list(dict.fromkeys(file.parent.resolve() for file in find_result_files(paths)))
    found, left_out = [], []
    for done, folder in enumerate(folders, 1):
        try:
            found.append(_result(folder))
        except UserError as error:
            left_out.append(f"{folder}: left out: {error}")
        progress(done, len(folders))
    return sorted(found, key=lambda each: (each.round, each.organisation, each.system)), left_out


def _result(folder: pathlib.Path) -> PublishedResult:
    place = tree.place(folder)
    if place is None:
        raise UserError("not <organisation>/results/<system>/resnet")
    round_ = next(
        (found.group() for found in map(_ROUND.search, reversed(place.organisation.parts)) if found), None)
    if round_ is None:
        raise UserError("no folder above it names the round, like v1.0")
    [scored] = score.score([folder])
    logs = [run.log for run in scored.runs]
    said = recipe.of_log(logs[0])
    machine = tree.described(folder)
    first, interval = _evaluation_epochs(logs)
    verdict = scored.convergence if place.ruleset else None
    speed = scored.images_per_second_per_accelerator
    decay = said.decay_epochs if logs[0].train_samples else None
    return PublishedResult(
        round=round_, organisation=place.organisation.name, system=place.system,
        division=_text(machine.get("division")), status=_text(machine.get("status")),
        nodes=_whole(machine.get("number_of_nodes")), accelerators=scored.accelerators,
        accelerator_model=_text(machine.get("accelerator_model_name")),
        framework=_text(machine.get("framework")), recipe=Recipe(
            global_batch_size=said.global_batch_size, optimizer=_text(said.optimizer),
            learning_rate=_number(said.learning_rate), warmup_epochs=_number(said.warmup_epochs),
            decay_epochs=_rounded(_number(decay), 2), momentum=_number(said.momentum),
            weight_decay=_number(said.weight_decay), label_smoothing=_number(said.label_smoothing),
            model_bn_span=_whole(said.model_bn_span),
            gradient_accumulation_steps=_whole(said.gradient_accumulation_steps)),
        first_evaluation_epoch=first,
        evaluation_interval=interval, epochs=tuple(run.epochs for run in scored.runs),
        run_status=tuple(run.log.status.replace(" ", "_") for run in scored.runs),
        accuracy=tuple(_rounded(run.accuracy, 5) for run in scored.runs),
        minutes=tuple(_rounded(run.minutes, 4) for run in scored.runs),
        olympic_minutes=_rounded(scored.olympic_minutes, 4), published_scaling_factor=_scaling_factor(folder),
        rcp_verdict=f"{verdict.message}, RCP test {'PASSED' if verdict.passed else 'FAILED'}" if verdict
        else "", images_per_second_per_accelerator=None if speed is None else round(speed))


def _evaluation_epochs(logs: Sequence[ResultLog]) -> tuple[float | None, float | None]:
    """Return the epoch of the first evaluation and the epochs between evaluations; None for one that is not
    always the same."""
    courses = [sorted({evaluation.epoch for evaluation in log.evaluations}) for log in logs]
    firsts: set[float] = {course[0] for course in courses if course}
    steps: set[float] = {
        later - earlier for course in courses for earlier, later in zip(course, course[1:], strict=False)}
    return (firsts.pop() if len(firsts) == 1 else None), (steps.pop() if len(steps) == 1 else None)


def _scaling_factor(folder: pathlib.Path) -> float | None:
    """Return the reference convergence factor that the submission tools left in the tree (``scaling.json``),
    or None."""
    try:
        return _number(json.loads((folder / "scaling.json").read_text(encoding="utf-8"))["scaling_factor"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _text(value: Any) -> str:
    text = str(value or "").strip()
    return "" if text.upper() == "N/A" else text


def _number(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number == int(number) else None


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def to_csv(rows: Iterable[PublishedResult]) -> str:
    """Return the table of ``rows``; the values of several runs are separated by spaces, with ``-`` for a
    missing one."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(COLUMNS)
    values = operator.attrgetter(*COLUMNS.values())
    writer.writerows(map(_cell, values(row)) for row in rows)
    return table.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(_cell(each) or "-" for each in value)
    if value is None or isinstance(value, str):
        return value or ""
    return str(int(value)) if value == int(value) else repr(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table. Exit status: 0 complete, 1 a folder was left out, 2 nothing could be read."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.published_table", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "trees", nargs="+", type=pathlib.Path, metavar="TREE", help="the published results of one round")
    try:
        with counting("reading results") as progress:
            found, left_out = collect(parser.parse_args(arguments).trees, progress)
    except UserError as error:
        for line in error.lines:
            say(line, err=True)
        return 2
    print(to_csv(found), end="")
    for line in left_out:
        say(line, err=True)
    return 1 if left_out else 0


if __name__ == "__main__":
    sys.exit(main())
