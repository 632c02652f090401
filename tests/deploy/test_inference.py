"""Inference of models: engines agree, the harness adds nothing, and what a user can mend is one line."""

import json
import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

from rn50 import frameworks
from rn50.cli import main
from rn50.deploy import export, inference, inference_curve, inference_engines, inference_process, model_file
from rn50.deploy.inference import InferenceResult
from rn50.deploy.inference_process import Load, Round
from rn50.deploy.outcomes import Latency, ModelOnEngine
from rn50.errors import UserError
from rn50.machine import hardware
from rn50.printed import as_json
from rn50.rates import Rates
from rn50.weights import weights_file
from tests.conftest import ON_GPU
from tests.contract.frameworks import installed
from tests.deploy.networks import random_weights
from tests.support import documented

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Files of the same network: weights, a model of them, and one with preprocessing."""
    folder = tmp_path_factory.mktemp("models")
    weights_file.write(folder / "w.safetensors", random_weights())
    for name, preprocessing in (("model.onnx", False), ("whole.onnx", True)):
        made = export.convert(weights_file.read(folder / "w.safetensors"), name, preprocessing=preprocessing)
        (folder / name).write_bytes(made.content)
    return folder


def bench(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "rn50", "bench", "inference", *map(str, arguments)], cwd=str(ROOT),
        env=dict(os.environ), capture_output=True, text=True, timeout=300)
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize(
    "framework, way, precision",
    [pytest.param(framework, way, precision, marks=ON_GPU if way.startswith("cuda-") else ())
     for framework, way in inference_engines.framework_engines().values()
     for precision in frameworks.traits(framework).inference[way]])
def test_engines_of_frameworks_give_the_logits_of_the_model(models, monkeypatch, framework, way, precision):
    installed(framework)
    if way.startswith("cuda-"):  # what the process of an engine sets before its libraries are loaded
        monkeypatch.setattr(pytest.importorskip("torch").backends.cudnn, "allow_tf32", False)
    lacks = not way.startswith("cuda-") and not hardware.BFLOAT16 & hardware.cpu_flags()
    if precision == "bfloat16" and lacks:
        pytest.skip("this processor has no bfloat16")
    run, images = inference_engines.create(
        ModelOnEngine(models / "w.safetensors", f"{framework}-{way}", precision), 1)
    model = model_file.read(models / "model.onnx")
    for batch_size in (3, 1):
        given = images(batch_size)
        expected = model_file.session(model, 1).run(None, {model.input: given})[0]
        assert given.shape == (batch_size, 3, 32, 32)
        apart = np.abs(run(given) - expected).max() / np.abs(expected).max()
        least, most = {
            "float32": (0, 1e-4), "float16": (1e-5, 0.01), "bfloat16": (1e-5, 0.05)}[precision]
        assert least <= apart <= most


def test_every_model_has_its_figures(models, tmp_path):
    picture = tmp_path / "latency.svg"
    done = bench(
        models / "model.onnx", models / "whole.onnx", models / "w.safetensors", "--batch-sizes", "1,2",
        "--cores", "1", "--seconds", "0.1", "--rounds", "2", "--picture", picture, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert documented.differences("bench inference", told) == []
    assert told["cores"] == 1 and told["requests_per_second"] is None
    names = [(pathlib.Path(each["model"]).name, each["batch_size"]) for each in told["results"]]
    assert sorted(names) == [
        (name, size) for name in ("model.onnx", "w.safetensors", "whole.onnx") for size in (1, 2)]
    for each in told["results"]:
        latency = each["latency_ms"]
        assert (
            0 < latency["p50"] <= latency["p90"] <= latency["p95"] <= latency["p99"]
            and latency["average"] > 0)
        assert each["requests"] >= 2 * inference_process.LEAST_REQUESTS and each["kept_up"]
    assert "whole.onnx onnxruntime float32" in picture.read_text()


@pytest.mark.parametrize(
    "arguments, said",
    [(["none.onnx"], "none.onnx: cannot be read (No such file or directory)"),
     (["cut.onnx"], "cut.onnx: no ONNX file ("),
     (["model.onnx", "--engines", "onnxruntime-tensorrt"],
      "this onnxruntime has no TensorrtExecutionProvider, only "),
     (["model.onnx", "--engines", "tensorflow"],
      "'tensorflow' is none of onnxruntime, onnxruntime-cuda, onnxruntime-tensorrt,"),
     (["model.onnx", "--engines", "mxnet-hybridized"],
      "--engines mxnet-hybridized: runs weights, and no model is a .safetensors"),
     (["w.safetensors", "--engines", "mxnet-hybridized", "--precisions", "float16"],
      "none of mxnet-hybridized computes in it"),
     (["model.onnx", "--picture", "model.onnx/x.svg"], "model.onnx/x.svg: cannot be written")])
def test_bad_input(models, monkeypatch, arguments, said):
    monkeypatch.chdir(models)
    (models / "cut.onnx").write_bytes((models / "model.onnx").read_bytes()[:-100])
    before = os.sched_getaffinity(0)
    done = CliRunner(mix_stderr=False).invoke(main, ["bench", "inference", *arguments])
    os.sched_setaffinity(0, before)
    assert done.exit_code == 2 and said in " ".join(done.stderr.split()), done.stderr


def test_a_process_that_dies_says_how(models, tmp_path):
    subject = ModelOnEngine(models / "model.onnx", "onnxruntime", "float32")
    process = inference_process.Process(subject, 1, tmp_path / "log")
    process._process.kill()
    process._process.join()
    with pytest.raises(
        UserError, match="model.onnx onnxruntime float32: its process has ended .exit status -9"
    ):
        process.measure(Load(1, 0.1, None))
    process.close()


def test_a_process_that_never_answers_is_ended(models, tmp_path, monkeypatch):
    process = inference_process.Process(
        ModelOnEngine(models / "model.onnx", "onnxruntime", "float32"), 1, tmp_path / "log")
    process.measure(Load(1, 0.1, None))  # it is loaded
    monkeypatch.setattr(inference_process, "LIMIT_S", 0.2)
    with pytest.raises(UserError, match="model.onnx onnxruntime float32: no answer within 1 s; leave it out"):
        process._answer(1)  # it was asked nothing
    process._process.join(inference_process.GRACE_SECONDS)
    assert process._process.exitcode == -9
    process.close()


def test_a_process_that_dies_does_not_stop_the_others(models, monkeypatch):
    """The one on an engine that falls over at batch size 2 has the rounds before; one that cannot start has
    none."""
    good = ModelOnEngine(models / "model.onnx", "onnxruntime", "float32")
    bad, absent = good._replace(model=models / "whole.onnx"), good._replace(model=models / "absent.onnx")
    measure = inference_process.Process.measure

    def killed(self, load):
        if self.subject == bad and load.batch_size == 2:
            self._process.kill()
        return measure(self, load)

    monkeypatch.setattr(inference_process.Process, "measure", killed)
    measured = inference.measure([bad, absent, good], (1, 2), 0.1, 2, None, 1)
    assert {(each.subject, each.batch_size) for each in measured.results} == {(good, 1), (good, 2)}
    assert [failed.subject for failed in measured.failures] == [absent, bad]
    assert measured.failures[1].failure.startswith("whole.onnx onnxruntime float32: its process has ended")
    told = as_json(measured)
    assert documented.differences("bench inference", told) == []


class Clock:
    """A clock that goes on only while somebody sleeps; a busy machine would delay arrivals too."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def test_latency_at_a_rate_includes_the_wait(monkeypatch):
    """An engine that takes 20 ms gets 100 requests per second: each waits for all before it."""
    clock = Clock()
    monkeypatch.setattr(inference_process, "time", clock)
    slow = inference_process.serve(lambda images: clock.sleep(0.02), np.zeros(1), Load(1, 0.2, 100))
    assert slow.latencies == pytest.approx([0.02 + 0.01 * index for index in range(20)])
    result = inference._result(ModelOnEngine(pathlib.Path("m"), "e", "float32"), 1, [slow], 100)
    assert not result.kept_up and result.images_per_second.median < 60
    fast = inference_process.serve(lambda images: None, np.zeros(1), Load(1, 0.2, 100))
    assert fast.latencies == pytest.approx([0.0] * 20) and fast.seconds == pytest.approx(0.2)
    assert inference._result(result.subject, 1, [fast], 100).kept_up


