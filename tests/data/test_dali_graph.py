"""Every setting of the input pipeline reaches its operator, or is said to have no effect: read out of the
graphs that DALI makes.

A CPU graph is built, serialised and parsed. Of a GPU graph DALI 1.34 makes without a driver the Python side
only: every operator with its arguments, whose names and types it checks against the operator's schema. The
backend, and with it ``serialize()``, wants libcuda.so.1 and a GPU (a test near the end holds it to that). So
that a GPU's operators accept these values when they are built, and that nvJPEG heeds them, only ``make
test-gpu`` can see.
"""

import dataclasses
import itertools
import types

import cv2
import numpy as np
import pytest

from rn50.benchmark import rules
from rn50.data.pipeline import dali
from rn50.data.pipeline.batches import BatchFormat
from rn50.errors import UserError
from rn50.settings import show
from rn50.settings.fields import InputPipeline, variables
from tests.conftest import HAS_GPU, ON_GPU, with_changes
from tests.data import dali_graph

pytest.importorskip("nvidia.dali")

from nvidia.dali import backend, fn

CPU = BatchFormat(None, "CHW", False)
GPU = BatchFormat(0, "HWC", True, channels=4)
MIB = 1 << 20

# A value that is not the default, in any configuration below.
OTHER = {
    "threads": 5, "prefetch_queue_depth": 7, "hw_decoder_load": 0.75, "roi_decode": True,
    "cache_size_mb": 123, "nvjpeg_padding_mb": 17, "preallocate_width": 5980, "preallocate_height": 6430,
    "decoder_buffer_hint": 1111, "crop_buffer_hint": 2222, "normalize_buffer_hint": 3333,
    "tmp_buffer_hint": 4444, "dont_use_mmap": True}
DECODERS = ("decoders__Image", "decoders__ImageRandomCrop")
RESIZERS = ("Resize", "RandomResizedCrop")
OURS = "NumbaFunction"
"""On a CPU it does all that comes after the decoding of a crop; what it does is told by
test_cpu_augment.py."""
# Knob -> the operators that get it, the argument's name, and its value there.
ON_EVERY_DEVICE = {
    "threads": (("pipeline",), "num_threads", 5),
    "dont_use_mmap": (("readers__MXNet",), "dont_use_mmap", True)}
ON_A_GPU = {
    "hw_decoder_load": (DECODERS, "hw_decoder_load", 0.75),
    "preallocate_width": (DECODERS, "preallocate_width_hint", 5980),
    "preallocate_height": (DECODERS, "preallocate_height_hint", 6430),
    "decoder_buffer_hint": (DECODERS, "bytes_per_sample_hint", 1111),
    "crop_buffer_hint": (RESIZERS, "bytes_per_sample_hint", 2222),
    "tmp_buffer_hint": (RESIZERS, "temp_buffer_hint", 4444),
    "normalize_buffer_hint": (("CropMirrorNormalize",), "bytes_per_sample_hint", 3333)}


def with_settings(config, form, **changes):
    """``config`` on the device of ``form`` with these with_settings."""
    device = "cpu" if form.device_id is None else "gpu"
    changes = {"hw_decoder_load": 0.5, "roi_decode": False, **changes}
    return with_changes(config, run={"device": device}, input_pipeline=changes)


def graph(config, form, split="train"):
    """The operators of its graph and how deep it prefetches."""
    pipeline = dali.define(config, split, 0, 1, 3, form)
    ours = (
        form.device_id is None and split == "train" and config.input_pipeline.roi_decode
    )  # DALI serialises no operator of ours
    read = dali_graph.in_python if ours or form.device_id is not None else dali_graph.serialised
    return [*read(pipeline), ("queue", {"depth": pipeline.prefetch_queue_depth})]


def argument(operators, names, name):
    """The one value that the operators of these names have for an argument."""
    [value] = [arguments[name] for operator, arguments in operators if operator in names]
    return value


def test_no_setting_is_forgotten():
    assert {*OTHER, "library"} == {
        field.name for field in dataclasses.fields(InputPipeline)
    }  # which is DALI here
    elsewhere = {"prefetch_queue_depth", "roi_decode", "cache_size_mb", "nvjpeg_padding_mb"}
    assert set(OTHER) == {*ON_EVERY_DEVICE, *ON_A_GPU} | elsewhere


