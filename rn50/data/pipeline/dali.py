"""The DALI graph: from RecordIO to normalised batches, the same for every framework, on a GPU or on a CPU.

Source of the augmentation: the MLPerf Training reference for image classification; its numbers are in
``rules.py``.
"""

import io
import itertools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from rn50.benchmark import rules
from rn50.data.pipeline.batches import BatchFormat, Split
from rn50.data.pipeline.record_set import RecordSet
from rn50.errors import UserError
from rn50.settings.config import Config

MIB = 1 << 20
_PLACE = re.compile(r"\.rec at index (\d+)")
"""The place of a record in DALI's messages: its first byte."""
_HEADINGS = ("Critical error in pipeline", "Error when executing")


def prepare(config: Config, batch_format: BatchFormat) -> None:
    """Compile the code that pipelines of this configuration need, and on a GPU decode a batch in memory, so
    that libraries are loaded and the decoder has started before the clock.

    Raises UserError if the GPU's decoder does not start.
    """
    if _in_one_pass(config, "train", batch_format):
        from rn50.data.pipeline import cpu_augment

        cpu_augment.setup(config.data.image_size, batch_format.layout)
    if batch_format.device_id is None:
        return
    batch = [np.frombuffer(grey_jpeg(), np.uint8)] * config.hyperparameters.batch_size
    try:
        build_decoder(config, 0, batch_format, itertools.repeat(batch)).run()
    except RuntimeError as error:
        problem = f"DALI does not decode on GPU {batch_format.device_id}: {_reason(error)}"
        otherwise = "INPUT_LIBRARY=dataloader, where the framework has it, decodes on the CPU"
        remedy = f"rn50 doctor examines driver and packages; {otherwise}"
        raise UserError("INPUT_LIBRARY=dali", problem, remedy) from error


def grey_jpeg() -> bytes:
    """Return an image of 16x16 that every decoder takes: three components, baseline."""
    from PIL import Image

    stream = io.BytesIO()
    Image.new("RGB", (16, 16), "grey").save(stream, "jpeg")
    return stream.getvalue()


def build(config: Config, split: Split, rank: int, ranks: int, seed: int, batch_format: BatchFormat) -> Any:
    """Return a built ``nvidia.dali.Pipeline`` over this rank's shard; its outputs are (images, labels).

    Images are float32, or float16 with ``batch_format.half_precision``, of shape ``batch_format.shape``;
    labels are float32 of shape (batch, 1). The last batch of a shard is filled up with copies of the shard's
    last sample, which the caller has to cut off.
    """
    return _built(define(config, split, rank, ranks, seed, batch_format))


def define(config: Config, split: Split, rank: int, ranks: int, seed: int, batch_format: BatchFormat) -> Any:
    """Return the pipeline of ``build``, not built yet: a graph that can be inspected without a GPU."""

    def graph() -> Any:
        jpegs, labels = _read(config, split, rank, ranks)
        images = _augment(_decode(jpegs, config, split, batch_format), config, split, batch_format)
        return images, labels if batch_format.device_id is None else labels.gpu()

    return _pipeline(config, seed, batch_format, graph)


def build_reader(config: Config, rank: int, ranks: int, seed: int) -> Any:
    """Return a built pipeline that only reads this rank's shard of the training set: (JPEGs, labels)."""
    on_cpu = BatchFormat(None, "CHW", False)
    return _built(_pipeline(config, seed, on_cpu, lambda: tuple(_read(config, "train", rank, ranks))))


def build_decoder(
    config: Config, seed: int, batch_format: BatchFormat, batches: Iterator[list[np.ndarray]]
) -> Any:
    """Return a built pipeline that decodes as training does and does nothing else.

    ``batches`` never ends; each item is a batch of JPEGs in memory, as uint8 arrays.
    """
    from nvidia.dali import fn, types

    def graph() -> Any:
        encoded = fn.external_source(source=batches, batch=True, dtype=types.UINT8, ndim=1, no_copy=True)
        return _decode(encoded, config, "train", batch_format)

    return _built(_pipeline(config, seed, batch_format, graph))


def fault(records: RecordSet, error: RuntimeError) -> UserError:
    """Return an error on the fault that ended a pipeline. It names the record at fault if DALI does or a
    search finds one."""
    place = _PLACE.search(str(error))
    return records.fault(f"DALI cannot read it: {_reason(error)}", int(place[1]) if place else None)


def _reason(error: RuntimeError) -> str:
    """Return the line of DALI's message that gives the reason."""
    text = str(error)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(_HEADINGS)] or [text]
    return re.sub(r"\[[^]]*\] ?", "", lines[0]).strip()


def _pipeline(config: Config, seed: int, batch_format: BatchFormat, graph: Any) -> Any:
    from nvidia.dali import pipeline_def

    settings = config.input_pipeline
    return pipeline_def(
        batch_size=config.hyperparameters.batch_size,
        num_threads=settings.threads,
        device_id=batch_format.device_id,
        seed=seed,
        prefetch_queue_depth=settings.prefetch_queue_depth,
    )(graph)()


