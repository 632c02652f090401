"""Batches that torchvision decodes, with nvJPEG on a GPU, for machines without DALI:
INPUT_LIBRARY=torchvision."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from implementations.pytorch import crop_operations
from implementations.pytorch.input_pipeline import device_of
from implementations.pytorch.input_thread import InputThread
from implementations.pytorch.loader_batches import LoaderBatches
from implementations.pytorch.torchvision_decoder import ASKED_BY, Decoder, Refusals
from implementations.pytorch.torchvision_package import torchvision
from implementations.pytorch.torchvision_records import Encoded, EncodedRecords
from rn50.data.pipeline.batches import Batch, BatchFormat, Split
from rn50.data.pipeline.loader_batches import killed_worker_named, next_of
from rn50.data.pipeline.record_set import RecordSet
from rn50.errors import UserError
from rn50.settings.config import Config
from rn50.terminal import say

BUFFERS = 3
"""Batches in the device's memory: one that a step reads, one that is ready, and one that is being filled."""
Cut = Callable[..., None]
"""``kernels.crop.cut`` or ``crop_operations.cut``."""


def prepare(config: Config, form: BatchFormat) -> None:
    """Start the decoder of a device and compile the kernel. Raises UserError if there is no decoder."""
    package, device = torchvision(ASKED_BY), device_of(form)
    image = package.io.encode_jpeg(torch.zeros(3, 16, 16, dtype=torch.uint8))
    try:
        package.io.decode_jpeg([image], package.io.ImageReadMode.RGB, device)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        remedy = (
            f"install the torchvision that is made for PyTorch {torch.__version__}, or set "
            "INPUT_LIBRARY=dataloader"
        )
        raise UserError(
            ASKED_BY, f"torchvision {package.__version__} does not decode on {device} ({reason})", remedy
        ) from error
    cut_on(device, form.shape(1, config.data.image_size), getattr(torch, form.dtype))


@functools.cache
def cut_on(device: torch.device, shape: tuple[int, ...], dtype: torch.dtype) -> Cut:
    """Return the function that writes crops of ``shape`` on a device: the kernel; on a CPU, or where Triton
    cannot compile it, PyTorch's operations."""
    if device.type == "cpu":
        return crop_operations.cut
    try:
        from implementations.pytorch.kernels import crop

        with torch.cuda.device(device):
            mean = std = torch.ones(3, device=device)
            pixel = torch.zeros(3, 1, 1, dtype=torch.uint8, device=device)
            out = torch.empty(shape, dtype=dtype, device=device)
            crop.cut(
                [pixel],
                torch.tensor([[0, 0, 1, 1]]),
                torch.zeros(1, 2, 2, dtype=torch.float64),
                mean,
                std,
                out,
            )
    except Exception as error:  # of many types: no Triton, no C compiler, no headers of Python
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        say(
            f"warning: {ASKED_BY}: Triton cannot compile the kernel that crops ({reason}); PyTorch's "
            "operations crop instead, which is slow; install gcc and python3-dev",
            err=True,
        )
        return crop_operations.cut
    return crop.cut


class Decoded(NamedTuple):
    """A batch on the device that is not cropped yet."""

    images: list[torch.Tensor]
    encoded: Encoded
    labels: torch.Tensor
    refusals: Refusals


class Maker:
    """Makes batches from what the DataLoader's processes read, in any thread."""

    def __init__(self, loader: Iterator[Any], records: RecordSet, decoder: Decoder, cut: Cut):
        self._loader, self._set, self._decoder, self._cut = loader, records, decoder, cut

    def prepare(self) -> Decoded:
        """Wait for a batch and decode it."""
        batch, labels = next_of(self._loader, self._set)
        images = batch.images.split(batch.sizes.tolist())
        decoded = self._decoder(images, batch.for_device.tolist(), batch.positions.tolist())
        return Decoded(decoded, batch, labels, self._decoder.refusals)

    def fill(self, content: tuple[torch.Tensor, torch.Tensor], decoded: Decoded) -> Refusals:
        """Write a batch to ``content``, pixel values and labels, and return what the decoder refused in
        it."""
        pixels, labels = content
        self._cut(decoded.images, decoded.encoded.parts, decoded.encoded.windows, out=pixels)
        labels.copy_(decoded.labels)
        return decoded.refusals


class TorchvisionBatches(LoaderBatches):
    """The batches of one split, read by processes of PyTorch's DataLoader, decoded and cropped in the thread
    that takes them."""

    records = EncodedRecords

    def __init__(self, config: Config, split: Split, communicator: Any, seed: int, form: BatchFormat):
        torchvision(ASKED_BY)
        super().__init__(config, split, communicator, seed, form)
        self._split, self._refused_batches, self._refused_images = split, 0, 0
        cut = functools.partial(
            cut_on(self._device, form.shape(1, config.data.image_size), self._dtype),
            mean=self._mean,
            std=self._std,
        )
        self._maker = Maker(self._loader, self._set, Decoder(self._device, self._records.undecodable), cut)

    def epoch(self) -> Iterator[Batch]:
        """See ``LoaderBatches``. A warning after the pass counts what the decoder refused in it."""
        self._refused_batches = self._refused_images = 0
        yield from super().epoch()
        if self._refused_batches:
            self._warn(
                f"{self._refused_batches} of {self._set.batches} batches of this pass were decoded in "
                f"parts, and {self._refused_images} images of them by Pillow"
            )

    def _next(self) -> tuple[torch.Tensor, torch.Tensor]:
        with self._waiting():
            decoded = self._maker.prepare()
        made = self._empty()
        self._count(self._maker.fill(made, decoded))
        return made

    def _empty(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return memory for the pixel values and labels of a batch."""
        size, images = self._config.data.image_size, self._config.hyperparameters.batch_size
        return (
            torch.empty(self._form.shape(images, size), dtype=self._dtype, device=self._device),
            torch.empty(images, dtype=torch.int64, device=self._device),
        )

    def _on_device(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return images.permute(0, 3, 1, 2), labels

    def _count(self, refused: Refusals) -> None:
        if refused.reason is None:
            return
        if not self._refused_batches:
            self._warn(
                f"the decoder refuses a batch ({refused.reason}); such a batch is decoded in ever smaller "
                "parts, which is slow"
            )
        self._refused_batches += 1
        self._refused_images += refused.images

    def _warn(self, what: str) -> None:
        say(f"warning: {ASKED_BY}: rank {self._rank}, {self._split}: {what}", err=True)


class ThreadedBatches(TorchvisionBatches):
    """The same, decoded and cropped ahead by an ``InputThread``. A batch is valid until the next one is asked
    for."""

    def __init__(self, config: Config, split: Split, communicator: Any, seed: int, form: BatchFormat):
        super().__init__(config, split, communicator, seed, form)
        contents = [self._empty() for _ in range(BUFFERS)]
        self._ahead += BUFFERS
        streams = torch.get_device_module(self._device)
        self._thread = InputThread(self._maker.prepare, self._maker.fill, contents, self._device, streams)

    def _next(self) -> tuple[torch.Tensor, torch.Tensor]:
        self._thread.give_back()
        with self._waiting(), killed_worker_named(self._set):
            made = self._thread.wait()
        buffer = self._thread.lend(made)
        self._count(buffer.remark)
        return buffer.content
