"""Print the evaluation of a file of weights or of an ONNX model (``rn50 evaluate``): as text, as JSON, and as
a page."""

import contextlib
import pathlib
from typing import NamedTuple

from rn50 import printed
from rn50.gathered import gathered
from rn50.terminal import Terminal, print_json, say
from rn50.weights.counts import BINS, TOP, Counts, margin

_PRINTED_FACTS = ("framework", "seed", "epoch", "accuracy", "quantization")
_DIGITS = 16
"""Largest number of characters that are printed of a fact."""


class Density(NamedTuple):
    """Density of a layer."""

    layer: str
    """Name of the weight of a convolution, or of the classifier; the first layer is left out."""
    density: float
    """Fraction of its values that are not 0."""


class FileEvaluation(NamedTuple):
    """Evaluation of a file of weights or an ONNX model."""

    weights: pathlib.Path
    """File of the weights or the ONNX model."""
    framework: str
    """Framework that evaluated them; onnxruntime: an ONNX model."""
    precision: str
    """float32, float16 or bfloat16; for an ONNX model also int8."""
    facts: dict[str, str]
    """Facts in the header of the file: classes, width, image_size, eval_resize; and about its training:
    system, framework, precision, seed, epoch, accuracy, configuration (SHA-256), certificate (SHA-256)."""
    class_names: list[str]
    """Names of the classes in the header of the file, label 0 first; without them the labels."""
    counts: printed.Inline[Counts]
    sparse: bool | None
    """True if at least two of every four consecutive input channels are 0, in every layer of `density`; null:
    an ONNX model, whose density is not measured."""
    density: list[Density]


def print_evaluation(evaluation: FileEvaluation, report: pathlib.Path | None, as_json: bool) -> None:
    """Print an evaluation, as JSON if ``as_json``. If ``report`` is not None, then write a page of it to this
    file. Raises UserError if the page cannot be written."""
    print_json(evaluation) if as_json else _show(evaluation, Terminal())
    if report is not None:
        from rn50.weights import page

        page.write(report, printed.as_json(evaluation), evaluation.counts)
        say(f"report: {report}", err=as_json)  # standard output is for the JSON alone


def _show(evaluation: FileEvaluation, terminal: Terminal) -> None:
    """Print an evaluation as text."""
    counts = evaluation.counts
    facts = {name: _rounded(text)[:_DIGITS] for name, text in evaluation.facts.items()}
    trained = ", ".join(f"{name} {facts[name]}" for name in _PRINTED_FACTS if name in facts)
    terminal.print(f"{evaluation.weights}: {trained or 'says nothing of its training'}")
    terminal.print(f"evaluated by {evaluation.framework} in {evaluation.precision}")
    images = counts.images
    rows = [("top-1", counts.correct), ("top-5", counts.top5_correct)]
    for name, count in rows if counts.classes > TOP else rows[:1]:  # five classes are all among five
        interval = f"± {margin(count, images):.1f} points"
        terminal.print(f"{name:6} {count / images:8.2%}   {count:,} of {images:,}, {interval}")
    terminal.print(f"expected calibration error {counts.calibration_error:.2%} ({BINS} bins)")
    _show_density(evaluation, terminal)


def _rounded(text: str) -> str:
    """Return a fact with at most four decimals if it is a number with more, else as it is."""
    with contextlib.suppress(ValueError):
        return str(round(float(text), 4)) if "." in text else text
    return text


def _show_density(evaluation: FileEvaluation, terminal: Terminal) -> None:
    """Print the density of the layers, if any layer has zeros: a line for all layers of the same density, and
    whether the zeros have the 2:4 pattern."""
    densities = ((f"{density:.1%}", layer) for layer, density in evaluation.density)
    by_density = gathered((percent, layer.removesuffix("_weight")) for percent, layer in densities)
    if set(by_density) <= {"100.0%"}:  # no layer has zeros, or ``density`` is empty
        return
    for percent, layers in by_density.items():
        summary = f"{len(layers)} layers, {layers[0]} to {layers[-1]}"
        terminal.print(f"density {percent}: {summary if len(layers) > 4 else ', '.join(layers)}")
    sparse = "in every group of four at least two are 0"
    terminal.print(f"2:4: {sparse if evaluation.sparse else 'not in every group of four'}")
