"""Advice of the doctor on GPUs that PyTorch's build, or its CUDA, does not suit."""

import dataclasses

import pytest

from rn50.doctor import doctor
from rn50.doctor.diagnosis import FAILURE
from tests.conftest import with_changes
from tests.doctor.examined import GPU_BUILD, config_of
from tests.support.machines import simulated

CUDA_13 = {"torch": "2.13.0", "nvidia-cuda-runtime": "13.0.96", "nvidia-dali-cuda130": "2.4.0"}
CUDA_12 = {"torch": "2.6.0", "nvidia-cuda-runtime-cu12": "12.4.127", "nvidia-dali-cuda120": "1.52.0"}


@pytest.mark.parametrize(
    "gpu, capability, driver, packages, fails, remedy",
    [
        ("Tesla V100-SXM2-32GB", (7, 0), "580.95.05", CUDA_13, ["compute capability"], "FRAMEWORK=mxnet"),
        ("GeForce GTX 1080 Ti", (6, 1), "580.95.05", CUDA_13, ["compute capability"], "FRAMEWORK=mxnet"),
        ("GeForce RTX 4090", (8, 9), "550.120", CUDA_13, ["driver"], "nvidia-driver"),
        ("GeForce RTX 4090", (8, 9), "550.120", {"torch": "2.11.0+cu130"}, ["driver"], "nvidia-driver"),
        ("GeForce RTX 4090", (8, 9), "580.95.05", CUDA_13, [], ""),
        ("A GPU to come", (13, 0), "700.1", CUDA_13, [], ""),
        ("Tesla V100-SXM2-32GB", (7, 0), "550.120", CUDA_12, [], ""),
        ("Tesla V100-SXM2-32GB", (7, 0), "470.1", {"torch": "2.6.0"}, [], ""),
    ],
)
def test_advice_for_pytorch(gpu, capability, driver, packages, fails, remedy):
    """Its build for CUDA 13 has code from 7.5 on. Which GPUs another build is for, only a run can ask it."""
    machine = simulated("1xA100")
    there = dataclasses.replace(machine.gpus[0], name=gpu, capability=capability, driver=driver)
    software = dataclasses.replace(GPU_BUILD, packages=packages)
    config = with_changes(config_of("1xA100"), run={"framework": "pytorch"})
    found = doctor.examine(dataclasses.replace(machine, gpus=(there,)), software, config)
    of_gpu = [each for each in found if each.subject in ("compute capability", "driver")]
    assert [each.subject for each in of_gpu if each.severity == FAILURE] == fails
    assert remedy in "".join(each.remedy for each in of_gpu)
