"""Measure the error of ``rn50 plan`` on published results that it does not know.

    python benchmarks/predictions.py

Every system (one name of one organisation, in all its rounds) is left out in turn and predicted from the
others; then every organisation; then every round is predicted from those before it, the last one also on
its own. Logs that were submitted to several rounds count once. Errors are measured on closed-division LARS
results of v1.0 to v4.0; results of v0.7 are used only to predict. The exit status is 0 if both goals are
met, else 1.
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
MINUTES_GOAL = 0.08
LARGE_BATCH, MANY_ACCELERATORS = 4096, 32


@dataclass(frozen=True)
class Held:
    """A result and its predictions: from its batch size alone, like a plan, and with its recipe known."""

    result: PublishedResult
    plain: Prediction
    with_recipe: Prediction
    known: bool
    """True if the remaining results give the images/s of its accelerator."""

    @property
    def epochs(self) -> float:
        return epochs.mean_epochs(self.result)


def hold_out(split: Callable[[PublishedResult], str], progress: Callable[[int, int], None]) -> list[Held]:
    results = [entry for entry in published.distinct(OPTIMIZER) if entry.is_closed]
    judged = [entry for entry in results if entry.round != "v0.7" and entry.epochs_to_target]
    groups = sorted({split(entry) for entry in judged})
    held = []
    for done, group in enumerate(groups, 1):
        planner = SystemPlanner([entry for entry in results if split(entry) != group])
        for result in judged:
            if split(result) == group:
                held.append(_predict(planner, result))
        progress(done, len(groups))
    return held


def forward(progress: Callable[[int, int], None]) -> list[Held]:
    """Predict every round from those before it."""
    results = [result for result in published.distinct(OPTIMIZER) if result.is_closed]
    rounds = sorted({result.round for result in results})
    held = []
    for done, this in enumerate(rounds[1:], 1):
        before = [result for result in results if result.round < this]
        planner = SystemPlanner(before)
        held += [
            _predict(planner, result)
            for result in results
            if result.round == this and result.epochs_to_target
        ]
        progress(done, len(rounds) - 1)
    return held


def _predict(planner: SystemPlanner, result: PublishedResult) -> Held:
    # For a result that does not name its accelerators only the epochs count, and the values here do not
    # matter.
    name, number = chips.name(result.accelerator_model), result.accelerators or 8
    is_known = images_per_second.training_rate(result) is not None and name in planner.throughput.accelerators
    size = result.recipe.global_batch_size or 0
    plain, with_recipe = planner.predict(name, number, size), planner.predict(name, number, size, result)
    return Held(result, plain, with_recipe, is_known)


def figures(held: Sequence[Held]) -> dict[str, Any]:
    """Return the errors over all results, over large batches, and over many accelerators."""
    large = [case for case in held if (case.result.recipe.global_batch_size or 0) > LARGE_BATCH]
    cases = [case for case in held if case.known]
    many = [case for case in cases if (case.result.accelerators or 0) >= MANY_ACCELERATORS]
    return {
        "epochs": _epochs(held, "plain"),
        "epochs, recipe known": _epochs(held, "with_recipe"),
        f"epochs, batch above {LARGE_BATCH}": _epochs(large, "plain"),
        f"epochs, batch above {LARGE_BATCH}, recipe known": _epochs(large, "with_recipe"),
        "minutes": _minutes(cases, "plain"),
        "minutes, recipe known": _minutes(cases, "with_recipe"),
        f"minutes, {MANY_ACCELERATORS} accelerators and more": _minutes(many, "plain"),
    }


def _epochs(held: Sequence[Held], how: str) -> dict[str, float]:
    pairs = [(getattr(case, how), case.epochs) for case in held]
    off = np.abs([a.epochs - b for a, b in pairs])
    within = [a.epochs_low - 1e-6 <= b <= a.epochs_high + 1e-6 for a, b in pairs]
    return {**_summary(off), "coverage": float(np.mean(within))}


def _minutes(held: Sequence[Held], how: str) -> dict[str, float]:
    pairs = [(getattr(case, how), case.result.olympic_minutes) for case in held]
    off = np.abs([a.minutes / b - 1 for a, b in pairs])
    return {
        **_summary(off),
        "coverage": float(np.mean([a.minutes_low <= b <= a.minutes_high for a, b in pairs])),
    }


def _summary(off: Any) -> dict[str, float]:
    return {
        "results": len(off),
        "mean": float(off.mean()),
        "median": float(np.median(off)),
        "p90": float(np.quantile(off, 0.9)),
    }


def baselines(held: Sequence[Held]) -> dict[str, float]:
    """Return the errors of simpler predictions."""
    needed = np.array([case.epochs for case in held])
    reference_epochs = [reference.at(case.result.recipe.global_batch_size or 0).mean for case in held]
    results = [case.result for case in held if case.known]
    off = []
    for result in results:
        others = [
            other.images_per_second_per_accelerator or 0
            for other in results
            if images_per_second.conditions(other).accelerator
            == images_per_second.conditions(result).accelerator
            and images_per_second.system(other) != images_per_second.system(result)
        ]
        if others:  # with its own epochs, and the median images/s of its accelerator at any scale
            off.append(abs((result.images_per_second_per_accelerator or 0) / np.median(others) - 1))
    return {
        "epochs, the reference alone, mean error": float(np.abs(reference_epochs - needed).mean()),
        "epochs, always 35, mean error": float(np.abs(35 - needed).mean()),
        "minutes, the usual images/s of the accelerator whatever the scale, median error": float(
            np.median(off)
        ),
        "minutes, so, mean error": float(np.mean(off)),
    }


def table(rows: dict[str, Any]) -> str:
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
        rounds = forward(progress)
    errors = figures(systems)
    off_epochs, off_minutes = errors["epochs"]["mean"], errors["minutes"]["median"]
    met = off_epochs < EPOCHS_GOAL and off_minutes < MINUTES_GOAL
    print(f"Every system left out in turn\n\n{table(errors)}\n")
    print(f"Every organisation left out in turn\n\n{table(figures(organisations))}\n")
    print(f"Every round from those before it\n\n{table(figures(rounds))}\n")
    last = max(case.result.round for case in rounds)
    of_last = [case for case in rounds if case.result.round == last]
    print(f"{last} from those before it\n\n{table(figures(of_last))}\n")
    print("Simpler predictions\n")
    for name, value in baselines(systems).items():
        print(f"{name}: {value:.2f}" if name.startswith("epochs") else f"{name}: {value:.1%}")
    print(
        f"epochs, mean absolute error {off_epochs:.2f}, goal below {EPOCHS_GOAL}; minutes, median error "
        f"{off_minutes:.1%}, goal below {MINUTES_GOAL:.0%}: {'both met' if met else 'NOT MET'}"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
