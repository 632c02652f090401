"""The toy's training steps to be measured, with one operator in its profile."""

import json

import numpy as np
from implementations.toy.train import ToyImplementation

from rn50.speed.measurable import Operator, TrainingSteps


class ToyMeasurable(ToyImplementation, TrainingSteps):
    """See ``rn50.speed.measurable.Measurable``."""

    def _array(self, tensor):
        return np.array(tensor)

    def profile(self, batches, steps, trace):
        result = self.train_steps(batches, 0, steps)
        trace.write_text(json.dumps({"traceEvents": []}))
        return result, [Operator("linear", steps, result.seconds - result.data_wait_seconds)]


create = ToyMeasurable
