"""Results of the verbs on ONNX models, ``rn50 export``, ``quantize`` and ``bench inference``, which
``--json`` prints. This file needs no ONNX, so that the page on JSON output can be made without it."""

import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rn50.printed import Inline, prints
from rn50.rates import Rates
from rn50.weights.counts import Counts

Run = Callable[[np.ndarray], np.ndarray]
"""A function from the images of a batch to their logits."""
LIMIT_S = 300
"""Seconds after which a model is stopped, because a model from anybody may loop forever: the limit of a batch
of an evaluation, of the start of ``rn50 bench inference``, and of the time by which one of its rounds takes
longer than it should."""


class Evaluated(NamedTuple):
    """Result of an evaluation."""

    counts: Counts
    seconds: float
    """Time that the model took, without that of the input pipeline."""

    @property
    def images_per_second(self) -> float:
        """Rate of the model during its evaluation."""
        return self.counts.images / self.seconds


class Written(NamedTuple):
    """ONNX model that was written, and its evaluation, if there was one."""

    model: pathlib.Path
    """File that was written."""
    bytes: int
    """Its size."""
    nodes: int
    """Operators of its graph."""
    classes: int
    folded: bool
    """True if batch norm is part of the convolutions."""
    preprocessing: bool
    """True if it takes decoded images."""
    evaluated: Evaluated | None


# What ``--json`` prints of a model that was written.
prints(
    Written,
    lambda r: (r.model, r.bytes, r.nodes, r.folded, r.preprocessing, r.classes),
    lambda r: r.evaluated and r.evaluated.counts.correct,
    lambda r: {"total": r.evaluated and r.evaluated.counts.images},
    lambda r: {"top_1": r.evaluated and r.evaluated.counts.top1},
)


class ModelOnEngine(NamedTuple):
    """A model on an engine."""

    model: pathlib.Path
    """File."""
    engine: str
    precision: str
    """float32, float16, bfloat16 or int8."""

    @property
    def name(self) -> str:
        """Return its display name."""
        return f"{self.model.name} {self.engine} {self.precision}"


class Latency(NamedTuple):
    """Milliseconds of a request, over the requests of all rounds."""

    average: float
    """Milliseconds of a request."""
    p50: float
    """Median."""
    p90: float
    """90th percentile."""
    p95: float
    """95th percentile."""
    p99: float
    """99th percentile."""


class InferenceResult(NamedTuple):
    """Result of a model on an engine at a batch size."""

    subject: Inline[ModelOnEngine]  # ``--json`` prints its fields in its place
    batch_size: int
    """Images of a request."""
    requests: int
    """Requests that were timed, over all rounds."""
    latency_ms: Latency
    images_per_second: Rates
    """images/s."""
    kept_up: bool
    """false: requests arrived faster than they were answered, and waited ever longer."""


class Failure(NamedTuple):
    """A model on an engine that failed. ``InferenceReport.results`` has its results at the batch sizes that
    came before."""

    subject: Inline[ModelOnEngine]
    failure: str
    """Why, and the remedy."""


class InferenceReport(NamedTuple):
    """Latencies and rates of models on engines."""

    machine: str
    """The GPU of an engine that has one, cores in use, and the processor."""
    cores: int
    """Cores, and threads of an engine."""
    requests_per_second: float | None
    """Arrivals of `--rate`; null: the next request arrives when the one before is answered."""
    results: list[InferenceResult]
    failures: list[Failure]
