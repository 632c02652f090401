"""DALI's graph from the records of a RecordIO file to normalised batches, on a GPU or on a CPU. It is the
same for every framework: ``dali_batches.py`` builds it and takes its batches.

``define`` puts the graph together from ``_read``, ``_decode`` and ``_augment``. The other public functions
start the decoder before the clock (``prepare``), build parts of the graph for measurements (``build_reader``,
``build_decoder``), and explain an error (``fault``). The augmentation is that of the MLPerf Training
reference for image classification; its numbers are in ``rn50/benchmark/rules.py``.
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
_OFFSET = re.compile(r"\.rec at index (\d+)")
"""The offset of a record, in bytes, in DALI's messages: 4096 in "/data/train.rec at index 4096"."""
_HEADINGS = ("Critical error in pipeline", "Error when executing")
"""Beginnings of lines of DALI's messages that give no reason."""


def prepare(config: Config, batch_format: BatchFormat) -> None:
    """Prepare DALI before the clock starts, without touching a data set. Compile the operator of
    ``cpu_augment.py`` if the graph has it. On a GPU decode a batch of JPEGs, which loads libraries and starts
    the decoder.

    Raises UserError if the GPU's decoder does not start.
    """
    if _has_own_operator(config, "train", batch_format):
        from rn50.data.pipeline import cpu_augment

        size = config.data.image_size
        cpu_augment.setup(None if config.hyperparameters.image_sizes else size, batch_format.layout)
    if batch_format.device_id is None:
        return
    batch = [np.frombuffer(grey_jpeg(), np.uint8)] * config.hyperparameters.batch_size
    try:
        build_decoder(config, 0, batch_format, itertools.repeat(batch)).run()
    except RuntimeError as error:
        problem = f"DALI does not decode on GPU {batch_format.device_id}: {_reason(error)}"
        without_dali = "INPUT_LIBRARY=dataloader, where the framework has it, decodes on the CPU"
        remedy = f"rn50 doctor examines driver and packages; {without_dali}"
        raise UserError("INPUT_LIBRARY=dali", problem, remedy) from error


def grey_jpeg() -> bytes:
    """Return a JPEG of 16x16 pixels, of the kind that every decoder supports: baseline, three components."""
    from PIL import Image

    stream = io.BytesIO()
    Image.new("RGB", (16, 16), "grey").save(stream, "jpeg")
    return stream.getvalue()


def build(*arguments: Any) -> Any:
    """Return the pipeline that ``define`` returns for these arguments, built."""
    return _built(define(*arguments))


def define(
    config: Config,
    split: Split,
    rank: int,
    ranks: int,
    seed: int,
    batch_format: BatchFormat,
    sizes: Iterator[int] | None = None,
) -> Any:
    """Return an ``nvidia.dali.Pipeline`` over the shard of rank ``rank`` of ``ranks`` ranks; its outputs are
    (images, labels). It is a graph, which can be inspected without a GPU.

    Images have the type and shape that ``batch_format`` says; labels are float32 of shape (B, 1). Copies of
    the last sample of a shard pad its last batch; the caller must not count them. ``sizes`` yields the side
    of the images of each batch, in pixels, without end; None: it is IMAGE_SIZE.
    """
    from nvidia.dali import fn, types

    def graph() -> Any:
        jpegs, labels = _read(config, split, rank, ranks)
        # DALI sees the size of a batch as the length of an input, which the operators take as a shape.
        rows = ([np.zeros(size, np.uint8)] * config.hyperparameters.batch_size for size in sizes or ())
        row = fn.external_source(source=rows, batch=True, dtype=types.UINT8, ndim=1) if sizes else None
        images = _augment(_decode(jpegs, config, split, batch_format), config, split, batch_format, row)
        return images, (labels if batch_format.device_id is None else labels.gpu())

    return _pipeline(config, seed, batch_format, graph)


