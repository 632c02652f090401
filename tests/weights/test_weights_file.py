"""Files of weights: what is written is read again, and a file that is none of ours is refused in one line."""

import json
import struct

import numpy as np
import pytest
from safetensors import numpy as format_

from rn50 import files, frameworks
from rn50.benchmark import network
from rn50.errors import UserError
from rn50.weights import weights_file
from rn50.weights.weights_file import Weights

FACTS = {"classes": "10", "width": "0.125", "image_size": "48", "eval_resize": "55", "seed": "7"}


@pytest.fixture
def some():
    random = np.random.RandomState(0)
    shapes = network.shapes(10, 0.125)
    return Weights(
        {name: abs(random.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}, FACTS
    )


def test_what_is_written_is_read(some, tmp_path):
    file = tmp_path / "result_0.safetensors"
    weights_file.write(file, some)
    read = weights_file.read(file)
    assert list(read.arrays) == list(some.arrays) and read.facts["seed"] == "7"
    assert (read.classes, read.width, read.image_size, read.eval_resize) == (10, 0.125, 48, 55)
    for name, array in read.arrays.items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, some.arrays[name])
    with pytest.raises(UserError, match="result_0.safetensors: exists"):
        weights_file.write(file, some)
    assert [each.name for each in tmp_path.iterdir()] == ["result_0.safetensors"]


