"""The variables that every published file of this benchmark sets, and configurations of them."""

import pytest

from rn50.errors import UserError
from rn50.settings import config as configuration
from rn50.settings import show

IMAGENET = {
    "OPTIMIZER": "sgdwfastlars", "BATCHSIZE": "408", "LR": "10.5", "WARMUP_EPOCHS": "2", "NUMEPOCHS": "37",
    "MOM": "0.9", "WD": "5.0e-05", "LARSETA": "0.001", "LABELSMOOTHING": "0.1", "EVAL_OFFSET": "2",
    "EVAL_PERIOD": "4", "DGXNGPU": "8", "DGXNNODES": "1"}


def read(**changes):
    return configuration.from_environment({**IMAGENET, **changes})


def refusal(**changes):
    with pytest.raises(UserError) as refused:
        read(**changes)
    return str(refused.value)


def states(environ, document=None):
    return {row.name: row for row in show.describe(configuration.from_environment(environ, document))}
