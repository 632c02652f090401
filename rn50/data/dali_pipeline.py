"""The DALI graph: from RecordIO to normalised batches, the same for every framework, on a GPU or on a CPU.

Source of the augmentation: the MLPerf Training reference for image classification; its numbers stand in ``rules.py``.
"""

from typing import Any, Dict, Optional

from rn50 import rules
from rn50.config import Config

MIB = 1 << 20


def build(
    config: Config,
    training: bool,
    rank: int,
    ranks: int,
    seed: int,
    device_id: Optional[int],
    layout: str,
    half_precision: bool,
) -> Any:
    """A built ``nvidia.dali.Pipeline`` over this rank's shard; its outputs are (images, labels).

    Images are float32, or float16 with ``half_precision``, of shape (batch, 3, S, S) for ``layout`` "CHW" and (batch, S, S, 3)
    for "HWC"; labels are float32 of shape (batch, 1). A shard ends with its own samples: the last batch is filled up with
    copies of the last sample, which the caller has to cut off. ``device_id`` None builds the graph for the CPU alone.
    """
    from nvidia.dali import fn, pipeline_def, types

    data, knobs = config.data, config.input_pipeline
    size = data.image_size
    name = "train" if training else "val"
    decoder_device = "cpu" if device_id is None else "mixed"
    device = "cpu" if device_id is None else "gpu"
    decoder_knobs: Dict[str, Any] = {}
    cache: Dict[str, Any] = {}
    if device == "gpu":
        decoder_knobs = {
            "hw_decoder_load": knobs.hw_decoder_load,
            "device_memory_padding": knobs.nvjpeg_padding_mb * MIB,
            "host_memory_padding": knobs.nvjpeg_padding_mb * MIB,
            "preallocate_width_hint": knobs.preallocate_width,
            "preallocate_height_hint": knobs.preallocate_height,
            "bytes_per_sample_hint": knobs.decoder_buffer_hint,
        }
        if training and knobs.cache_size_mb:  # only the decoder of whole images has a cache
            cache = {"cache_size": knobs.cache_size_mb, "cache_type": "threshold", "cache_threshold": 0}
    area = (data.crop_area_min, rules.CROP_AREA[1])
    crop = {"random_area": area, "random_aspect_ratio": rules.CROP_ASPECT, "num_attempts": 100}
    # The reference resizes with plain bilinear interpolation, without an antialiasing filter.
    resize = {"device": device, "interp_type": types.INTERP_LINEAR, "antialias": False}
    if device == "gpu":
        resize["bytes_per_sample_hint"] = knobs.crop_buffer_hint
        resize["temp_buffer_hint"] = knobs.tmp_buffer_hint

    @pipeline_def(
        batch_size=config.hyperparameters.batch_size,
        num_threads=knobs.threads,
        device_id=device_id,
        seed=seed,
        prefetch_queue_depth=knobs.prefetch_queue_depth,
    )
    def graph() -> Any:
        jpegs, labels = fn.readers.mxnet(
            path=[f"{data.folder}/{name}.rec"],
            index_path=[f"{data.folder}/{name}.idx"],
            name="reader",
            shard_id=rank,
            num_shards=ranks,
            random_shuffle=training,
            pad_last_batch=True,
            # Validation keeps its shard, so that every evaluation counts the same samples on the same rank.
            stick_to_shard=not training,
            dont_use_mmap=knobs.dont_use_mmap,
            lazy_init=True,
        )
        if not training:
            images = fn.decoders.image(jpegs, device=decoder_device, output_type=types.RGB, **decoder_knobs)
            images = fn.resize(images, resize_shorter=data.eval_resize, **resize)
        elif knobs.roi_decode:
            images = fn.decoders.image_random_crop(jpegs, device=decoder_device, output_type=types.RGB, **crop, **decoder_knobs)
            images = fn.resize(images, size=(size, size), **resize)
        else:
            images = fn.decoders.image(jpegs, device=decoder_device, output_type=types.RGB, **decoder_knobs, **cache)
            images = fn.random_resized_crop(images, size=(size, size), **crop, **resize)
        normalize_hint = {"bytes_per_sample_hint": knobs.normalize_buffer_hint} if device == "gpu" else {}
        images = fn.crop_mirror_normalize(
            images,
            device=device,
            crop=(size, size),
            mirror=fn.random.coin_flip(probability=rules.MIRROR_PROBABILITY) if training else 0,
            mean=rules.MEAN,
            std=rules.STD,
            dtype=types.FLOAT16 if half_precision else types.FLOAT,
            output_layout=layout,
            **normalize_hint,
        )
        return images, labels.gpu() if device == "gpu" else labels

    pipeline = graph()
    pipeline.build()
    return pipeline
