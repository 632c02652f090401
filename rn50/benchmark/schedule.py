"""The learning rate of a step, the size of an epoch's images, and the epochs after which a run evaluates.

The learning rate has a linear warm-up and a polynomial decay, as in the MLPerf reference (training_rules,
"lars_opt_*" and "sgd_opt_*" hyperparameters), or half a cosine (Loshchilov and Hutter, arXiv:1608.03983) in
the open division. Steps and epochs are counted from 1.
"""

import functools
import math

from rn50.benchmark.recipe import Recipe


def steps_per_epoch(train_samples: int, ranks: int, batch_size: int) -> int:
    """Return the steps of one epoch of the schedule: ``ceil(floor(train_samples / ranks) / batch_size)``.
    ``batch_size`` is that of one rank."""
    return math.ceil(train_samples // ranks / batch_size)


def learning_rate(step: int, recipe: Recipe, steps_per_epoch: int) -> float:
    """Return the learning rate of step t = 1, 2, ... of a recipe.

    It is ``R * t / W`` for t <= W, then ``E + (R - E) * (1 - (t - W) / (T - W)) ** P``, and E for t > T. R is
    the base learning rate, E the end learning rate, P the power of the decay; W and T are the steps in which
    warm-up and decay end. With LR_DECAY=cosine, ``(1 + cos(pi * (t - W) / (T - W))) / 2`` takes the place of
    the power.
    """
    # Take every number from the recipe, because the log has the recipe, and has to say what was trained.
    warmup_steps = round((recipe.warmup_epochs or 0) * steps_per_epoch)
    total_steps = round((recipe.decay_epochs or 0) * steps_per_epoch)
    if step <= warmup_steps:
        return recipe.learning_rate * step / warmup_steps
    progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
    end = recipe.end_learning_rate
    is_cosine = recipe.lr_decay == "cosine"
    left = (1 + math.cos(math.pi * progress)) / 2 if is_cosine else (1.0 - progress) ** recipe.decay_power
    return end + (recipe.learning_rate - end) * left


@functools.cache
def image_sizes(text: str | None, image_size: int) -> tuple[tuple[int, int], ...]:
    """Return (side of the training images in pixels, first epoch that has it) in the order of the epochs.
    ``text`` is the value of IMAGE_SIZES; None: all epochs train with ``image_size``."""
    entries = (text or f"{image_size}:1").split(",")
    return tuple((int(size), int(epoch)) for size, _, epoch in (entry.partition(":") for entry in entries))


def evaluation_epochs(num_epochs: int, offset: int, period: int, target: str = "") -> list[int]:
    """Return the epochs, counted from 1, after which a run evaluates.

    EVAL_OFFSET 2 and EVAL_PERIOD 4 give 3, 7, 11, ..., as in every MXNet submission. With TARGET=none the
    last epoch is added. With any other ``target`` it is not, and the run ends with its last evaluation:
    epochs after that could not reach the target.
    """
    epochs = list(range(offset + 1, num_epochs + 1, period))
    return [*epochs, num_epochs] if target == "none" and num_epochs not in epochs else epochs