def test_the_harness_adds_next_to_nothing(models):
    """Closed loop against a plain loop of ONNX Runtime, in turn; 1.003 was measured on an idle machine.

    What other work on the machine adds is in most of the latencies, and not in the least tenth of them.
    """
    run, images = inference_engines.create(ModelOnEngine(models / "model.onnx", "onnxruntime", "float32"), 1)
    model = model_file.read(models / "model.onnx")
    session, given, alone, ours = model_file.session(model, 1), images(8), [], []
    for _ in range(7):
        plain = []
        for _ in range(60):
            begin = time.perf_counter()
            session.run(None, {model.input: given})
            plain.append(time.perf_counter() - begin)
        alone += plain
        ours += inference_process.serve(run, given, Load(8, sum(plain), None)).latencies
    assert np.percentile(ours, 10) / np.percentile(alone, 10) < 1.25


def test_percentiles_are_of_all_requests():
    rounds = [Round([0.001] * 90, 0.09), Round([0.002] * 10, 0.02)]
    result = inference._result(
        ModelOnEngine(pathlib.Path("m.onnx"), "onnxruntime", "float32"), 4, rounds, None)
    assert result.requests == 100 and result.latency_ms.average == pytest.approx(1.1)
    assert result.latency_ms[1:] == pytest.approx((1, 2, 2, 2))  # p90 is no latency between two requests
    assert result.images_per_second == pytest.approx((3000, 2000, 4000))


def test_the_picture_has_both_sides():
    subject = ModelOnEngine(pathlib.Path("<m>.onnx"), "onnxruntime", "float32")
    latency = Latency(2.0, 1.0, 2.0, 3.0, 4.0)
    drawn = inference_curve.draw(
        [InferenceResult(subject, size, 10, latency, Rates(100.0, 90.0, 110.0), True) for size in (1, 64)]
    ).decode()
    assert (
        "latency in ms: p50, dashed p99" in drawn and "images/s" in drawn
        and "&lt;m&gt;.onnx onnxruntime float32" in drawn)
