"""Exported models: they compute what the frameworks compute, keep facts, and are evaluated before they are
written."""

import json

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from rn50 import files, packages
from rn50.benchmark import rules
from rn50.cli import main
from rn50.deploy import export, graph, model_evaluation, model_file
from rn50.errors import UserError
from rn50.weights import weights_file
from tests.conftest import with_changes
from tests.deploy.networks import FACTS, fitted_weights, random_weights
from tests.support import documented


def rn50(*arguments, environ=None):
    return CliRunner(mix_stderr=False).invoke(main, [*map(str, arguments)], env=environ)


def counted(evaluated):
    return evaluated.counts.correct, evaluated.counts.images


def logits(model, images):
    return model_file.session(model, 1).run(None, {model.input: images})[0]


@pytest.fixture
def images():
    return np.random.RandomState(1).standard_normal((5, 3, 32, 32)).astype(np.float32)


def of_pytorch(some, images):
    """Logits of our network in PyTorch."""
    torch = pytest.importorskip("torch")
    from implementations.pytorch.model import ResNet50, _layers

    network = ResNet50(some.classes, some.width, False, "float32").eval()
    for module in _layers(network):
        own = dict(module.names)
        if "gamma" in own:
            own.update((of, own["gamma"].replace("gamma", of)) for of in ("running_mean", "running_var"))
        for kind, name in own.items():
            getattr(module, kind).data.copy_(torch.tensor(some.arrays[name]))
    return network(torch.tensor(images)).detach().numpy()


