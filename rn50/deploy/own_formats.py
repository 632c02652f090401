"""A file of weights as files in a framework's own format (``rn50 export --to``)."""

import contextlib
import io
import pathlib
import tempfile
import warnings
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from rn50 import files, frameworks
from rn50.deploy import evaluation, export, model_file
from rn50.errors import UserError
from rn50.results import weights
from rn50.settings.config import Config

AGREEMENT = 1e-4
"""Largest difference from the logits of the ONNX model, as a part of the largest of these."""
TRIED = 4
"""Random images whose logits are compared."""


def names() -> Tuple[str, ...]:
    """Return the frameworks that have a format of their own."""
    return tuple(name for name, traits in frameworks.every().items() if traits.exports)


def write(
    source: pathlib.Path, output: pathlib.Path, framework: str, config: Optional[Config], tolerance: float
) -> Dict[str, Any]:
    """Write a file of weights in a framework's format, and return what was written as plain data.

    What was written is read again: its logits have to be those of the ONNX model. With ``config`` it is evaluated too. Raises
    UserError, and leaves no file, if it differs, or its accuracy is more than ``tolerance`` points from that in the weights.
    """
    written = _files(output, framework)
    for file in written:
        files.refuse_to_replace(file, files.NOTHING)
    read = weights.read(source)
    model, inference = export.convert(source, str(output)), frameworks.module(framework, "inference")
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder, "model"))
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():  # frameworks tell of their work
            warnings.simplefilter("ignore")
            inference.write(read, path)
            logits_of = inference.read(path, evaluation.THREADS)
        images = np.random.default_rng(0).standard_normal((TRIED, 3, read.image_size, read.image_size)).astype(np.float32)
        expected = model_file.running(model, evaluation.THREADS)(images)
        apart = np.abs(logits_of(images) - expected).max() / np.abs(expected).max()
        if not apart <= AGREEMENT:
            raise UserError(output, f"not written: its logits are {apart:.1e} from those of the ONNX model",
                            f"report it, with the version of {frameworks.traits(framework).name}")
        found = None if config is None else evaluation.evaluate_with(logits_of, model, config)
        export.refuse_other_accuracy(source, model, found, tolerance)
        contents = [pathlib.Path(folder, f"model{suffix}").read_bytes() for suffix in frameworks.traits(framework).exports]
    with contextlib.ExitStack() as begun:
        for file, content in zip(written, contents):
            files.write(file, content, files.NOTHING)
            begun.callback(file.unlink)
        begun.pop_all()
    return {"format": framework, "files": [str(file) for file in written], "bytes": sum(map(len, contents)), "nodes": None,
            "folded": False, "preprocessing": False, "classes": model.classes, **export.of_evaluation(found)}


def _files(output: pathlib.Path, framework: str) -> List[pathlib.Path]:
    """Return the files whose names begin with ``output``, of which an end of the format is no part."""
    if not output.name:
        raise UserError(f"--output {output}", "names no file", "name one")
    ends, name = frameworks.traits(framework).exports, output.name
    begin = next((name[: -len(end)] for end in ends if name.endswith(end) and name != end), name)
    return [output.with_name(begin + end) for end in ends]