def _built(pipeline: Any) -> Any:
    pipeline.build()
    return pipeline


def _read(config: Config, split: Split, rank: int, ranks: int) -> Any:
    """Return (JPEGs, labels) of this rank's shard."""
    from nvidia.dali import fn

    return fn.readers.mxnet(
        path=[f"{config.data.folder}/{split}.rec"],
        index_path=[f"{config.data.folder}/{split}.idx"],
        name="reader",
        shard_id=rank,
        num_shards=ranks,
        random_shuffle=split == "train",
        pad_last_batch=True,
        # Validation keeps its shard, so that every evaluation counts the same samples on the same rank.
        stick_to_shard=split == "val",
        dont_use_mmap=config.input_pipeline.dont_use_mmap,
        lazy_init=True,
    )


def _crop(config: Config) -> dict[str, Any]:
    area = (config.data.crop_area_min, rules.CROP_AREA[1])
    return {"random_area": area, "random_aspect_ratio": rules.CROP_ASPECT, "num_attempts": 100}


def _decode(jpegs: Any, config: Config, split: Split, batch_format: BatchFormat) -> Any:
    """Return whole images (H, W, 3) as uint8, or with ``roi_decode`` only the random crops of training
    images.

    The EXIF orientation is ignored, as by Pillow, torchvision and the reference: all see the same pixels.
    """
    from nvidia.dali import backend, fn, types

    settings = config.input_pipeline
    how: dict[str, Any] = {"device": "cpu", "output_type": types.RGB}
    if backend.GetSchema("decoders__Image").HasArgument("adjust_orientation"):  # unless DALI never turns any
        how["adjust_orientation"] = False
    if batch_format.device_id is not None:
        how.update(
            device="mixed",
            hw_decoder_load=settings.hw_decoder_load,
            device_memory_padding=settings.nvjpeg_padding_mb * MIB,
            host_memory_padding=settings.nvjpeg_padding_mb * MIB,
            bytes_per_sample_hint=settings.decoder_buffer_hint,
        )
        if settings.hw_decoder_load:  # these hints size the memory of the JPEG engine
            how["preallocate_width_hint"] = settings.preallocate_width
            how["preallocate_height_hint"] = settings.preallocate_height
    if split == "train" and settings.roi_decode:
        return fn.decoders.image_random_crop(jpegs, **_crop(config), **how)
    # Only the GPU's decoder of whole images has a cache.
    if split == "train" and settings.cache_size_mb and batch_format.device_id is not None:
        how.update(cache_size=settings.cache_size_mb, cache_type="threshold", cache_threshold=0)
    return fn.decoders.image(jpegs, **how)


def _in_one_pass(config: Config, split: Split, batch_format: BatchFormat) -> bool:
    """Return whether our own operator augments decoded images: on a CPU, for training crops that were decoded
    alone."""
    return batch_format.device_id is None and split == "train" and config.input_pipeline.roi_decode


def _augment(images: Any, config: Config, split: Split, batch_format: BatchFormat) -> Any:
    """Return decoded images cropped, resized, mirrored and normalised.

    The outermost pixels of an enlarged crop depend on ``roi_decode``. A crop that was decoded alone has its
    edge repeated, as in the reference. In a whole image, neighbours beyond the crop's edge are interpolated
    too.
    """
    from nvidia.dali import fn, types

    settings, size = config.input_pipeline, config.data.image_size
    dtype = types.FLOAT16 if batch_format.half_precision else types.FLOAT
    if _in_one_pass(config, split, batch_format):
        from rn50.data.pipeline import cpu_augment

        mirror = fn.random.coin_flip(probability=rules.MIRROR_PROBABILITY, shape=[1], dtype=types.UINT8)
        made = cpu_augment.augment(images, mirror, size, batch_format.layout)
        return fn.cast(made, dtype=dtype) if batch_format.half_precision else made
    # The reference resizes with plain bilinear interpolation, without an antialiasing filter.
    device = "cpu" if batch_format.device_id is None else "gpu"
    resize = {"device": device, "interp_type": types.INTERP_LINEAR, "antialias": False}
    normalize: dict[str, Any] = {"device": device}
    if batch_format.device_id is not None:
        resize["bytes_per_sample_hint"] = settings.crop_buffer_hint
        resize["temp_buffer_hint"] = settings.tmp_buffer_hint
        normalize["bytes_per_sample_hint"] = settings.normalize_buffer_hint
    if split == "val":
        images = fn.resize(images, resize_shorter=config.data.eval_resize, **resize)
    elif settings.roi_decode:
        images = fn.resize(images, size=(size, size), **resize)
    else:
        images = fn.random_resized_crop(images, size=(size, size), **_crop(config), **resize)
    return fn.crop_mirror_normalize(
        images,
        crop=(size, size),
        mirror=fn.random.coin_flip(probability=rules.MIRROR_PROBABILITY) if split == "train" else 0,
        mean=rules.MEAN,
        std=rules.STD,
        dtype=dtype,
        output_layout=batch_format.layout,
        pad_output=batch_format.channels == 4,
        **normalize,
    )
