"""``rn50 config show`` tells what every value does: used, passed through, ignored or dead, and what the rules
would find."""

import importlib.util
import io
import json
import pathlib
import re

import pytest
from click.testing import CliRunner

from rn50 import frameworks
from rn50.benchmark import recipe, rules
from rn50.cli import main
from rn50.errors import UserError
from rn50.settings import config as configuration
from rn50.settings import fields, libraries, show
from rn50.settings.variables import FIXED, UNUSED
from rn50.terminal import UNFOLDED, Terminal
from tests.settings.imagenet import IMAGENET, read, states

ROOT = pathlib.Path(__file__).resolve().parents[2]
CPU = {"DEVICE": "cpu"}


def test_anybodys_file_runs_unchanged(foreign):
    config = configuration.from_environment(foreign.sourced(), foreign)
    assert config.run.system == "X8"
    assert config.global_batch_size == 3264
    rows = {row.name: row for row in show.describe(config)}
    state = {name: row.state for name, row in rows.items()}
    assert {name for name in state if state[name] == "ignored"} == {
        "BATCHSIZ", "PLAIN_ASSIGNMENT", "NEIGHBOURS_OWN"}
    assert {name for name in state if state[name] == "no effect" and rows[name].origin == "file"} == {
        "DGXNSOCKET", "WALLTIME", "NHWC_BATCHNORM_LAUNCH_MARGIN", "MXNET_EXTENDED_NORMCONV_SUPPORT"}
    assert state["HOROVOD_CYCLE_TIME"] == state["NCCL_SOCKET_IFNAME"] == "passed through"
    assert state["NETWORK"] == state["KVSTORE"] == state["LRSCHED"] == state["DALI_CACHE_SIZE"] == "used"
    assert rows["DATADIR"].origin == "default" and rows["LR"].origin == "file"


ROI = {"DALI_ROI_DECODE": "1"}
MXNET = frameworks.unimported("mxnet", "traits")
DATALOADER = {"INPUT_LIBRARY": "dataloader"}
WITHOUT_EFFECT = [
    ("DALI_PREALLOCATE_WIDTH", "5980", {"DALI_HW_DECODER_LOAD": "0"}, {"DALI_HW_DECODER_LOAD": "0.7"},
     "DALI_HW_DECODER_LOAD=0"),
    ("DALI_CACHE_SIZE", "6144", ROI, {}, "DALI_ROI_DECODE=1"),
    ("DALI_HW_DECODER_LOAD", "0.7", CPU, {}, "DEVICE=cpu"),
    ("DALI_CACHE_SIZE", "6144", CPU, {}, "DEVICE=cpu"),
    ("DALI_NVJPEG_MEMPADDING", "64", CPU, {}, "DEVICE=cpu"),
    ("DALI_PREALLOCATE_WIDTH", "5980", CPU, {"DALI_HW_DECODER_LOAD": "0.7"}, "DEVICE=cpu"),
    ("DALI_PREALLOCATE_HEIGHT", "6430", CPU, {"DALI_HW_DECODER_LOAD": "0.7"}, "DEVICE=cpu"),
    ("DALI_TMP_BUFFER_HINT", "1000000", CPU, {}, "DEVICE=cpu"),
    ("DALI_DECODER_BUFFER_HINT", "1000000", CPU, {}, "DEVICE=cpu"),
    ("DALI_ROI_DECODE", "1", {"FRAMEWORK": "pytorch", **DATALOADER}, {}, "without DALI"),
    ("STEP_MODE", "graph", {"FRAMEWORK": "pytorch", **CPU}, {"FRAMEWORK": "pytorch"}, "DEVICE=cpu"),
    ("STEP_MODE", "fused", {"FRAMEWORK": "pytorch", **CPU}, {"FRAMEWORK": "pytorch"}, "DEVICE=cpu")]


@pytest.mark.parametrize("name, value, kills, revives, reason", WITHOUT_EFFECT)
def test_a_knob_that_does_nothing_is_said_to_have_no_effect(name, value, kills, revives, reason):
    row = states({**IMAGENET, name: value, **kills})[name]
    assert row.state == "no effect" and reason in row.reason and row.meaning
    assert states({**IMAGENET, name: value, **revives})[name].state == "used"


def test_what_no_run_reads_has_no_effect_and_a_meaning():
    names = [*UNUSED, "PGNSOCKET", "NFSOCKETCORES", "HT"]
    config = read(**dict.fromkeys(names, "2"))
    rows = [row for row in show.describe(config, names) if row.name in names]
    assert [row.name for row in rows] == names
    assert all(row.state == "no effect" and row.meaning and row.reason for row in rows)


