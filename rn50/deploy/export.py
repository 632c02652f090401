"""Write a file of weights as an ONNX model, after evaluating the model (``rn50 export``)."""

import pathlib

from rn50 import files
from rn50.deploy import graph, model_evaluation
from rn50.deploy.model_file import Model, parse
from rn50.deploy.outcomes import Evaluated, Written
from rn50.errors import UserError
from rn50.settings.config import Config
from rn50.weights.weights_file import Weights

FACTS = ("classes", "width", "image_size", "eval_resize", "accuracy", "class_names", "system")
"""Facts of a file of weights that become metadata of the model."""


def convert(weights: Weights, name: str, fold: bool = True, preprocessing: bool = False) -> Model:
    """Return weights as an ONNX model. ``name`` is the name of its file, for messages.

    With ``fold`` batch norms become part of the convolutions before them. With ``preprocessing`` the model
    takes decoded uint8 images of any size, otherwise normalised ones. Its metadata are ``FACTS`` of the
    weights and the SHA-256 of their file.
    """
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
    """Write weights as an ONNX model to ``output``, with ``fold`` and ``preprocessing`` as for ``convert``.
    With ``config`` evaluate the model first. Raises UserError, and writes nothing, if ``evaluate`` raises it.
    """
    files.refuse_to_replace(output, files.MODEL, needs_room=True)
    model = convert(weights, str(output), fold, preprocessing)
    evaluated = evaluate(weights, model, config, tolerance) if config else None
    files.write(output, model.content)
    size, nodes = len(model.content), len(model.proto.graph.node)
    return Written(output, size, nodes, model.classes, fold, preprocessing, evaluated)


def evaluate(weights: Weights, model: Model, config: Config, tolerance: float) -> Evaluated:
    """Evaluate the ONNX model of weights on the validation set of ``config``.

    Raises UserError if the file of weights records an accuracy, and the model's top-1 differs from it by more
    than ``tolerance`` percentage points.
    """
    evaluated = model_evaluation.evaluate(model, config)
    accuracy = weights.facts.get("accuracy")
    if accuracy is None:
        return evaluated  # there is nothing to compare with
    top_1 = evaluated.counts.top1
    try:
        before = float(accuracy)
    except ValueError:
        problem = f"its header says {accuracy} of accuracy, not a number"
        raise UserError(weights.file or model.name, problem, "train again with SAVE_WEIGHTS=1") from None
    # Not "> tolerance": an accuracy that was saved as "nan" has to fail too.
    if not abs(top_1 - before) * 100 <= tolerance:
        problem = f"not written: its top-1 is {top_1:.4f}, and {weights.file} says {before:.4f}"
        remedy = "name the configuration that it was trained with, or allow more than --tolerance"
        raise UserError(model.name, problem, f"{remedy} {tolerance:g}")
    return evaluated
