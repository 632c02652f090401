"""Batches for the training loop: from DALI, or synthetic ones held in memory."""

import time
from typing import Any, Iterator, NamedTuple

import mxnet as mx
import numpy as np
from nvidia.dali.plugin.mxnet import feed_ndarray

from rn50.data.pipeline import dali
from rn50.data.pipeline.batches import BatchFormat
from rn50.data.pipeline.record_set import RecordSet
from rn50.settings.config import Config


class Batch(NamedTuple):
    """Images (B, 3, S, S) or (B, S, S, 3), labels (B,) float32, and the number of samples that count."""

    images: Any
    labels: Any
    samples: int
    global_samples: int
    """Samples of this step over all ranks."""


def batch_format(context: Any, layout: str, precision: str) -> BatchFormat:
    """Return the form of the images that DALI has to make."""
    device_id = context.device_id if context.device_type == "gpu" else None
    return BatchFormat(device_id, layout.replace("N", ""), precision == "float16")


class DaliBatches:
    """The batches of one split, read by DALI while the previous batch trains."""

    def __init__(self, config: Config, training: bool, communicator: Any, seed: int, context: Any, layout: str, precision: str):
        self._config = config
        self._training = training
        self._rank, self._ranks = communicator.rank, communicator.size
        self._set = RecordSet(config, training, self._ranks)
        # Each rank has its own seed; with one seed all ranks would crop their images in the same places.
        self._pipeline = dali.build(
            config, training, self._rank, self._ranks, seed + self._rank, batch_format(context, layout, precision)
        )
        size, batch_size = config.data.image_size, config.hyperparameters.batch_size
        shape = (batch_size, 3, size, size) if layout == "NCHW" else (batch_size, size, size, 3)
        dtype = "float16" if precision == "float16" else "float32"
        # Two buffers, so that a batch is copied in while the engine still reads the one before; feeding waits for a free buffer.
        self._buffers = [(mx.nd.empty(shape, context, dtype), mx.nd.empty((batch_size, 1), context)) for _ in range(2)]
        self._wrong_labels = mx.nd.zeros(1, context)
        self._passes = 0
        self.wait_seconds = 0.0
        """Time spent waiting for DALI, over the life of this object."""
        self.waiting = False
        """True while it waits for DALI."""

    def epoch(self) -> Iterator[Batch]:
        """Yield the batches of one pass over this rank's shard, without counting the samples that pad the last batch."""
        # DALI moves on to the next shard after every pass over the training set.
        shard = (self._rank + self._passes) % self._ranks if self._training else self._rank
        self._passes += 1
        for index in range(self._set.batches):
            images, labels = self._buffers[index % 2]
            self._feed(images, labels)
            flat = labels.reshape(-1)
            classes = self._config.data.classes
            self._wrong_labels += ((flat != flat.floor()) + (flat < 0) + (flat >= classes)).sum()  # NaN is not equal to itself
            yield Batch(images, flat, *self._set.counts(shard, index))

    def drain(self) -> None:
        """Discard the batches that were prepared ahead."""
        for _ in range(self._config.input_pipeline.prefetch_queue_depth):
            self._run()

    def check_labels(self) -> None:
        """Raise UserError if a label of the batches so far is no whole number in [0, classes). Waits for the device."""
        self._set.check_labels(self._wrong_labels.asscalar())

    def _feed(self, images: Any, labels: Any) -> None:
        begin = time.perf_counter()
        outputs = self._run()
        self.wait_seconds += time.perf_counter() - begin
        try:
            for output, array in zip(outputs, (images, labels)):
                feed_ndarray(output.as_tensor(), array)
        except (AssertionError, RuntimeError):
            dali.check_form(self._set, outputs[1])
            raise

    def _run(self) -> Any:
        self.waiting = True
        try:
            outputs = self._pipeline.run()
        except RuntimeError as error:
            raise dali.fault(self._set, error) from error
        self.waiting = False
        return outputs


class SyntheticBatches:
    """One full random batch, held on the device and repeated."""

    wait_seconds = 0.0
    waiting = False

    def __init__(self, config: Config, ranks: int, context: Any, layout: str, precision: str):
        size, batch_size = config.data.image_size, config.hyperparameters.batch_size
        shape = (batch_size, 3, size, size) if layout == "NCHW" else (batch_size, size, size, 3)
        random = np.random.RandomState(0)
        images = mx.nd.array(random.standard_normal(shape), context, "float16" if precision == "float16" else "float32")
        labels = mx.nd.array(random.randint(config.data.classes, size=batch_size), context, "float32")
        self._batch = Batch(images, labels, batch_size, batch_size * ranks)

    def epoch(self) -> Iterator[Batch]:
        """Yield the one batch without end."""
        while True:
            yield self._batch

    def drain(self) -> None:
        """Do nothing: no batch is prepared ahead."""

    def check_labels(self) -> None:
        """Do nothing: the labels are valid."""
