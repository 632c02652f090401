"""The history of each published system, and whose hyperparameters came first."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rn50.benchmark.recipe import Recipe
from rn50.hyperparameters.atlas.rows import Row
from rn50.results import published
from rn50.results.compare import Split
from rn50.results.published import PublishedResult

Pair = tuple[Row, PublishedResult]


class Step(NamedTuple):
    """The fastest result of a round; ``change`` is that of its minutes against the round before, a
    fraction."""

    row: Row
    change: float | None


class History(NamedTuple):
    """An organisation's results with as many boards of one kind; ``split`` is the difference of the last from
    the first."""

    steps: Sequence[Step]
    split: Split | None

    @property
    def ratio(self) -> float:
        """Minutes of the last over those of the first."""
        first, last = self.steps[0].row.minutes, self.steps[-1].row.minutes
        return (last or 0.0) / (first or 1.0)


class Taken(NamedTuple):
    """Hyperparameters, who published them in the first round, and who else in a later one."""

    recipe: Recipe
    first: Sequence[Row]
    later: Sequence[Row]


def histories(pairs: Iterable[Pair]) -> list[History]:
    """Return the history of each system that made new runs in a later round, the largest gain first."""
    groups: dict[tuple[str, str, int], dict[str, Row]] = {}
    for row, _ in pairs:
        if not row.accelerators or not row.board or not row.minutes or row.first_logs:
            continue
        rounds = groups.setdefault((row.organisation.lower(), row.board, row.accelerators), {})
        if row.minutes < (rounds.setdefault(row.round, row).minutes or 0.0):
            rounds[row.round] = row
    histories = []
    for by_round in groups.values():
        rows = [*by_round.values()]
        if len(rows) > 1:
            minutes = [row.minutes or 0.0 for row in rows]
            changes = [after / before - 1 for before, after in zip(minutes, minutes[1:], strict=False)]
            first, last = rows[0].epochs, rows[-1].epochs
            split = Split.of((minutes[0], minutes[-1]), (first, last)) if first and last else None
            histories.append(History([*map(Step, rows, [None, *changes])], split))
    return sorted(histories, key=lambda history: history.ratio)


def taken(pairs: Sequence[Pair]) -> list[Taken]:
    """Return the hyperparameters that an organisation published after another one had, in an earlier round,
    those of most later results first."""
    rows = {result.name: row for row, result in pairs}
    every = []
    for recipe, group in published.by_recipe(result for _, result in pairs).items():
        first = [result for result in group if result.round == group[0].round]
        owners = {result.organisation.lower() for result in first}
        after = (result for result in group if result.round > group[0].round)
        later = [result for result in after if result.organisation.lower() not in owners]
        if recipe.is_whole and later:
            every.append(Taken(recipe, *([rows[result.name] for result in part] for part in (first, later))))
    return sorted(every, key=lambda shared: -len(shared.later))
