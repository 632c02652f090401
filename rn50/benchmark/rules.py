"""Constants of the benchmark, and the labels of runs that are not results of it.

Every number comes from the MLPerf Training rules for image classification. Source: MLPerf Training policies,
"training_rules.adoc", sections on benchmarks, hyperparameters and run results, as they stood for rounds v1.0
to v4.0. No configuration changes a constant; the settings are in ``rn50/settings/fields.py``.
"""

import functools
from collections.abc import Mapping
from typing import Any

BENCHMARK = "resnet"
"""Name of the benchmark in logs and in the folders of submissions."""

TRAIN_SAMPLES = 1_281_167
EVAL_SAMPLES = 50_000
CLASSES = 1000
IMAGE_SIZE = 224
"""Height and width of the images that the network sees, in pixels."""
EVAL_RESIZE = 256
"""Pixels of the shorter side of a validation image, before its centre is cropped."""
CROP_AREA = (0.05, 1.0)
"""Smallest and largest area of a random crop of a training image, as fractions of the image."""
CROP_ASPECT = (3 / 4, 4 / 3)
"""Smallest and largest ratio of width to height of a random crop."""
MIRROR_PROBABILITY = 0.5
MEAN = (123.675, 116.28, 103.53)
STD = (58.395, 57.12, 57.375)
"""Mean and standard deviation of red, green and blue, on a scale of 0 to 255, by which images are
normalised."""

TARGET_ACCURACY = 0.759
"""A run stops at its first evaluation with ``correct / total >= TARGET_ACCURACY``."""

EVAL_PERIOD_EPOCHS = 4
"""Epochs between two evaluations."""

BATCH_NORM_MOMENTUM = 0.9
BATCH_NORM_EPSILON = 1e-5
PARAMETERS = 25_557_032
"""Trainable parameters of the network."""

DIVISIONS = ("closed", "open")
STATUSES = ("onprem", "cloud", "research", "preview")
OPTIMIZERS = ("lars", "sgd")
LARS_EPSILON = 0.0
END_LEARNING_RATE = 1e-4
POLY_POWER = 2
MOMENTUM_BELOW_32K = 0.9
LARGE_BATCH_IN_THOUSANDS, LARGE_BATCH = 32_000, 32_768
"""Global batch size from which on the momentum may be chosen. The rules say "32k", which may mean either
number: a result at 32,256 was accepted with another momentum. Our own runs choose it from the larger number
on."""
WEIGHT_DECAY_BASE = 1e-4
"""Weight decay is ``WEIGHT_DECAY_BASE * 2**n`` for a whole number n."""
SGD_LEARNING_RATE_UNIT = 0.001
"""The base learning rate of SGD is a whole multiple of this."""
LABEL_SMOOTHING = (0.0, 0.1)
"""The values that the rules allow."""

UNRESIZED = "the closed division resizes no image before the clock"
"""The rule on the size of the images in the data set, as messages quote it (MLPerf Training rules, "Data
Representation": images have the same size as in the reference)."""

RUNS = 5
"""Runs of one result. The score is the mean of three: the fastest and the slowest run are dropped."""
ONE_MAY_MISS = "one miss in five is allowed"
"""The rule on runs that miss the target, as messages quote it."""

RULESETS = ("0.7.0", "1.0.0", "1.1.0", "2.0.0", "2.1.0", "3.0.0", "3.1.0", "4.0.0")
"""Versions of the official rules and checkers that know this benchmark."""
RCP_RULESETS = RULESETS[1:]
"""Rulesets with reference convergence points."""
SCALED_RULESETS = RULESETS[4:]
"""Rulesets of the rounds whose published scores are scaled by reference convergence, from v2.1 on."""

