"""Top-1 accuracy of an ONNX model on the validation set, through the evaluation's input pipeline on a CPU."""

import dataclasses
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from rn50 import frameworks
from rn50.data import preflight
from rn50.data.pipeline import dali
from rn50.data.pipeline.batches import BatchFormat, Split
from rn50.data.pipeline.numpy_batches import NumpyBatches
from rn50.data.pipeline.record_set import RecordSet
from rn50.data.recordio import IndexedRecordReader
from rn50.deploy import model_file
from rn50.deploy.model_file import Model
from rn50.deploy.outcomes import Evaluated
from rn50.errors import UserError
from rn50.progress import counting
from rn50.settings.config import Config
from rn50.weights import display
from rn50.weights.counts import Counts, refuse_other_count

ON_CPU = BatchFormat(None, "CHW", False)
THREADS = len(os.sched_getaffinity(0))


class _OneRank(NamedTuple):
    rank: int = 0
    size: int = 1


def check(config: Config) -> None:
    """Raise UserError if the data set of a configuration, or the library that reads it, is missing."""
    preflight.of(config)
    if not frameworks.is_importable("nvidia.dali"):
        install = frameworks.traits(frameworks.default()).install("cpu")
        raise UserError("evaluation", "DALI cannot be imported", f"{install}, and use .venv/bin/python")


def tell(file: pathlib.Path, config: Config, report: pathlib.Path | None, as_json: bool) -> None:
    """Evaluate the model of an ONNX file and print the counts. If ``report`` is a file, write a page to
    it."""
    model = model_file.read(file)
    counts = evaluate(model, config, confusion=report is not None).counts
    facts = dict(sorted(model.facts.items()))
    evaluation = display.Evaluation(file, "onnxruntime", model.precision, facts, counts, None, [])
    display.tell(evaluation, report, as_json)


def evaluate(
    model: Model,
    config: Config,
    what: str = "evaluating",
    confusion: bool = False,
    logits_of: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Evaluated:
    """Evaluate a model on every image of the validation set of a configuration. Its logits are those of ONNX
    Runtime, or of ``logits_of``, a function of its images.

    Raises UserError if the model is of another task.
    """
    logits_of = logits_of or model_file.running(model, THREADS)
    model.refuse_other(config.data)
    check(config)
    counts = Counts.none(model.classes, confusion)
    seconds = 0.0
    with counting(what) as progress:
        for images, labels in inputs(model, config):
            begin = time.perf_counter()
            logits = logits_of(images)
            seconds += time.perf_counter() - begin
            if not np.isfinite(logits).all():
                raise UserError(model.name, "its logits are not finite numbers", model_file.REMEDY)
            counts.add(logits, labels)
            progress(counts.images, config.data.eval_samples)
    refuse_other_count(counts.images, config.data.eval_samples)
    return Evaluated(counts, seconds)


def batches(config: Config, split: Split, seed: int = 0) -> NumpyBatches:
    """Return the batches of a split as a run's pipeline makes them."""
    return NumpyBatches(config, split, _OneRank(), seed, ON_CPU)


def inputs(model: Model, config: Config, split: Split = "val") -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield a split's images, in the form a model takes, and labels. An array is valid until the next one."""
    return _prepared(config, split) if model.image_size else _decoded(config, split)


def _prepared(config: Config, split: Split) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield normalised images and labels, without copies that pad the last batch."""
    opened = batches(config, split)
    for batch in opened.epoch():
        yield batch.images[: batch.samples], batch.labels[: batch.samples]
    opened.check_labels()


def _decoded(config: Config, split: Split) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield decoded images of their own size one by one, as a model with preprocessing takes them, each with
    its label."""
    records = RecordSet(config, split, 1)
    settings = dataclasses.replace(config.input_pipeline, roi_decode=False)
    whole = dataclasses.replace(config, input_pipeline=settings)
    size, labels = config.hyperparameters.batch_size, []
    with IndexedRecordReader(records.rec, records.idx) as reader:

        def jpegs() -> Iterator[list[np.ndarray]]:
            while True:
                for begin in range(0, records.batches * size, size):
                    places = range(begin, begin + size)
                    read = [reader.read(min(place, len(reader) - 1)) for place in places]
                    labels.append([header.label for header, _ in read])
                    yield [np.frombuffer(jpeg, np.uint8) for _, jpeg in read]

        decoder: Any = dali.build_decoder(whole, 0, ON_CPU, jpegs())
        for index in range(records.batches):
            try:
                images = decoder.run()[0]
            except RuntimeError as error:
                raise dali.fault(records, error) from error
            for place in range(records.counts(0, index)[0]):
                label = labels[index][place]
                records.check_labels(label not in range(config.data.classes))
                yield np.asarray(images.at(place))[None], np.array([label])
