"""A configuration that `rn50 config new` writes for the CPU of this machine runs on the tiny set.

Processes: the file goes through a shell into a run.
"""

import os
import subprocess
import sys

import pytest

from rn50.results import parse
from tests.contract.frameworks import FRAMEWORKS, installed

RN50 = (sys.executable, "-m", "rn50")


@pytest.mark.slow
@pytest.mark.parametrize("framework", sorted(FRAMEWORKS))
def test_it_trains(base, tiny_environment, tmp_path, framework):
    installed(framework)
    file, result = tmp_path / "config_MINE.sh", tmp_path / "result_0.txt"
    clean = {name: value for name, value in os.environ.items() if name not in tiny_environment}
    environment = {
        **clean, "CUDA_VISIBLE_DEVICES": "", "SEED": "7", "RESULT_FILE": str(result),
        "CONFIG_FILE": str(file)}
    new = (*RN50, "config", "new", "MINE", "--from", str(base), "--framework", framework, "-o", str(file))
    written = subprocess.run(new, env=environment, capture_output=True, text=True, timeout=300)
    assert written.returncode == 0, written.stderr
    done = subprocess.run(
        ["bash", "-c", f". {file}; exec {sys.executable} -m rn50 launch"], env=environment,
        capture_output=True, timeout=300)
    assert done.returncode in (0, 3), done.stderr.decode()
    log = parse.read_log(result)
    assert (log.global_batch_size, log.train_samples, log.platform) == (
        16, 203, "MINE (demo data set, not an MLPerf result)")
    assert [evaluation.epoch for evaluation in log.evaluations][:1] == [1]
