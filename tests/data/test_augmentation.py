"""DALI makes of an image what the benchmark's definition says: where it crops, how it resizes, how often it
mirrors.

Images are ramps, red from left to right and green from top to bottom, so that every output tells which window
of the image it is.
"""

import cv2
import numpy as np
import pytest

from rn50.benchmark import rules
from rn50.data import recordio
from rn50.data.pipeline import dali
from rn50.data.pipeline.batches import BatchFormat
from tests.conftest import ON_GPU, with_changes
from tests.support.imagenet_like import turned

WIDTH, HEIGHT = 240, 200
SIZE = 32
BATCH = 100
DRAWS = 4000
DEVICES = ["cpu", pytest.param("gpu", marks=ON_GPU)]
VARIANTS = [pytest.param(True, id="fused"), pytest.param(False, id="separate")]
MIN_AREA = rules.CROP_AREA[0]


@pytest.fixture(autouse=True)
def installed():
    """Skip the tests of this file without DALI. Others import its helpers, so the file itself is not
    skipped."""
    pytest.importorskip("nvidia.dali")


def ramps(width, height, blue=128):
    """(H, W, 3): red tells the column, green the row, both from 0 to 255."""
    image = np.empty((height, width, 3))
    image[..., 0] = (np.arange(width) + 0.5)[None, :] * 255 / width
    image[..., 1] = (np.arange(height) + 0.5)[:, None] * 255 / height
    image[..., 2] = blue
    return np.rint(image).astype(np.uint8)


def encoded(image):
    """As a JPEG that loses next to nothing: full colour resolution, quality 100."""
    how = [
        cv2.IMWRITE_JPEG_QUALITY, 100, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444]
    return cv2.imencode(".jpg", image[..., ::-1], how)[1].tobytes()


def decoded(jpeg):
    """(H, W, 3) in RGB, by a decoder that is not DALI."""
    return cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)[..., ::-1].astype(np.float64)


def written(folder, images):
    """``images`` (JPEGs) as both sets of a data set."""
    for name in ("train", "val"):
        with recordio.IndexedRecordWriter(folder / name) as writer:
            for index, jpeg in enumerate(images):
                writer.write(index, float(index % 10), jpeg)
    return folder


def outputs(
    config, folder, images, device="cpu", split="train", seed=11, form=None, batch=BATCH, size=SIZE, **changes
):
    """The first ``images`` outputs in grey levels, (N, S, S, 3)."""
    form = form or BatchFormat(None if device == "cpu" else 0, "HWC", False)
    data = {"folder": str(folder), "image_size": size, "eval_resize": size + 4, "crop_area_min": MIN_AREA}
    config = with_changes(
        config, run={"device": device}, hyperparameters={"batch_size": batch},
        data={**data, **changes.pop("data", {})}, input_pipeline=changes)
    pipeline = dali.build(config, split, 0, 1, seed, form)
    found = []
    while len(found) * batch < images:
        made = pipeline.run()[0]
        made = (made if device == "cpu" else made.as_cpu()).as_array()
        found.append(made if form.layout == "HWC" else made.transpose(0, 2, 3, 1))
    return np.concatenate(found)[:images].astype(np.float64) * rules.STD + rules.MEAN


def windows(images):
    """(x, y, w, h, mirrored) of every output: a straight line through its means of columns and rows, in
    pixels of the source."""
    found = []
    centres = (np.arange(images.shape[1]) + 0.5) / images.shape[1]
    for image in images:
        slope_x, start_x = np.polyfit(centres, image[..., 0].mean(axis=0), 1)
        slope_y, start_y = np.polyfit(centres, image[..., 1].mean(axis=1), 1)
        mirrored = slope_x < 0
        left = start_x + slope_x if mirrored else start_x
        found.append(
            (left / 255 * WIDTH, start_y / 255 * HEIGHT, abs(slope_x) / 255 * WIDTH,
             slope_y / 255 * HEIGHT, mirrored))
    return np.array(found)


def definition(draws, min_area=MIN_AREA, uniform_aspect=False):
    """(w, h) of crops by the definition: area uniform, aspect log-uniform, drawn again where the window does
    not fit."""
    random = np.random.default_rng(5)
    area = random.uniform(min_area, 1, draws) * WIDTH * HEIGHT
    low, high = rules.CROP_ASPECT
    aspect = (
        random.uniform(low, high, draws) if uniform_aspect
        else np.exp(random.uniform(np.log(low), np.log(high), draws)))
    w, h = np.rint(np.sqrt(area * aspect)), np.rint(np.sqrt(area / aspect))
    fits = (w <= WIDTH) & (h <= HEIGHT)
    return w[fits], h[fits]


def same_distribution(drawn, defined):
    """p-value of Kolmogorov and Smirnov."""
    from scipy import stats  # of those who call this, not of all who import this file

    return stats.ks_2samp(drawn, defined).pvalue


