"""SAVE_WEIGHTS=1: what the run has trained lies beside its log, and the log is the same as without it.

Processes: SIGTERM comes while a file is written.
"""

import hashlib
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from rn50.data import layout
from rn50.errors import UserError
from rn50.files import ROOT
from rn50.launch import job
from rn50.results import parse
from rn50.run import saved_weights
from rn50.settings import named
from rn50.weights import weights_file
from tests.conftest import with_changes
from tests.contract import toy

pytestmark = pytest.mark.xdist_group("timed_run")
TERMINATED_WHILE_WRITING = """
import os, signal, time
def killed(*_):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
os.link = killed
from rn50.run import timed_run
from rn50.settings import config
from tests.contract.toy import Toy
timed_run.run(config.from_environment(), lambda config: Toy(config, [57], [], total=57), timed_run.Display())
"""


def test_the_weights_lie_beside_the_log_and_say_of_which_run(tiny_config, tmp_path):
    (tmp_path / "no data").mkdir()
    names = b"".join(b"class \xff%d\n" % label for label in range(10))
    (tmp_path / "no data" / layout.CLASSES).write_bytes(names)
    outcome, calls, events, _ = toy.run(tiny_config, tmp_path, [500, 800], save_weights="1")
    assert outcome.reached_target and calls[-3:] == ["evaluate", "weights", "close"]
    assert events[-1]["key"] == "run_stop" and events[-1]["metadata"]["status"] == "success"
    saved = weights_file.read(tmp_path / "result_0.safetensors")
    assert (saved.classes, saved.width, saved.image_size, saved.eval_resize) == (10, 0.125, 32, 36)
    own = {
        name: saved.facts[name]
        for name in ("framework", "precision", "seed", "epoch", "accuracy", "certificate", "system")}
    assert own == {
        "framework": tiny_config.run.framework, "precision": "float32", "seed": "7", "epoch": "7",
        "accuracy": "0.8", "certificate": "none", "system": tiny_config.run.system}
    assert weights_file.class_names(saved.facts, 10) == [f"class \\udcff{label}" for label in range(10)]
    assert len(saved.facts["configuration"]) == 64
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "no data", "result_0.json", "result_0.safetensors", "result_0.txt"]


def test_a_network_with_blur_pool_is_evaluated_and_not_exported(tiny_config, tmp_path):
    config = with_changes(tiny_config, hyperparameters={"blur_pool": True})
    toy.run(config, tmp_path, [500, 800], save_weights="1")
    file = tmp_path / "result_0.safetensors"
    with pytest.raises(UserError, match="its network has BlurPool, and an export has not; rn50 evaluate"):
        weights_file.read(file)
    variables = weights_file.read(file, blur_pool=True).variables(config.data)
    assert variables["BLURPOOL"] == "1" and variables["SUBMISSION_DIVISION"] == "open"


def test_without_it_nothing_happens_after_the_clock_has_stopped(tiny_config, tmp_path):
    _, calls, _, _ = toy.run(tiny_config, tmp_path, [800])
    assert "weights" not in calls
    assert sorted(path.name for path in tmp_path.iterdir()) == ["result_0.json", "result_0.txt"]


def test_the_certificate_is_that_of_the_data(tiny_config, tmp_path):
    config = with_changes(
        tiny_config, run={"result_file": str(tmp_path / "result_3.txt"), "save_weights": "1"})
    rank = toy.Toy(config, [], [])
    saved_weights.save(config, rank, 1, saved_weights.WeightsToSave(config, rank))
    with open(f"{tiny_config.data.folder}/certificate.json", "rb") as certificate:
        sha256 = hashlib.sha256(certificate.read()).hexdigest()
    assert weights_file.read(tmp_path / "result_3.safetensors").facts["certificate"] == sha256


