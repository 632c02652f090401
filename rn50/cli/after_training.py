"""Verbs on the weights that a run has saved, and on ONNX models made of them: evaluate, export, quantise,
time."""

import pathlib

import click

from rn50 import files
from rn50.cli import group, ranks
from rn50.cli.group import PATH, flag, option
from rn50.cli.numbers import LONGEST_S, Number, Whole
from rn50.cli.speed import bench, listed, rounds
from rn50.errors import UserError, UserErrors
from rn50.settings import document, named
from rn50.terminal import Terminal, print_json, say

verb = group.main.under("Results and weights")
# Decorator of verbs that write a file: if SIGTERM or SIGHUP ends such a verb, it removes its unfinished file.
cleaned_up = group.main.under("Results and weights", group.CleanedUpVerb)

_output = group.output("The file to write.", required=True)
_tolerance = option("--tolerance", "Points of top-1 (%) that may be lost.", default=1.0, type=Number(0, 100))


@verb(
    "evaluate",
    "Evaluate saved weights, or a model",
    "rn50 evaluate results/DEMO_CPU/result_0.safetensors DEMO_CPU",
)
@click.argument("weights", metavar="FILE", type=PATH)
@group.config_with_values
@option(
    "--precision",
    "Numbers of the matrix products; in float32 every framework counts the same. An ONNX model has its "
    "own. [default: float32]",
    type=click.Choice(["float32", "float16", "bfloat16"]),
)
@option("--report", "Write a page with the confusion of classes and the calibration there.", type=PATH)
@group.as_json("rn50.weights.display.FileEvaluation")
def evaluate_weights(
    weights: pathlib.Path,
    name: str | None,
    values: tuple[str, ...],
    precision: str | None,
    report: pathlib.Path | None,
    as_json: bool,
) -> None:
    """Evaluate FILE, a result_N.safetensors, on the validation set and in the framework of CONFIG: top-1,
    top-5, calibration.

    It is the evaluation of a timed run: every image once, by all ranks of CONFIG. The network is that of
    FILE, whichever framework has trained it. An ONNX model of rn50 export or rn50 quantize is evaluated by
    ONNX Runtime on the CPU. Without CONFIG it is the configuration that FILE names; a folder stands for its
    only file of weights.
    """
    from rn50.data import layout, preflight
    from rn50.run import evaluation
    from rn50.weights import weights_file

    if report is not None:
        files.refuse_to_replace(report, files.PAGE, remedy="give another file with --report", needs_room=True)
    weights = weights_file.only_one(weights)
    if weights_file.is_model(weights):
        from rn50.deploy import model_evaluation, model_file

        if precision is not None:
            problem = f"{weights} is an ONNX model, which has its own"
            raise UserError(f"--precision {precision}", problem, "leave it out")
        model = model_file.read(weights)
        config = ranks.configured(name, values, model.facts.get("system", ""))
        model_evaluation.evaluate_and_print(model, config, report, as_json)
        return
    saved = weights_file.read(weights, blur_pool=True)
    config = ranks.configured(name, values, saved.facts.get("system", ""))
    # The network has the sizes that FILE states, not those of CONFIG.
    sizes = saved.variables(config.data)
    config = config.replaced(**evaluation.ENVIRONMENT, **sizes, PRECISION=precision or "float32")
    preflight.check(config, layout.VALIDATION_FILES)
    ranks.run_as_ranks(config, "run.evaluation", file=weights, report=report, as_json=as_json)


@verb("predict", "Classify images by saved weights", "rn50 predict results/DEMO_CPU photo.jpg")
@click.argument("weights", metavar="WEIGHTS", type=PATH)
@click.argument("images", metavar="IMAGE...", nargs=-1, required=True, type=PATH)
@option("--picture", "Write the crops that the network sees, with their classes, as a PNG.", type=PATH)
@group.as_json("rn50.deploy.prediction.Predicted")
def predict_images(
    weights: pathlib.Path, images: tuple[pathlib.Path, ...], picture: pathlib.Path | None, as_json: bool
) -> None:
    """Name the five likeliest classes of each IMAGE by WEIGHTS, a .safetensors file of a run or an ONNX model
    of rn50 export.

    Images are resized, cropped and normalised as in an evaluation. A framework that is installed computes
    weights, ONNX Runtime a model; no data set is needed.
    """
    from rn50.deploy import prediction
    from rn50.weights import weights_file

    predicted = prediction.predict(weights_file.only_one(weights), images, picture)
    print_json(predicted) if as_json else prediction.print_predictions(predicted, Terminal())


