"""NumPy crops images where no DALI does it: the windows are those of the definition, the pixels those of the
tests' reference."""

import io

import cv2
import numpy as np
import pytest
from PIL import Image

from rn50.benchmark import rules
from rn50.data.pipeline import crops
from tests.data.test_augmentation import (
    HEIGHT,
    WIDTH,
    bilinear,
    decoded,
    definition,
    encoded,
    ramps,
    same_distribution,
)
from tests.support.imagenet_like import turned

MIN_AREA = rules.CROP_AREA[0]


def test_windows_follow_the_definition():
    random = np.random.default_rng(7)
    x, y, w, h = np.array([crops.random_window(WIDTH, HEIGHT, MIN_AREA, random) for _ in range(4000)]).T
    assert min(x.min(), y.min()) == 0 and (x + w).max() == WIDTH and (y + h).max() == HEIGHT
    expected_w, expected_h = definition(400_000)
    assert same_distribution(w * h, expected_w * expected_h) > 0.01
    assert same_distribution(w / h, expected_w / expected_h) > 0.01
    other_w, other_h = definition(400_000, min_area=0.08)
    assert same_distribution(w * h, other_w * other_h) < 1e-3
    for begin, room in ((x, WIDTH - w), (y, HEIGHT - h)):  # anywhere
        roomy = room > 40
        whole = room[roomy]
        anywhere = np.floor(np.random.default_rng(5).uniform(0, whole + 1)) / whole
        assert same_distribution(begin[roomy] / whole, anywhere) > 0.01


def test_no_image_is_turned():
    jpeg = turned(encoded(ramps(80, 48)))
    assert Image.open(io.BytesIO(jpeg)).getexif()[0x0112] == 6
    assert crops.decode(jpeg).shape == (48, 80, 3)


@pytest.mark.parametrize("width, height", [(1000, 2), (2, 1000), (1, 1)])
def test_where_no_window_fits_it_is_the_greatest_in_the_middle(width, height):
    x, y, w, h = crops.random_window(width, height, 1.0, np.random.default_rng(1))
    assert (w, h) == {(1000, 2): (2, 2), (2, 1000): (2, 2), (1, 1): (1, 1)}[width, height]
    assert (x, y) == ((width - w) // 2, (height - h) // 2)


def training_input(jpeg, size, min_area, random):
    return crops.training_crop(crops.decode(jpeg), size, min_area, random)


def noise(width, height):
    return encoded(
        ramps(width, height, np.add.outer(np.arange(height) * 3, np.arange(width) * 2) % 256 // 4 + 96))


@pytest.mark.parametrize("size", [32, 224])
def test_crops_are_those_of_the_reference_and_half_of_them_mirrored(size):
    jpeg = noise(WIDTH, HEIGHT)
    source, mirrored = decoded(jpeg), 0
    for seed in range(60):
        made = training_input(jpeg, size, 0.1, np.random.default_rng(seed))
        assert made.dtype == np.uint8 and made.shape == (size, size, 3)
        x, y, w, h = (
            int(each) for each in crops.random_window(WIDTH, HEIGHT, 0.1, np.random.default_rng(seed)))
        expected = bilinear(source, x, y, w, h, size, size, cut_out=True)
        errors = [np.abs(each - expected).max() for each in (made, made[:, ::-1])]
        assert min(errors) < 2.5 < max(errors)  # grey levels: rounding, and two decoders
        mirrored += errors[1] < errors[0]
    assert 15 < mirrored < 45


@pytest.mark.parametrize("width, height", [(240, 200), (200, 240), (101, 67), (68, 131), (77, 77)])
@pytest.mark.parametrize("size, resize", [(32, 36), (33, 40), (224, 256)])
def test_evaluation_is_the_centre_of_the_resized_image(width, height, size, resize):
    jpeg = noise(width, height)
    made = crops.evaluation_crop(crops.decode(jpeg), size, resize)
    # As in test_augmentation.py, for DALI.
    shorter = min(width, height)
    out_w, out_h = (int(np.floor(side * resize / shorter + 0.5)) for side in (width, height))
    w, h = (side * shorter / resize for side in (out_w, out_h))
    whole = bilinear(decoded(jpeg), (width - w) / 2, (height - h) / 2, w, h, out_w, out_h)
    left, top = (out_w - size + 1) // 2, (out_h - size + 1) // 2  # of an odd margin DALI rounds the half up
    assert np.abs(made - whole[top : top + size, left : left + size]).max() < 2.5
    assert np.abs(made - whole[:size, :size]).max() > 12  # a corner is something else


def test_grey_and_png_are_decoded_and_what_is_cut_short_is_not():
    grey = cv2.imencode(".jpg", np.full((20, 30), 77, np.uint8))[1].tobytes()
    png = cv2.imencode(".png", np.full((20, 30, 3), (1, 2, 3), np.uint8))[1].tobytes()
    assert crops.decode(grey).shape == (20, 30, 3) and abs(crops.decode(grey).astype(int) - 77).max() <= 1
    assert (crops.decode(png) == (3, 2, 1)).all()
    with pytest.raises(OSError, match="truncated"):
        crops.decode(noise(WIDTH, HEIGHT)[:-2000])