def test_an_existing_file_is_refused_before_anything_starts(tiny_config, tmp_path):
    file = tmp_path / "result_0.safetensors"
    file.write_text("precious")
    outcome, calls, events, _ = toy.run(tiny_config, tmp_path, [800], save_weights="1")
    assert str(outcome) == f"{file}: exists; set another RESULT_FILE, or move it away"
    assert (calls, events) == (["close"], [])
    config = with_changes(
        tiny_config, run={"result_file": str(tmp_path / "result_0.txt"), "save_weights": "1"})
    with pytest.raises(UserError, match="result_0.safetensors: exists; set another RESULT_FILE"):
        job.launch(config)
    assert file.read_text() == "precious"
    with pytest.raises(UserError, match="SAVE_WEIGHTS=1: .*which has no file; set RESULT_FILE"):
        job.launch(with_changes(config, run={"result_file": None}))


def test_a_failure_to_write_leaves_the_result_as_it_is(tiny_config, tmp_path):
    class Late(toy.Toy):
        def weights(self):
            (tmp_path / "result_0.safetensors").write_text("precious")
            return super().weights()

    config = with_changes(
        tiny_config, run={"result_file": str(tmp_path / "result_0.txt"), "save_weights": "1"},
        data={"eval_samples": 1000, "folder": str(tmp_path / "no data")})
    with pytest.raises(UserError, match="result_0.safetensors: exists; "):
        toy.timed_run.run(config, lambda config: Late(config, [800], []), toy.timed_run.Display())
    assert parse.read_log(tmp_path / "result_0.txt").status == "success"
    assert (tmp_path / "result_0.safetensors").read_text() == "precious"


def test_sigterm_while_they_are_written_leaves_no_half_file(tiny_environment, tmp_path):
    log = tmp_path / "result_0.txt"
    environment = {**os.environ, **tiny_environment, "RESULT_FILE": str(log), "SAVE_WEIGHTS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", TERMINATED_WHILE_WRITING], env=environment, cwd=str(ROOT), timeout=120)
    assert done.returncode == 128 + signal.SIGTERM
    assert sorted(path.name for path in tmp_path.iterdir()) == ["result_0.json", "result_0.txt"]
    assert parse.read_log(log).status == "success"


def test_runs_of_one_configuration_have_one_hash_and_others_another(tiny_config):
    of_another_run = with_changes(
        tiny_config, run={"seed": 8, "result_file": "result_9.txt", "save_weights": "1"})
    assert of_another_run.sha256 == tiny_config.sha256
    assert with_changes(tiny_config, data={"width": 0.25}).sha256 != tiny_config.sha256


@pytest.mark.parametrize("name", ["mxnet", "paddle", "pytorch"])
def test_what_a_framework_trained_is_read_again(tiny_config, tmp_path, name):
    from rn50.run import loop
    from tests.contract.frameworks import installed

    installed(name)
    config = with_changes(
        tiny_config, hyperparameters={"num_epochs": 1},
        run={"framework": name, "result_file": str(tmp_path / "result_0.txt"), "save_weights": "1"})
    made = []

    def create(config):
        made.append(loop.Rank(config))
        return made[0]

    outcome = toy.timed_run.run(config, create, toy.timed_run.Display())
    saved = weights_file.read(tmp_path / "result_0.safetensors")
    assert float(saved.facts["accuracy"]) == outcome.accuracy and saved.facts["framework"] == name
    for each, array in made[0].weights().items():
        np.testing.assert_array_equal(saved.arrays[each], array)


def test_only_the_first_run_of_a_campaign_saves_its_weights(tiny_config, tmp_path):
    """As the demo asks; a run without a file has none to save, and is not refused."""
    toy.run(tiny_config, tmp_path, [800], save_weights="first")
    assert (tmp_path / "result_0.safetensors").exists()
    for log in (str(tmp_path / "result_1.txt"), None):
        config = with_changes(tiny_config, run={"result_file": log, "save_weights": "first"})
        assert not saved_weights.are_asked_for(config)
        saved_weights.refuse_impossible(config)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "configs").glob("config_DEMO_*.sh")), ids=lambda path: path.stem)
def test_the_demo_saves_the_weights_of_its_first_run(path):
    assert named.read(str(path)).run.save_weights == "first"
    assert named.read(str(path), environ={"SAVE_WEIGHTS": "best"}).run.save_weights == "best"
