"""A rank whose accuracies are chosen, because a real network does not stop at exactly 75.9 % on
demand."""

import contextlib
import json
import types

import numpy as np

from rn50.benchmark import network
from rn50.run import timed_run
from rn50.run.loop import EpochResult
from rn50.run.precision import Precision
from tests.conftest import with_changes

TENSORS = ["conv0_weight", "fc1_bias"]


class Toy:
    """Counts as many samples correct as it is told, evaluation after evaluation."""

    epoch, steps, waits_for_data, forward_seconds = 0, 0, False, 0.1
    precision = Precision("float32")

    def __init__(self, config, correct, calls, total=1000, fault=None, loss=0.5):
        self.communicator = types.SimpleNamespace(
            rank=0, local_rank=0, size=1, barrier=lambda: None, all_reduce=lambda array: array)
        self._correct, self._total, self._fault, self._loss, self.calls = (
            iter(correct), total, fault, loss, calls)

    def _called(self, what):
        self.calls.append(what)
        if what == self._fault:
            raise RuntimeError("broken " + what)

    def warm_up(self, seed):
        self._called("warm_up")
        return TENSORS

    def weights(self):
        self._called("weights")
        return {name: np.ones(shape, np.float32) for name, shape in network.shapes(10, 0.125).items()}

    def open_data(self):
        self._called("open_data")

    def train_epoch(self, progress):
        self.epoch += 1
        self._called(f"train {self.epoch}")
        progress(1, self._loss)
        return EpochResult(samples=203, seconds=0.1, data_wait_seconds=0.0)

    def evaluate(self):
        self._called("evaluate")
        return next(self._correct), self._total

    def averaged(self):
        return contextlib.nullcontext()

    def close(self):
        self.calls.append("close")


def run(tiny_config, tmp_path, correct, num_epochs=15, save_weights="0", settings=None, **toy):
    config = with_changes(
        tiny_config,
        hyperparameters={"num_epochs": num_epochs, "eval_offset": 2, "eval_period": 4},
        data={"eval_samples": 1000, "folder": str(tmp_path / "no data")},  # the toy reads none
        run={"result_file": str(tmp_path / "result_0.txt"), "save_weights": save_weights, **(settings or {})},
    )
    calls = []
    try:
        outcome = timed_run.run(
            config, lambda config: Toy(config, correct, calls, **toy), timed_run.Display())
    except Exception as error:
        outcome = error
    logs = list(tmp_path.glob("result_0.txt*"))
    events = (
        [json.loads(line.split(":::MLLOG ")[1]) for line in logs[0].read_text().splitlines()] if logs else [])
    return outcome, calls, events, [path.name for path in logs]
