"""Our configuration files load, hold nothing dead and keep the rules; the demos are labelled."""

import dataclasses
import pathlib
import re

import pytest

from rn50 import files
from rn50.benchmark import rules
from rn50.settings import header, named, show
from rn50.settings.document import Document
from tests.settings.imagenet import states

ROOT = pathlib.Path(__file__).resolve().parents[2]
OURS = sorted(file for file in (ROOT / "configs").glob("config_*.sh") if files.MARK not in file.read_text())
"""All but what `rn50 config new` has written there."""


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.stem)
def test_our_files_load_and_hold_nothing_without_effect_or_unknown(file):
    environ = Document(file).sourced()
    rows = states(environ, Document(file))
    assert [
        row for row in rows.values() if row.origin != "default" and row.state in ("no effect", "ignored")
    ] == []
    assert environ["DGXSYSTEM"] == file.stem[len("config_") :]


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.stem)
def test_our_files_are_one_screen_of_plain_lines(file):
    text = file.read_text()
    code = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all(re.match(r"export [A-Z][A-Za-z0-9_]*=\S", line) for line in code)
    assert len(text.splitlines()) <= 60
    assert f"DGXSYSTEM={file.stem[len('config_') :]} " in text
    sections = re.findall(r"^# --- ([a-z ]+?)(?: \(|:| -)", text, re.MULTILINE)
    assert sections == ["hyperparameters", "run", "data", "input pipeline", "environment"]


@pytest.mark.parametrize(
    "file", [file for file in OURS if "DEMO" not in file.name], ids=lambda file: file.stem)
def test_our_imagenet_files_keep_the_official_rules(file):
    config = named.read(str(file), environ={})
    assert config.is_imagenet
    if "OPEN" in file.name:
        assert config.labels == (rules.OPEN,) and set(config.departures) == {
            "BLURPOOL", "DECOUPLED_WD", "EMA_HALF_LIFE", "IMAGE_SIZES", "LABELSMOOTHING", "LOSS", "LR_DECAY",
            "MOM", "WD"}
    else:
        assert show.findings(config) == []


def test_the_open_recipe_scales_with_the_batch():
    one, eight = config_of("H200_OPEN"), config_of("DGXH100_OPEN")
    factor = eight.global_batch_size / one.global_batch_size
    assert factor == 2
    assert eight.hyperparameters == dataclasses.replace(
        one.hyperparameters, batch_size=256, learning_rate=one.hyperparameters.learning_rate * factor,
        ema_half_life=one.hyperparameters.ema_half_life / factor)
    sizes = [one.image_size_of(epoch) for epoch in range(1, 28)]
    assert sizes == [96] * 14 + [128] * 4 + [160] * 3 + [176] * 6
    assert one.evaluation_epochs == [*range(3, 28, 3)]


@pytest.mark.parametrize(
    "name", [
        "H200", "H200_OPEN", "DGXH100", "DGXH100_OPEN", "8xDGXH100", "1xL40S", "NF5688M6_PYTORCH",
        "DGXA100_PYTORCH"])
def test_pytorch_on_a_gpu_takes_its_fastest_step(name):
    assert config_of(name).run.step_mode == "fused"


@pytest.mark.parametrize(
    "file", [file for file in OURS if re.search("A100|H100|H200|A30|NF5", file.name)],
    ids=lambda file: file.stem)
def test_a_gpu_with_a_jpeg_engine_uses_it(file):
    assert config_of(file.stem[len("config_") :]).input_pipeline.hw_decoder_load == 0.7


def test_the_inspur_run():
    file = ROOT / "configs" / "config_NF5688M6.sh"
    config = named.read(str(file), environ={})
    assert (config.ranks, config.global_batch_size) == (8, 3264)
    inspur = {
        "optimizer": "lars", "batch_size": 408, "learning_rate": 10.5, "warmup_epochs": 2, "num_epochs": 37,
        "decay_epochs": None, "momentum": 0.9, "weight_decay": 5e-5, "lars_eta": 0.001,
        "label_smoothing": 0.1, "eval_offset": 2, "eval_period": 4, "bn_gamma_zero": False}
    assert inspur.items() <= dataclasses.asdict(config.hyperparameters).items()


def config_of(system):
    file = str(ROOT / "configs" / f"config_{system}.sh")
    return named.read(file, environ={})


@pytest.mark.parametrize("system", ["NF5688M6", "DGXA100"])
def test_a_twin_differs_in_the_framework_and_what_it_reads(system):
    mxnet, pytorch = config_of(system), config_of(f"{system}_PYTORCH")
    assert (pytorch.hyperparameters, pytorch.data) == (mxnet.hyperparameters, mxnet.data)
    run = {"system": f"{system}_PYTORCH", "framework": "pytorch", "step_mode": "fused"}
    assert pytorch.run == dataclasses.replace(mxnet.run, **run)


def test_eight_machines_have_the_recipe_of_one():
    one, eight = config_of("DGXH100"), config_of("8xDGXH100")
    assert (eight.ranks, eight.run.nodes, eight.global_batch_size) == (64, 8, one.global_batch_size)
    assert dataclasses.replace(eight.hyperparameters, batch_size=400) == one.hyperparameters
    assert eight.run.step_mode == "fused"


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.stem)
def test_what_is_expected_is_nothing_that_others_published(file):
    entries = header.read(Document(file))
    assert "publish" not in entries["expected"]
    assert "published" not in entries or "not measured with this code" in entries["expected"]


@pytest.mark.parametrize("given, mode", [({}, "fused"), ({"STEP_MODE": "graph"}, "graph")])
def test_the_demo_for_gpus_leaves_the_step_mode_to_the_environment(given, mode):
    file = ROOT / "configs" / "config_DEMO_GPU_PYTORCH.sh"
    assert Document(file).sourced(given)["STEP_MODE"] == mode


@pytest.mark.parametrize(
    "system, framework",
    [("DEMO_CPU", "mxnet"), ("DEMO_CPU_PADDLE", "paddle"), ("DEMO_CPU_PYTORCH", "pytorch"),
     ("DEMO_GPU_PYTORCH", "pytorch"), ("DEMO_CPU_OPEN", "mxnet"), ("DEMO_GPU_OPEN", "pytorch")])
def test_the_demo_is_labelled(system, framework):
    file = ROOT / "configs" / f"config_{system}.sh"
    config = named.read(str(file), environ={})
    assert config.run.framework == framework
    assert not config.is_imagenet
    label, *more = show.findings(config)
    assert label == rules.NOT_A_RESULT and bool(more) == ("OPEN" in system)
    assert rules.NOT_A_RESULT in config.run.organisation and rules.NOT_A_RESULT in config.run.platform


@pytest.mark.parametrize("other", ["DEMO_CPU_PADDLE", "DEMO_CPU_PYTORCH"])
def test_the_demos_differ_in_the_framework_alone(other):
    mxnets, others = (
        Document(ROOT / "configs" / f"config_{name}.sh").sourced() for name in ("DEMO_CPU", other))
    differ = {name for name in {**mxnets, **others} if mxnets.get(name) != others.get(name)}
    assert differ == {"FRAMEWORK", "DGXSYSTEM", "SUBMISSION_PLATFORM"}


def test_the_user_names_the_data_folder():
    for file in OURS:
        assert re.search(r'^export DATADIR="\$\{DATADIR:-[\w/]+\}"$', file.read_text(), re.MULTILINE), file
