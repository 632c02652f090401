"""A GPU for which the framework has no code, or none in PRECISION, is refused before anything starts."""

import re

import pytest

from rn50.errors import UserError
from rn50.run import training
from tests.conftest import with_changes


@pytest.mark.parametrize("capability", [(5, 2), (9, 0), (10, 0)])
def test_a_gpu_without_code_is_refused(tiny_config, capability):
    config = with_changes(tiny_config, run={"framework": "paddle", "device": "gpu"})
    has = (
        "Paddle has code for compute capability 6.1 7.0 7.5 8.0 8.6, this GPU has "
        f"{capability[0]}.{capability[1]}"
    )
    with pytest.raises(UserError, match=f"DEVICE=gpu: {has}; take another FRAMEWORK"):
        training.require_code(config, capability)


@pytest.mark.parametrize(
    "framework, capability", [("paddle", (7, 0)), ("paddle", (8, 9)), ("pytorch", (9, 0))]
)
def test_a_gpu_with_code_is_taken(tiny_config, framework, capability):
    training.require_code(
        with_changes(tiny_config, run={"framework": framework, "device": "gpu"}), capability
    )


@pytest.mark.parametrize(
    "asked, name, capability",
    [("bfloat16", "bfloat16", (7, 0)), ("float16", "float16", (6, 1)), ("auto", "float16", (6, 1))],
)
def test_a_precision_that_a_gpu_lacks_is_refused(tiny_config, asked, name, capability):
    paddle = {"framework": "paddle", "device": "gpu"}
    least = {"bfloat16": "8.0", "float16": "7.0"}[name]
    has = (
        f"PRECISION={asked}: in {name} Paddle needs compute capability {least}, this GPU has "
        f"{capability[0]}.{capability[1]}"
    )
    with pytest.raises(UserError, match=re.escape(has)):
        training.require_code(with_changes(tiny_config, run={**paddle, "precision": asked}), capability)
    training.require_code(with_changes(tiny_config, run={**paddle, "precision": "float32"}), capability)