def of_mxnet(some, images):
    """Logits of our network in MXNet."""
    pytest.importorskip("implementations.mxnet")
    from implementations.mxnet import mx
    from implementations.mxnet.model import Layout, ResNet50

    network = ResNet50(some.classes, some.width, False, Layout("NCHW", "float32", False))
    network.initialize()
    network(mx.nd.array(images))
    for name, parameter in network.collect_params().items():
        parameter.set_data(mx.nd.array(some.arrays[name]))
    return network(mx.nd.array(images)).asnumpy()


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("reference", [of_pytorch, of_mxnet])
def test_the_logits_are_those_of_a_framework(images, fold, reference):
    some = random_weights()
    model = export.convert(some, "model.onnx", fold)
    kinds = [node.op_type for node in model.proto.graph.node]
    assert kinds.count("Conv") == 53 and kinds.count("BatchNormalization") == (0 if fold else 53)
    expected = reference(some, images)
    assert np.abs(logits(model, images) - expected).max() <= 1e-4 * np.abs(expected).max()
    np.testing.assert_allclose(
        logits(model, images[:1]), expected[:1], rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_preprocessing_agrees_with_the_input_pipeline(tiny_config):
    """No pixel of what the model resizes and crops is more than one level of 255 from DALI's, and few are not
    the same."""
    some = fitted_weights(tiny_config)
    plain, whole = (export.convert(some, "model.onnx", preprocessing=each) for each in (False, True))
    assert (plain.image_size, whole.image_size) == (32, None)
    normalised = next(node for node in whole.proto.graph.node if node.op_type == "Conv").input[0]
    cut = onnx.ModelProto()
    cut.CopyFrom(whole.proto)
    cut.graph.output[0].CopyFrom(
        onnx.helper.make_tensor_value_info(normalised, onnx.TensorProto.FLOAT, [None, 3, 32, 32]))
    session = model_file.session(whole._replace(content=cut.SerializeToString()), 1)
    prepared = [image.copy() for images, _ in model_evaluation.inputs(plain, tiny_config) for image in images]
    found = [
        session.run([normalised], {whole.input: image})[0][0]
        for image, _ in model_evaluation.inputs(whole, tiny_config)]
    levels = np.abs(np.array(found) - np.array(prepared)) * np.reshape(rules.STD, (3, 1, 1))
    assert levels.shape == (57, 3, 32, 32) and levels.max() < 1.001 and (levels > 0.5).mean() < 0.02
    counts = [counted(model_evaluation.evaluate(each, tiny_config)) for each in (plain, whole)]
    assert counts[0][1] == counts[1][1] == 57 and abs(counts[0][0] - counts[1][0]) <= 3 and counts[0][0] > 40


def test_the_verb_evaluates_what_it_writes(tiny_config, tiny_environment, tmp_path):
    source, output = tmp_path / "result_0.safetensors", tmp_path / "model.onnx"
    some = fitted_weights(tiny_config)
    correct, total = counted(model_evaluation.evaluate(export.convert(some, "x"), tiny_config))
    weights_file.write(source, some._replace(facts={**some.facts, "accuracy": str(correct / total)}))
    done = rn50("export", source, "-o", output, "--json", environ=tiny_environment)
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert documented.differences("export", told) == []
    assert (told["correct"], told["total"], told["nodes"]) == (correct, 57, 122)
    model = model_file.read(output)
    assert model.facts == {
        "classes": "10", "width": "0.125", "image_size": "32", "eval_resize": "36",
        "accuracy": str(correct / total), "source_sha256": files.sha256(source)}
    page = tmp_path / "page.html"
    done = rn50("evaluate", output, "--report", page, "--json", environ=tiny_environment)
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert documented.differences("evaluate", told) == []
    assert (told["correct"], told["images"], told["framework"], told["precision"]) == (
        correct, total, "onnxruntime", "float32")
    assert page.exists() and sum(each["images"] for each in told["bins"]) == total
    done = rn50("evaluate", output, environ=tiny_environment)
    assert f"{correct} of {total}" in done.stdout and "density" not in done.stdout, done.stderr
    done = rn50("evaluate", output, "--precision", "bfloat16", environ=tiny_environment)
    assert (
        done.exit_code == 2
        and f"--precision bfloat16: {output} is an ONNX model, which has its own" in done.stderr)
    assert (
        rn50("export", source, "-o", output, environ={**tiny_environment, "DGXSYSTEM": ""}).exit_code == 0
    ), "ours is replaced"


def test_without_a_configuration_it_says_that_it_did_not_evaluate(tmp_path):
    source = tmp_path / "result_0.safetensors"
    weights_file.write(source, random_weights())
    done = rn50("export", source, "-o", tmp_path / "model.onnx", environ={"DGXSYSTEM": "", "CONFIG_FILE": ""})
    assert done.exit_code == 0 and "not evaluated" in done.stderr and "top-1" not in done.stdout
    assert "122 nodes, 10 classes, batch norm folded" in done.stdout


def test_a_model_of_another_accuracy_is_not_written(tiny_config, tiny_environment, tmp_path):
    source, output = tmp_path / "result_0.safetensors", tmp_path / "model.onnx"
    some = random_weights()
    weights_file.write(source, some._replace(facts={**some.facts, "accuracy": "0.75"}))
    done = rn50("export", source, "-o", output, environ=tiny_environment)
    assert done.exit_code == 2 and not output.exists()
    assert f"{output}: not written: its top-1 is 0." in done.stderr and f"{source} says 0.7500" in done.stderr


@pytest.mark.parametrize(
    "section, said",
    [({"classes": 11},
      "model.onnx: is a model of NUMCLASSES=10, and the configuration has NUMCLASSES=11; name the "
      "configuration"),
     ({"image_size": 48}, "a model of IMAGE_SIZE=32, and the configuration has IMAGE_SIZE=48"),
     ({"eval_resize": 40}, "a model of EVAL_RESIZE=36, and the configuration has EVAL_RESIZE=40"),
     ({"folder": "/nowhere"}, "/nowhere: No such file or directory; set DATADIR")])
def test_a_model_of_another_task_is_not_evaluated(tiny_config, section, said):
    model = export.convert(random_weights(), "model.onnx")
    with pytest.raises(UserError, match=said):
        model_evaluation.evaluate(model, with_changes(tiny_config, data=section))


def spoiled(change):
    """The bytes of a model after ``change`` of it."""
    proto = onnx.ModelProto()
    proto.CopyFrom(export.convert(random_weights(), "model.onnx").proto)
    change(proto)
    return proto.SerializeToString()


def side(value, **dimension):
    for name, size in dimension.items():
        value.type.tensor_type.shape.dim[int(name[1:])].dim_value = size


def elsewhere(proto):
    tensor = proto.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, "/etc/passwd")
    tensor.data_location = onnx.TensorProto.EXTERNAL


