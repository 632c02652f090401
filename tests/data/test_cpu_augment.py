"""The operator that resizes, mirrors and normalises crops on a CPU gives what DALI's own operators give, and
the definition.

Processes: a second process finds what the first has compiled.
"""

import os
import subprocess
import sys

import numpy as np
import pytest

from rn50.benchmark import rules
from rn50.data.pipeline import cpu_augment
from tests.data.test_augmentation import bilinear

pytest.importorskip("nvidia.dali")
from nvidia.dali import fn, pipeline_def, types

SHAPES = [
    (1, 1), (1, 9), (7, 1), (2, 2), (32, 32), (33, 31), (31, 33), (64, 64), (20, 90), (375, 500), (500, 333),
    (13, 17)]
"""Heights and widths of crops: smaller, of the same size, larger, and no more than one pixel."""
SIZE = 32


def crops(seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(0, 256, (*shape, 3)).astype(np.uint8) for shape in SHAPES]


def both(images, mirrored, layout, size=SIZE):
    """In grey levels, (N, S, S, 3): by our operator, and by DALI's."""
    flags = [np.array([flag], np.uint8) for flag in mirrored]

    @pipeline_def(batch_size=len(images), num_threads=2, device_id=None)
    def pipeline():
        crop = fn.external_source(source=lambda: images, batch=True, layout="HWC")
        mirror = fn.external_source(source=lambda: flags, batch=True)
        resized = fn.resize(crop, size=(size, size), interp_type=types.INTERP_LINEAR, antialias=False)
        how = {"mean": rules.MEAN, "std": rules.STD, "dtype": types.FLOAT, "output_layout": layout}
        theirs = fn.crop_mirror_normalize(
            resized, mirror=fn.cast(fn.squeeze(mirror, axes=0), dtype=types.INT32), **how)
        return cpu_augment.augment(crop, mirror, size, layout), theirs

    made = pipeline()
    made.build()
    arrays = [np.stack([np.array(sample) for sample in output]) for output in made.run()]
    return [
        (each.transpose(0, 2, 3, 1) if layout == "CHW" else each) * np.float32(rules.STD)
        + np.float32(rules.MEAN) for each in arrays]


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize(
    "mirrored", [[0] * len(SHAPES), [1] * len(SHAPES), [0, 1] * (len(SHAPES) // 2)],
    ids=["none", "all", "every other"])
def test_it_gives_what_dalis_operators_give(layout, mirrored):
    ours, theirs = both(crops(), mirrored, layout)
    difference = np.abs(ours - theirs)
    assert difference.max() < 1.01  # grey levels: where both lie halfway between two, they may round apart
    assert (difference > 0.01).mean() < 0.0005
    wrong, _ = both(crops(), [1 - flag for flag in mirrored], layout)
    assert (np.abs(wrong - theirs) > 10).mean() > 0.5


def test_it_is_the_definition():
    images = crops(1)
    ours, _ = both(images, [0] * len(images), "CHW")
    for made, image in zip(ours, images, strict=False):
        height, width = image.shape[:2]
        assert (
            np.abs(made - bilinear(image.astype(np.float64), 0, 0, width, height, SIZE, SIZE)).max() < 0.51
        )  # it is rounded


@pytest.mark.parametrize("size", [8, 48, 224])
def test_sizes_side_by_side(size):
    """Several pipelines of different sizes, as in one process that tunes: each keeps its own."""
    ours, theirs = both(crops(size), [1] * len(SHAPES), "HWC", size)
    assert ours.shape == (len(SHAPES), size, size, 3)
    assert np.abs(ours - theirs).max() < 1.01


def test_it_is_compiled_once():
    assert cpu_augment.setup(SIZE, "CHW") is cpu_augment.setup(SIZE, "CHW")


def compile_apart(cache):
    """A process of its own compiles, with Numba's cache in ``cache``. (files of the cache, by name: when
    written)"""
    code = f"from rn50.data.pipeline import cpu_augment; cpu_augment.setup({SIZE}, 'CHW')"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "NUMBA_CACHE_DIR": str(cache)}, capture_output=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return {path.name: path.stat().st_mtime_ns for path in cache.glob("*/*.nbc")} if cache.is_dir() else {}


def test_the_next_process_finds_it_compiled(tmp_path):
    first = compile_apart(tmp_path / "cache")
    assert len(first) == 3
    assert compile_apart(tmp_path / "cache") == first


def test_it_is_compiled_where_no_folder_can_be_written(tmp_path):
    (tmp_path / "file").touch()
    assert compile_apart(tmp_path / "file" / "cache") == {}
