"""What is counted of predictions, against the definitions written out."""

import numpy as np
import pytest
from scipy import stats

from rn50 import files
from rn50.errors import UserError
from rn50.weights import display, page
from rn50.weights.counts import BINS, Counts, margin


def drawn(images=400, classes=12, seed=0):
    random = np.random.default_rng(seed)
    logits, labels = (
        random.standard_normal((images, classes)).astype(np.float32) * 3,
        random.integers(classes, size=images))
    return logits, labels


def test_top_1_top_5_and_confusion():
    logits, labels = drawn()
    counts = Counts.none(12, confusion=True)
    counts.add(logits[:150], labels[:150])
    counts.add(logits[150:], labels[150:].astype(np.float32).reshape(-1, 1))  # as MXNet and DALI have them
    order = np.argsort(-logits, axis=1)
    assert (counts.images, counts.correct) == (400, (order[:, 0] == labels).sum())
    assert counts.top5_correct == (order[:, :5] == labels[:, None]).any(axis=1).sum()
    for label in range(12):
        expected = np.bincount(order[labels == label, 0], minlength=12)
        np.testing.assert_array_equal(counts.confusion[label], expected)


def test_calibration_error():
    logits, labels = drawn()
    counts = Counts.none(12, confusion=False)
    counts.add(logits, labels)
    probability = np.exp(logits.astype(np.float64))
    probability /= probability.sum(axis=1, keepdims=True)
    confidence, right = probability.max(axis=1), probability.argmax(axis=1) == labels
    error = 0.0
    for index in range(BINS):
        inside = (confidence >= index / BINS) & (confidence < (index + 1) / BINS)
        if inside.any():
            error += inside.mean() * abs(confidence[inside].mean() - right[inside].mean())
    assert counts.calibration_error == pytest.approx(error, abs=1e-8)
    assert counts.confusion is None


def test_equal_logits_count_for_the_lowest_class_and_nan_for_none():
    counts = Counts.none(6, confusion=False)
    same, broken = np.zeros((6, 6), np.float32), np.full((2, 6), np.nan, np.float32)
    counts.add(same, np.arange(6))
    assert (counts.images, counts.correct, counts.top5_correct) == (6, 1, 5)
    counts.add(broken, np.array([0, 3]))
    assert (counts.images, counts.correct, counts.top5_correct) == (8, 1, 5)


def test_the_sum_over_ranks_is_the_count_of_all():
    logits, labels = drawn()
    whole, parts = Counts.none(12, True), [Counts.none(12, True) for _ in range(3)]
    whole.add(logits, labels)
    for part, rows in zip(parts, np.array_split(np.arange(400), 3), strict=False):
        part.add(logits[rows], labels[rows])
    np.testing.assert_array_equal(sum(part.numbers for part in parts), whole.numbers)


def test_the_page_names_what_is_confused(tmp_path):
    counts = Counts.none(3, confusion=True)
    counts.add(np.eye(3, dtype=np.float32)[[0, 1, 1, 1]] * 9, np.array([0, 1, 2, 2]))
    found = {
        "weights": "<a>.safetensors", "top1": 0.5, "top5": 1.0, "correct": 2, "top5_correct": 4, "images": 4,
        "calibration_error": 0.1, "framework": "mxnet", "precision": "float32", "facts": {"seed": "<b>"},
        "class_names": ["cat", "dog", "<i>fox"], "density": [{"layer": "fc1_weight", "density": 0.5}]}
    file = tmp_path / "page.html"
    for _ in range(2):  # the page replaces itself
        page.write(file, found, counts)
    text = file.read_text()
    assert (
        "<tr><td>&lt;i&gt;fox</td><td>dog</td><td>2</td></tr>" in text
        and "<tr><td>&lt;i&gt;fox</td><td>2</td><td>0</td></tr>" in text)
    assert "&lt;a&gt;" in text and "<b>" not in text and "<i>" not in text
    assert "50.0 %" in text and text.count("<svg") == 2
    assert files.MARK in text


@pytest.mark.parametrize("correct", [0, 3, 28, 57])
def test_margin_is_that_of_scipy(correct):
    interval = stats.binomtest(correct, 57).proportion_ci(method="wilson")
    assert margin(correct, 57) == pytest.approx((interval.high - interval.low) * 50, rel=1e-4)


@pytest.mark.parametrize("classes", [5, 6])
def test_an_accuracy_is_printed_rounded_and_top5_only_of_more_classes(tmp_path, capsys, classes):
    counts = Counts.none(classes, confusion=False)
    counts.add(np.eye(classes, dtype=np.float32), np.arange(classes))
    facts = {"accuracy": "0.96660000085", "seed": "1866927575"}
    display.print_evaluation(
        display.FileEvaluation(tmp_path, "ours", "float32", facts, [], counts, None, []), None, False)
    said = capsys.readouterr().out
    assert "seed 1866927575, accuracy 0.9666\n" in said and ("top-5" in said) == (classes > 5)


@pytest.mark.parametrize("as_json", [True, False])
def test_an_evaluation_whose_page_cannot_be_written_is_printed(tmp_path, capsys, as_json):
    counts = Counts.none(12, confusion=True)
    counts.add(*drawn())
    names = ["?"] * 12
    evaluation = display.FileEvaluation(tmp_path / "w", "ours", "float32", {}, names, counts, None, [])
    with pytest.raises(UserError, match="page.html: cannot be written .*; give another file with --report"):
        display.print_evaluation(evaluation, tmp_path / "absent" / "page.html", as_json)
    told = f'"images": {counts.images}' if as_json else f"{counts.correct} of 400"
    assert told in capsys.readouterr().out