@pytest.mark.parametrize(
    "content, said",
    [(b"", "no ONNX file"), (b"not a model", "no ONNX file"), (b"\x80\x02}q\x00.", "no ONNX file"),
     (spoiled(lambda proto: None)[:-1000], "no ONNX file"),
     (spoiled(lambda proto: side(proto.graph.input[0], _1=1)),
      r"its input is float32 \(\?, 1, 32, 32\), expected float32 \(N, 3"),
     (spoiled(lambda proto: side(proto.graph.input[0], _0=8)), r"its input is float32 \(8, 3, 32, 32\)"),
     (spoiled(lambda proto: proto.graph.output.add().CopyFrom(proto.graph.output[0])),
      "1 inputs and 2 outputs, expected one of"),
     (spoiled(elsewhere), "keeps its tensors in other files"),
     (spoiled(lambda proto: side(proto.graph.input[0], _2=10**6, _3=10**6)),
      r"its input is float32 \(\?, 3, 1000000, 1000000\)")])
def test_another_file_is_refused(tmp_path, content, said):
    file = tmp_path / "other.onnx"
    file.write_bytes(content)
    with pytest.raises(
        UserError, match=f"^{file}: .*{said}.*; give a file that rn50 export or rn50 quantize wrote$"
    ) as raised:
        model_file.read(file)
    assert "\n" not in str(raised.value)


def test_a_model_that_the_runtime_cannot_load_is_refused():
    def cut(proto):
        for tensor in proto.graph.initializer:
            if tensor.name == "fc1_weight":
                tensor.CopyFrom(onnx.numpy_helper.from_array(np.zeros((10, 7), np.float32), "fc1_weight"))

    model = model_file.parse("model.onnx", spoiled(cut))
    with pytest.raises(UserError, match="model.onnx: ONNX Runtime cannot (load|run) it"):
        session = model_file.session(model, 1)
        with model_file.faults(model.name, "run"):
            session.run(None, {model.input: np.zeros((1, 3, 32, 32), np.float32)})


def test_a_missing_package_names_its_set():
    with (
        pytest.raises(UserError, match="the package onnx is not installed; requirements/install.sh deploy"),
        packages.needed_for("ONNX models"),
    ):
        raise ModuleNotFoundError("No module named 'onnx'", name="onnx")


@pytest.mark.parametrize(
    "name, value", [("image_size", "10000000"), ("eval_resize", "-5"), ("classes", "nan")])
def test_facts_that_no_network_has_are_refused(name, value):
    content = spoiled(lambda proto: graph.label(proto, {**FACTS, name: value}))
    with pytest.raises(UserError, match=f"other.onnx: .*its header says {value} of {name}"):
        model_file.parse("other.onnx", content)


def test_values_that_are_no_numbers_are_no_accuracy(tiny_config):
    def spoil(proto):
        (bias,) = (each for each in proto.graph.initializer if each.name == "fc1_bias")
        bias.CopyFrom(onnx.numpy_helper.from_array(np.full(10, np.nan, np.float32), "fc1_bias"))

    with pytest.raises(UserError, match="nan.onnx: its logits are not finite numbers"):
        model_evaluation.evaluate(model_file.parse("nan.onnx", spoiled(spoil)), tiny_config)


def test_a_loop_without_end_is_ended(monkeypatch):
    h, number, truth, real = (
        onnx.helper, onnx.TensorProto.INT64, onnx.TensorProto.BOOL, onnx.TensorProto.FLOAT)

    def loop(proto):
        body = h.make_graph(
            [h.make_node("Identity", ["go"], ["on"]), h.make_node("Identity", ["in"], ["out"])], "body",
            [h.make_tensor_value_info(*each)
             for each in (("i", number, []), ("go", truth, []), ("in", real, [None, 10]))],
            [h.make_tensor_value_info("on", truth, []), h.make_tensor_value_info("out", real, [None, 10])])
        (last,) = proto.graph.node[-1].output
        proto.graph.node[-1].output[0] = "once"
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "true"))
        proto.graph.node.append(h.make_node("Loop", ["", "true", "once"], [last], body=body))

    monkeypatch.setattr(model_file, "LIMIT_S", 0.5)
    endless = model_file.logits_function(model_file.parse("endless.onnx", spoiled(loop)), 1)
    with pytest.raises(UserError, match="endless.onnx: no answer within 0.5 s"):
        endless(np.zeros((1, 3, 32, 32), np.float32))