def build_reader(config: Config, rank: int, ranks: int, seed: int) -> Any:
    """Return a built pipeline that only reads the shard of rank ``rank`` of the training set; its outputs are
    (JPEGs, labels)."""
    on_cpu = BatchFormat(None, "CHW", False)
    return _built(_pipeline(config, seed, on_cpu, lambda: tuple(_read(config, "train", rank, ranks))))


def build_decoder(
    config: Config, seed: int, batch_format: BatchFormat, batches: Iterator[list[np.ndarray]]
) -> Any:
    """Return a built pipeline that only decodes, as training does.

    ``batches`` yields batches of JPEGs, each JPEG a uint8 array, without end.
    """
    from nvidia.dali import fn, types

    def graph() -> Any:
        encoded = fn.external_source(source=batches, batch=True, dtype=types.UINT8, ndim=1, no_copy=True)
        return _decode(encoded, config, "train", batch_format)

    return _built(_pipeline(config, seed, batch_format, graph))


def fault(records: RecordSet, error: RuntimeError) -> UserError:
    """Return an error that explains ``error``, with which a pipeline ended. It names the bad record, if
    DALI's message or a search of ``records`` tells which it is."""
    offset = _OFFSET.search(str(error))
    return records.fault(f"DALI cannot read it: {_reason(error)}", int(offset[1]) if offset else None)


def _reason(error: RuntimeError) -> str:
    """Return the reason in DALI's message: the first line that is no heading, without the place in DALI's
    source that stands before it in brackets, as in "[/opt/dali/.../file.cc:102] Unrecognized image format."
    """
    text = str(error)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(_HEADINGS)]
    return re.sub(r"\[[^]]*\] ?", "", next(iter(lines), text)).strip()


def _pipeline(config: Config, seed: int, batch_format: BatchFormat, graph: Any) -> Any:
    """Return a pipeline that is not built. The function ``graph`` defines its operators and returns its
    outputs."""
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
    """Build a pipeline, which allocates its memory, and return it."""
    pipeline.build()
    return pipeline


def _read(config: Config, split: Split, rank: int, ranks: int) -> Any:
    """Return the nodes (JPEGs, labels) that read the shard of rank ``rank``."""
    from nvidia.dali import fn

    return fn.readers.mxnet(
        path=[f"{config.data.folder}/{split}.rec"],
        index_path=[f"{config.data.folder}/{split}.idx"],
        name="reader",
        shard_id=rank,
        num_shards=ranks,
        random_shuffle=split == "train",
        pad_last_batch=True,
        # A rank keeps its shard of the validation set, so that it counts the same samples in every
        # evaluation. Of the training set it takes the next shard in every pass.
        stick_to_shard=split == "val",
        dont_use_mmap=config.input_pipeline.dont_use_mmap,
        lazy_init=True,
    )


def _crop(config: Config) -> dict[str, Any]:
    """Return the arguments of DALI's operators for the random crop of a training image."""
    area = (config.data.crop_area_min, rules.CROP_AREA[1])
    # num_attempts: how often DALI draws a crop until one fits into the image, as ``crops.ATTEMPTS``.
    return {"random_area": area, "random_aspect_ratio": rules.CROP_ASPECT, "num_attempts": 100}


