"""Test that the demo data set needs a deep network: five simple classifiers, "shortcuts", must fail on it.

    python benchmarks/demo_difficulty.py data/demo

Each classifier is trained on train.rec and tested on val.rec. Its accuracy is printed beside a bound, below
which it must lie; the exit status is 1 if one does not. Linear classifiers are ridge regressions on one-hot
labels. Their penalty is chosen on the test images themselves, so that the data set looks easier than it is,
never harder. The test takes about 20 s on two cores.
"""

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np

from rn50.data.recordio import IndexedRecordReader
from rn50.errors import UserError

LINEAR_BOUND = 0.30
"""Accuracy below which linear classifiers must lie. The network reaches more than 0.759."""
NEIGHBOUR_BOUND = 0.60
"""Accuracy below which nearest neighbours must lie."""
SIDE = 32
"""Side in pixels to which images are resized before their pixels are compared, as in CIFAR."""
HISTOGRAM_BINS = 8
"""Bins for each of the three channels of a histogram of colours."""
SIDES, BLOCK, CELL, ORIENTATIONS = (48, 48), (16, 16), (8, 8), 9
"""For histograms of oriented gradients: sides in pixels of the image, of a block and of a cell, and number of
directions."""
RIDGE_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)
"""Penalties that are tried, as fractions of the mean eigenvalue of the features' covariance."""


class Result(NamedTuple):
    """The accuracy of a shortcut and the bound below which it must lie."""

    shortcut: str
    accuracy: float
    bound: float


def load(folder: Path, name: str) -> tuple[list[np.ndarray], np.ndarray]:
    """Return images (uint8, BGR) and labels (int64) of ``name``.rec."""
    images, labels = [], []
    with IndexedRecordReader(folder / f"{name}.rec", folder / f"{name}.idx") as reader:
        for position in range(len(reader)):
            header, image = reader.read(position)
            images.append(cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR))
            labels.append(int(header.label))
    return images, np.array(labels)


def pixels(image: np.ndarray) -> np.ndarray:
    """Return the pixels of the resized image, from 0 to 1."""
    return cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_AREA).ravel() / np.float32(255)


def colour_histogram(image: np.ndarray) -> np.ndarray:
    """Return the fraction of pixels in each of 8 x 8 x 8 colours."""
    counts = cv2.calcHist([image], [0, 1, 2], None, [HISTOGRAM_BINS] * 3, [0, 256] * 3)
    return counts.ravel() / (image.size // 3)


def hog(image: np.ndarray) -> np.ndarray:
    """Return histograms of oriented gradients (Dalal and Triggs, 2005) of the brightness."""
    grey = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    return _hog(grey, cv2.HOGDescriptor(SIDES, BLOCK, CELL, CELL, ORIENTATIONS))


def signed_hog(image: np.ndarray) -> np.ndarray:
    """Return histograms of oriented gradients of the colours, with the sign of each gradient, so that dark on
    light differs from light on dark."""
    parameters = 1, -1.0, 0, 0.2, False, 64, True  # OpenCV's defaults, except the last one: signed gradients
    return _hog(image, cv2.HOGDescriptor(SIDES, BLOCK, CELL, CELL, 2 * ORIENTATIONS, *parameters))


def _hog(image: np.ndarray, descriptor: cv2.HOGDescriptor) -> np.ndarray:
    """Return the histograms of a descriptor for the resized image."""
    return descriptor.compute(cv2.resize(image, SIDES, interpolation=cv2.INTER_AREA)).ravel()


def features(extract: Callable[[np.ndarray], np.ndarray], images: Iterable[np.ndarray]) -> np.ndarray:
    """Return the features of all images, float32 (images, features)."""
    return np.stack([extract(image) for image in images]).astype(np.float32)


def linear_accuracy(
    train: np.ndarray, train_labels: np.ndarray, test: np.ndarray, test_labels: np.ndarray
) -> float:
    """Return the highest accuracy on the test images of ridge regressions on one-hot labels with
    ``RIDGE_PENALTIES``."""
    mean = train.mean(0)
    train, test = train - mean, test - mean
    targets = np.eye(train_labels.max() + 1, dtype=np.float32)[train_labels]
    eigenvalues, vectors = np.linalg.eigh(train.T @ train)
    correlation = vectors.T @ (train.T @ (targets - targets.mean(0)))
    test = test @ vectors
    accuracies = []
    for penalty in RIDGE_PENALTIES:
        weights = correlation / (np.maximum(eigenvalues, 0) + penalty * eigenvalues.mean())[:, None]
        accuracies.append(np.mean((test @ weights).argmax(1) == test_labels))
    return float(max(accuracies))


def neighbour_accuracy(
    train: np.ndarray, train_labels: np.ndarray, test: np.ndarray, test_labels: np.ndarray
) -> float:
    """Return the accuracy of the nearest neighbour in Euclidean distance."""
    half_squared_distance = (train * train).sum(1) / 2 - test @ train.T
    return float(np.mean(train_labels[half_squared_distance.argmin(1)] == test_labels))


def measure(folder: Path) -> list[Result]:
    """Train and test all shortcuts on the data set in ``folder``."""
    (train, train_labels), (test, test_labels) = load(folder, "train"), load(folder, "val")
    results = []
    for shortcut, extract, accuracy, bound in (
        ("linear classifier on pixels", pixels, linear_accuracy, LINEAR_BOUND),
        ("linear classifier on colour histograms", colour_histogram, linear_accuracy, LINEAR_BOUND),
        ("nearest neighbour on pixels", pixels, neighbour_accuracy, NEIGHBOUR_BOUND),
        ("nearest neighbour on HOG features", hog, neighbour_accuracy, NEIGHBOUR_BOUND),
        ("nearest neighbour on signed HOG", signed_hog, neighbour_accuracy, NEIGHBOUR_BOUND),
    ):
        measured = accuracy(features(extract, train), train_labels, features(extract, test), test_labels)
        results.append(Result(shortcut, measured, bound))
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, help="where rn50 demo-data wrote the data set")
    arguments = parser.parse_args()
    results = measure(arguments.folder)
    for result in results:
        verdict = "ok" if result.accuracy < result.bound else "TOO EASY"
        print(f"{result.shortcut:40} {result.accuracy:6.1%}   bound {result.bound:.0%}   {verdict}")
    return int(any(result.accuracy >= result.bound for result in results))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        raise SystemExit(f"rn50: {error}") from None
