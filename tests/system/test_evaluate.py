"""``rn50 evaluate``: saved weights of one framework give the accuracy of their run in every framework and on
two ranks."""

import importlib.util
import json
import os
import shutil
import subprocess

import pytest

from rn50.benchmark import rules
from rn50.results import run
from rn50.weights import weights_file
from tests.conftest import ON_GPU
from tests.contract.frameworks import FRAMEWORKS, installed
from tests.deploy.networks import random_weights
from tests.support import documented
from tests.system.job import RN50, ROOT


@pytest.fixture(scope="module")
def rn50():
    """Runs a verb; returns (status, standard output, standard error)."""

    def call(*arguments, **environment):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "FRAMEWORK": "mxnet", **environment}
        done = subprocess.run(
            [*RN50, *map(str, arguments)], env=environment, cwd=str(ROOT), capture_output=True, text=True,
            timeout=300)
        return done.returncode, done.stdout, done.stderr

    return call


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The folder of the weights that all tests of this file share."""
    return tmp_path_factory.mktemp("trained")


@pytest.fixture
def trained(rn50, tiny_environment, kept):
    """The weights of a run of two epochs, which the first test trains."""
    installed("mxnet")
    log = kept / "result_0.txt"
    if not log.exists():
        status, _, said = rn50("launch", **{**tiny_environment, "SAVE_WEIGHTS": "1", "RESULT_FILE": str(log)})
        assert status == 3, said
    return weights_file.path(log)


def test_weights_are_saved_evaluated_and_exported(rn50, trained, tiny_environment, tmp_path):
    status, printed, said = rn50("evaluate", trained, "--json", **tiny_environment)
    assert status == 0, said
    assert json.loads(printed)["top1"] == float(weights_file.read(trained).facts["accuracy"])
    if not importlib.util.find_spec("onnx"):
        pytest.skip("onnx is not installed")
    model = tmp_path / "model.onnx"
    status, _, said = rn50("export", trained, "-o", model, **tiny_environment)
    assert status == 0 and model.stat().st_size > trained.stat().st_size // 2, said


def test_every_framework_and_two_ranks_count_the_same(rn50, trained, tiny_environment, tmp_path):
    accuracy = float(weights_file.read(trained).facts["accuracy"])
    data = tmp_path / "validation"  # it needs no training set
    data.mkdir()
    for name in ("val.rec", "val.idx"):
        shutil.copy(os.path.join(tiny_environment["DATADIR"], name), str(data))
    environment = {
        **tiny_environment, "DATADIR": str(data), "WIDTH": "1", "IMAGE_SIZE": "48", "EVAL_RESIZE": "64",
        "PRECISION": "auto"}
    found = []
    for name in (each for each in FRAMEWORKS if importlib.util.find_spec(FRAMEWORKS[each].package)):
        status, printed, said = rn50("evaluate", trained, "--json", **{**environment, "FRAMEWORK": name})
        assert status == 0, said
        found.append(json.loads(printed))
        assert documented.differences("evaluate", found[-1]) == []
        assert found[-1]["precision"] == "float32"
        assert found[-1]["framework"] == name and found[-1]["facts"]["framework"] == "mxnet"
    page = tmp_path / "page.html"
    status, printed, said = rn50("evaluate", trained, "--report", page, **{**environment, "DGXNGPU": "2"})
    assert status == 0, said
    counted = {(each["images"], each["correct"], each["top5_correct"]) for each in found}
    assert counted == {(57, found[0]["correct"], found[0]["top5_correct"])}
    assert found[0]["top1"] == accuracy
    assert (
        f"top-1  {accuracy:8.2%}   {found[0]['correct']} of 57, ± " in printed
        and f"report: {page}" in printed)
    assert "density" not in printed and page.exists()


@pytest.mark.parametrize("device", [pytest.param("gpu", marks=ON_GPU)])
def test_a_gpu_counts_what_the_cpu_counts(rn50, tiny_environment, tmp_path, device):
    """Read by the DataLoader, for the same images: DALI decodes JPEGs on a GPU by another rounding."""
    installed("pytorch")
    file = tmp_path / "weights.safetensors"
    weights_file.write(file, random_weights())
    environment = {**tiny_environment, "FRAMEWORK": "pytorch", "INPUT_LIBRARY": "dataloader"}
    found = []
    for each in ("cpu", device):
        status, printed, said = rn50("evaluate", file, "--json", **{**environment, "DEVICE": each})
        assert status == 0, said
        told = json.loads(printed)
        found.append([told[name] for name in ("images", "correct", "top5_correct")])
    assert found[0] == found[1] and found[0][0] == 57


def test_a_run_that_begins_with_pruned_weights_ends_with_half_of_them(
    rn50, trained, tiny_environment, tmp_path
):
    log = tmp_path / "result_1.txt"
    environment = {**tiny_environment, "INITIAL_WEIGHTS": str(trained)}
    status, _, said = rn50(
        "launch", **{**environment, "SPARSITY": "2:4", "SAVE_WEIGHTS": "1", "RESULT_FILE": str(log)})
    assert status == 3, said
    status, printed, said = rn50("evaluate", weights_file.path(log), **tiny_environment)
    assert status == 0, said
    assert (
        "density 50.0%: 53 layers, " in printed
        and "2:4: in every group of four at least two are 0" in printed)
    assert run.read_run(log).label == f"{rules.NOT_A_RESULT}; {rules.FINE_TUNED}; {rules.SPARSE}"
    for changes, problem in (
        ({"WIDTH": "0.25"},
         f"INITIAL_WEIGHTS={trained}: it is of a network with WIDTH=0.125, the configuration has "
         "WIDTH=0.25"),
        ({"INITIAL_WEIGHTS": str(tmp_path / "none")}, f"{tmp_path / 'none'}: cannot be read"),
        ({"INITIAL_WEIGHTS": "", "SPARSITY": "2:4"},
         "trained weights are pruned, and there are none; set INITIAL_WEIGHTS"),
        ({"WIDTH": "0.15", "SPARSITY": "2:4"},
         "WIDTH=0.15: a layer of this width has input channels that do not divide by 4"),
    ):
        status, _, said = rn50("launch", **{**environment, **changes})
        assert status == 2 and problem in said and len(said.splitlines()) == 1, said


def test_a_run_that_rounds_as_in_int8_is_labelled(rn50, trained, tiny_environment, tmp_path):
    log = tmp_path / "result_1.txt"
    environment = {**tiny_environment, "INITIAL_WEIGHTS": str(trained), "QUANTIZATION": "int8"}
    status, _, said = rn50("launch", **{**environment, "SAVE_WEIGHTS": "1", "RESULT_FILE": str(log)})
    assert status == 3, said
    assert run.read_run(log).label == f"{rules.NOT_A_RESULT}; {rules.FINE_TUNED}; {rules.QUANTIZED}"
    assert weights_file.read(weights_file.path(log)).classes == 10
    for changes, problem in (
        ({"INITIAL_WEIGHTS": ""},
         "trained weights are trained on in int8's steps, and there are none; set INITIAL_WEIGHTS"),
        ({"PRECISION": "bfloat16"}, "weights and inputs are rounded in float32; set PRECISION=float32"),
        ({"FRAMEWORK": "pytorch", "STEP_MODE": "compile"},
         "are rounded operation by operation; set STEP_MODE=eager"),
        ({"QUANTIZATION": "int4"}, "QUANTIZATION=int4 is not one of none, int8"),
    ):
        status, _, said = rn50("launch", **{**environment, **changes})
        assert status == 2 and problem in said and len(said.splitlines()) == 1, said


def test_what_does_not_fit_is_one_line(rn50, trained, tiny_environment, tmp_path):
    def line(*arguments, **environment):
        status, printed, said = rn50("evaluate", *arguments, **{**tiny_environment, **environment})
        assert (status, printed) == (2, "") and len(said.splitlines()) == 1, said
        return said

    assert f"{trained}: it tells 10 classes apart, and the data set has NUMCLASSES=20" in line(
        trained, NUMCLASSES="20")
    assert f"{tmp_path / 'none'}: cannot be read" in line(tmp_path / "none")
    foreign = tmp_path / "foreign.safetensors"
    foreign.write_bytes(trained.read_bytes()[:1000])
    assert f"{foreign}: no safetensors file" in line(foreign)
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert f"{page}: exists, and rn50 did not write it; give another file with --report" in line(
        trained, "--report", page)
    assert f"{tmp_path}/val.rec: No such file or directory; set DATADIR" in line(
        trained, DATADIR=str(tmp_path))
