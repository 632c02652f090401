"""Advice of the doctor on GPUs that PyTorch's build, or its CUDA, does not suit."""

import dataclasses
import re

import pytest

from rn50.doctor import doctor
from rn50.doctor.diagnosis import FAILURE, WARNING
from rn50.settings import document, named
from tests.conftest import with_changes
from tests.doctor.examined import GPU_BUILD, config_of, examine
from tests.support.machines import simulated

CUDA_13 = {"torch": "2.13.0", "nvidia-cuda-runtime": "13.0.96", "nvidia-dali-cuda130": "2.4.0"}
CUDA_12 = {"torch": "2.6.0", "nvidia-cuda-runtime-cu12": "12.4.127", "nvidia-dali-cuda120": "1.52.0"}


@pytest.mark.parametrize(
    "gpu, capability, driver, packages, fails, remedy",
    [("Tesla V100-SXM2-32GB", (7, 0), "580.95.05", CUDA_13, ["compute capability"], "FRAMEWORK=mxnet"),
     ("GeForce GTX 1080 Ti", (6, 1), "580.95.05", CUDA_13, ["compute capability"], "FRAMEWORK=mxnet"),
     ("GeForce RTX 4090", (8, 9), "550.120", CUDA_13, ["driver"], "nvidia-driver"),
     ("GeForce RTX 4090", (8, 9), "550.120", {"torch": "2.11.0+cu130"}, ["driver"], "nvidia-driver"),
     ("GeForce RTX 4090", (8, 9), "580.95.05", CUDA_13, [], ""),
     ("A GPU to come", (13, 0), "700.1", CUDA_13, [], ""),
     ("Tesla V100-SXM2-32GB", (7, 0), "550.120", CUDA_12, [], ""),
     ("Tesla V100-SXM2-32GB", (7, 0), "470.1", {"torch": "2.6.0"}, [], "")])
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


@pytest.mark.parametrize(
    "machine, environ, says",
    [("H100", {}, "--set FRAMEWORK=pytorch --set STEP_MODE=fused and rm -rf .venv && "),
     ("no-GPU", {},
      "requirements/install.sh mxnet-cu112, or make image STAGE=mxnet-gpu; on a GPU newer than"),
     ("8xA100", {}, "requirements/install.sh mxnet-cu112, or make image STAGE=mxnet-gpu")])
def test_packages_that_no_gpu_here_can_run_are_not_advised(tmp_path, machine, environ, says):
    """As for a file in NVIDIA's form, which names no framework."""
    text = document.file_of("DGXA100").read_text()
    file = tmp_path / "config_THEIRS.sh"
    file.write_text(re.sub("^export FRAMEWORK=.*\n", "", text, flags=re.MULTILINE))
    found = examine(machine, str(file), dataclasses.replace(GPU_BUILD, packages={}), environ=environ)
    remedy = found["packages"].remedy
    assert remedy.startswith(says) and ("pytorch" in remedy) == (machine != "8xA100")
    if machine == "H100":
        assert "mxnet" not in remedy and "--set STEP_MODE=fused" in found["compute capability"].remedy


def test_a_batch_that_its_learning_rate_was_not_chosen_for_is_a_warning():
    [warned] = doctor.unchosen(named.read("1xL40S", ["DGXNGPU=4"]))
    assert warned.severity == WARNING and "408 in config_1xL40S.sh, 1632 here" in warned.found
    assert doctor.unchosen(named.read("1xL40S")) == []


@pytest.mark.parametrize(
    "values, last",
    [(["NUMEPOCHS=2"], 1), (["NUMEPOCHS=9"], None), (["EVAL_OFFSET=1"], 6), (["LR=1"], None),
     (["NUMEPOCHS=2", "TARGET=none"], None)])
def test_epochs_that_no_evaluation_follows_are_a_warning(values, last):
    found = [warned.found for warned in doctor.unchosen(named.read("DEMO_CPU", values))]
    assert len(found) == bool(last) and all(f"ends after epoch {last}, the last" in text for text in found)
