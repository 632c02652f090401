"""The epochs that a recipe needs: from published runs of that very recipe, else from the reference's, and which recipe to choose.

Source: the table of published results, and the reference convergence points of the newest ruleset, between which the official
checker interpolates linearly in the batch size.
"""

import json
import math
import statistics
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from rn50 import rules
from rn50.hyperparameters import published
from rn50.submission import recipe

DISTANCE_EPOCHS = 4.0
"""What a recipe is taken to lose by a batch size twice as large or half as large as its own: one evaluation. A choice, not a
measurement; it decides the order of candidates only."""


@dataclass(frozen=True)
class Prediction:
    """``runs`` is the number of runs behind it, ``missed`` of them did not reach the target. ``mean``, ``low`` and ``high`` are
    the epochs of those that did."""

    basis: str
    runs: int
    missed: int
    mean: float
    low: float
    high: float

    @property
    def missed_share(self) -> Optional[float]:
        """Of all its runs; None where no runs are behind it."""
        return self.missed / self.runs if self.runs else None

    def __str__(self) -> str:
        spread = f"{self.mean:.1f} epochs ({self.low:g} to {self.high:g})"
        missed = f"; {self.missed} of {self.runs} runs missed ({self.missed / self.runs:.0%})" if self.runs else ""
        return f"{spread}{missed}: {self.basis}"


@dataclass(frozen=True)
class Candidate:
    """A recipe that may be borrowed under ``name``; ``expected`` are the epochs that order the candidates of a batch size."""

    name: str
    global_batch_size: int
    values: Dict[str, Any]
    prediction: Prediction
    expected: float


def of_recipe(values: Sequence[Any], own: Sequence[Optional[float]]) -> Optional[Prediction]:
    """That of a recipe by its values in the order of ``published.GROUP``; ``own`` are the epochs of the runs that it was borrowed
    from, None for one that missed. None where nothing is known of that optimizer."""
    batch, optimizer = values[0], values[1]
    group = published.recipes(optimizer).get(published.recipe_key(*values), ())
    if group:
        runs = _runs(group)
        if any(each is not None for each in runs):
            return _of_runs(f"{len(group)} published {'result' if len(group) == 1 else 'results'} of this very recipe", runs)
    if any(each is not None for each in own):
        return _of_runs("the runs that it was borrowed from", own)
    if optimizer != "lars":
        return None
    mean, low, high, basis = _reference(batch)
    return Prediction(f"no run of this recipe is known; {basis}", 0, 0, mean, low, high)


def _runs(group: Sequence[published.PublishedResult]) -> List[Optional[float]]:
    found: List[Optional[float]] = []
    for result in group:
        reached = result.epochs_to_target
        found += [*reached, *[None] * (len(result.run_status) - len(reached))]
    return found


def _of_runs(basis: str, runs: Sequence[Optional[float]]) -> Prediction:
    reached = [each for each in runs if each is not None]
    return Prediction(basis, len(runs), len(runs) - len(reached), statistics.mean(reached), min(reached), max(reached))


def _points() -> List[Dict[str, Any]]:
    points = json.loads(recipe.reference_file(rules.RULESETS[-1]).read_text(encoding="utf-8")).values()
    return sorted(points, key=lambda point: point["BS"])


def _reference(batch: int) -> Tuple[float, float, float, str]:
    """Mean, least and most epochs of the reference at a batch size, interpolated between the points beside it."""
    points = _points()
    below = max((point for point in points if point["BS"] <= batch), key=lambda point: point["BS"], default=points[0])
    above = min((point for point in points if point["BS"] >= batch), key=lambda point: point["BS"], default=points[-1])
    share = (batch - below["BS"]) / (above["BS"] - below["BS"]) if above["BS"] != below["BS"] else 0.0

    def between(of: Callable[[Sequence[float]], float]) -> float:
        first, second = of(below["Epochs to converge"]), of(above["Epochs to converge"])
        return first + share * (second - first)

    names = " and ".join(f"{each:,}" for each in dict.fromkeys((below["BS"], above["BS"])))
    return between(statistics.mean), between(min), between(max), f"the reference's points at {names}"


def candidates(global_batch_size: int, optimizer: str) -> List[Candidate]:
    """Whole recipes of the closed division for a batch size, the most promising first.

    ``expected`` is what the reference needs at this batch size, plus what the recipe needs more than the reference at its own,
    where epochs are those of a run over the share of runs that reach the target, plus ``DISTANCE_EPOCHS`` for every factor of
    two.
    """
    found = []
    here = _reference(global_batch_size)[0]

    def add(name: str, batch: int, values: Dict[str, Any], prediction: Prediction) -> None:
        per_success = prediction.mean * prediction.runs / (prediction.runs - prediction.missed)
        away = abs(math.log2(global_batch_size / batch))
        expected = here + per_success - _reference(batch)[0] + DISTANCE_EPOCHS * away
        found.append(Candidate(name, batch, values, prediction, expected))

    for key, group in published.recipes(optimizer).items():
        group = tuple(result for result in group if result.division.lower().startswith("close"))
        runs = _runs(group)
        if None not in key and any(each is not None for each in runs) and not _departs(dict(zip(published.GROUP, key))):
            prediction = _of_runs(f"{len(group)} published {'result' if len(group) == 1 else 'results'}", runs)
            add(group[0].name, key[0], dict(zip(published.GROUP, key)), prediction)
    for point in _points():
        said = recipe.of_point(point)
        if said.values["optimizer"] == optimizer:
            decay = said.decay_epochs(rules.TRAIN_SAMPLES)
            values = (point["BS"], optimizer, said.values["base_learning_rate"], said.values["learning_rate_warmup_epochs"],
                      None if decay is None else round(decay, 2), said.values["weight_decay"], said.values["momentum"])
            prediction = _of_runs("the reference, evaluated every epoch", point["Epochs to converge"])
            add(f"rcp/{rules.RULESETS[-1]}/{point['BS']}", point["BS"], dict(zip(published.GROUP, values)), prediction)
    return sorted(found, key=lambda candidate: (candidate.expected, -candidate.prediction.runs))


def _departs(values: Dict[str, Any]) -> bool:
    """Whether the closed division's rules refuse a recipe; of label smoothing it says nothing."""
    found = rules.departures(
        values["optimizer"], values["global_batch_size"], values["base_learning_rate"], values["momentum"],
        values["weight_decay"], rules.LABEL_SMOOTHING[0],
    )  # fmt: skip
    return bool(found)
