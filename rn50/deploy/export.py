"""A file of weights as an ONNX model (``rn50 export``)."""

import pathlib

from rn50 import files
from rn50.deploy import graph, model_evaluation
from rn50.deploy.model_file import Model, parse
from rn50.deploy.outcomes import Evaluated, Written
from rn50.errors import UserError
from rn50.settings.config import Config
from rn50.weights.weights_file import Weights

FACTS = ("classes", "width", "image_size", "eval_resize", "accuracy")
"""Facts of the weights that the model keeps."""


def convert(weights: Weights, name: str, fold: bool = True, preprocessing: bool = False) -> Model:
    """Return weights as a model called ``name``, which keeps facts of them and the SHA-256 of their file."""
    facts = {fact: weights.facts[fact] for fact in FACTS if fact in weights.facts}
    if weights.file:
        facts["source_sha256"] = files.sha256(weights.file)
    return parse(name, graph.model(weights, facts, fold, preprocessing).SerializeToString())


def export(
    weights: Weights,
    output: pathlib.Path,
    fold: bool,
    preprocessing: bool,
    config: Config | None,
    tolerance: float,
) -> Written:
    """Write weights as an ONNX model.

    With ``config`` it is evaluated first. Raises UserError, and writes nothing, if its accuracy is more than
    ``tolerance`` percentage points from that in the weights.
    """
    files.refuse_to_replace(output, files.MODEL, needs_room=True)
    model = convert(weights, str(output), fold, preprocessing)
    evaluated = evaluate(weights, model, config, tolerance)
    files.write(output, model.content)
    return Written(
        model=output,
        bytes=len(model.content),
        nodes=len(model.proto.graph.node),
        classes=model.classes,
        folded=fold,
        preprocessing=preprocessing,
        evaluated=evaluated,
    )


def evaluate(weights: Weights, model: Model, config: Config | None, tolerance: float) -> Evaluated | None:
    """Evaluate a model of weights, as ``model_evaluation.evaluate`` does, if there is a configuration.

    Raises UserError if its top-1 is more than ``tolerance`` percentage points from what the weights say.
    """
    if config is None:
        return None
    evaluated = model_evaluation.evaluate(model, config)
    accuracy = weights.facts.get("accuracy")
    top_1 = evaluated.counts.top1
    try:
        before = top_1 if accuracy is None else float(accuracy)
    except ValueError:
        problem = f"its header says {accuracy} of accuracy, not a number"
        raise UserError(weights.file or model.name, problem, "train again with SAVE_WEIGHTS=1") from None
    if not abs(top_1 - before) * 100 <= tolerance:
        problem = f"not written: its top-1 is {top_1:.4f}, and {weights.file} says {before:.4f}"
        remedy = "name the configuration that it was trained with, or allow more than --tolerance"
        raise UserError(model.name, problem, f"{remedy} {tolerance:g}")
    return evaluated
