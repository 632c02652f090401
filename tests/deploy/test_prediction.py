"""``rn50 predict``: the classes of an evaluation for images of one's own, by weights and by ONNX models."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from rn50 import files
from rn50.cli import main
from rn50.deploy import export, prediction
from rn50.weights import weights_file
from tests.contract.frameworks import FRAMEWORKS, installed
from tests.deploy.networks import random_weights
from tests.support import documented

NAMES = [f"class {label}" for label in range(9)] + ["[red]\x1b"]


def some_weights(**facts):
    """Random weights whose logits are of the order of 1, so that several classes are likely."""
    weights = random_weights(class_names="\n".join(NAMES), **facts)
    return weights._replace(arrays={**weights.arrays, "fc1_weight": weights.arrays["fc1_weight"] * 1e-3})


def predict(*arguments):
    return CliRunner().invoke(main, ["predict", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path):
    """A file of weights, the models of it, and an image whose margins are odd."""
    weights = some_weights()
    weights_file.write(tmp_path / "w.safetensors", weights)
    for name, preprocessing in (("model.onnx", False), ("whole.onnx", True)):
        (tmp_path / name).write_bytes(export.convert(weights, name, preprocessing=preprocessing).content)
    pixels = np.random.RandomState(1).randint(0, 255, (12, 13, 3), np.uint8)
    Image.fromarray(pixels).resize((93, 81)).save(tmp_path / "image.png")
    return tmp_path


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_weights_and_models_name_the_same_classes(folder, framework):
    """What a model with preprocessing does to images is DALI's (test_export.py)."""
    installed(framework)
    weights_file.write(folder / f"{framework}.safetensors", some_weights(framework=framework))
    expected = json.loads(predict(folder / "model.onnx", folder / "image.png", "--json").stdout)
    assert expected["framework"] == "onnxruntime" and not documented.differences("predict", expected)
    for file, by in ((f"{framework}.safetensors", framework), ("whole.onnx", "onnxruntime")):
        told = json.loads(predict(folder / file, folder / "image.png", "--json").stdout)
        pairs = zip(*(each["predictions"][0]["likeliest"] for each in (told, expected)), strict=True)
        assert told["framework"] == by
        for one, other in pairs:
            assert one == {**other, "probability": pytest.approx(other["probability"], rel=0.02)}


def test_people_read_names_and_see_the_crops(folder):
    done = predict(folder, folder / "image.png", "--picture", folder / "seen.png")
    first, *classes = done.output.splitlines()
    assert first == str(folder / "image.png") and len(classes) == 5
    assert {line[10:] for line in classes} < {*NAMES[:9], "[red]\\x1b"}
    with Image.open(folder / "seen.png") as drawn:
        assert drawn.size[1] == 32 + 16 and drawn.info["Software"] == files.MARK


@pytest.mark.parametrize(
    "arguments, says",
    [(["w.safetensors", "text.jpg"], "text.jpg: no image, or a damaged one; give an image"),
     (["w.safetensors", "image.png", "--picture", "seen.jpg"], "the name does not end in .png"),
     (["w.safetensors", "image.png", "--picture", "image.png"], ": exists, and rn50 did not write it"),
     (["foreign.onnx", "image.png"], "foreign.onnx: does not say image_size and eval_resize")])
def test_what_cannot_be_classified_is_a_line(folder, monkeypatch, arguments, says):
    monkeypatch.chdir(folder)
    (folder / "text.jpg").write_text("no image")
    foreign = export.convert(random_weights(), "model").proto
    del foreign.metadata_props[:]
    (folder / "foreign.onnx").write_bytes(foreign.SerializeToString())
    done = predict(*arguments)
    assert done.exit_code == 2 and says in done.output and done.output.count("\n") == 1
    assert not (folder / "seen.jpg").exists()


def test_a_network_with_blur_pool_is_computed_by_the_framework_that_has_it(folder):
    installed("pytorch")
    weights_file.write(folder / "blurred.safetensors", some_weights(framework="mxnet", blur_pool="1"))
    plain, blurred = (
        prediction.predict(folder / name, [folder / "image.png"], None)
        for name in ("model.onnx", "blurred.safetensors"))
    probabilities = [told.predictions[0].likeliest[0].probability for told in (plain, blurred)]
    assert blurred.framework == "pytorch" and abs(np.diff(probabilities)) > 0.01