def test_a_knob_turned_off_has_its_effect():
    assert (
        states({**IMAGENET, "DALI_CACHE_SIZE": "0", "DALI_HW_DECODER_LOAD": "0", **ROI})[
            "DALI_CACHE_SIZE"].state
        == "used")


def test_what_is_called_used_is_read_somewhere_and_what_has_no_effect_nowhere():
    code = "".join(
        path.read_text() for folder in ("rn50", "implementations") for path in (ROOT / folder).rglob("*.py")
        if path.parent.name != "settings")
    everything_on = states(
        {**IMAGENET, "DGXNSOCKET": "2", "DGXSOCKETCORES": "64", "DGXHT": "2", "WALLTIME": "1",
         "INPUT_BATCH_MULTIPLIER": "8", "DALI_HW_DECODER_LOAD": "0.7", "DALI_CACHE_SIZE": "1"})
    unread = {
        variable.name for _, field, variable in fields.variables() if not re.search(rf"\.{field}\b", code)}
    assert unread == {name for name, row in everything_on.items() if row.state == "no effect"}


def test_what_the_rules_would_find():
    def found(**changes):
        """Names in the findings, or in the error of what the closed division refuses."""
        try:
            return [finding.split("=")[0] for finding in show.findings(read(**changes))]
        except UserError as error:
            return [line.split("=")[0] for line in error.lines]

    assert found() == []
    assert found(EVAL_PERIOD="1") == ["EVAL_PERIOD"]
    assert found(EVAL_OFFSET="4") == ["EVAL_OFFSET"]
    assert found(MOM="0.95") == ["MOM"]
    assert found(MOM="0.95", DGXNNODES="16") == []
    assert found(WD="0.0001") == found(WD="2.5e-05") == found(WD="0.0002") == []
    assert found(WD="0") == found(WD="3e-5") == ["WD"]
    assert found(LABELSMOOTHING="0.05") == ["LABELSMOOTHING"]
    assert found(OPTIMIZER="sgd", LR="3.824") == found(LR="10.0005") == []
    assert found(OPTIMIZER="sgd", LR="10.0005") == ["LR"]
    assert found(EVAL_PERIOD="1", SUBMISSION_DIVISION="open") == [rules.OPEN]


OPEN_RECIPE = {
    "WD": "3e-05", "IMAGE_SIZES": "96:1,128:12", "LR_DECAY": "cosine", "LOSS": "binary", "BLURPOOL": "1",
    "EMA_HALF_LIFE": "100.0"}


@pytest.mark.parametrize("name", OPEN_RECIPE)
def test_the_closed_division_refuses_what_the_open_one_shows(name):
    text = OPEN_RECIPE[name]
    with pytest.raises(UserError) as refused:
        read(**{name: text}, DALI_ROI_DECODE="1", FRAMEWORK="pytorch")
    [line] = refused.value.lines
    assert line.startswith(f"{name}={text}: the rules ")
    assert line.endswith("; change it, or set SUBMISSION_DIVISION=open")
    opened = read(**{name: text}, DALI_ROI_DECODE="1", FRAMEWORK="pytorch", SUBMISSION_DIVISION="open")
    [label, finding] = show.findings(opened)
    assert label == rules.OPEN and finding.startswith(f"{name}={text}: the rules ")


@pytest.mark.parametrize(
    "changes, problem",
    [({"IMAGE_SIZES": "0:96"}, "has a size below 32 pixels"), ({"IMAGE_SIZES": "7:1"}, "below 32 pixels"),
     ({"IMAGE_SIZES": "96"}, "is not SIZE:EPOCH"), ({"IMAGE_SIZES": "96:2"}, "must begin with epoch 1"),
     ({"IMAGE_SIZES": "96:1,128:9,160:9"}, "must be above the one before"),
     ({"IMAGE_SIZES": "96:1,256:9"}, "IMAGE_SIZE at most"),
     ({"IMAGE_SIZES": "96:1,128:99"}, "after the last epoch"),
     ({"IMAGE_SIZES": "96:1", "DALI_ROI_DECODE": "0"}, "set DALI_ROI_DECODE=1"),
     ({"DECOUPLED_WD": "1", "FRAMEWORK": "pytorch"}, "set OPTIMIZER=sgd"),
     ({"BLURPOOL": "1"}, "the framework does not implement it; leave it out, or set FRAMEWORK=pytorch"),
     ({"EMA_HALF_LIFE": "-1"}, "must be at least 0"),
     ({"LOSS": "hinge"}, "is not one of softmax, binary"), ({"LR_DECAY": "step"}, "polynomial, cosine")])
