"""A GPU for which the framework's build has no code is refused before anything starts."""

import pytest

from rn50.errors import UserError
from rn50.run import training
from tests.conftest import with_changes


@pytest.mark.parametrize("capability", [(5, 2), (9, 0), (10, 0)])
def test_a_gpu_without_code_is_refused(tiny_config, capability):
    config = with_changes(tiny_config, run={"framework": "paddle", "device": "gpu"})
    has = f"Paddle has code for compute capability 6.1 7.0 7.5 8.0 8.6, this GPU has {capability[0]}.{capability[1]}"
    with pytest.raises(UserError, match=f"DEVICE=gpu: {has}; take another FRAMEWORK"):
        training.require_code(config, capability)


@pytest.mark.parametrize("framework, capability", [("paddle", (7, 0)), ("paddle", (8, 9)), ("pytorch", (9, 0))])
def test_a_gpu_with_code_is_taken(tiny_config, framework, capability):
    training.require_code(with_changes(tiny_config, run={"framework": framework, "device": "gpu"}), capability)
