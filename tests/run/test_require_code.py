"""A GPU for which the framework has no code, or none in PRECISION, is refused before anything starts. One
whose memory is used up is named with BATCHSIZE."""

import re

import pytest

from rn50 import frameworks
from rn50.errors import UserError
from rn50.run import gpu
from tests.conftest import with_changes


@pytest.mark.parametrize("capability", [(5, 2), (9, 0), (10, 0)])
def test_a_gpu_without_code_is_refused(tiny_config, capability):
    config = with_changes(tiny_config, run={"framework": "paddle", "device": "gpu"})
    has = (
        "Paddle has code for compute capability 6.1 7.0 7.5 8.0 8.6, this GPU has "
        f"{capability[0]}.{capability[1]}")
    with pytest.raises(UserError, match=f"DEVICE=gpu: {has}; take another FRAMEWORK"):
        gpu.require_code(config, capability)


@pytest.mark.parametrize(
    "framework, capability", [("paddle", (7, 0)), ("paddle", (8, 9)), ("pytorch", (9, 0))])
def test_a_gpu_with_code_is_taken(tiny_config, framework, capability):
    gpu.require_code(with_changes(tiny_config, run={"framework": framework, "device": "gpu"}), capability)


@pytest.mark.parametrize(
    "asked, name, capability",
    [("bfloat16", "bfloat16", (7, 0)), ("float16", "float16", (6, 1)), ("auto", "float16", (6, 1))])
def test_a_precision_that_a_gpu_lacks_is_refused(tiny_config, asked, name, capability):
    paddle = {"framework": "paddle", "device": "gpu"}
    least = {"bfloat16": "8.0", "float16": "7.0"}[name]
    has = (
        f"PRECISION={asked}: in {name} Paddle needs compute capability {least}, this GPU has "
        f"{capability[0]}.{capability[1]}")
    with pytest.raises(UserError, match=re.escape(has)):
        gpu.require_code(with_changes(tiny_config, run={**paddle, "precision": asked}), capability)
    gpu.require_code(with_changes(tiny_config, run={**paddle, "precision": "float32"}), capability)


@pytest.mark.parametrize(
    "capability, taken", [((7, 0), False), ((7, 5), True), ((8, 9), True), ((13, 0), True)])
def test_code_of_the_newest_kind_is_compiled_for_newer_gpus(tiny_config, capability, taken):
    config = with_changes(tiny_config, run={"framework": "pytorch", "device": "gpu"})
    if taken:
        gpu.require_code(config, capability)
        return
    with pytest.raises(
        UserError, match="PyTorch has code for compute capability 7.5 .* 12.0 and newer, this GPU has 7.0"
    ):
        gpu.require_code(config, capability)


def test_an_installed_build_may_have_code_for_others(tiny_config):
    config = with_changes(tiny_config, run={"framework": "pytorch", "device": "gpu"})
    build = frameworks.traits("pytorch")._replace(capabilities=((7, 0),), ptx=None)
    gpu.require_code(config, (7, 0), build)
    with pytest.raises(UserError, match="has code for compute capability 7.0, this GPU has 8.0"):
        gpu.require_code(config, (8, 0), build)


SAID = {
    "PyTorch": "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB",
    "MXNet": "Check failed: e == cudaSuccess (2 vs. 0) : cudaMalloc retry failed: out of memory",
    "Paddle": "ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 2.0GB memory",
    "cuDNN": "cuDNN error: CUDNN_STATUS_ALLOC_FAILED"}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_a_full_memory_names_the_batch_size(tiny_config, said):
    config = with_changes(
        tiny_config, run={"device": "gpu", "ranks_per_node": 8}, hyperparameters={"batch_size": 408})
    with pytest.raises(UserError) as named, gpu.full_memory_named(config):
        raise RuntimeError(f"{said}\nand a stack")
    line = str(named.value)
    assert line.startswith(f"BATCHSIZE=408: a GPU's memory is used up ({said}); lower it, to 304 say")
    assert "rn50 borrow --suggest --gbs 2432" in line


@pytest.mark.parametrize("device, said", [("gpu", "illegal memory access"), ("cpu", "out of memory")])
def test_another_fault_is_left_as_it_is(tiny_config, device, said):
    config = with_changes(tiny_config, run={"device": device})
    with pytest.raises(RuntimeError, match=f"^{said}$"), gpu.full_memory_named(config):
        raise RuntimeError(said)
