"""Two sections of the atlas of published results: how each system became faster from round to round
(``histories``), and which hyperparameters one organisation published after another (``taken``)."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rn50.benchmark.recipe import Recipe
from rn50.hyperparameters.atlas.rows import Row
from rn50.results import published
from rn50.results.compare import Split
from rn50.results.published import PublishedResult

Pair = tuple[Row, PublishedResult]
"""A row of the atlas's table, and the result that it shows. Lists of pairs are in the order of rounds."""


class Step(NamedTuple):
    """The fastest result of a round in a ``History``."""

    row: Row
    change: float | None
    """Change of the minutes since the previous step, as a fraction; None: it is the first step."""


class History(NamedTuple):
    """Results of an organisation with the same number of accelerators of the same board, a step per round."""

    steps: Sequence[Step]
    split: Split | None
    """The change of minutes from the first to the last step, split into a part due to epochs and a part due
    to speed; None: the epochs are not known."""

    @property
    def ratio(self) -> float:
        """Minutes of the last step over those of the first."""
        first, last = self.steps[0].row.minutes, self.steps[-1].row.minutes
        return (last or 0.0) / (first or 1.0)


class Taken(NamedTuple):
    """Hyperparameters that several organisations published, one after the other."""

    recipe: Recipe
    first: Sequence[Row]
    """Results of the first round in which somebody published them."""
    later: Sequence[Row]
    """Results of other organisations in later rounds."""


def histories(pairs: Iterable[Pair]) -> list[History]:
    """Return the history of each system with new runs in at least two rounds. The history with the largest
    gain comes first."""
    # (organisation, board, accelerators) -> round -> row with the fewest minutes in this round
    groups: dict[tuple[str, str, int], dict[str, Row]] = {}
    for row, _ in pairs:
        # ``first_logs``: the same runs were published before, so they are not new.
        if not row.accelerators or not row.board or not row.minutes or row.first_logs:
            continue
        rounds = groups.setdefault((row.organisation.lower(), row.board, row.accelerators), {})
        fastest = rounds.get(row.round)
        if fastest is None or row.minutes < (fastest.minutes or 0.0):
            rounds[row.round] = row
    result = []
    for by_round in groups.values():
        rows = [*by_round.values()]
        if len(rows) > 1:
            minutes = [row.minutes or 0.0 for row in rows]
            changes = [after / before - 1 for before, after in zip(minutes, minutes[1:], strict=False)]
            first, last = rows[0].epochs, rows[-1].epochs
            split = Split.from_means((minutes[0], minutes[-1]), (first, last)) if first and last else None
            result.append(History([*map(Step, rows, [None, *changes])], split))
    return sorted(result, key=lambda history: history.ratio)


def taken(pairs: Sequence[Pair]) -> list[Taken]:
    """Return the hyperparameters that an organisation published in a later round than another organisation.
    The hyperparameters with the most later results come first."""
    rows = {result.name: row for row, result in pairs}
    shared = []
    for recipe, group in published.by_recipe(result for _, result in pairs).items():
        # A group is in the order of rounds, so its first result is of the first round.
        first = [result for result in group if result.round == group[0].round]
        owners = {result.organisation.lower() for result in first}
        in_later_rounds = (result for result in group if result.round > group[0].round)
        later = [result for result in in_later_rounds if result.organisation.lower() not in owners]
        if recipe.is_whole and later:
            first_rows = [rows[result.name] for result in first]
            shared.append(Taken(recipe, first_rows, [rows[result.name] for result in later]))
    return sorted(shared, key=lambda entry: -len(entry.later))
