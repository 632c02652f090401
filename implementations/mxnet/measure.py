"""MXNet's training steps to be measured: on any batches, under its profiler, and on Gluon's models."""

import json
import pathlib
from typing import Any

import mxnet as mx

from implementations.mxnet import zoo
from implementations.mxnet.train import MxnetImplementation
from rn50.data.pipeline.batches import Batches
from rn50.run.implementation import EpochResult
from rn50.settings.config import Config
from rn50.speed.measurable import Operator, TrainingSteps


def create(config: Config, model: str | None = None) -> "MxnetMeasurable":
    """Return the measurable implementation; ``model`` names one of Gluon's to time instead of ours."""
    return MxnetMeasurable(config, model)


class MxnetMeasurable(MxnetImplementation, TrainingSteps):
    """See ``rn50.speed.measurable.Measurable``."""

    def __init__(self, config: Config, model: str | None):
        super().__init__(config)
        self._model = model
        if model is not None:
            self.batch_format = self.batch_format._replace(
                layout="CHW"
            )  # Gluon's models are never channels-last

    def _untrained(self) -> Any:
        if self._model is None:
            return super()._untrained()
        return zoo.network(
            self._model, self.config.data.classes, self.config.data.image_size, self.precision.name
        )

    def profile(
        self, batches: Batches, steps: int, trace: pathlib.Path
    ) -> tuple[EpochResult, list[Operator]]:
        """Run steps under MXNet's profiler.

        Without MXNET_EXEC_BULK_EXEC_TRAIN=0, operators that the engine runs in one piece count as one.
        """
        mx.profiler.set_config(
            profile_symbolic=True, profile_imperative=True, aggregate_stats=True, filename=str(trace)
        )
        mx.profiler.set_state("run")
        result = self.train_steps(batches, 0, steps)
        mx.profiler.set_state("stop")
        table = json.loads(mx.profiler.dumps(reset=True, format="json"))["Time"]
        mx.profiler.dump()
        return result, [
            Operator(name, row["Count"], row["Total"] / 1e3) for name, row in table["operator"].items()
        ]
