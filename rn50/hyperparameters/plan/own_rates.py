"""Images/s at which this code was measured on GPUs, from files of the checkout: ``find``.

Three kinds of files have them: the logs of runs with their sidecars, ``cells.json`` of `rn50 bench
throughput`, and ``steps.jsonl`` of `make bench-gpu`. Only the whole network counts, trained on a data set,
with images of the size of ImageNet's.
"""

import contextlib
import dataclasses
import math
import os
import pathlib
import re
from collections.abc import Container, Iterator
from typing import NamedTuple

from rn50 import files, frameworks
from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.hyperparameters.plan.images_per_second import Conditions, Measurement
from rn50.results import chips, sidecar, timing
from rn50.results.parse import read_log

FOLDERS = (files.ROOT / "docs" / "evidence", files.ROOT / "results")
"""Folders whose files are read: measurements that belong to this code, and the results of this checkout."""
_DAMAGED = (UserError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors that reading a damaged file, or one without a value, may raise."""
_WHOLE = re.compile(r"\bwidth 1(;|$)")
"""Part of the task in a ``cells.json`` whose network has full width."""


class OwnRate(NamedTuple):
    """A rate at which this code was measured, or an estimate in place of one."""

    conditions: Conditions
    images_per_second: float
    """Images/s of each accelerator while training."""
    path: pathlib.Path
    """File with the rate; of runs the log of the first."""
    estimate: str = ""
    """Origin of an estimate in words; empty: this is a measurement."""

    @property
    def words(self) -> str:
        """The rate with its conditions and its file, or the origin of the estimate."""
        at, path = self.conditions, os.path.relpath(self.path, files.ROOT)
        where = f"{at.accelerators} x {at.accelerator} with {at.batch_size:g} images each ({path})"
        return self.estimate or f"{self.images_per_second:,.0f} images/s on {where}"


def find(conditions: Conditions, may_estimate: bool = False) -> OwnRate | None:
    """Return the rate on the accelerator of ``conditions`` that is nearest to them; None: there is none.

    With ``may_estimate``, an accelerator without a rate has an estimate: the rate of another one times the
    ratio of their memory bandwidths, which decide the time of a step (docs/fastest.md). It needs
    STEP_MODE=fused and a data sheet.
    """
    name, sheets = conditions.accelerator, chips.data_sheets()
    oldest = [traits.fused[0] for traits in frameworks.every().values() if traits.fused]
    if (rate := _nearest(conditions, {name})) or not may_estimate or name not in sheets:
        return rate
    if sheets[name].capability < min(oldest) or not (rate := _nearest(conditions, sheets)):
        return None
    memory, others = (sheets[chip].gigabytes_per_second for chip in (name, rate.conditions.accelerator))
    at = dataclasses.replace(rate.conditions, accelerator=name)
    other = f"{rate.conditions.accelerator} with {others:,} made {rate.images_per_second:,.0f} images/s"
    words = f"the memory bandwidth: {memory:,} GB/s, where {other}"
    return OwnRate(at, rate.images_per_second * memory / others, rate.path, words)


def _nearest(conditions: Conditions, names: Container[str]) -> OwnRate | None:
    """Return the rate of one of the accelerators ``names`` whose number of accelerators and batch size are
    nearest by their ratios. Of several it is the highest."""

    def key(rate: OwnRate) -> tuple[float, float]:
        at = rate.conditions
        away = abs(math.log2(at.accelerators / conditions.accelerators))
        return away + abs(math.log2(at.batch_size / conditions.batch_size)), -rate.images_per_second

    return min((rate for rate in every() if rate.conditions.accelerator in names), key=key, default=None)


def every() -> Iterator[OwnRate]:
    """Yield all rates in ``FOLDERS``. Files that are damaged or lack a value are left out."""
    for folder in FOLDERS:
        for name, reader in _READERS.items():
            for file in folder.rglob(name):
                with contextlib.suppress(*_DAMAGED):
                    for at, value in reader(file):
                        if min(at.accelerators, at.batch_size, value) > 0:
                            yield OwnRate(at, value, file)


def _of_runs(log: pathlib.Path) -> Iterator[Measurement]:
    """Yield the rate of the runs in the folder of ``log``, the median over all their epochs but the first of
    each."""
    saved = sidecar.read(log)
    run, data, recipe = (sidecar.section(saved, name) for name in ("run", "data", "hyperparameters"))
    if run["device"] == "gpu" and (data["image_size"], data["width"]) == (rules.IMAGE_SIZE, 1):
        model, number = saved["system"]["accelerator_model_name"], run["nodes"] * run["ranks_per_node"]
        rate = timing.training_rate([read_log(file) for file in sorted(log.parent.glob("result_*.txt"))])
        yield Conditions(chips.name(model), number, recipe["batch_size"]), (rate or 0) / number


def _of_bench(file: pathlib.Path) -> Iterator[Measurement]:
    """Yield the rates of the cells that `rn50 bench throughput` measured on GPUs."""
    report = files.read_json(file)
    for cell in report["cells"] if _WHOLE.search(report["task"]) else ():
        number, rates = cell["ranks"] * cell["nodes"], cell["images_per_second"]
        if (cell["model"], cell["image_size"], "real" in rates) == ("ours", rules.IMAGE_SIZE, True):
            at = Conditions(chips.name(report["accelerator"]), number, cell["batch_size"])
            yield at, rates["real"]["median"] / number


def _of_steps(file: pathlib.Path) -> Iterator[Measurement]:
    """Yield the rates of the steps of `make bench-gpu`, on one GPU."""
    for row in map(files.parse_json, files.read_text(file).splitlines()):
        if row.get("data") == "real":
            at = Conditions(chips.name(row["accelerator"]), 1, row["batch"])
            yield at, row["images_per_second"]["median"]


_READERS = {"result_0.txt": _of_runs, "cells.json": _of_bench, "steps.jsonl": _of_steps}
"""Name of a file -> function that yields its rates."""