def with_header(content, change):
    """The bytes of a file whose header ``change`` has changed."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


def facts(**changed):
    return lambda header: header["__metadata__"].update(changed)


def drop(name):
    return lambda header: header["__metadata__"].pop(name)


@pytest.mark.parametrize(
    "change, said",
    [(facts(width="0.25"),
      r"conv0_weight is F32 \[8, 3, 7, 7\]; a network of its classes and width has F32 \[16, 3, 7, 7\]",
     ),
     (facts(classes="1000"), r"fc1_weight is F32 \[10, 256\]; .* F32 \[1000, 256\]"),
     (facts(classes="ten"), "its header says ten of classes"),
     (facts(classes="-1"), "its header says -1 of classes"),
     (facts(classes="9" * 7), "its header says 9999999 of classes"),
     (facts(classes="10.5"), "its header says 10.5 of classes, no whole number"),
     (facts(width="1e9"), "its header says 1e9 of width"),
     (facts(width="0"), "its header says 0 of width"),
     (facts(width="nan"), "its header says nan of width"),
     (drop("image_size"), "its header says nothing of image_size"),
     (lambda header: header.pop("__metadata__"), "its header says nothing of classes"),
     (lambda header: header.update(conv9=header.pop("conv0_weight")), "there is no conv0_weight"),
     (lambda header: header.update(more={"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}),
      "more is none of its tensors"),
     (lambda header: header["bn0_beta"].update(dtype="I32"), r"bn0_beta is I32 \[8\]; .* F32 \[8\]")])
def test_another_header_is_refused(some, tmp_path, change, said):
    file = tmp_path / "other.safetensors"
    file.write_bytes(with_header(format_.save(dict(some.arrays), {**FACTS}), change))
    with pytest.raises(
        UserError, match=f"^{file}: .*{said}.*; give a file that SAVE_WEIGHTS=1 or rn50 wrote$"
    ):
        weights_file.read(file)


@pytest.mark.parametrize("content", [b"", b"no tensors", b"\xff" * 100, b"\x80\x02}q\x00."])
def test_another_file_is_refused(tmp_path, content):
    file = tmp_path / "other"
    file.write_bytes(content)
    with pytest.raises(UserError, match="other: no safetensors file"):
        weights_file.read(file)


def test_a_truncated_file_is_refused(some, tmp_path):
    file = tmp_path / "cut.safetensors"
    file.write_bytes(format_.save(dict(some.arrays), FACTS)[:-1])
    with pytest.raises(UserError, match="cut.safetensors: no safetensors file"):
        weights_file.read(file)


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="is a folder"):
        weights_file.read(tmp_path)
    with pytest.raises(UserError, match="No such file"):
        weights_file.read(tmp_path / "none")


@pytest.mark.parametrize(
    "name, value, said",
    [("bn0_gamma", np.nan, "has values that are no finite numbers"),
     ("bn0_running_var", -1, "has negative values, and is a variance")])
def test_weights_of_a_run_that_diverged_are_refused(some, tmp_path, name, value, said):
    spoiled = {**some.arrays, name: np.full(8, value, np.float32)}
    weights_file.write(tmp_path / "nan.safetensors", Weights(spoiled, FACTS))
    with pytest.raises(UserError, match=f"{name} {said}; train again: that run diverged"):
        weights_file.read(tmp_path / "nan.safetensors")


def foreign(prefix):
    """The tensors of a foreign file, whose names begin with ``prefix``."""
    [names] = filter(None, (frameworks.unimported(name, "weight_names") for name in frameworks.names()))
    shapes = network.shapes(10, 1)
    return {prefix + names.name(name): np.full(shape, 0.5, np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    "prefix", ["", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.", "model.backbone."])
def test_a_foreign_network_that_was_part_of_another_is_read(tmp_path, prefix):
    file = tmp_path / "theirs.safetensors"
    counts = {f"{prefix}bn1.num_batches_tracked": np.zeros(1, np.float32)}
    file.write_bytes(format_.save({**foreign(prefix), **counts}))
    read = weights_file.read(file)
    assert list(read.arrays) == list(network.shapes(10, 1)) and read.classes == 10
    assert all((array == 0.5).all() for array in read.arrays.values())


def test_foreign_names_with_another_prefix_in_them_are_named(tmp_path):
    file = tmp_path / "theirs.safetensors"
    arrays = {name.replace("layer", "layers."): array for name, array in foreign("module.").items()}
    file.write_bytes(format_.save(arrays))
    with pytest.raises(UserError, match=r"there is no module\.layer1\.0.*, but module\.layers\.1\.0\."):
        weights_file.read(file)
    file.write_bytes(format_.save({**foreign(""), **foreign("module.")}))
    with pytest.raises(UserError, match=r"module\..* is none of its tensors"):
        weights_file.read(file)


@pytest.mark.parametrize("name", ["resnet50.pth", "resnet50-0000.params", "model.pt", "w.pdparams"])
def test_a_file_of_another_format_has_its_remedy(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\x03\x04" + b"\0" * 40)
    with pytest.raises(UserError) as refused:
        weights_file.read(tmp_path / name)
    assert refused.value.problem == "no safetensors file"
    page, what = refused.value.remedy.split(": ")[1].split()[0], "save its tensors as safetensors"
    assert refused.value.remedy.startswith(what) and "save_file" in (files.ROOT / page).read_text()


def test_a_model_is_told_from_weights_by_its_name_else_by_its_content(some, tmp_path):
    weights_file.write(tmp_path / "weights", some)
    (tmp_path / "model").write_bytes(b"\x08\x08\x12\x04rn50")
    assert not weights_file.is_model(tmp_path / "weights") and weights_file.is_model(tmp_path / "model")
    assert weights_file.is_model(tmp_path / "absent.onnx")
    assert not weights_file.is_model(tmp_path / "absent.safetensors")
    with pytest.raises(UserError, match="absent: cannot be read"):
        weights_file.is_model(tmp_path / "absent")


def test_a_folder_stands_for_its_only_file_of_weights(some, tmp_path):
    with pytest.raises(UserError, match=r": 0 \.safetensors files in it; a run saves weights: rn50 run"):
        weights_file.only_one(tmp_path)
    for name in ("result_0.checkpoint.safetensors", "result_1.safetensors"):
        weights_file.write(tmp_path / name, some)
    assert weights_file.only_one(tmp_path) == tmp_path / "result_1.safetensors"
    weights_file.write(tmp_path / "result_0.safetensors", some)
    with pytest.raises(UserError, match=r": 2 \.safetensors files in it; give one of them: .*/result_0.safe"):
        weights_file.only_one(tmp_path)


@pytest.mark.parametrize(
    "text, names",
    [("cat\ndog", ["cat", "dog"]), ("cat", ["0", "1"]), ("a\x1bb\n" + "c" * 99, ["a\\x1bb", "c" * 60])])
def test_names_of_classes_are_those_of_the_header_made_harmless(text, names):
    assert weights_file.class_names({"class_names": text}, 2) == names


@pytest.mark.parametrize("folder, named", [("DEMO_CPU+LR=1", "DEMO_CPU --set LR=1"), ("mine", "CONFIG")])
def test_of_weights_that_are_missing_the_command_is_named(tmp_path, folder, named):
    says = f"a run saves weights: rn50 run {named} -o results/weights --runs 1 --save-weights"
    with pytest.raises(UserError, match=f"{says}$"):
        weights_file.read(tmp_path / folder / "result_0.safetensors")
