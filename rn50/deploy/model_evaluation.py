"""Evaluate an ONNX model on the validation set, by ONNX Runtime on the CPU.

The images come from the pipeline that a run's evaluation uses, on the CPU. ``rn50 evaluate``, ``rn50 export``
and ``rn50 quantize`` call this file.
"""

import os
import pathlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np

from rn50 import frameworks
from rn50.data import preflight
from rn50.data.pipeline import crops
from rn50.data.pipeline.batches import BatchFormat, Split
from rn50.data.pipeline.loader_records import Drawn, Records
from rn50.data.pipeline.numpy_batches import NumpyBatches
from rn50.data.pipeline.record_set import RecordSet
from rn50.data.workers import in_order
from rn50.deploy import model_file
from rn50.deploy.model_file import Model
from rn50.deploy.outcomes import Evaluated
from rn50.errors import UserError
from rn50.progress import counting
from rn50.settings.config import Config
from rn50.weights import counts, display, weights_file

ON_CPU = BatchFormat(None, "CHW", False)
"""Batches in the host's memory, channels-first, float32."""
THREADS = len(os.sched_getaffinity(0))
"""Number of cores that this process may use."""


def evaluate_and_print(model: Model, config: Config, report: pathlib.Path | None, as_json: bool) -> None:
    """Evaluate a model that was read from a file, and print the counts, as JSON if ``as_json``. Write a page
    to ``report``, if it is not None."""
    evaluation = display.FileEvaluation(
        weights=pathlib.Path(model.name),
        framework="onnxruntime",
        precision=model.precision,
        facts=weights_file.shown(model.facts),
        class_names=weights_file.class_names(model.facts, model.classes),
        counts=evaluate(model, config, confusion=report is not None).counts,
        sparse=None,  # sparsity and density are not measured in an ONNX model
        density=[],
    )
    display.print_evaluation(evaluation, report, as_json)


def evaluate(model: Model, config: Config, what: str = "evaluating", confusion: bool = False) -> Evaluated:
    """Evaluate a model on every image of the validation set of a configuration.

    ``what`` is the label of the progress bar. With ``confusion`` the confusion of classes is counted too.
    Raises UserError as ``inputs`` does, or if a logit is not finite.
    """
    run = model_file.logits_function(model, THREADS)
    total = config.data.eval_samples
    seconds: list[float] = []  # the time of the model for each batch

    def predictions() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the logits and the labels of every batch, and append the time of the model to ``seconds``."""
        done = 0
        for images, labels in inputs(model, config):
            begin = time.perf_counter()
            logits = run(images)
            seconds.append(time.perf_counter() - begin)
            if not np.isfinite(logits).all():
                raise UserError(model.name, "its logits are not finite numbers", model_file.REMEDY)
            yield logits, labels
            done += len(labels)
            progress(done, total)

    with counting(what) as progress:
        return Evaluated(counts.evaluate(predictions(), model.classes, total, confusion), sum(seconds))


def batches(config: Config, split: Split) -> NumpyBatches:
    """Return the batches of a split from the pipeline of a run with one rank, whose seed is 0."""
    return NumpyBatches(config, split, SimpleNamespace(rank=0, size=1), 0, ON_CPU, 1)


def inputs(model: Model, config: Config, split: Split = "val") -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield batches of a split: images, normalised or decoded as the model needs them, and labels. Copies
    that pad the last batch are left out. An array is valid until the next batch.

    Raises UserError if the model has other classes or image sizes than the configuration, or if the data set
    or DALI, which reads it, is missing.
    """
    model.refuse_other(config.data)
    preflight.check(config)
    if not frameworks.is_importable("nvidia.dali"):
        install = frameworks.traits(frameworks.default()).install("cpu")
        raise UserError("evaluation", "DALI cannot be imported", f"{install}, and use .venv/bin/python")
    if not model.image_size:
        yield from _decoded(config, split)
        return
    opened = batches(config, split)
    for batch in opened.epoch():
        yield batch.images[: batch.samples], batch.labels[: batch.samples]
    opened.check_labels()


class _DecodedRecords(Records):
    """Records with decoded images of their original size, not cropped."""

    def _prepared(self, image: bytes, drawn: Drawn) -> np.ndarray:
        return crops.decode(image)


def _decoded(config: Config, split: Split) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield batches of a single sample, for a model with preprocessing: the decoded image, uint8 (1, H, W, 3)
    of its original size, and its label (1,). Threads decode images ahead."""
    records = RecordSet(config, split, 1)
    # ``Records`` draws random crops by seed and pass. Here nothing is cropped, so both are 0.
    decoded = _DecodedRecords(config, split, records.rec, records.idx, 0)
    with ThreadPoolExecutor(THREADS) as executor:
        indices = (Drawn(0, position) for position in range(records.samples))
        futures = (executor.submit(decoded.__getitem__, index) for index in indices)
        for sample in in_order(futures, 2 * THREADS):
            if isinstance(sample, str):  # a message on a damaged record
                raise UserError(sample)
            image, label = sample
            yield image[None], np.array([int(label)])
