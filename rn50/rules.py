"""What the benchmark fixes: every number here comes from the MLPerf Training rules for image classification.

Source: MLPerf Training policies, "training_rules.adoc", sections on benchmarks, hyperparameters and run results, as they stood
for rounds v1.0 to v4.0. Nothing in this file may be set from outside; what may be set lives in ``config.py``.
"""

BENCHMARK = "resnet"

TRAIN_SAMPLES = 1_281_167
EVAL_SAMPLES = 50_000
CLASSES = 1000
IMAGE_SIZE = 224
EVAL_RESIZE = 256
CROP_AREA = (0.05, 1.0)
CROP_ASPECT = (3 / 4, 4 / 3)
MIRROR_PROBABILITY = 0.5
MEAN = (123.675, 116.28, 103.53)
STD = (58.395, 57.12, 57.375)

TARGET_ACCURACY = 0.759
"""A run stops at its first evaluation with ``correct / total >= TARGET_ACCURACY``."""

EVAL_PERIOD_EPOCHS = 4

BATCH_NORM_MOMENTUM = 0.9
BATCH_NORM_EPSILON = 1e-5
PARAMETERS = 25_557_032
TRAINABLE_TENSORS = 161

OPTIMIZER = "lars"
LARS_EPSILON = 0.0
END_LEARNING_RATE = 1e-4
POLY_POWER = 2
MOMENTUM_BELOW_32K = 0.9
WEIGHT_DECAY_BASE = 1e-4
"""Weight decay is ``WEIGHT_DECAY_BASE * 2**n`` for a whole number n."""

RUNS = 5
"""Runs of one result; the fastest and the slowest are dropped and the other three averaged."""

RULESETS = ("1.0.0", "1.1.0", "2.0.0", "2.1.0", "3.0.0", "3.1.0", "4.0.0")
"""Versions of the official rules and checkers that know this benchmark."""

NOT_A_RESULT = "demo data set, not an MLPerf result"
"""The label of every log, score and report of a run on anything but the whole ImageNet."""
