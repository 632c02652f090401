"""The header of a checkpoint, which a run trusts no more than its variables."""

import numpy as np
import pytest
from safetensors import numpy as format_

from rn50.errors import UserError
from rn50.run import checkpoint
from tests.conftest import with_changes


@pytest.fixture
def saved(tiny_config, tmp_path):
    """Return a function that reads a checkpoint after 3 of 11 epochs, with some of its facts and arrays
    changed."""
    config = with_changes(
        tiny_config, hyperparameters={"num_epochs": 12, "eval_offset": 2, "eval_period": 4},
        run={"result_file": str(tmp_path / "result_0.txt"), "resume": True, "precision": "auto"})

    def read(facts=None, arrays=None):
        facts = {"seed": "7", "epoch": "3", "precision": "float32", **(facts or {})}
        arrays = {"bn0_running_var": np.ones(8, np.float32), **(arrays or {})}
        content = format_.save(arrays, {"configuration": config.sha256, **facts})
        checkpoint.path(config).write_bytes(content)
        return checkpoint.read(config)

    return read


def test_what_a_run_saves_is_read(saved):
    found = saved()
    assert (found.epoch, found.seed, found.precision) == (3, 7, "float32")


@pytest.mark.parametrize(
    "facts, said",
    [({"epoch": "-1"}, "epoch -1, of a run that ends with 11"), ({"epoch": "0"}, "epoch 0, of"),
     ({"epoch": "11"}, "epoch 11, of a run that ends with 11"),
     ({"epoch": str(10**9)}, "epoch 1000000000, of"), ({"epoch": "nan"}, "invalid literal"),
     ({"seed": str(10**30)}, "which must be at least 0 and at most 2,147,483,647"),
     ({"seed": "-5"}, "seed -5, which must be"),
     ({"precision": "int4"}, "precision int4, in which this run does not train"),
     ({"precision": "float16"}, "precision float16, in")])
def test_a_header_that_no_run_writes_is_refused(saved, facts, said):
    with pytest.raises(
        UserError, match=rf"checkpoint.safetensors: no checkpoint \(.*{said}.*; start without"
    ):
        saved(facts)


@pytest.mark.parametrize(
    "arrays, said",
    [({"conv0_weight": np.full(8, np.nan, np.float32)}, "conv0_weight has values that are no finite"),
     ({"conv0_weight_momentum": np.full(8, np.inf, np.float32)}, "conv0_weight_momentum has values that"),
     ({"rank1/bn0_running_var": np.full(8, -1, np.float32)}, "rank1/bn0_running_var has negative values")])
def test_values_that_no_training_leaves_are_refused(saved, arrays, said):
    with pytest.raises(UserError, match=f"{said}.*; start without RESUME=1"):
        saved(arrays=arrays)
