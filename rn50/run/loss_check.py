"""Check the training loss: wrong data, wrong labels and a learning rate that is too high show in it first."""

import math
from collections.abc import Callable

from rn50.errors import DivergedError
from rn50.settings.config import Config

START_TOLERANCE = 0.25
"""Largest relative difference of the first loss from ln(classes). A classifier with weights from N(0, 0.01)
guesses; its first loss is ln(classes), or a little more if the features are large."""
TOO_HIGH, TOO_LOW = 1.5, 0.5
"""Limits as multiples of ln(classes). On correct data no network is so much worse than guessing, or in the
first epoch so much better."""
LEARNS = 0.85
"""A mean loss below this multiple of ln(classes) is that of a network that has learnt."""


class LossCheck:
    """Checks the losses from the first step on, and calls ``warn(line)`` for the first one that looks wrong.

    Pretrained weights (``trained``) may start below the loss of guessing.
    """

    def __init__(self, config: Config, warn: Callable[[str], None], trained: bool = False):
        self._h, self._classes = config.hyperparameters, config.data.classes
        self._guess = math.log(self._classes)
        self._warn, self._trained = warn, trained
        self._seen, self._said = 0, False

    def look(self, epoch: int, loss: float) -> None:
        """Check ``loss``, the mean training loss of a step of ``epoch``. Raises DivergedError if it is not
        finite."""
        rate = f"LR={self._h.learning_rate:g} with WARMUP_EPOCHS={self._h.warmup_epochs}"
        if not math.isfinite(loss):
            subject = f"the training loss is {loss} in epoch {epoch}"
            raise DivergedError(subject, f"{rate} is too high, or an image is not one", "lower LR")
        self._seen += 1
        if self._seen == 1 and not self._trained:
            if abs(loss - self._guess) > START_TOLERANCE * self._guess:
                self._say(f"the first training loss is {loss:.2f}", "labels or initial weights are wrong")
        elif loss > TOO_HIGH * self._guess:
            cause = f"{rate} is too high, or the labels are wrong"
            self._say(f"the training loss is {loss:.2f} in epoch {epoch}", cause)
        elif epoch == 1 and not self._trained and loss < TOO_LOW * self._guess:
            cause = "are the labels all alike, or sorted?"
            self._say(f"the training loss is down to {loss:.2f} in epoch 1", cause)

    def look_at_top1(self, accuracy: float, images: int, loss: float) -> None:
        """Check the top-1 of the first evaluation, of ``images`` images, against the mean training loss: who
        learns one set is better than chance on the other, unless their labels mean other classes."""
        chance = 1 / self._classes
        by_luck = min(1.5, 1 + 3 * math.sqrt((self._classes - 1) / images))  # three standard deviations
        if loss < LEARNS * self._guess and accuracy <= by_luck * chance:
            seen = f"loss {loss:.2f} and top-1 {accuracy:.4f}"
            guessed = f"{self._guess:.2f} and {chance:.4f}"
            cause = "the labels of val.rec are not those of train.rec"
            line = f"training learns, validation does not: {seen}, and guessing gives {guessed}; {cause}"
            self._warn(f"{line}: pack it again from class folders, or with --val-truth")

    def _say(self, line: str, cause: str) -> None:
        if not self._said:
            self._said = True
            compared = f"where guessing one of {self._classes} classes gives {self._guess:.2f}"
            self._warn(f"{line} {compared}: {cause}")