NOT_A_RESULT = "demo data set, not an MLPerf result"
"""The label of a run on any data but the whole ImageNet, or of another task."""
CUT = "epochs cut by BENCHMARK_STEPS: not an MLPerf result"
RESUMED = "resumed: not an MLPerf result"
"""The label of a run that was resumed from a checkpoint. The rules require one run from first step to
last."""
FINE_TUNED = "began with trained weights: not an MLPerf result"
SPARSE = "2:4 sparsity: not an MLPerf result"
QUANTIZED = "quantisation-aware training: not an MLPerf result"
OTHER_TARGET = "another target: not an MLPerf result"
OPEN = "open recipe: no round takes ResNet-50 since v4.0"
"""The label of a run of the open division, whose recipe need not keep the rules."""
LABELS = (NOT_A_RESULT, CUT, RESUMED, FINE_TUNED, SPARSE, QUANTIZED, OTHER_TARGET, OPEN)
"""All labels. The log has those of a run in parentheses after the platform."""
PARALLELISM = tuple(f"{kind}_parallelism" for kind in ("tensor", "pipeline", "context", "expert"))
PARALLELISM += ("micro_batch_size",)
"""Log keys that rounds from v6.1 on require: ranks of each kind of parallelism, 1 for a kind that is not
used, and the batch size of a rank."""
LOWEST_PRECISIONS = tuple(f"lowest_numerical_precision_in_{part}" for part in ("linear", "attn", "comm"))
"""Log keys that rounds from v6.1 on require: lowest precisions of matrix products, attention and
communication."""
PRECISIONS: tuple[str, ...] = ("fp64", "fp32", "tf32", "fp16", "bfloat16", "fp8", "mxfp6", "nvfp4", "mxfp4")
PRECISIONS += ("Graphcore FLOAT 16.16", "int8", "uint8", "int4", "uint4")
"""Values that ``LOWEST_PRECISIONS`` may have (ruleset 6.1.0)."""
POWER_INTERVAL_S = 1.0
"""Longest time between two readings of a power log (MLPerf Training power rules)."""
POWER_READINGS = 60
"""Fewest readings of a power log (MLPerf Training power rules)."""
PLACEHOLDER = "PLACEHOLDER"
"""Part of the names that vendors' scripts log for an unset one, like SUBMISSION_ORG_PLACEHOLDER."""
UNVERIFIED = "unverified"
"""Word that stands beside every score that MLCommons has not reviewed (MLPerf Results Messaging
Guidelines)."""
NOT_VERIFIED = "Result not verified by MLCommons Association."
"""Sentence that stands beside every such score (MLPerf Results Messaging Guidelines)."""


TASK = {
    "train_samples": TRAIN_SAMPLES,
    "eval_samples": EVAL_SAMPLES,
    "classes": CLASSES,
    "image_size": IMAGE_SIZE,
    "eval_resize": EVAL_RESIZE,
    "crop_area_min": CROP_AREA[0],
    "width": 1.0,
}
"""The task of the benchmark: field of ``Data`` in ``rn50/settings/fields.py`` -> its value."""


def without_labels(platform: str) -> str:
    """Return ``submission_platform`` of a log without the labels that the run added to it."""
    return functools.reduce(lambda text, label: text.replace(f" ({label})", ""), LABELS, platform)


def labels(data: Mapping[str, Any], run: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the labels of a run. ``data`` and ``run`` are sections of its configuration, by field name,
    where a missing field has its default. ``RESUMED`` is not among them: a run adds it when it goes on from a
    checkpoint."""
    is_other_task = any(data.get(name, value) != value for name, value in TASK.items())
    conditions = (
        (NOT_A_RESULT, is_other_task or run.get("benchmark_steps") is not None),
        (CUT, run.get("benchmark_steps") is not None),
        (FINE_TUNED, run.get("initial_weights") is not None),
        (SPARSE, run.get("sparsity", "none") != "none"),
        (QUANTIZED, run.get("quantization", "none") != "none"),
        (OTHER_TARGET, run.get("target", str(TARGET_ACCURACY)) != str(TARGET_ACCURACY)),
        (OPEN, run.get("division", "closed") == "open"),
    )
    return tuple(label for label, applies in conditions if applies)
