"""Write the page of an evaluation (``rn50 evaluate --report``): accuracy by class, confusion of classes,
calibration. ``page.html.j2`` is its template."""

import pathlib
from typing import Any

import numpy as np

from rn50 import files
from rn50.results.report import plots, templates
from rn50.weights.counts import Counts

MOST_ROWS = 20
"""Largest number of rows of each of the two tables."""


def write(file: pathlib.Path, evaluation: dict[str, Any], counts: Counts) -> None:
    """Write the page of ``evaluation``, the object that ``rn50 evaluate --json`` prints. ``counts`` are its
    counts, with the confusion of classes.

    Raises UserError if the page cannot be written.
    """
    confusion = counts.confusion
    assert confusion is not None
    # Rows of the confusion are the classes of the labels, columns the predicted classes. A class may have no
    # image: its row is all 0, and divided by 1.
    images_of_class = np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    points = [(interval.confidence, interval.accuracy) for interval in counts.bins if interval.images]
    template = templates.in_folder_of(__file__).get_template("page.html.j2")
    reliability = plots.reliability(points)
    colours = plots.confusion(confusion / images_of_class, evaluation["class_names"])
    tables = {"worst": _worst(confusion), "confused": _confused(confusion)}
    page = template.render(evaluation=evaluation, reliability=reliability, confusion=colours, **tables)
    files.write(file, page, remedy="give another file with --report")


def _worst(confusion: np.ndarray) -> list[tuple[int, int, int]]:
    """Return (class, images, correct) of the classes with the lowest accuracies, the lowest first."""
    images, correct = confusion.sum(axis=1), confusion.diagonal()
    order = np.argsort(correct / np.maximum(images, 1), kind="stable")[:MOST_ROWS]
    return list(zip(order.tolist(), images[order].tolist(), correct[order].tolist(), strict=True))


def _confused(confusion: np.ndarray) -> list[tuple[int, int, int]]:
    """Return (class, predicted class, images) of the most frequent confusions, the most frequent first."""
    wrong = confusion - np.diag(confusion.diagonal())
    # Positions in the flattened matrix; those without an image are left out.
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_ROWS]
    labels, predicted = np.unravel_index(order[wrong.flat[order] > 0], wrong.shape)
    images = wrong[labels, predicted]
    return list(zip(labels.tolist(), predicted.tolist(), images.tolist(), strict=True))
