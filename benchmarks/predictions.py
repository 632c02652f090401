"""Measure the error of ``rn50 plan`` on published results that it has not used.

    python benchmarks/predictions.py

A system is one name of one organisation, in all rounds. Each system is left out in turn, and its results are
predicted from those of all other systems. Then each organisation is left out in turn. Then each round is
predicted from the rounds before it; a further table is for the last round alone. A log that was submitted to
several rounds counts once. Errors are those of closed-division LARS results of v1.0 to v4.0; results of v0.7
are only predicted from. The exit status is 0 if both goals are met, else 1.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rn50.hyperparameters import reference
from rn50.hyperparameters.plan import epochs, images_per_second
from rn50.hyperparameters.plan.epochs import CONFIDENCE
from rn50.hyperparameters.plan.planner import OPTIMIZER, Prediction, SystemPlanner
from rn50.progress import counting
from rn50.results import chips, published
from rn50.results.published import PublishedResult

EPOCHS_GOAL = 1.5
"""Mean absolute error of the epochs that ``rn50 plan`` must stay below."""
MINUTES_GOAL = 0.08
"""Median relative error of the minutes that ``rn50 plan`` must stay below."""
LARGE_BATCH, MANY_ACCELERATORS = 4096, 32
"""Global batch size above which a batch is large, and number from which on accelerators are many."""


@dataclass(frozen=True)
class Case:
    """A published result, and its predictions from other results."""

    result: PublishedResult
    plain: Prediction
    """The prediction from its batch size alone, as in a plan."""
    with_recipe: Prediction
    """The prediction from its batch size and its hyperparameters."""
    known: bool
    """True if the other results give the images/s of its accelerator, so that its minutes can be
    predicted."""

    @property
    def epochs(self) -> float:
        """The mean number of epochs of the result."""
        return epochs.mean_epochs(self.result)


def hold_out(split: Callable[[PublishedResult], str], progress: Callable[[int, int], None]) -> list[Case]:
    """Predict all results in groups, each group from the results of all other groups. ``split`` returns the
    group of a result."""
    results = [entry for entry in published.distinct(OPTIMIZER) if entry.is_closed]
    judged = [entry for entry in results if entry.round != "v0.7" and entry.epochs_to_target]
    groups = sorted({split(entry) for entry in judged})
    cases = []
    for done, group in enumerate(groups, 1):
        planner = SystemPlanner([entry for entry in results if split(entry) != group])
        for result in judged:
            if split(result) == group:
                cases.append(_predict(planner, result))
        progress(done, len(groups))
    return cases


def predict_forward(progress: Callable[[int, int], None]) -> list[Case]:
    """Predict the results of every round from those of the rounds before it."""
    results = [result for result in published.distinct(OPTIMIZER) if result.is_closed]
    rounds = sorted({result.round for result in results})
    cases = []
    for done, this_round in enumerate(rounds[1:], 1):
        planner = SystemPlanner([result for result in results if result.round < this_round])
        judged = [result for result in results if result.round == this_round and result.epochs_to_target]
        cases += [_predict(planner, result) for result in judged]
        progress(done, len(rounds) - 1)
    return cases


def _predict(planner: SystemPlanner, result: PublishedResult) -> Case:
    """Return a result with its predictions by ``planner``."""
    # If a result does not name its accelerators, any name and number will do: its minutes are not judged.
    name, number = chips.name(result.accelerator_model), result.accelerators or 8
    is_known = images_per_second.training_rate(result) is not None and name in planner.throughput.accelerators
    size = result.recipe.global_batch_size or 0
    return Case(
        result=result,
        plain=planner.predict(name, number, size),
        with_recipe=planner.predict(name, number, size, result),
        known=is_known,
    )


def figures(cases: Sequence[Case]) -> dict[str, Any]:
    """Return the errors of epochs and of minutes over all cases, over large batches, and over many
    accelerators: name of a row -> errors."""
    large = [case for case in cases if (case.result.recipe.global_batch_size or 0) > LARGE_BATCH]
    with_rate = [case for case in cases if case.known]
    many = [case for case in with_rate if (case.result.accelerators or 0) >= MANY_ACCELERATORS]
    return {
        "epochs": _epochs(cases, "plain"),
        "epochs, recipe known": _epochs(cases, "with_recipe"),
        f"epochs, batch above {LARGE_BATCH}": _epochs(large, "plain"),
        f"epochs, batch above {LARGE_BATCH}, recipe known": _epochs(large, "with_recipe"),
        "minutes": _minutes(with_rate, "plain"),
        "minutes, recipe known": _minutes(with_rate, "with_recipe"),
        f"minutes, {MANY_ACCELERATORS} accelerators and more": _minutes(many, "plain"),
    }


def _epochs(cases: Sequence[Case], field: str) -> dict[str, float]:
    """Return the absolute errors of the epochs of the prediction ``field`` of every case: statistics, and the
    fraction of results within the predicted interval."""
    pairs = [(getattr(case, field), case.epochs) for case in cases]
    errors = np.abs([predicted.epochs - actual for predicted, actual in pairs])
    within = [
        predicted.epochs_low - 1e-6 <= actual <= predicted.epochs_high + 1e-6 for predicted, actual in pairs
    ]
    return {**_statistics(errors), "coverage": float(np.mean(within))}


def _minutes(cases: Sequence[Case], field: str) -> dict[str, float]:
    """Return the relative errors of the minutes, as ``_epochs`` does for epochs."""
    pairs = [(getattr(case, field), case.result.olympic_minutes) for case in cases]
    errors = np.abs([predicted.minutes / actual - 1 for predicted, actual in pairs])
    within = [predicted.minutes_low <= actual <= predicted.minutes_high for predicted, actual in pairs]
    return {**_statistics(errors), "coverage": float(np.mean(within))}


def _statistics(errors: Any) -> dict[str, float]:
    """Return number, mean, median and 90th percentile of errors."""
    return {
        "results": len(errors),
        "mean": float(errors.mean()),
        "median": float(np.median(errors)),
        "p90": float(np.quantile(errors, 0.9)),
    }


def baselines(cases: Sequence[Case]) -> dict[str, float]:
    """Return the errors of simpler predictions: name -> error.

    The first two predict the epochs. The last two predict minutes from the actual epochs of a result and the
    median images/s that other systems reach with the same accelerator, at any scale.
    """
    actual_epochs = np.array([case.epochs for case in cases])
    reference_epochs = [
        reference.interpolated(case.result.recipe.global_batch_size or 0).mean for case in cases
    ]
    results = [case.result for case in cases if case.known]
    errors = []
    for result in results:
        accelerator = images_per_second.conditions(result).accelerator
        rates = [
            other.images_per_second_per_accelerator or 0
            for other in results
            if images_per_second.conditions(other).accelerator == accelerator
            and images_per_second.system(other) != images_per_second.system(result)
        ]
        if rates:
            errors.append(abs((result.images_per_second_per_accelerator or 0) / np.median(rates) - 1))
    usual_rate = "minutes, the usual images/s of the accelerator whatever the scale, median error"
    return {
        "epochs, the reference alone, mean error": float(np.abs(reference_epochs - actual_epochs).mean()),
        "epochs, always 35, mean error": float(np.abs(35 - actual_epochs).mean()),
        usual_rate: float(np.median(errors)),
        "minutes, so, mean error": float(np.mean(errors)),
    }


def table(rows: dict[str, Any]) -> str:
    """Return the rows of ``figures`` as a table in Markdown."""
    lines = [
        f"| {'what':48} | results | mean error | median error | 90 % below | in the {CONFIDENCE:.0%} "
        "interval |"
    ]
    for what, row in rows.items():
        cells = [
            f"{row[key]:.2f}" if what.startswith("epochs") else f"{row[key]:.1%}"
            for key in ("mean", "median", "p90")
        ]
        lines.append(
            f"| {what:48} | {row['results']:7} | {cells[0]:>10} | {cells[1]:>12} | {cells[2]:>10} | "
            f"{row['coverage']:19.0%} |"
        )
    return "\n".join(lines)


def main() -> int:
    with counting("leaving out systems") as progress:
        systems = hold_out(images_per_second.system, progress)
    with counting("leaving out organisations") as progress:
        organisations = hold_out(lambda result: result.organisation.lower(), progress)
    with counting("leaving out later rounds") as progress:
        rounds = predict_forward(progress)
    errors = figures(systems)
    epochs_error, minutes_error = errors["epochs"]["mean"], errors["minutes"]["median"]
    both_met = epochs_error < EPOCHS_GOAL and minutes_error < MINUTES_GOAL
    print(f"Every system left out in turn\n\n{table(errors)}\n")
    print(f"Every organisation left out in turn\n\n{table(figures(organisations))}\n")
    print(f"Every round from those before it\n\n{table(figures(rounds))}\n")
    last = max(case.result.round for case in rounds)
    last_round = [case for case in rounds if case.result.round == last]
    print(f"{last} from those before it\n\n{table(figures(last_round))}\n")
    print("Simpler predictions\n")
    for name, value in baselines(systems).items():
        print(f"{name}: {value:.2f}" if name.startswith("epochs") else f"{name}: {value:.1%}")
    print(
        f"epochs, mean absolute error {epochs_error:.2f}, goal below {EPOCHS_GOAL}; minutes, median error "
        f"{minutes_error:.1%}, goal below {MINUTES_GOAL:.0%}: {'both met' if both_met else 'NOT MET'}"
    )
    return 0 if both_met else 1


if __name__ == "__main__":
    sys.exit(main())
