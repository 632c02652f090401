"""Check the training loss of a run: it is the first to show wrong data, wrong labels or too high a learning
rate. ``timed_run.py`` calls it about once a second, and after the first evaluation."""

import math
from collections.abc import Callable

from rn50.errors import DivergedError
from rn50.settings.config import Config

START_TOLERANCE = 0.25
"""Largest relative difference of the first loss from ln(classes), the loss of guessing. A classifier with
weights from N(0, 0.01) guesses; its first loss is ln(classes), or a little more if the features are large."""
TOO_HIGH, TOO_LOW = 1.5, 0.5
"""Highest and lowest plausible loss, as multiples of ln(classes). On correct data no network is so much worse
than guessing at any time, or so much better in the first epoch."""
LEARNS = 0.85
"""A mean loss of an epoch below this multiple of ln(classes) shows that the network has learnt."""


class LossCheck:
    """Checks the losses of a run from the first step on. Calls ``warn(line)`` for the first wrong loss only.

    ``pretrained`` tells that the run does not begin with random weights, so its loss may begin below that of
    guessing.
    """

    def __init__(self, config: Config, warn: Callable[[str], None], pretrained: bool = False):
        warmup_epochs = config.hyperparameters.warmup_epochs
        self._rate = f"LR={config.hyperparameters.learning_rate:g} with WARMUP_EPOCHS={warmup_epochs}"
        self._classes = config.data.classes
        n = self._classes
        # With LOSS=binary a network guesses 1 / (n + 1) for every class, as the first bias makes it do.
        is_binary = config.hyperparameters.loss == "binary"
        self._guess = math.log(n + 1) + (n - 1) * math.log((n + 1) / n) if is_binary else math.log(n)
        """Loss of a network that guesses."""
        self._warn, self._pretrained = warn, pretrained
        self._losses_checked, self._has_warned = 0, False

    def check_loss(self, epoch: int, loss: float) -> None:
        """Check ``loss``, the mean training loss of a step of ``epoch``. Raises DivergedError if it is not
        finite."""
        if not math.isfinite(loss):
            subject = f"the training loss is {loss} in epoch {epoch}"
            raise DivergedError(subject, f"{self._rate} is too high, or an image is damaged", "lower LR")
        self._losses_checked += 1
        if self._losses_checked == 1 and not self._pretrained:
            if abs(loss - self._guess) > START_TOLERANCE * self._guess:
                self._report(f"the first training loss is {loss:.2f}", "labels or initial weights are wrong")
        elif loss > TOO_HIGH * self._guess:
            cause = f"{self._rate} is too high, or the labels are wrong"
            self._report(f"the training loss is {loss:.2f} in epoch {epoch}", cause)
        elif epoch == 1 and not self._pretrained and loss < TOO_LOW * self._guess:
            cause = "are the labels all alike, or sorted?"
            self._report(f"the training loss is down to {loss:.2f} in epoch 1", cause)

    def check_top1(self, accuracy: float, images: int, loss: float) -> None:
        """Check ``accuracy``, the top-1 of the first evaluation on ``images`` images. ``loss`` is the mean
        training loss of the epoch before it.

        A network that has learnt the training set is better than chance on the validation set, unless the
        labels of the two sets number the classes differently.
        """
        chance = 1 / self._classes
        # Guessing gets at most this many times ``chance`` right: the mean and three standard deviations. It
        # is 1.5 at most, so that on few images a network that has learnt a little is not blamed.
        luck = min(1.5, 1 + 3 * math.sqrt((self._classes - 1) / images))
        if loss < LEARNS * self._guess and accuracy <= luck * chance:
            measured = f"loss {loss:.2f} and top-1 {accuracy:.4f}"
            guessed = f"{self._guess:.2f} and {chance:.4f}"
            cause = "the labels of val.rec are not those of train.rec"
            line = f"training learns, validation does not: {measured}, and guessing gives {guessed}; {cause}"
            self._warn(f"{line}: pack it again from class folders, or with --val-truth")

    def _report(self, line: str, cause: str) -> None:
        """Warn, unless this object has warned of a loss before."""
        if not self._has_warned:
            self._has_warned = True
            compared = f"where guessing one of {self._classes} classes gives {self._guess:.2f}"
            self._warn(f"{line} {compared}: {cause}")
