"""Compare the runs' epochs to target with the reference convergence points (RCP) of their batch size.

Source: MLPerf Training rules, section "Reference Convergence Points". The points, the statistics and the
verdict are those of ``mlperf_logging.rcp_checker``. Runs that converge faster than the reference's mean, but
not so fast that they fail, have their score multiplied by mean / epochs.
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
    """Verdict of the RCP checker."""

    ruleset: str
    """Version of the rules."""
    passed: bool
    """True if the runs are not faster than the reference allows."""
    message: str
    """The official checker's sentence."""
    factor: float
    """Factor by which the score is scaled: 1 unless the runs converge faster than the reference, and never
    below 1."""
    scaled_minutes: Minutes | None = None
    """The score times the factor: the published score where it passes, from round v2.1 on."""


@functools.cache
def official() -> Any:
    """Return the module of the official checker. Its t-tests, a millisecond each, are cached: every search of
    a bound takes twenty, and most searches are for the same points."""
    with needed_for("reference convergence"):
        from mlperf_logging.rcp_checker import rcp_checker  # loads scipy
    test = functools.cache(functools.partial(rcp_checker.RCP_Checker._find_p_value, None))
    rcp_checker.RCP_Checker._find_p_value = lambda _, *numbers: test(*numbers)
    return rcp_checker


def reference(table: str | None = None) -> Any:
    """Return the official checker of the newest ruleset, with its points or those of another ``table``, as
    JSON."""
    file = io.StringIO(table) if table else None
    return official().RCP_Checker("training", rules.RULESETS[-1], rules.BENCHMARK, False, rcp_file=file)


@functools.cache
def judge(
    ruleset: str, global_batch_size: int, epochs: tuple[float | None, ...], table: str | None = None
) -> Convergence:
    """Return the verdict on runs of ``global_batch_size`` that needed ``epochs``, with None for a run that
    did not converge, by the ruleset's points or those of another ``table``, as JSON."""
    root, silence = logging.getLogger(), logging.NullHandler()
    root.addHandler(silence)  # the checker logs to the root logger, and configures it where it has no handler
    try:
        with tempfile.TemporaryDirectory() as folder:
            for number, run_epochs in enumerate(epochs):
                _write_log(pathlib.Path(folder) / f"result_{number}.txt", global_batch_size, run_epochs)
            passed, message, factor = official().check_directory(
                folder,
                "training",
                ruleset,
                verbose=False,
                bert_train_samples=False,
                rcp_file=io.StringIO(table) if table else None,
                rcp_pass="pruned_rcps",
            )
    finally:
        root.removeHandler(silence)
    return Convergence(ruleset, bool(passed), message, float(factor))


def _write_log(file: pathlib.Path, global_batch_size: int, epochs: float | None) -> None:
    """Write only the records that the checker reads. It selects lines by the words in them, so a whole log
    may mislead it."""
    records: tuple[tuple[str, Any, dict[str, Any]], ...] = (
        ("submission_benchmark", rules.BENCHMARK, {}),
        ("global_batch_size", global_batch_size, {}),
        ("eval_accuracy", None, {"epoch_num": epochs or 0}),
        ("run_stop", None, {"status": "aborted" if epochs is None else "success"}),
    )
    with file.open("w", encoding="utf-8") as log:
        for key, value, metadata in records:
            print(":::MLLOG", json.dumps({"key": key, "value": value, "metadata": metadata}), file=log)