def test_an_impossible_open_recipe_is_a_line(changes, problem):
    with pytest.raises(UserError) as refused:
        read(**{"DALI_ROI_DECODE": "1", **changes}, SUBMISSION_DIVISION="open")
    [line] = refused.value.lines
    assert problem in line


def test_an_optimizer_that_the_framework_lacks_is_refused(monkeypatch):
    """Else the run would train with another one, and log this one."""
    monkeypatch.setattr(recipe, "OPTIMIZERS", (*recipe.OPTIMIZERS, "adamw"))  # as docs/architecture.md says
    with pytest.raises(UserError) as refused:
        read(OPTIMIZER="adamw", SUBMISSION_DIVISION="open")
    [line] = refused.value.lines
    assert line.endswith("with FRAMEWORK=mxnet OPTIMIZER is lars or sgd; use one of these")


def printed(rows, config, columns):
    """The lines of the table on something of so many columns."""
    out = io.StringIO()
    console = Terminal(file=out)
    console.width = columns
    show.show_table(rows, config, console)
    return out.getvalue().splitlines()


def test_in_a_pipe_every_variable_is_one_line_with_value_meaning_and_reason(foreign):
    environ = {**foreign.sourced(), "LD_LIBRARY_PATH": "/a/long/path:" * 40}
    config = configuration.from_environment(environ, foreign)
    rows = show.describe(config)
    lines = printed(rows, config, UNFOLDED)
    assert lines[0] == "X8: ranks 8, global batch size 3264"
    for row in rows:
        [line] = [line for line in lines if line.split()[0] == row.name]
        assert (
            line.split(maxsplit=1)[1].startswith(row.value or "-") and row.meaning in line
            and line.endswith(row.text))
    said = "\n".join(" ".join(line.split()) for line in lines)
    assert (
        "DGXNSOCKET 2 CPU sockets of a machine; no effect: ranks are bound to the cores that are there"
        in said)
    assert (
        "BATCHSIZ 1 ignored: neither rn50 nor a library that it knows reads it; did you mean BATCHSIZE?"
        in said)
    assert re.search(r"^ignored: .*\bBATCHSIZ\b", said, re.MULTILINE) and "\nno effect: " in said
    assert (
        "DECAY_EPOCHS - epochs after which the learning rate has decayed, if not NUMEPOCHS [default]" in said)
    assert (
        "HOROVOD_CYCLE_TIME 0.1 milliseconds from one round of sums" in said
        and "; passed through to Horovod" in said)
    assert max(len(line) for line in lines if "LD_LIBRARY_PATH" not in line) < 300, (
        "a long value moves no other line")
    assert rows[0].name == "OPTIMIZER"


def test_on_a_terminal_of_80_columns_the_meanings_are_readable(foreign):
    config = configuration.from_environment(foreign.sourced(), foreign)
    rows = show.describe(config)
    lines = printed(rows, config, 80)
    assert all(len(line) <= 80 for line in lines)
    assert any(" ".join(line.split()).startswith("LR 10.5 highest learning rate") for line in lines)
    together = " ".join(" ".join(lines).split())
    assert all(row.name in together for row in rows if row.state != "no effect")
    assert "DALI_NVJPEG_MEMPADDING" in together and "ranks are bound to the cores that are there" in together
    hidden = show.describe(read(DEVICE="cpu"))
    assert "DALI_NVJPEG_MEMPADDING" not in "".join(printed(hidden, read(DEVICE="cpu"), 80)), (
        "a default without effect")


def test_showing_a_file_leaves_the_environment_of_the_user_out(foreign, monkeypatch, capsys):
    monkeypatch.setenv("LR", "99")
    monkeypatch.setenv("NUMEPOCHS", "99")
    show.show(str(foreign.path), (), set_only=False, as_json=True)
    rows = json.loads(capsys.readouterr().out)["values"]
    values = {row["name"]: row["value"] for row in rows}
    assert (values["LR"], values["NUMEPOCHS"]) == ("10.5", "37")
    show.show(str(foreign.path), (), set_only=True, as_json=True)
    of_file = [row for row in rows if row["origin"] != "default"]
    assert json.loads(capsys.readouterr().out)["values"] == of_file != rows


