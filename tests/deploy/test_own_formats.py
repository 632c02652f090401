"""Weights in the frameworks' own formats: the same logits and accuracy, or no file at all."""

import json

import pytest
from click.testing import CliRunner

from rn50.cli import main
from rn50.deploy import export, model_evaluation, own_formats
from rn50.weights import weights_file
from tests.contract.frameworks import installed
from tests.deploy.networks import fitted_weights, random_weights
from tests.support import documented

ENDS = {"mxnet": ["-symbol.json", "-0000.params"], "paddle": [".pdmodel", ".pdiparams"], "pytorch": [".pt2"]}


def rn50(*arguments, environ=None):
    return CliRunner(mix_stderr=False).invoke(main, ["export", *map(str, arguments)], env=environ)


@pytest.fixture
def source(tmp_path):
    weights_file.write(tmp_path / "result_0.safetensors", random_weights())
    return tmp_path / "result_0.safetensors"


@pytest.mark.parametrize("framework", sorted(ENDS))
def test_what_is_written_is_evaluated(tiny_config, tiny_environment, tmp_path, framework):
    installed(framework)
    assert set(own_formats.names()) == set(ENDS)
    source, output = tmp_path / "result_0.safetensors", tmp_path / "model"
    some = fitted_weights(tiny_config)
    before = model_evaluation.evaluate(export.convert(some, "x"), tiny_config)
    weights_file.write(source, some._replace(facts={**some.facts, "accuracy": str(before.counts.top1)}))
    done = rn50(source, "--to", framework, "-o", output, "--json", environ=tiny_environment)
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert documented.differences("export", told) == []
    files = [tmp_path / f"model{end}" for end in ENDS[framework]]
    assert told["files"] == [str(file) for file in files] and told["bytes"] == sum(
        file.stat().st_size for file in files)
    assert (told["format"], told["total"]) == (framework, 57) and abs(
        told["correct"] - before.counts.correct) <= 1
    assert sorted(tmp_path.iterdir()) == sorted([source, *files])
    again = rn50(source, "--to", framework, "-o", files[0], environ=tiny_environment)
    assert again.exit_code == 2 and f"{files[0]}: exists; name another file" in again.stderr


def test_what_is_not_the_network_is_not_written(source, tmp_path, monkeypatch):
    installed("pytorch")
    from implementations.pytorch import inference

    monkeypatch.setattr(inference, "read", lambda path, threads, **of: lambda images: 1.01 * right(images))
    right = own_formats.model_file.running(export.convert(weights_file.read(source), "x"), 1)
    done = rn50(
        source, "--to", "pytorch", "-o", tmp_path / "model.pt2", environ={"DGXSYSTEM": "", "CONFIG_FILE": ""})
    assert (
        done.exit_code == 2
        and "not written: its logits are 1.0e-02 from those of the ONNX model" in done.stderr)
    assert list(tmp_path.iterdir()) == [source]


def test_of_two_files_none_is_left_if_one_cannot_be_written(source, tmp_path, monkeypatch):
    installed("paddle")
    whole = own_formats.files.write

    def full(file, content, *rest):
        if file.suffix == ".pdiparams":
            raise own_formats.UserError(
                file, "cannot be written (No space left on device)", "name another file")
        whole(file, content, *rest)

    monkeypatch.setattr(own_formats.files, "write", full)
    done = rn50(
        source, "--to", "paddle", "-o", tmp_path / "model", environ={"DGXSYSTEM": "", "CONFIG_FILE": ""})
    assert done.exit_code == 2 and f"{tmp_path}/model.pdiparams: cannot be written" in done.stderr
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize(
    "arguments, problem",
    [(["--to", "tensorflow", "-o", "m"], "'tensorflow' is none of onnx, mxnet, paddle, pytorch"),
     (["--to", "pytorch", "--with-preprocessing", "-o", "m"],
      "--with-preprocessing: only an ONNX model has it"),
     (["--to", "pytorch", "-o", "."], "--output .: names no file")])
def test_bad_arguments_are_one_line(source, arguments, problem):
    done = rn50(source, *arguments)
    assert done.exit_code == 2 and problem in done.stderr and "Traceback" not in done.stderr


def test_paddle_quantises_by_its_own_means(tiny_config, tiny_environment, tmp_path, capfd):
    """What it writes is evaluated, its convolutions are int8, and what its libraries print stays hidden."""
    installed("paddle")
    source, output = tmp_path / "result_0.safetensors", tmp_path / "int8"
    weights_file.write(source, fitted_weights(tiny_config))
    done = CliRunner(mix_stderr=False).invoke(
        main,
        ["quantize", str(source), "--to", "paddle", "-o", str(output), "--images", "24", "--tolerance",
         "100", "--json"],
        env=tiny_environment)
    assert done.exit_code == 0, done.stderr
    assert capfd.readouterr().out == "" and "squashed" not in done.stderr
    told = json.loads(done.stdout)
    assert documented.differences("quantize", told) == []
    before, after = told["results"]
    assert (before["int8_operators"], after["int8_operators"], after["operators"]) == (0, 53, 54)
    # What knows images by heart is not robust; chance is 0.1.
    assert after["top_1"] > 0.25 and told["model"] == f"{output}.pdmodel"

    from implementations.paddle import inference

    model = export.convert(weights_file.read(source), "x")
    read = inference.read(str(output), 1, precision="int8")
    assert model_evaluation.evaluate(model, tiny_config, logits_of=read).counts.correct == after["correct"]


def test_a_calibration_that_quantises_nothing_in_paddle_is_not_written(tiny_config, tmp_path, monkeypatch):
    """Its "min_max" is such a one: it returns the network as it was, without an error."""
    installed("paddle")
    source = tmp_path / "result_0.safetensors"
    weights_file.write(source, fitted_weights(tiny_config))
    read = weights_file.read(source)
    traits = own_formats.frameworks.traits("paddle")._replace(calibrations={"minmax": "min_max"})
    monkeypatch.setattr(own_formats.frameworks, "traits", lambda name: traits)
    with pytest.raises(
        own_formats.UserError, match="int8.pdmodel: not written: static minmax: no operator became int8; try"
    ):
        own_formats.quantize(read, tmp_path / "int8", "paddle", ["static minmax"], tiny_config, 4, 100)
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize(
    "arguments, problem",
    [(["--to", "mxnet"], "'mxnet' is none of onnx, paddle"),
     (["--to", "paddle", "--method", "all"],
      "--method dynamic: Paddle quantises with --method static alone")])
def test_bad_arguments_of_quantisation_are_one_line(source, tiny_environment, tmp_path, arguments, problem):
    done = CliRunner(mix_stderr=False).invoke(
        main, ["quantize", str(source), "-o", str(tmp_path / "m"), *arguments], env=tiny_environment)
    assert done.exit_code == 2 and problem in done.stderr and "Traceback" not in done.stderr
