"""Image folders in the ImageNet layout, made in a moment: a few pictures, each of which becomes many different files."""

import struct

import cv2
import numpy as np

IMAGENET_SIZES = [(375, 500), (500, 375), (333, 500), (500, 500), (400, 300)]
"""Height and width: the commonest of ImageNet, and a small one."""


def class_names(count):
    """Names in the form of WordNet ids, sorted."""
    return [f"n{1440764 + 37 * number:08d}" for number in range(count)]


def pictures(sizes, seed=0, quality=93):
    """JPEGs of smooth noise; at 375x500 and quality 93 they take about 110 KB, as those of ImageNet do."""
    rng = np.random.RandomState(seed)
    made = []
    for height, width in sizes:
        coarse = rng.randint(0, 255, (height // 16, width // 16, 3)).astype(np.uint8)
        fine = rng.randint(-24, 24, (height, width, 3))
        image = np.clip(cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC) + fine, 0, 255).astype(np.uint8)
        made.append(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes())
    return made


def numbered(jpeg, number):
    """The same picture as another file: with a comment segment that has a number."""
    return jpeg[:2] + b"\xff\xfe" + struct.pack(">HI", 6, number) + jpeg[2:]


def make(folder, classes=5, train=4, val=2, sizes=((40, 50), (50, 40), (33, 47)), flat=False):
    """``train`` and ``val`` images of each class; returns the label of every validation image by file name."""
    originals = pictures(sizes)
    number, truth = 0, {}
    for name, each in (("train", train), ("val", val)):
        for label, class_name in enumerate(class_names(classes)):
            home = folder / name / ("" if flat and name == "val" else class_name)
            home.mkdir(parents=True, exist_ok=True)
            for index in range(each):
                file = f"{class_name}_{index}.JPEG"
                if name == "val":  # scattered, as the official ones are: the order of names says nothing of the class
                    file = f"ILSVRC2012_val_{(index * classes + label) * 10007 % (val * classes) + 1:08d}.JPEG"
                    truth[file] = label
                (home / file).write_bytes(numbered(originals[number % len(originals)], number))
                number += 1
    return truth