@cleaned_up(
    "export",
    "Write weights as an ONNX model",
    "rn50 export results/DEMO_CPU/result_0.safetensors DEMO_CPU -o model.onnx",
)
@click.argument("weights", metavar="WEIGHTS", type=PATH)
@group.config
@_output
@option("--fold/--no-fold", "Make each batch norm a part of its convolution.", default=True)
@flag(
    "--with-preprocessing",
    "Take decoded images, uint8 (N, H, W, 3) of any size: resize, crop and normalise them in the model.",
    "preprocessing",
)
@_tolerance
@group.as_json("rn50.deploy.outcomes.Written")
def export_weights(
    weights: pathlib.Path,
    name: str | None,
    output: pathlib.Path,
    fold: bool,
    preprocessing: bool,
    tolerance: float,
    as_json: bool,
) -> None:
    """Write WEIGHTS, a .safetensors file of a run, as an ONNX model with a dynamic batch dimension.

    With CONFIG the model is evaluated on its validation set, and written only if its top-1 is that in
    WEIGHTS. Without --with-preprocessing its input is normalised images, float32 (N, 3, S, S). The output is
    logits.
    """
    from rn50.deploy import export
    from rn50.weights import weights_file

    saved = weights_file.read(weights_file.only_one(weights))
    config = named.read(name) if document.is_named(name) else None
    written = export.export(saved, output, fold, preprocessing, config, tolerance)
    if as_json:
        print_json(written)
        return
    norm = "folded" if written.folded else "kept"
    included = ", preprocessing included" if preprocessing else ""
    size = f"{written.bytes / 1e6:,.2f} MB, {written.nodes} nodes, {written.classes} classes"
    say(f"{written.model}: {size}, batch norm {norm}{included}")
    if written.evaluated is None:
        example = "rn50 export WEIGHTS DEMO_CPU -o MODEL"
        say(f"not evaluated: name the configuration that trained it, as in {example}", err=True)
    else:
        counts = written.evaluated.counts
        say(f"top-1 {counts.top1:.4f} ({counts.correct:,} of {counts.images:,})")


@cleaned_up(
    "quantize",
    "Quantise an ONNX model to int8",
    "rn50 quantize model.onnx DEMO_CPU -o int8.onnx --method all --calibration all",
)
@click.argument("model", metavar="MODEL", type=PATH)
@group.config_with_values
@_output
@option(
    "--method",
    "Take the ranges of activations at run time, or calibrate them on training images.",
    default="static",
    type=click.Choice(["dynamic", "static", "all"]),
)
@option(
    "--calibration",
    "How static ranges are chosen.",
    default="minmax",
    type=click.Choice(["minmax", "entropy", "percentile", "all"]),
)
@option("--images", "Training images that calibrate.", default=128, type=Whole(1, 100_000))
@_tolerance
@group.as_json("rn50.deploy.candidates.Quantized")
def quantize_model(
    model: pathlib.Path,
    name: str | None,
    values: tuple[str, ...],
    output: pathlib.Path,
    method: str,
    calibration: str,
    images: int,
    tolerance: float,
    as_json: bool,
) -> None:
    """Quantise MODEL, an ONNX file of rn50 export, to int8, and evaluate both on the validation set of
    CONFIG.

    Weights are quantised per channel with --method static. With "all" the most accurate model is written.
    A model without int8 operators, or that loses more than --tolerance, is not written: exit status 2.
    """
    from rn50.deploy import quantization

    config = ranks.configured(name, values)
    tried = quantization.ways(method, calibration)
    choice = quantization.quantize(model, output, tried, config, images, tolerance)
    print_json(choice) if as_json else choice.print_table(model, Terminal())


def _engines() -> tuple[str, ...]:
    """Return the values of --engines."""
    from rn50.deploy import inference_engines

    return inference_engines.names()


@bench.verb(
    "inference",
    "Measure latency of models by engine",
    "rn50 bench inference model.onnx int8.onnx --batch-sizes 1,8,64 --picture latency.svg",
)
@click.argument("models", metavar="MODEL...", nargs=-1, required=True, type=PATH)
@listed(
    "--engines",
    default="onnxruntime",
    possible=_engines,
    help="Engines, with commas between them. A framework's runs weights, ONNX Runtime both.",
)
@listed("--batch-sizes", default="1,2,4,8", help="Images of a request.")
@listed(
    "--precisions",
    default="float32",
    possible=("float32", "float16", "bfloat16"),
    help="Precisions of the frameworks' engines, where they have them; an ONNX model has its own.",
)
@option(
    "--rate",
    "Requests per second that arrive, at regular times. [default: the next arrives when the one before "
    "is answered]",
    type=Number(0.001, 1_000_000),
)
@option("--cores", "Cores to use. [default: all]", type=Whole(1, 100_000))
@option("--seconds", "How long a measurement takes.", default=5.0, type=Number(0.01, LONGEST_S))
@rounds
@option("--picture", "Write latency and throughput as an SVG picture.", type=PATH)
@group.as_json("rn50.deploy.outcomes.InferenceReport")
def bench_inference(
    models: tuple[pathlib.Path, ...],
    engines: tuple[str, ...],
    batch_sizes: tuple[int, ...],
    precisions: tuple[str, ...],
    rate: float | None,
    cores: int | None,
    seconds: float,
    rounds: int,
    picture: pathlib.Path | None,
    as_json: bool,
) -> None:
    """Measure latency and images/s of models, ONNX files or weights of a run, by engine, precision and batch
    size.

    Every model has a process of its own on each engine; they take turns in every round. Images are random.
    A model that an engine cannot run does not stop the others: exit status 2 at the end.
    """
    from rn50.deploy import inference, inference_engines

    if picture is not None:
        from rn50.deploy import inference_curve  # needs Matplotlib, which may be missing

        files.refuse_to_replace(picture, files.PICTURE, needs_room=True)
    # A line that reports the cores to which this process is bound, and their number.
    line, threads = inference.bind(cores, engines)
    say(line, err=True)
    subjects = inference_engines.subjects(models, engines, precisions)
    measured = inference.measure(subjects, batch_sizes, seconds, rounds, rate, threads)
    if as_json:
        print_json(measured)
    elif measured.results:
        inference.print_report(measured, Terminal())
    if picture is not None and measured.results:
        files.write(picture, inference_curve.draw(measured.results))
    if measured.failures:
        # A failure that several models have in common is reported once.
        raise UserErrors(*map(UserError, dict.fromkeys(failed.failure for failed in measured.failures)))
