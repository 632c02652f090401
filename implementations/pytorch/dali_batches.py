"""Batches from DALI: INPUT_LIBRARY=dali."""

import time
from typing import Any, Iterator

import torch
from nvidia.dali.plugin.pytorch import feed_ndarray

from implementations.pytorch.input_pipeline import Batch, batch_format
from rn50.data.pipeline import dali
from rn50.data.pipeline.record_set import RecordSet
from rn50.settings.config import Config


class DaliBatches:
    """The batches of one split, read by DALI while the previous batch trains."""

    def __init__(self, config: Config, training: bool, communicator: Any, seed: int, device: torch.device, precision: str):
        self._config = config
        self._training = training
        self._rank, self._ranks = communicator.rank, communicator.size
        self._set = RecordSet(config, training, self._ranks)
        # Each rank has its own seed; with one seed all ranks would crop their images in the same places.
        self._pipeline = dali.build(
            config, training, self._rank, self._ranks, seed + self._rank, batch_format(device, precision)
        )
        size, batch_size = config.data.image_size, config.hyperparameters.batch_size
        dtype = torch.float16 if precision == "float16" else torch.float32
        # One buffer is enough: on a GPU one stream first reads the previous batch and then copies this one in.
        self._images = torch.empty((batch_size, size, size, 3), dtype=dtype, device=device)
        self._labels = torch.empty(batch_size, 1, device=device)
        self._stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
        self._wrong_labels = torch.zeros((), device=device, dtype=torch.int64)
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
            self._feed()
            flat = self._labels.view(-1)
            # check_labels reports a label that is no class index; until then it must not stop the device.
            classes = flat.nan_to_num(-1).clamp(0, self._config.data.classes - 1).long()
            self._wrong_labels += (flat != classes).sum()
            yield Batch(self._images.permute(0, 3, 1, 2), classes, *self._set.counts(shard, index))

    def drain(self) -> None:
        """Discard the batches that were prepared ahead."""
        for _ in range(self._config.input_pipeline.prefetch_queue_depth):
            self._run()

    def check_labels(self) -> None:
        """Raise UserError if a label of the batches so far is no whole number in [0, classes). Waits for the device."""
        self._set.check_labels(int(self._wrong_labels))

    def _feed(self) -> None:
        begin = time.perf_counter()
        outputs = self._run()
        self.wait_seconds += time.perf_counter() - begin
        try:
            for output, tensor in zip(outputs, (self._images, self._labels)):
                feed_ndarray(output.as_tensor(), tensor, cuda_stream=self._stream)
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
