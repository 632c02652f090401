"""What the doctor says of GPUs whose memory other computations hold, or a batch does not fit."""

import dataclasses

import pytest

from rn50.doctor import doctor
from rn50.doctor.diagnosis import WARNING
from tests.doctor.examined import GPU_BUILD, config_of
from tests.support.machines import simulated


def test_gpus_that_others_use(data):
    facts = simulated("8xA100")
    held = {1: 30_000.0, 2: 2000.0, 7: 40_000.0}
    busy = dataclasses.replace(
        facts, gpus=tuple(dataclasses.replace(each, used_mib=held.get(each.index)) for each in facts.gpus))
    for system, found in (
        ("DGXA100", "GPU 1: 30000 MiB are in use; GPU 7: 40000 MiB are in use: a run may lack it"),
        ("2xA30", "GPU 1: 30000 MiB are in use: a run may lack it"), ("1xA100", None),
    ):
        config = config_of(system, DATADIR=str(data))
        findings = {each.subject: each for each in doctor.examine(busy, GPU_BUILD, config)}
        said = findings.get("GPU memory")
        assert said is None if found is None else said.found.startswith(found)
        assert said is None or said.severity == WARNING and "nvidia-smi names the processes" in said.remedy


@pytest.mark.parametrize(
    "system, values, says", [
        ("1xA100", {}, None), ("DGXH100_OPEN", {}, None),
        ("1xA100", {"BATCHSIZE": 1000}, "1000 images of 224x224 take about 62 GiB of a GPU, and 40 GiB are"),
        ("H200_OPEN", {}, "1024 images of 176x176 take about 49 GiB of a GPU, and 40 GiB are free"),
        ("H200_OPEN", {"BLURPOOL": False}, None), ("H200_OPEN", {"IMAGE_SIZES": "96:1,144:9"}, None),
    ])
def test_a_batch_that_does_not_fit(system, values, says, data):
    config = config_of(system, DATADIR=str(data)).replaced(**values)
    found = {each.subject: each for each in doctor.examine(simulated("8xA100"), GPU_BUILD, config)}
    said = found.get("BATCHSIZE")
    assert said is None if says is None else said.found.startswith(says), said
    assert said is None or "set BATCHSIZE=" in said.remedy and said.severity == WARNING
