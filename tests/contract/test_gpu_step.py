"""The whole network at its size on a GPU: tiny shapes stay below limits of cuDNN that it exceeds."""

import math

import numpy as np
import pytest

from rn50 import frameworks
from rn50.errors import UserError
from rn50.run import loop
from tests.conftest import ON_GPU, with_changes
from tests.contract.frameworks import installed

ON_GPUS = sorted(name for name, traits in frameworks.every().items() if "gpu" in traits.precisions)


@pytest.mark.parametrize(
    "name, device", [pytest.param(name, "gpu", marks=ON_GPU, id=name) for name in ON_GPUS])
def test_it_trains_and_evaluates(tiny_config, name, device):
    framework = installed(name)
    config = with_changes(
        tiny_config, run={"framework": name, "device": device, "precision": "auto"},
        hyperparameters={"batch_size": 96},
        data={"image_size": 224, "eval_resize": 256, "classes": 1000, "width": 1.0})
    try:
        rank = loop.Rank(config)
    except UserError as error:  # its build is that for CPUs, or has no code for this GPU
        pytest.skip(str(error))
    assert len(rank.warm_up(1)) == 161
    batch = rank.engine.synthetic(rank.config.data.image_size)
    losses = framework.array(rank.engine.step(batch, 0.1))
    assert losses.shape == (96,) and losses.mean() == pytest.approx(math.log(1000), rel=0.1)
    framework.infer(rank, batch)
    assert all(np.isfinite(array).all() for array in framework.weights(rank).values())
    rank.close()
