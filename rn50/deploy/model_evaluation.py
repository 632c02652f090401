"""Evaluation of an ONNX model on the validation set, through the evaluation's input pipeline on a CPU."""

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
from rn50.weights import counts, display

ON_CPU = BatchFormat(None, "CHW", False)
THREADS = len(os.sched_getaffinity(0))


def evaluate_file(file: pathlib.Path, config: Config, report: pathlib.Path | None, as_json: bool) -> None:
    """Evaluate the model of an ONNX file and print the counts. If ``report`` is a file, write a page to
    it."""
    model = model_file.read(file)
    evaluated = evaluate(model, config, confusion=report is not None)
    about = file, "onnxruntime", model.precision, dict(sorted(model.facts.items()))
    evaluation = display.FileEvaluation(*about, evaluated.counts, None, [])
    display.print_evaluation(evaluation, report, as_json)


def evaluate(model: Model, config: Config, what: str = "evaluating", confusion: bool = False) -> Evaluated:
    """Evaluate a model on every image of the validation set of a configuration, by ONNX Runtime.

    Raises UserError if the model is of another task.
    """
    run, seconds, total = model_file.running(model, THREADS), [0.0], config.data.eval_samples

    def predictions() -> Iterator[tuple[np.ndarray, np.ndarray]]:
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
    """Return the batches of a split as a run's pipeline makes them."""
    return NumpyBatches(config, split, SimpleNamespace(rank=0, size=1), 0, ON_CPU)


def inputs(model: Model, config: Config, split: Split = "val") -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield a split's images, in the form a model takes, and labels, without copies that pad the last batch.
    An array is valid until the next one.

    Raises UserError if the model is of another task, or the data set or the library that reads it is missing.
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


class _Whole(Records):
    """Records whose images are decoded and not cropped."""

    def _prepared(self, image: bytes, drawn: Drawn) -> np.ndarray:
        return crops.decode(image)


def _decoded(config: Config, split: Split) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield decoded images of their own size one by one, as a model with preprocessing takes them, each with
    its label."""
    records = RecordSet(config, split, 1)
    whole = _Whole(config, split, records.rec, records.idx, 0)
    with ThreadPoolExecutor(THREADS) as executor:
        every = (Drawn(0, position) for position in range(records.samples))
        futures = (executor.submit(whole.__getitem__, drawn) for drawn in every)
        for sample in in_order(futures, 2 * THREADS):
            if isinstance(sample, str):  # the fault of the record
                raise UserError(sample)
            image, label = sample
            yield image[None], np.array([int(label)])
