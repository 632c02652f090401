"""Learning rate and evaluation schedule.

Linear warm-up and polynomial decay as in the MLPerf reference (training_rules, "lars_opt_*" and "sgd_opt_*"
hyperparameters). Steps and epochs are counted from 1.
"""

import math

from rn50.benchmark.recipe import Recipe


def steps_per_epoch(train_samples: int, ranks: int, batch_size: int) -> int:
    """Return the steps of one epoch: ``ceil(floor(train_samples / ranks) / batch_size)``, with ``batch_size``
    images per rank."""
    return math.ceil(train_samples // ranks / batch_size)


def learning_rate(step: int, recipe: Recipe, steps_per_epoch: int) -> float:
    """Return the learning rate of step t = 1, 2, ... of a recipe that has a warm-up and a decay.

    ``R * t / W`` for t <= W, then ``E + (R - E) * (1 - (t - W) / (T - W)) ** P``: R and E are the highest and
    the end learning rate, W and T the steps of warm-up and decay, P is the power. Past T it stays at E.
    """
    # All of it from the recipe: the log has that, and must say what is trained.
    epochs = (recipe.warmup_epochs or 0, recipe.decay_epochs or 0)
    warmup_steps, total_steps = (round(number * steps_per_epoch) for number in epochs)
    if step <= warmup_steps:
        return recipe.learning_rate * step / warmup_steps
    progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
    end = recipe.end_learning_rate
    return end + (recipe.learning_rate - end) * (1.0 - progress) ** recipe.decay_power


def evaluation_epochs(num_epochs: int, offset: int, period: int, target: str = "") -> list[int]:
    """Return the epochs, counted from 1, after which a run evaluates.

    With EVAL_OFFSET 2 and EVAL_PERIOD 4: 3, 7, 11, ... as every MXNet submission counts them. The last epoch
    is added for TARGET=none only: towards a target, epochs after the last evaluation are trained for nothing.
    """
    epochs = list(range(offset + 1, num_epochs + 1, period))
    return [*epochs, num_epochs] if target == "none" and num_epochs not in epochs else epochs
