"""Weights as files in a framework's own format (``rn50 export --to``), or quantised by it (``rn50
quantize --to``)."""

import pathlib
import tempfile
from collections.abc import Sequence

import numpy as np

from rn50 import files, frameworks
from rn50.deploy import export, model_evaluation, model_file
from rn50.deploy.candidates import FLOAT, Candidate, Quantized, choose
from rn50.deploy.quantization import STATIC, calibration_images
from rn50.errors import UserError
from rn50.settings.config import Config
from rn50.terminal import say
from rn50.weights.weights_file import Weights

AGREEMENT = 1e-4
"""Largest difference from the logits of the ONNX model, relative to the largest of these."""
TRIED = 4
"""Random images whose logits are compared."""


def names(quantizing: bool = False) -> tuple[str, ...]:
    """Return the frameworks that have a format of their own, or that quantise with their own tools."""
    every = frameworks.every().items()
    return tuple(name for name, traits in every if (traits.calibrations if quantizing else traits.exports))


def write(
    weights: Weights, output: pathlib.Path, framework: str, config: Config | None, tolerance: float
) -> export.Written:
    """Write weights in a framework's format.

    The files are read again: their logits must agree with the ONNX model's. With ``config`` they are
    evaluated too. Raises UserError, and leaves no file, if the logits differ, or the accuracy is more than
    ``tolerance`` points from that in the weights.
    """
    written = _files(output, framework)
    model, inference = export.convert(weights, str(output)), frameworks.module(framework, "inference")
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder, "model"))
        with model_file.quiet():
            inference.write(weights, path)
            logits_of = inference.read(path, model_evaluation.THREADS)
        shape = (TRIED, 3, weights.image_size, weights.image_size)
        images = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        expected = model_file.running(model, model_evaluation.THREADS)(images)
        apart = np.abs(logits_of(images) - expected).max() / np.abs(expected).max()
        if not apart <= AGREEMENT:
            problem = f"not written: its logits are {apart:.1e} from those of the ONNX model"
            remedy = f"report it, with the version of {frameworks.traits(framework).name}"
            raise UserError(output, problem, remedy)
        evaluated = export.evaluate(weights, model, config, tolerance, logits_of)
        contents = _contents(path, framework)
    files.write_all(dict(zip(written, contents, strict=False)))
    return export.Written(framework, written, sum(map(len, contents)), model.classes, evaluated)


def quantize(
    weights: Weights,
    output: pathlib.Path,
    framework: str,
    tried: Sequence[str],
    config: Config,
    images: int,
    tolerance: float,
) -> Quantized:
    """Quantise the network of weights with a framework's own tools, and write the most accurate in
    its format.

    See ``quantization.quantize``. Also raises UserError for a way that the framework lacks.
    """
    traits, written = frameworks.traits(framework), _files(output, framework)
    for way in tried:
        if way.removeprefix(f"{STATIC} ") not in traits.calibrations:
            problem = f"{traits.name} quantises with --method static alone"
            raise UserError(f"--method {way}", problem, "leave it out")
    model, inference = export.convert(weights, str(weights.file)), frameworks.module(framework, "inference")
    calibrating = np.concatenate(calibration_images(model, config, images))
    with tempfile.TemporaryDirectory() as folder:
        path, made = (str(pathlib.Path(folder, name)) for name in ("float32", "int8"))
        with model_file.quiet():
            inference.write(weights, path)
        operators = model_file.int8_operators(model.proto)
        candidates = [_candidate(FLOAT, path, framework, operators, model, config)]
        for way in tried:
            say(f"quantising: {way} ...", err=True)
            with model_file.quiet():
                calibration = traits.calibrations[way.removeprefix(f"{STATIC} ")]
                int8 = inference.quantize(path, made, calibrating, calibration)
            candidates.append(_candidate(way, made, framework, int8, model, config))
    return choose(written, candidates, tolerance)


def _candidate(
    way: str, path: str, framework: str, int8: tuple[int, int], model: model_file.Model, config: Config
) -> Candidate:
    with model_file.quiet():
        inference, precision = frameworks.module(framework, "inference"), "int8" if int8[0] else FLOAT
        logits_of = inference.read(path, model_evaluation.THREADS, precision=precision)
    evaluated = model_evaluation.evaluate(model, config, f"evaluating {way}", logits_of=logits_of)
    return Candidate(way, _contents(path, framework), *int8, evaluated)


def _contents(path: str, framework: str) -> list[bytes]:
    """Return the content of each file that a framework has written at ``path``."""
    suffixes = frameworks.traits(framework).exports
    return [pathlib.Path(f"{path}{suffix}").read_bytes() for suffix in suffixes]


def _files(output: pathlib.Path, framework: str) -> list[pathlib.Path]:
    """Return the files of the format: ``output``, without an ending of the format, plus each ending.

    Raises UserError if one of them exists.
    """
    if not output.name:
        raise UserError(f"--output {output}", "names no file", "name one")
    ends, name = frameworks.traits(framework).exports, output.name
    begin = next((name[: -len(end)] for end in ends if name.endswith(end) and name != end), name)
    written = [output.with_name(begin + end) for end in ends]
    for file in written:
        files.refuse_to_replace(file, files.BINARY, files.NOTHING)
    return written
