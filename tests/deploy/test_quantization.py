"""Quantised models: what became int8 is counted in the file, accuracy is measured, and what is no use is not
written."""

import json
import pathlib

import numpy as np
import pytest
from click.testing import CliRunner

from rn50.cli import main
from rn50.deploy import export, model_evaluation, model_file, quantization
from rn50.deploy.candidates import Candidate, Quantized
from rn50.errors import UserError
from rn50.terminal import Terminal
from rn50.weights import weights_file
from rn50.weights.counts import Counts
from tests.deploy.networks import fitted_weights, random_weights
from tests.support import documented

EVALUATED = model_evaluation.Evaluated(Counts(np.array([2000, 1544, 1980]), 10), 1.0)


@pytest.fixture(scope="module")
def exported(tmp_path_factory, tiny_folder):
    """A function that returns the file of a model that knows the validation set."""
    folder, made = tmp_path_factory.mktemp("exported"), {}

    def file(config, **options):
        key = tuple(options)
        if key not in made:
            made[key] = folder / f"model{len(made)}.onnx"
            made[key].write_bytes(export.convert(fitted_weights(config), "model", **options).content)
        return made[key]

    return file


def test_every_way_makes_a_model_and_the_best_is_written(
    tiny_config, tiny_environment, exported, tmp_path, capfd
):
    output = tmp_path / "int8.onnx"
    done = CliRunner(mix_stderr=False).invoke(
        main,
        ["quantize", str(exported(tiny_config)), "-o", str(output), "--method", "all", "--calibration",
         "all", "--images", "24", "--tolerance", "100", "--json"],
        env=tiny_environment)
    assert done.exit_code == 0, done.stderr
    assert "WARNING" not in done.stderr + capfd.readouterr().err
    told = json.loads(done.stdout)
    assert documented.differences("quantize", told) == []
    before, *after = told["results"]
    assert [each["method"] for each in after] == [
        "dynamic", "static minmax", "static entropy", "static percentile"]
    assert before["int8_operators"] == 0 and before["top_1"] > 0.8
    assert all((each["int8_operators"], each["operators"]) == (54, 54) for each in after)
    assert all(each["bytes"] < 0.5 * before["bytes"] for each in after)  # a tiny network has few weights
    best = min(after, key=lambda each: (each["drop"], -each["images_per_second"]))
    assert (
        told["written"] == best["method"] and best["top_1"] > 0.5
    )  # what knows images by heart is not robust; chance is 0.1
    assert model_evaluation.evaluate(model_file.read(output), tiny_config).counts.correct == best["correct"]
    model = model_file.read(output)
    assert (
        model.precision == "int8" and model.facts["quantization"] == best["method"]
        and model.facts["image_size"] == "32")


@pytest.mark.parametrize("options", [{"fold": False}, {"preprocessing": True}])
def test_batch_norm_is_folded_and_preprocessing_stays_float32(tiny_config, exported, tmp_path, options):
    source = exported(tiny_config, **options)
    choice = quantization.quantize(source, tmp_path / "int8.onnx", ["static minmax"], tiny_config, 16, 100)
    kinds = [node.op_type for node in model_file.read(tmp_path / "int8.onnx").proto.graph.node]
    assert kinds.count("Conv") == 53 and "BatchNormalization" not in kinds and "Relu" not in kinds
    assert kinds.count("Resize") == kinds.count("Pad") == bool(options.get("preprocessing"))
    assert kinds.count("Add") == 16 + 7 * bool(options.get("preprocessing"))
    choice.print_table(source, Terminal())


def test_int8_has_at_most_27_hundredths_of_the_size(tiny_config):
    """At the width of the demo; wider networks have less that is no weight."""
    model = export.convert(random_weights(width="0.25"), "model")
    images = quantization.calibration_images(model, tiny_config, 2)
    made = quantization.in_int8(model, "static minmax", images)
    assert len(made.content) <= 0.27 * len(model.content)


def test_a_model_that_loses_too_much_is_not_written(tiny_config, exported, tmp_path):
    """Calibrated on images of far too little contrast, the model cuts activations off."""
    output = tmp_path / "int8.onnx"
    with pytest.MonkeyPatch.context() as patch:
        read = quantization.calibration_images
        patch.setattr(quantization, "calibration_images", lambda *of: [image * 0.01 for image in read(*of)])
        with pytest.raises(
            UserError, match=r"int8.onnx: not written: static minmax: top-1 fell by .* points to 0.*; try "
        ):
            quantization.quantize(exported(tiny_config), output, ["static minmax"], tiny_config, 4, 1)
    assert not output.exists()


def test_a_method_that_quantises_nothing_is_refused(tiny_config, exported, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantization, "DYNAMIC_OPERATORS", ["LSTM"])
        with pytest.raises(UserError, match="not written: dynamic: no operator became int8"):
            quantization.quantize(
                exported(tiny_config), tmp_path / "int8.onnx", ["dynamic"], tiny_config, 4, 100)
    assert list(tmp_path.iterdir()) == []


def test_bad_input(tiny_config, tiny_environment, exported, tmp_path):
    source, output = exported(tiny_config), tmp_path / "int8.onnx"

    def refused(said, file=source, **environ):
        done = CliRunner(mix_stderr=False).invoke(
            main, ["quantize", str(file), "-o", str(output)], env={**tiny_environment, **environ})
        assert done.exit_code == 2 and said in done.stderr and not output.exists(), done.stderr

    refused(
        "is a model of IMAGE_SIZE=32, and the configuration has IMAGE_SIZE=40", IMAGE_SIZE="40",
        EVAL_RESIZE="44")
    refused("/nowhere: No such file or directory; set DATADIR to a folder", DATADIR="/nowhere")
    refused("none.onnx: cannot be read (No such file or directory)", tmp_path / "none.onnx")
    other = tmp_path / "result_0.safetensors"
    weights_file.write(other, random_weights())
    refused("result_0.safetensors: no ONNX file", other)
    quantised = tmp_path / "quantised.onnx"
    quantization.quantize(source, quantised, ["dynamic"], tiny_config, 4, 100)
    refused("quantised.onnx: is quantised already; give the float32 model", quantised)


def test_the_accuracy_of_few_images_has_its_interval(capsys):
    before = Candidate("float32", b"model", 0, 54, EVALUATED)
    Quantized([before], before, pathlib.Path("int8.onnx")).print_table(pathlib.Path("model.onnx"), Terminal())
    said = "float32's top-1 of 2,000 images is known to 1.8 points either way (binomial, 95 %)"
    assert said in capsys.readouterr().out.splitlines()
