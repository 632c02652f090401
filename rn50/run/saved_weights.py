"""Save the weights that a run ends with beside its log: SAVE_WEIGHTS=1. Nothing here runs while the clock
does."""

import pathlib

from rn50 import files
from rn50.data.certification import certificate
from rn50.errors import UserError
from rn50.run.implementation import Implementation
from rn50.settings.config import Config
from rn50.weights import weights_file


def refuse_impossible(config: Config) -> None:
    """Raise UserError if the weights are to be saved but cannot be, because their file exists or the log has
    no file."""
    if config.run.save_weights:
        if not config.run.result_file:
            problem = "the weights are saved beside the log, which has no file"
            raise UserError("SAVE_WEIGHTS=1", problem, "set RESULT_FILE")
        file = weights_file.path(pathlib.Path(config.run.result_file))
        files.refuse_to_replace(file, files.WEIGHTS, files.NOTHING, "set another RESULT_FILE")


def save(config: Config, implementation: Implementation, seed: int, epoch: int, accuracy: float) -> None:
    """Write the weights of this rank. Raises UserError if they cannot be written."""
    data, certified = config.data, certificate.check(config)
    facts = {
        "classes": data.classes,
        "width": data.width,
        "image_size": data.image_size,
        "eval_resize": data.eval_resize,
        "framework": config.run.framework,
        "precision": implementation.precision.name,
        "seed": seed,
        "epoch": epoch,
        "accuracy": accuracy,
        "configuration": config.sha256,
        "certificate": certified.sha256 if certified else "none",
    }
    arrays = implementation.weights()
    weights_file.write(
        weights_file.path(pathlib.Path(str(config.run.result_file))),
        weights_file.Weights(arrays, {name: str(value) for name, value in facts.items()}),
    )