def test_variables_of_mxnet_that_no_release_reads_have_no_effect():
    environ = {
        **IMAGENET, "MXNET_DETERMINISTIC": "1", "MXNET_CUDNN_NHWC_BN_ADD_RELU": "1",
        "MXNET_ENFORCE_DETERMINISM": "1", "MXNET_UPDATE_AGGREGATION_SIZE": "4"}
    rows = states(environ)
    for name in ("MXNET_DETERMINISTIC", "MXNET_CUDNN_NHWC_BN_ADD_RELU"):
        assert (rows[name].state, rows[name].reason) == (
            "no effect", "no released MXNet reads it, at most a vendor's own build")
    assert (
        rows["MXNET_ENFORCE_DETERMINISM"].state == rows["MXNET_UPDATE_AGGREGATION_SIZE"].state
        == "passed through")


def test_the_variables_of_mxnet_are_those_in_its_library():
    package = importlib.util.find_spec("mxnet")  # looked for, not imported
    if package is None:
        pytest.skip("needs MXNet")
    folder = pathlib.Path(package.submodule_search_locations[0])
    name = re.compile(rb"(?<![A-Za-z0-9_])MXNET_[A-Z0-9_]+")
    in_library = {each.decode() for each in name.findall((folder / "libmxnet.so").read_bytes())}
    assert MXNET.LIBRARY <= in_library <= MXNET.READ | {"MXNET_C_API", "MXNET_LAPACK_"}
    in_python = {each.decode() for file in folder.rglob("*.py") for each in name.findall(file.read_bytes())}
    assert in_python >= MXNET.PYTHON


def test_a_library_is_named_and_its_variables_explained_as_far_as_they_are_known():
    rows = states({**IMAGENET, "NCCL_BUFFSIZE": "2097152", "NCCL_NO_SUCH": "1", "MXNET_USE_FUSION": "0"})
    assert (
        rows["NCCL_BUFFSIZE"].text
        == "bytes of the buffer between two GPUs; passed through to NCCL [environment]")
    assert rows["NCCL_NO_SUCH"].text == "passed through to NCCL [environment]"
    assert rows["MXNET_USE_FUSION"].text.endswith("; passed through to MXNet [environment]")
    rows = states({
        **IMAGENET, "FRAMEWORK": "pytorch", "MXNET_USE_FUSION": "0", "HOROVOD_CYCLE_TIME": "1",
        "TORCH_X": "1"})
    for name, library in (("MXNET_USE_FUSION", "MXNet"), ("HOROVOD_CYCLE_TIME", "Horovod")):
        assert rows[name].text.endswith(
            f"; no effect: FRAMEWORK=pytorch runs without {library} [environment]")
    assert rows["TORCH_X"].state == "passed through"
    assert set(MXNET.TRAITS.meanings) <= MXNET.READ
    assert set(libraries.MEANINGS) == {
        name for name in libraries.MEANINGS if name.startswith(libraries.PASSED_THROUGH)}


def test_every_variable_says_what_it_does():
    meanings = {variable.name: variable.meaning for _, _, variable in fields.variables()}
    meanings.update({name: fixed.meaning for name, fixed in FIXED.items()}, **libraries.MEANINGS)
    for name, meaning in meanings.items():
        assert len(meaning) > 5 and not meaning.endswith(".") and meaning.isprintable(), name


def shown(*arguments):
    done = CliRunner().invoke(main, ["config", "show", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_file_that_names_no_framework_is_told_what_trains_on_newer_gpus(foreign):
    advice = "FRAMEWORK: not set, so MXNet, whose packages have code for compute capability 5.0 6.0 7.0 8.0"
    told = shown(str(foreign.path))
    assert advice in told and "H100: --set FRAMEWORK=pytorch --set STEP_MODE=fused\n" in told
    with_them = shown(str(foreign.path), "--set", "FRAMEWORK=pytorch", "--set", "STEP_MODE=fused")
    assert ": not set, so" not in with_them and ": not set, so" not in shown("DEMO_CPU")
    eager = (
        "STEP_MODE: not set, so eager; from compute capability 8.0 on fused is fastest: --set STEP_MODE=fused"
    )
    assert eager in shown(str(foreign.path), "--set", "FRAMEWORK=pytorch")


@pytest.mark.parametrize(
    "values, told",
    [(["DGXNGPU=4"], True), (["BATCHSIZE=200"], True), (["DGXNGPU=4", "BATCHSIZE=102"], False),
     (["DGXNGPU=4", "LR=5"], False), (["PRECISION=float32"], False), ([], False)])
def test_a_batch_for_which_the_learning_rate_was_not_chosen_is_told(values, told):
    said = shown("1xL40S", *(word for value in values for word in ("--set", value)))
    sentence = "here, for which its learning rate was not chosen, so epochs are not comparable; rn50 borrow"
    assert (sentence in said) == told
    if values == ["DGXNGPU=4"]:
        assert f"\nLR: global batch size: 408 in config_1xL40S.sh, 1632 {sentence} --suggest" in said
