"""Verbs on the weights of a trained network."""

import pathlib
from typing import Optional

import click

from rn50 import process
from rn50.cli import group
from rn50.cli.numbers import Number, Whole
from rn50.settings import config as configuration
from rn50.terminal import Terminal, print_json, say

_output = click.option("--output", "-o", required=True, type=click.Path(path_type=pathlib.Path), help="The file to write.")
_tolerance = click.option("--tolerance", default=1.0, show_default=True, type=Number(0, 100),
                          help="Percentage points of top-1 that may be lost.")


def _configured(name: Optional[str]) -> Optional[configuration.Config]:
    """Return the configuration ``name``, or that of the environment; None where neither is there."""
    environ = process.environment()
    if name is None and not environ.get("CONFIG_FILE") and not environ.get("DGXSYSTEM"):
        return None
    return configuration.from_environment(configuration.environment_of(name, environ))


@click.command("export", short_help="Write weights as an ONNX model",
               epilog="Example: rn50 export results/DEMO_CPU/result_0.safetensors DEMO_CPU -o model.onnx")
@click.argument("weights", metavar="WEIGHTS", type=click.Path(path_type=pathlib.Path))
@group.config
@_output
@click.option("--fold/--no-fold", default=True, show_default=True, help="Make each batch norm a part of its convolution.")
@click.option("--with-preprocessing", "preprocessing", is_flag=True,
              help="Take decoded images, uint8 (N, H, W, 3) of any size: resize, crop and normalise them in the model.")
@_tolerance
@group.as_json
def export_weights(weights: pathlib.Path, name: Optional[str], output: pathlib.Path, fold: bool, preprocessing: bool,
                   tolerance: float, as_json: bool) -> None:
    """Write WEIGHTS, a .safetensors file of a run, as an ONNX model with a dynamic batch dimension.

    With CONFIG the model is evaluated on its validation set, and written only if its top-1 is that in WEIGHTS. Without
    --with-preprocessing its input is normalised images, float32 (N, 3, S, S). The output is logits.
    """
    from rn50.deploy import export

    found = export.export(weights, output, fold, preprocessing, _configured(name), tolerance)
    if as_json:
        print_json(found)
        return
    say(f"{output}: {found['bytes'] / 1e6:,.2f} MB, {found['nodes']} nodes, {found['classes']} classes, batch norm "
        f"{'folded' if fold else 'kept'}{', preprocessing included' if preprocessing else ''}")
    if found["top_1"] is None:
        say("not evaluated: name the configuration that trained it, as in rn50 export WEIGHTS DEMO_CPU -o MODEL", err=True)
    else:
        say(f"top-1 {found['top_1']:.4f} ({found['correct']:,} of {found['total']:,})")


@click.command("quantize", short_help="Quantise an ONNX model to int8",
               epilog="Example: rn50 quantize model.onnx DEMO_CPU -o int8.onnx --method all --calibration all")
@click.argument("model", metavar="MODEL", type=click.Path(path_type=pathlib.Path))
@group.config
@_output
@click.option("--method", default="static", show_default=True, type=click.Choice(["dynamic", "static", "all"]),
              help="Take the ranges of activations at run time, or calibrate them on training images.")
@click.option("--calibration", default="minmax", show_default=True,
              type=click.Choice(["minmax", "entropy", "percentile", "all"]), help="How static ranges are chosen.")
@click.option("--images", default=128, show_default=True, type=Whole(1, 100_000), help="Training images that calibrate.")
@_tolerance
@group.as_json
def quantize_model(model: pathlib.Path, name: Optional[str], output: pathlib.Path, method: str, calibration: str, images: int,
                   tolerance: float, as_json: bool) -> None:
    """Quantise MODEL, an ONNX file of rn50 export, to int8, and evaluate both on the validation set of CONFIG.

    Weights are quantised per channel with --method static. With "all" the most accurate model is written.
    A model without int8 operators, or that loses more than --tolerance, is not written: exit status 2.
    """
    from rn50.deploy import quantization

    config = configuration.from_environment(configuration.environment_of(name, process.environment()))
    results = quantization.quantize(model, output, quantization.ways(method, calibration), config, images, tolerance)
    if as_json:
        print_json(quantization.to_json(output, results))
    else:
        quantization.show(output, results, Terminal())
