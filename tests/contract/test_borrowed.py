"""A borrowed configuration runs: a step an epoch on the tiny set, and the log has exactly the borrowed
values.

The configuration is the same for every framework, so each kind of source is run by one of them.

Processes: the file goes through a shell into a run.
"""

import os
import subprocess
import sys

import pytest

from rn50.hyperparameters.borrow import borrow, origin
from rn50.results import parse, recipe
from rn50.settings.document import Document
from tests.contract.frameworks import installed

NAMES = (
    *("global_batch_size", "optimizer", "learning_rate", "warmup_epochs", "decay_epochs"),
    *("momentum", "weight_decay"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "framework, source, values",
    [("mxnet", "v1.0/Inspur/nf5688m6_mxnet", ("lars", 10.5, 2, 37, 0.9, 5e-05)),
     ("paddle", "v1.0/Graphcore/ipu-pod16-TF1", ("sgd", 3.824, 5, 39, 0.9, 2.5e-05)),
     ("pytorch", "rcp/1.0.0/2048", ("lars", 8.5, 5, 36.02, 0.9, 0.002))])
def test_it_trains_and_logs_what_was_borrowed(base, tmp_path, framework, source, values):
    installed(framework)
    borrowed = borrow.borrow(origin.find(source), Document(base), 16)
    file, result = tmp_path / "config_BORROWED.sh", tmp_path / "result_0.txt"
    file.write_text(borrowed.text)
    # As run_and_time.sh does it, with a fixed seed: such rates end in nan with some.
    command = f". {file}; exec {sys.executable} -m rn50 train"
    environment = {
        **os.environ, "SEED": "7", "RESULT_FILE": str(result), "FRAMEWORK": framework,
        "CONFIG_FILE": str(file)}
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, timeout=300)
    assert done.returncode == 3, done.stderr.decode()  # no step an epoch reaches the target
    log = parse.read_log(result)
    said = recipe.of_log(log)
    assert tuple(getattr(said, name) for name in NAMES) == (16, *values)
    h = borrowed.config.hyperparameters
    evaluated = list(range(h.eval_offset + 1, h.num_epochs + 1, h.eval_period))
    assert [evaluation.epoch for evaluation in log.evaluations] == evaluated
