"""What a verb writes replaces only a file of the same kind, and no input of the same command."""

import pathlib

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors import numpy as format_

from rn50 import files
from rn50.cli import main
from rn50.deploy import export
from rn50.errors import UserError
from rn50.weights import weights_file
from tests.deploy.networks import random_weights
from tests.support.four_epochs import write_run


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A file of every kind, as rn50 writes it."""
    folder = tmp_path_factory.mktemp("kept")
    weights_file.write(folder / "weights", random_weights())
    export.export(weights_file.read(folder / "weights"), folder / "model", True, False, None, 1)
    header = {"file": files.MARK, "epoch": "4"}
    files.write(folder / "checkpoint", format_.save({"a": np.zeros(3000, np.float32)}, header))
    log = write_run(folder / "result_0.txt")
    assert run("report", log, "-o", folder / "page").exit_code == 0
    assert run(*PLAN, folder / "picture.png").exit_code == 0
    assert run(*PLAN, folder / "picture.svg").exit_code == 0
    files.write(folder / "table", f'{{"file": "{files.MARK}"}}')
    files.write(folder / "text", f"<!-- {files.MARK} -->\n")
    files.write(folder / "log", f"# {files.MARK}: rn50 bench\na launcher's\0\n")
    return folder


PLAN = ("plan", "--accelerator", "A100-SXM4-40GB", "--plot")
KINDS = {
    "weights": files.WEIGHTS, "model": files.MODEL, "checkpoint": files.CHECKPOINT, "page": files.PAGE,
    "picture.png": files.PICTURE, "picture.svg": files.PICTURE, "table": files.JSON, "text": files.TEXT,
    "log": files.TEXT}


def run(*arguments, **environ):
    return CliRunner(mix_stderr=False).invoke(main, list(map(str, arguments)), env=environ)


@pytest.mark.parametrize("name", KINDS)
def test_a_file_replaces_only_one_of_its_kind(kept, tmp_path, name):
    content, path = (kept / name).read_bytes(), tmp_path / "file"
    for other, kind in KINDS.items():
        for may_replace in (files.OURS, files.ANY):
            before = (kept / other).read_bytes()
            path.write_bytes(before)
            if kind == KINDS[name]:
                files.refuse_to_replace(path, KINDS[name], may_replace)
                files.write(path, content, may_replace)
                assert path.read_bytes() == content
                continue
            with pytest.raises(UserError, match=f"^{path}: is {kind}, and would become {KINDS[name]}; no$"):
                files.refuse_to_replace(path, KINDS[name], may_replace, "no")
            with pytest.raises(UserError, match=f"is {kind}, and would become {KINDS[name]}"):
                files.write(path, content, may_replace)
            assert path.read_bytes() == before


@pytest.mark.parametrize(
    "verb, there",
    ((["report", "result_0.txt", "-o"], "weights"), (["evaluate", "weights", "--report"], "weights"),
     (["evaluate", "model.onnx", "--report"], "model.onnx"), (["export", "weights", "-o"], "weights"),
     (["quantize", "model.onnx", "-o"], "weights"),
     (["bench", "inference", "model.onnx", "--picture"], "model.onnx"), ([*PLAN], "weights.png")))
def test_weights_and_models_survive_every_verb(kept, tmp_path, tiny_environment, verb, there):
    for name in ("weights", "model", "result_0.txt"):
        (tmp_path / name).write_bytes((kept / name).read_bytes())
    (tmp_path / "model").rename(tmp_path / "model.onnx")
    (tmp_path / "weights.png").write_bytes((kept / "weights").read_bytes())
    before = {each: each.read_bytes() for each in tmp_path.iterdir()}
    named = [tmp_path / word if (tmp_path / word).exists() else word for word in (*verb, there)]
    done = run(*named, **tiny_environment)
    assert done.exit_code == 2 and f"rn50: {tmp_path / there}: is a" in done.stderr, done.stderr
    assert "would become" in done.stderr and len(done.stderr.splitlines()) == 1
    assert {each: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_no_input_is_replaced_though_it_is_of_the_same_kind(kept, tmp_path, tiny_environment):
    model, same = tmp_path / "model.onnx", tmp_path / "same.onnx"
    model.write_bytes((kept / "model").read_bytes())
    same.hardlink_to(model)
    for output in (model, same, pathlib.Path(f"{tmp_path}/../{tmp_path.name}/model.onnx")):
        done = run("quantize", model, "-o", output, **tiny_environment)
        assert done.exit_code == 2
        assert done.stderr == f"rn50: {output}: is an input of this command; name another file\n"
