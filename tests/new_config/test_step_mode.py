"""``rn50 config new``: how a step of PyTorch runs on a GPU."""

import dataclasses
import re

import pytest

from rn50.new_config import new_config
from tests.support import new_configs
from tests.support.new_configs import BARE

ELSEWHERE = "kernels of ours in one CUDA graph; measured on an H200 alone"


@pytest.mark.parametrize(
    "framework, capability, there, mode, reason",
    [("pytorch", (9, 0), {}, "fused", "kernels of ours in one CUDA graph"),
     ("pytorch", (8, 0), {}, "fused", ELSEWHERE),
     ("pytorch", (9, 0), {"missing_to_compile": ("g++",)}, "graph", "fused is faster, and lacks g++"),
     ("pytorch", (9, 0), {"packages": {"torch": "2.13.0"}}, "graph", "fused is faster, and lacks triton"),
     ("pytorch", (8, 9), {"packages": {"torch": "2.13.0", "triton": "3.7.1"}}, "fused", ELSEWHERE),
     ("pytorch", (7, 5), {}, "graph", "a step is launched as one CUDA graph"),
     ("mxnet", (8, 0), {}, "eager", None)])
def test_a_step_runs_in_the_fastest_way_that_there_is(framework, capability, there, mode, reason):
    software = dataclasses.replace(BARE, **there)
    new = new_config.make(
        "MINE", new_configs.machine("8xA100", 1, "GPU", capability, 81920), software, framework=framework)
    assert new.config.run.step_mode == mode
    written = re.findall(r"^export STEP_MODE=\w+ +# (.*)$", new.text, re.MULTILINE)
    assert written == ([reason] if reason else [])