def _decode(jpegs: Any, config: Config, split: Split, batch_format: BatchFormat) -> Any:
    """Return the node of the decoded images: uint8 (H, W, 3). With ``roi_decode`` only a random crop of each
    training image is decoded.

    The EXIF orientation is ignored, as Pillow, torchvision and the reference do, so that all of them train on
    the same pixels.
    """
    from nvidia.dali import backend, fn, types

    settings = config.input_pipeline
    options: dict[str, Any] = {"device": "cpu", "output_type": types.RGB}
    # Versions of DALI without this argument ignore the EXIF orientation.
    if backend.GetSchema("decoders__Image").HasArgument("adjust_orientation"):
        options["adjust_orientation"] = False
    if batch_format.device_id is not None:
        options.update(
            device="mixed",
            hw_decoder_load=settings.hw_decoder_load,
            device_memory_padding=settings.nvjpeg_padding_mb * MIB,
            host_memory_padding=settings.nvjpeg_padding_mb * MIB,
            bytes_per_sample_hint=settings.decoder_buffer_hint,
        )
        if settings.hw_decoder_load:  # these hints size the memory of the JPEG engine
            options["preallocate_width_hint"] = settings.preallocate_width
            options["preallocate_height_hint"] = settings.preallocate_height
    if split == "train" and settings.roi_decode:
        return fn.decoders.image_random_crop(jpegs, **_crop(config), **options)
    # Only the GPU's decoder of whole images has a cache.
    if split == "train" and settings.cache_size_mb and batch_format.device_id is not None:
        options.update(cache_size=settings.cache_size_mb, cache_type="threshold", cache_threshold=0)
    return fn.decoders.image(jpegs, **options)


def _has_own_operator(config: Config, split: Split, batch_format: BatchFormat) -> bool:
    """Return whether the graph has the operator of ``cpu_augment.py``, which takes crops: on a CPU, if
    only a crop of each training image is decoded."""
    return batch_format.device_id is None and split == "train" and config.input_pipeline.roi_decode


def _augment(images: Any, config: Config, split: Split, batch_format: BatchFormat, row: Any = None) -> Any:
    """Return the node of the input of the network: decoded images cropped, resized, mirrored and normalised.

    ``row`` is a node whose samples have the length of the side of the result, in pixels; None: the side is
    IMAGE_SIZE in every batch.

    If a crop is enlarged, its outermost pixels depend on ``roi_decode``. With it, only the crop was decoded,
    and its edge pixels are repeated, as in the reference. Without it, the whole image was decoded, and the
    pixels beyond the edge of the crop are interpolated too.
    """
    from nvidia.dali import fn, types

    settings, size = config.input_pipeline, config.data.image_size
    dtype = types.FLOAT16 if batch_format.half_precision else types.FLOAT
    if _has_own_operator(config, split, batch_format):
        from rn50.data.pipeline import cpu_augment

        mirror = fn.random.coin_flip(probability=rules.MIRROR_PROBABILITY, shape=[1], dtype=types.UINT8)
        float32_images = cpu_augment.augment(images, mirror, size, batch_format.layout, row)
        return fn.cast(float32_images, dtype=dtype) if batch_format.half_precision else float32_images
    # The reference resizes with plain bilinear interpolation, without an antialiasing filter.
    device = "cpu" if batch_format.device_id is None else "gpu"
    resize = {"device": device, "interp_type": types.INTERP_LINEAR, "antialias": False}
    normalize: dict[str, Any] = {"device": device}
    if batch_format.device_id is not None:
        resize["bytes_per_sample_hint"] = settings.crop_buffer_hint
        resize["temp_buffer_hint"] = settings.tmp_buffer_hint
        normalize["bytes_per_sample_hint"] = settings.normalize_buffer_hint
    sides: Any = size, size
    if row is None:
        normalize["crop"] = sides
    else:
        side = fn.cast(fn.shapes(row), dtype=types.FLOAT)
        sides = fn.cat(side, side, axis=0)
    if split == "val":
        images = fn.resize(images, resize_shorter=config.data.eval_resize, **resize)
    elif settings.roi_decode:
        images = fn.resize(images, size=sides, **resize)
    else:
        images = fn.random_resized_crop(images, size=(size, size), **_crop(config), **resize)
    return fn.crop_mirror_normalize(
        images,
        mirror=fn.random.coin_flip(probability=rules.MIRROR_PROBABILITY) if split == "train" else 0,
        mean=rules.MEAN,
        std=rules.STD,
        dtype=dtype,
        output_layout=batch_format.layout,
        pad_output=batch_format.channels == 4,
        **normalize,
    )
