"""Compare the epochs to target of a result's runs with the reference convergence points (RCP) of their batch
size: ``judge``. Points, statistics and verdict are those of ``mlperf_logging.rcp_checker``.

Source: MLPerf Training rules, section "Reference Convergence Points". If the runs need fewer epochs than the
reference on average, but not so few that they fail, their score is multiplied by the ratio of the two means.
"""

import functools
import io
import json
import logging
import pathlib
import tempfile
from dataclasses import dataclass
from typing import Any

from rn50.benchmark import rules
from rn50.packages import needed_for
from rn50.printed import Minutes


@dataclass(frozen=True)
class Convergence:
    """Verdict of the official checker on the convergence of a result."""

    ruleset: str
    """Version of the rules."""
    passed: bool
    """True if the runs do not converge faster than the reference allows."""
    message: str
    """Sentence of the official checker."""
    factor: float
    """Factor by which the score is scaled: above 1 if the runs converge faster than the reference, else 1."""
    scaled_minutes: Minutes | None = None
    """Score multiplied by the factor, which is the published score from round v2.1 on; null: the check
    failed, or scores of the round are not scaled."""


@functools.cache
def official() -> Any:
    """Return the module of the official checker, whose t-tests get a cache. A test takes a millisecond, each
    search of a bound makes twenty, and most searches are for the same points."""
    with needed_for("reference convergence"):
        from mlperf_logging.rcp_checker import rcp_checker  # loads scipy
    # The method ``_find_p_value`` makes a t-test. It uses numbers only and not its object ``self``, for which
    # it gets None here.
    test = functools.cache(functools.partial(rcp_checker.RCP_Checker._find_p_value, None))
    rcp_checker.RCP_Checker._find_p_value = lambda _, *numbers: test(*numbers)
    return rcp_checker


def reference(table: str | None = None) -> Any:
    """Return an object of the official checker's class for the newest ruleset. Its points are those of the
    JSON text ``table``; None: those of the ruleset."""
    file = io.StringIO(table) if table else None
    # False: the checker prints nothing.
    return official().RCP_Checker("training", rules.RULESETS[-1], rules.BENCHMARK, False, rcp_file=file)


@functools.cache
def judge(
    ruleset: str, global_batch_size: int, epochs: tuple[float | None, ...], table: str | None = None
) -> Convergence:
    """Return the verdict on runs of ``global_batch_size`` that needed ``epochs`` to the target; None stands
    for a run that did not converge. The points are those of the JSON text ``table``; None: those of the
    ruleset. The caller, which knows the minutes, adds ``scaled_minutes``."""
    root, silence = logging.getLogger(), logging.NullHandler()
    # The checker logs to the root logger. If that has no handler, ``logging`` adds one, which prints.
    root.addHandler(silence)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for number, run_epochs in enumerate(epochs):
                _write_log(pathlib.Path(folder) / f"result_{number}.txt", global_batch_size, run_epochs)
            options: dict[str, Any] = {"verbose": False, "bert_train_samples": False}
            # pruned_rcps: without points that are slower than the line between their neighbours.
            options |= {"rcp_file": io.StringIO(table) if table else None, "rcp_pass": "pruned_rcps"}
            passed, message, factor = official().check_directory(folder, "training", ruleset, **options)
    finally:
        root.removeHandler(silence)
    return Convergence(ruleset, bool(passed), message, float(factor))


def _write_log(file: pathlib.Path, global_batch_size: int, epochs: float | None) -> None:
    """Write a log of only the records that the checker reads. The checker selects lines by the words in them,
    so that other records could mislead it."""
    records: tuple[tuple[str, Any, dict[str, Any]], ...] = (
        ("submission_benchmark", rules.BENCHMARK, {}),
        ("global_batch_size", global_batch_size, {}),
        ("eval_accuracy", None, {"epoch_num": epochs or 0}),
        ("run_stop", None, {"status": "aborted" if epochs is None else "success"}),
    )
    with file.open("w", encoding="utf-8") as log:
        for key, value, metadata in records:
            print(":::MLLOG", json.dumps({"key": key, "value": value, "metadata": metadata}), file=log)