def bilinear(image, x, y, w, h, out_w, out_h, cut_out=False):
    """The window of ``image`` at ``out_w`` x ``out_h``: plain bilinear interpolation, with the image's edge
    repeated beyond it, or where the window is ``cut_out`` first, the window's."""

    def taps(begin, length, count, side):
        first, last = (begin, begin + length - 1) if cut_out else (0, side - 1)
        at = np.clip(begin + (np.arange(count) + 0.5) * length / count - 0.5, first, last)
        low = np.floor(at).astype(int)
        return low, np.minimum(low + 1, last), at - low

    left, right, along = taps(x, w, out_w, image.shape[1])
    top, bottom, down = taps(y, h, out_h, image.shape[0])
    along, down = along[None, :, None], down[:, None, None]
    upper = image[top][:, left] * (1 - along) + image[top][:, right] * along
    lower = image[bottom][:, left] * (1 - along) + image[bottom][:, right] * along
    return upper * (1 - down) + lower * down


@pytest.fixture(scope="module")
def ramp_folder(tmp_path_factory):
    return written(tmp_path_factory.mktemp("ramps"), [encoded(ramps(WIDTH, HEIGHT))] * BATCH)


@pytest.fixture(scope="module")
def drawn(ramp_folder):
    """The windows of thousands of crops, drawn once for every device and variant."""
    known = {}

    def draw(config, device, fused):
        if (device, fused) not in known:
            known[device, fused] = windows(
                outputs(config, ramp_folder, DRAWS, device, roi_decode=fused, threads=2))
        return known[device, fused].T

    return draw


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fused", VARIANTS)
def test_areas_and_aspects_of_crops_follow_the_definition(tiny_config, drawn, device, fused):
    x, y, w, h, _ = drawn(tiny_config, device, fused)
    assert min(x.min(), y.min()) > -1 and (x + w).max() < WIDTH + 1 and (y + h).max() < HEIGHT + 1
    expected_w, expected_h = definition(400_000)
    assert same_distribution(w * h, expected_w * expected_h) > 0.01
    assert same_distribution(w / h, expected_w / expected_h) > 0.01
    # The test can tell: neighbours of the definition are refused.
    other_w, other_h = definition(400_000, min_area=0.08)
    assert same_distribution(w * h, other_w * other_h) < 1e-3
    other_w, other_h = definition(400_000, uniform_aspect=True)
    assert same_distribution(w / h, other_w / other_h) < 1e-3


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fused", VARIANTS)
def test_crops_lie_anywhere_and_half_of_them_are_mirrored(tiny_config, drawn, device, fused):
    x, y, w, h, mirrored = drawn(tiny_config, device, fused)
    for begin, room in ((x, WIDTH - w), (y, HEIGHT - h)):
        roomy = room > 40
        assert roomy.sum() > 1000
        random = np.random.default_rng(5)
        whole = np.rint(room[roomy])
        assert (
            same_distribution(begin[roomy] / room[roomy], np.floor(random.uniform(0, whole + 1)) / whole)
            > 0.01)
    assert mirrored.mean() == pytest.approx(rules.MIRROR_PROBABILITY, abs=4 * 0.5 / DRAWS**0.5)
    assert same_distribution((w * h)[mirrored == 1], (w * h)[mirrored == 0]) > 0.01