@pytest.mark.parametrize("split, roi", [("train", False), ("train", True), ("val", False)])
@pytest.mark.parametrize("form", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("setting", [*ON_EVERY_DEVICE, *ON_A_GPU])
def test_the_value_of_a_setting_stands_at_its_operator(tiny_config, setting, form, split, roi):
    operators, name, value = {**ON_EVERY_DEVICE, **ON_A_GPU}[setting]
    made = graph(with_settings(tiny_config, form, roi_decode=roi, **{setting: OTHER[setting]}), form, split)
    if form is CPU and setting in ON_A_GPU:
        assert all(value not in arguments.values() for _, arguments in made)
    else:
        assert argument(made, operators, name) == value


@pytest.mark.parametrize("roi", [False, True])
def test_memory_for_nvjpeg_is_given_in_bytes(tiny_config, roi):
    made = graph(with_settings(tiny_config, GPU, roi_decode=roi, nvjpeg_padding_mb=17), GPU)
    assert (
        argument(made, DECODERS, "device_memory_padding") == argument(made, DECODERS, "host_memory_padding")
        == 17 * MIB)


def test_only_the_gpus_decoder_of_whole_training_images_has_a_cache(tiny_config):
    def cache(form, split="train", **changes):
        [decoder] = [
            arguments
            for operator, arguments in graph(with_settings(tiny_config, form, **changes), form, split)
            if operator in DECODERS]
        return decoder.get("cache_size"), decoder.get("cache_type"), decoder.get("cache_threshold")

    assert cache(GPU, cache_size_mb=123) == (123, "threshold", 0)
    nothing = (None, None, None)
    assert (
        cache(GPU) == cache(GPU, cache_size_mb=123, roi_decode=True) == cache(GPU, False, cache_size_mb=123)
        == nothing)
    assert cache(CPU, cache_size_mb=123) == nothing


@pytest.mark.parametrize("form", [CPU, GPU], ids=["cpu", "gpu"])
def test_roi_decode_chooses_between_fused_and_separate(tiny_config, form):
    def names(**changes):
        return [operator for operator, _ in graph(with_settings(tiny_config, form, **changes), form)]

    chosen = (*DECODERS, *RESIZERS, "CropMirrorNormalize", OURS)
    ours = form is CPU
    assert [name in names(roi_decode=True) for name in chosen] == [
        False, True, not ours, False, not ours, ours]
    assert [name in names(roi_decode=False) for name in chosen] == [True, False, False, True, True, False]


@pytest.mark.parametrize("form", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("roi", [False, True])
@pytest.mark.parametrize("setting", sorted(OTHER))
def test_a_setting_is_said_to_have_no_effect_where_it_changes_nothing_and_only_there(
    tiny_config, setting, roi, form
):
    before = with_settings(tiny_config, form, roi_decode=roi)
    value = not roi if setting == "roi_decode" else OTHER[setting]
    after = with_settings(tiny_config, form, **{"roi_decode": roi, setting: value})
    assert before != after
    alive = graph(before, form) != graph(after, form)
    [name] = [variable.name for _, field, variable in variables() if field == setting]
    turned_on = before if value is False else after
    assert (show.why_no_effect(name, turned_on) is None) == alive


def test_without_the_jpeg_engine_its_memory_has_no_effect(tiny_config):
    def with_hint(**changes):
        config = with_settings(tiny_config, GPU, hw_decoder_load=0.0, **changes)
        return config, graph(config, GPU)

    (_, before), (config, after) = with_hint(), with_hint(preallocate_width=5980, preallocate_height=6430)
    assert before == after
    assert show.why_no_effect("DALI_PREALLOCATE_WIDTH", config) and show.why_no_effect(
        "DALI_PREALLOCATE_HEIGHT", config)


@pytest.mark.parametrize("form", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("split, roi", [("train", False), ("train", True), ("val", False)])
def test_interpolation_and_normalisation_are_those_of_the_reference_everywhere(tiny_config, form, split, roi):
    from nvidia.dali import types

    made = graph(with_settings(tiny_config, form, roi_decode=roi), form, split)
    if form is CPU and split == "train" and roi:
        assert OURS in [operator for operator, _ in made]
    else:
        assert argument(made, RESIZERS, "interp_type") == types.INTERP_LINEAR
        assert argument(made, RESIZERS, "antialias") is False
        assert argument(made, ("CropMirrorNormalize",), "mean") == pytest.approx(rules.MEAN)
        assert argument(made, ("CropMirrorNormalize",), "std") == pytest.approx(rules.STD)
        assert argument(made, ("CropMirrorNormalize",), "output_layout") == form.layout
        assert argument(made, ("CropMirrorNormalize",), "pad_output") == (form is GPU)
    if split == "train":
        cropping = "decoders__ImageRandomCrop" if roi else "RandomResizedCrop"
        assert argument(made, (cropping,), "random_area") == pytest.approx(
            (tiny_config.data.crop_area_min, 1))
        assert argument(made, (cropping,), "random_aspect_ratio") == pytest.approx((3 / 4, 4 / 3))
        assert argument(made, (cropping,), "num_attempts") == 100
        assert argument(made, ("random__CoinFlip",), "probability") == 0.5


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_as_many_batches_are_prepared_ahead_as_the_setting_says(tiny_config, depth):
    size = tiny_config.hyperparameters.batch_size
    jpeg = cv2.imencode(".jpg", np.full((40, 40, 3), 128, np.uint8))[1].reshape(-1)
    taken = itertools.count()
    pipeline = dali.build_decoder(
        with_settings(tiny_config, CPU, prefetch_queue_depth=depth), 3, CPU,
        ([jpeg] * size for _ in iter(taken.__next__, -1)))
    for _ in range(3):
        pipeline.run()
    assert next(taken) == 3 + depth - 1  # the one in use is of the queue


@pytest.mark.skipif(HAS_GPU, reason="here is a GPU")
def test_without_a_driver_dali_serialises_no_gpu_graph(tiny_config):
    with pytest.raises(RuntimeError, match="CUDA|libcuda"):
        dali.define(with_settings(tiny_config, GPU), "train", 0, 1, 3, GPU).serialize()


@pytest.mark.parametrize(
    "split, roi, device",
    [pytest.param(split, roi, "gpu", marks=ON_GPU)
     for split, roi in (("train", False), ("train", True), ("val", False))])
def test_a_gpu_graph_is_built_and_serialised_as_python_holds_it(tiny_config, split, roi, device):
    config = with_settings(
        tiny_config, GPU, **{**OTHER, "roi_decode": roi, "nvjpeg_padding_mb": 1, "cache_size_mb": 8})
    names = [name for name, _ in graph(config, GPU, split)[:-1]]
    pipeline = dali.define(config, split, 0, 1, 3, GPU)
    assert [name for name, _ in dali_graph.serialised(pipeline)] == names
    pipeline.build()
    images, _ = pipeline.run()
    batch, size = config.hyperparameters.batch_size, config.data.image_size
    assert images.as_cpu().as_array().shape == (batch, size, size, 4)


def test_a_decoder_that_does_not_start_is_found_before_the_data_are_opened(tiny_config):
    if HAS_GPU:
        dali.prepare(tiny_config, GPU)
        return
    with pytest.raises(
        UserError, match="^INPUT_LIBRARY=dali: DALI does not decode on GPU 0: .*; rn50 doctor"
    ):
        dali.prepare(tiny_config, GPU)


def test_the_image_that_is_decoded_then_is_one():
    image = cv2.imdecode(np.frombuffer(dali.grey_jpeg(), np.uint8), cv2.IMREAD_COLOR)
    assert image.shape == (16, 16, 3) and image.std() == 0


@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize("fused, decoder", [(True, "image_random_crop"), (False, "image")])
def test_a_decoder_that_turns_images_is_told_not_to(tiny_config, monkeypatch, knows, fused, decoder):
    """DALI turns them since 2.2, whose packages are for other GPUs than those of the tests."""
    asked, given = [], []
    schema = types.SimpleNamespace(HasArgument=lambda name: asked.append(name) or knows)
    monkeypatch.setattr(backend, "GetSchema", lambda name: schema)
    monkeypatch.setattr(fn.decoders, decoder, lambda jpegs, **how: given.append(how))
    dali._decode(None, with_settings(tiny_config, CPU, roi_decode=fused), "train", CPU)
    assert asked == ["adjust_orientation"]
    assert [how.get("adjust_orientation", "left out") for how in given] == [False if knows else "left out"]
