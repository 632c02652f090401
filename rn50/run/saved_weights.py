"""Save weights of a run beside its log: those after its last epoch, or those of its best evaluation
(SAVE_WEIGHTS). ``timed_run.py`` calls ``save`` on rank 0 when the clock has stopped."""

import pathlib

import numpy as np

from rn50 import files
from rn50.data.certification import certificate
from rn50.data.packing import packing_list
from rn50.errors import UserError
from rn50.run.loop import Rank
from rn50.settings import document
from rn50.settings.config import Config
from rn50.weights import weights_file


def are_asked_for(config: Config) -> bool:
    """Return True if this run saves its weights. With SAVE_WEIGHTS=first only the first run of a campaign
    does, whose log is result_0.txt."""
    if config.run.save_weights == "first":
        return pathlib.Path(config.run.result_file or "").name == "result_0.txt"
    return config.run.save_weights != "0"


def refuse_impossible(config: Config) -> None:
    """Raise UserError if the weights are to be saved but cannot be, because their file exists or the log has
    no file."""
    if are_asked_for(config):
        if not config.run.result_file:
            problem = "the weights are saved beside the log, which has no file"
            raise UserError(f"SAVE_WEIGHTS={config.run.save_weights}", problem, "set RESULT_FILE")
        file = weights_file.path(pathlib.Path(config.run.result_file))
        files.refuse_to_replace(file, files.WEIGHTS, files.NOTHING, "set another RESULT_FILE")


class WeightsToSave:
    """The weights to save, with their epoch and top-1.

    With SAVE_WEIGHTS=best they are a copy, on rank 0, of the weights at the best evaluation so far. Otherwise
    they are the current weights of the rank.
    """

    def __init__(self, config: Config, rank: Rank):
        # True on the rank that keeps a copy of the best weights: rank 0, because only it saves weights.
        self._copies = config.run.save_weights == "best" and rank.communicator.rank == 0
        self._rank = rank
        self._arrays: dict[str, np.ndarray] | None = None
        self.epoch, self.accuracy = 0, -1.0

    def consider(self, epoch: int, accuracy: float) -> None:
        """Take the current weights, evaluated after ``epoch`` with top-1 ``accuracy``. But with
        SAVE_WEIGHTS=best rank 0 takes them only if they are the best so far."""
        if accuracy > self.accuracy or not self._copies:
            self.epoch, self.accuracy = epoch, accuracy
            self._arrays = self._rank.weights() if self._copies else None

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The weights to save, by name."""
        return self._rank.weights() if self._arrays is None else self._arrays


def save(config: Config, rank: Rank, seed: int, to_save: WeightsToSave) -> None:
    """Write the weights ``to_save``, and facts about them, to the .safetensors file beside the log. Raises
    UserError if it cannot be written."""
    certified = certificate.check(config)
    file, data = config.environment.get("CONFIG_FILE"), config.data
    facts = {
        **{name: getattr(data, name) for name in weights_file.FACTS},
        "class_names": "\n".join(packing_list.class_names(pathlib.Path(data.folder), data.classes)),
        "system": document.system_of(pathlib.Path(file)) if file else config.run.system,
        "framework": config.run.framework,
        "precision": rank.precision.name,
        "seed": seed,
        "epoch": to_save.epoch,
        "accuracy": to_save.accuracy,
        "configuration": config.sha256,
        "certificate": certified.sha256 if certified else "none",
    }
    if config.hyperparameters.blur_pool:
        facts["blur_pool"] = 1
    weights = weights_file.Weights(to_save.arrays, {name: str(value) for name, value in facts.items()})
    weights_file.write(weights_file.path(pathlib.Path(str(config.run.result_file))), weights)