@pytest.fixture(scope="module")
def noisy():
    """A JPEG with noise in its blue channel: a filter against aliasing, another interpolation, or a shift
    would show in it."""
    noise = np.random.default_rng(3).integers(64, 192, (HEIGHT // 4, WIDTH // 4)).astype(np.uint8)
    return encoded(ramps(WIDTH, HEIGHT, cv2.resize(noise, (WIDTH, HEIGHT), interpolation=cv2.INTER_LINEAR)))


def error_of(image, window, source, cut_out):
    """The greatest difference from the reference. The window is known to a pixel or so: the true one is among
    its neighbours."""
    x, y, w, h = (int(round(value)) for value in window[:4])
    image = image[:, ::-1] if window[4] else image
    return min(
        np.abs(image - bilinear(source, x + dx, y + dy, w + dw, h + dh, *image.shape[:2], cut_out)).max()
        for dx in (-1, 0, 1) for dy in (-1, 0, 1) for dw in (-1, 0, 1) for dh in (-1, 0, 1)
        if x + dx >= 0 and x + dx + w + dw <= WIDTH and y + dy >= 0 and y + dy + h + dh <= HEIGHT)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fused", VARIANTS)
def test_crops_that_shrink_are_the_same_fused_and_separate(tiny_config, noisy, tmp_path, device, fused):
    source = decoded(noisy)
    folder = written(tmp_path, [noisy] * 10)
    made = outputs(tiny_config, folder, 60, device, batch=10, roi_decode=fused, data={"crop_area_min": 0.1})
    worst = max(
        error_of(image, window, source, cut_out=False)
        for image, window in zip(made, windows(made), strict=False))
    assert worst < (2.5 if device == "cpu" else 6)  # grey levels, of 128 that the noise has
    smoothed = cv2.resize(cv2.blur(source, (3, 3)), (SIZE, SIZE))
    assert np.abs(smoothed - bilinear(source, 0, 0, WIDTH, HEIGHT, SIZE, SIZE)).max() > 12


@pytest.mark.slow
@pytest.mark.parametrize("fused", VARIANTS)
def test_of_crops_that_grow_only_the_outermost_pixels_differ(tiny_config, noisy, tmp_path, fused):
    """Fused repeats the edge of the crop, as the reference does, which cuts out first; separate looks half a
    pixel beyond it."""
    source = decoded(noisy)
    folder = written(tmp_path, [noisy] * 10)
    made = outputs(
        tiny_config, folder, 150, batch=10, size=128, roi_decode=fused, data={"crop_area_min": 0.05})
    grown = [
        (image, window) for image, window in zip(made, windows(made), strict=False) if max(window[2:4]) < 110
        and min(window[:2]) > 3 and window[0] + window[2] < WIDTH - 3 and window[1] + window[3] < HEIGHT - 3]
    assert len(grown) > 5
    for image, window in grown[:10]:  # each takes a second of NumPy
        assert (
            error_of(image, window, source, cut_out=fused) < 2.5
            < error_of(image, window, source, cut_out=not fused))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("width, height", [(240, 200), (200, 240), (101, 67), (68, 131), (77, 77)])
@pytest.mark.parametrize("size, resize", [(32, 36), (33, 40)])
def test_validation_is_the_centre_of_the_resized_image(
    tiny_config, tmp_path, device, width, height, size, resize
):
    blue = np.add.outer(np.arange(height) * 3, np.arange(width) * 2) % 256 // 4 + 96
    jpeg = encoded(ramps(width, height, blue))
    folder = written(tmp_path, [jpeg] * 2)
    made = outputs(tiny_config, folder, 2, device, "val", batch=2, size=size, data={"eval_resize": resize})
    np.testing.assert_array_equal(made[0], made[1])  # nothing is drawn at random
    shorter = min(width, height)
    out_w, out_h = (int(np.floor(side * resize / shorter + 0.5)) for side in (width, height))
    # Both sides are scaled alike: where the longer one had to be rounded, that much of its ends is left out
    # or repeated.
    w, h = (side * shorter / resize for side in (out_w, out_h))
    whole = bilinear(decoded(jpeg), (width - w) / 2, (height - h) / 2, w, h, out_w, out_h)
    # Where the margins cannot be alike, the extra column or row may lie on either side.
    lefts, tops = ({(side - size) // 2, (side - size + 1) // 2} for side in (out_w, out_h))
    errors = [
        np.abs(made[0] - whole[top : top + size, left : left + size]).max() for left in lefts for top in tops]
    assert min(errors) < (2.5 if device == "cpu" else 6)
    assert np.abs(made[0] - whole[:size, :size]).max() > 12  # a corner is something else


@pytest.mark.parametrize("device", DEVICES)
def test_channels_are_normalised_each_by_its_own_mean_and_deviation(tiny_config, tmp_path, device):
    colour = np.array([200.0, 100.0, 30.0])
    jpeg = encoded(np.broadcast_to(colour.astype(np.uint8), (64, 64, 3)).copy())
    folder = written(tmp_path, [jpeg] * 2)
    data = {"folder": str(folder), "image_size": SIZE, "eval_resize": SIZE + 4}
    config = with_changes(tiny_config, run={"device": device}, hyperparameters={"batch_size": 2}, data=data)
    expected = (decoded(jpeg)[0, 0] - [123.675, 116.28, 103.53]) / [58.395, 57.12, 57.375]
    for split in ("train", "val"):
        for layout, half in (("CHW", False), ("HWC", False), ("CHW", True), ("HWC", True)):
            form = BatchFormat(None if device == "cpu" else 0, layout, half)
            images, labels = dali.build(config, split, 0, 1, 1, form).run()
            images, labels = (each if device == "cpu" else each.as_cpu() for each in (images, labels))
            array = images.as_array()
            assert array.dtype == (np.float16 if half else np.float32)
            assert array.shape == ((2, 3, SIZE, SIZE) if layout == "CHW" else (2, SIZE, SIZE, 3))
            assert labels.as_array().shape == (2, 1) and labels.as_array().dtype == np.float32
            spread = array.transpose(0, 2, 3, 1) if layout == "CHW" else array
            assert np.abs(spread - expected).max() < 0.03  # one and a half grey levels


@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=ON_GPU)])
@pytest.mark.parametrize("split, fused", [("train", True), ("train", False), ("val", False)])
def test_no_image_is_turned_whatever_its_exif_orientation(tiny_config, tmp_path, device, split, fused):
    jpeg = encoded(ramps(80, 48))
    made = []
    for name, image in (("plain", jpeg), ("turned", turned(jpeg))):
        (tmp_path / name).mkdir()
        folder = written(tmp_path / name, [image])
        made.append(outputs(tiny_config, folder, 4, device, split, batch=1, size=32, roi_decode=fused))
    assert np.array_equal(*made)
