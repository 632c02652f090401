"""The configuration: our files load, anybody's runs, a misspelled or impossible value is refused by name, no knob lies."""

import dataclasses
import importlib.util
import io
import json
import pathlib
import re
import time

import pytest

from rn50 import frameworks
from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.settings import config as configuration
from rn50.settings import config_file, show, variables
from rn50.settings.shell import assignments
from rn50.terminal import Terminal

ROOT = pathlib.Path(__file__).resolve().parents[2]
OURS = sorted((ROOT / "configs").glob("config_*.sh"))

# What every published file of this benchmark sets.
IMAGENET = {
    "OPTIMIZER": "sgdwfastlars",
    "BATCHSIZE": "408",
    "LR": "10.5",
    "WARMUP_EPOCHS": "2",
    "NUMEPOCHS": "37",
    "MOM": "0.9",
    "WD": "5.0e-05",
    "LARSETA": "0.001",
    "LABELSMOOTHING": "0.1",
    "EVAL_OFFSET": "2",
    "EVAL_PERIOD": "4",
    "DGXNGPU": "8",
    "DGXNNODES": "1",
}


def read(**changes):
    return configuration.from_environment({**IMAGENET, **changes})


def refusal(**changes):
    with pytest.raises(UserError) as refused:
        read(**changes)
    return str(refused.value)


def states(environ, config_file_=None):
    config = configuration.from_environment(environ, config_file_)
    return {row.name: row for row in show.describe(config, environ, config_file_)}


@pytest.fixture
def foreign(tmp_path):
    """A file in the published style: it sources a neighbour, computes values, prints, and sets names that nobody here knows."""
    (tmp_path / "config_X8_common.sh").write_text(
        "export DGXNGPU=8\nexport DGXNSOCKET=2\nexport MXNET_EXTENDED_NORMCONV_SUPPORT=1\nexport NEIGHBOURS_OWN=1\n"
    )
    file = tmp_path / "config_X8.sh"
    lines = [f'export {name}="{value}"  # as published' for name, value in IMAGENET.items() if name != "DGXNGPU"]
    file.write_text(
        "source $(dirname ${BASH_SOURCE[0]})/config_X8_common.sh\necho running\n"
        + "\n".join(lines)
        + """
export NUMEPOCHS=${NUMEPOCHS:-"37"}
export KVSTORE="horovod"
export LRSCHED="pow2"
export NETWORK="resnet-v1b-stats-fl"
export DALI_HW_DECODER_LOAD="0.7"
export DALI_ROI_DECODE="1"
export DALI_CACHE_SIZE="0"
export NHWC_BATCHNORM_LAUNCH_MARGIN=32
export NCCL_SOCKET_IFNAME=""
export HOROVOD_CYCLE_TIME=0.1
export BATCHSIZ=1
PLAIN_ASSIGNMENT=1
#export COMMENTED_OUT=1
export DGXSYSTEM=$(basename $(readlink -f ${BASH_SOURCE[0]}) | sed 's/^config_//' | sed 's/\\.sh$//' )
export WALLTIME=$(( ${NEXP:-1} * 8 + 10 ))
"""
    )
    return str(file)


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.stem)
def test_our_files_load_and_hold_nothing_dead_or_unknown(file):
    environ = config_file.source(str(file))
    rows = states(environ, str(file))
    assert [row for row in rows.values() if row.origin != "default" and row.state in ("dead", "ignored")] == []
    assert environ["DGXSYSTEM"] == file.stem[len("config_"):]


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.stem)
def test_our_files_are_one_screen_of_plain_lines(file):
    text = file.read_text()
    code = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all(re.match(r"export [A-Z][A-Za-z0-9_]*=\S", line) for line in code)
    assert len(text.splitlines()) <= 60
    assert f"DGXSYSTEM={file.stem[len('config_'):]} " in text
    sections = re.findall(r"^# --- ([a-z ]+?)(?: \(|:| -)", text, re.MULTILINE)
    assert sections == ["hyperparameters", "run", "data", "input pipeline", "environment"]


@pytest.mark.parametrize("file", [file for file in OURS if "DEMO" not in file.name], ids=lambda file: file.stem)
def test_our_imagenet_files_keep_the_official_rules(file):
    config = configuration.from_environment(config_file.source(str(file)), str(file))
    assert config.is_imagenet
    assert show.findings(config) == []


def test_the_inspur_run():
    file = ROOT / "configs" / "config_NF5688M6.sh"
    config = configuration.from_environment(config_file.source(str(file)), str(file))
    assert (config.ranks, config.global_batch_size) == (8, 3264)
    assert dataclasses.asdict(config.hyperparameters) == {
        "optimizer": "lars",
        "batch_size": 408,
        "learning_rate": 10.5,
        "warmup_epochs": 2,
        "num_epochs": 37,
        "decay_epochs": None,
        "momentum": 0.9,
        "weight_decay": 5e-5,
        "lars_eta": 0.001,
        "label_smoothing": 0.1,
        "eval_offset": 2,
        "eval_period": 4,
        "bn_gamma_zero": False,
    }


@pytest.mark.parametrize("system, framework", [("DEMO_CPU", "mxnet"), ("DEMO_CPU_PYTORCH", "pytorch"),
                                               ("DEMO_GPU_PYTORCH", "pytorch")])
def test_the_demo_is_labelled(system, framework):
    file = ROOT / "configs" / f"config_{system}.sh"
    config = configuration.from_environment(config_file.source(str(file)), str(file))
    assert config.run.framework == framework
    assert not config.is_imagenet
    assert show.findings(config) == [rules.NOT_A_RESULT]
    assert rules.NOT_A_RESULT in config.run.organisation and rules.NOT_A_RESULT in config.run.platform


def test_the_demos_differ_in_the_framework_alone():
    names = ("DEMO_CPU", "DEMO_CPU_PYTORCH")
    mxnets, pytorchs = (config_file.source(str(ROOT / "configs" / f"config_{name}.sh")) for name in names)
    differ = {name for name in {**mxnets, **pytorchs} if mxnets.get(name) != pytorchs.get(name)}
    assert differ == {"FRAMEWORK", "DGXSYSTEM", "SUBMISSION_PLATFORM"}


def test_the_user_names_the_data_folder():
    for file in OURS:
        assert re.search(r'^export DATADIR="\$\{DATADIR:-[\w/]+\}"$', file.read_text(), re.MULTILINE), file


OTHER_TASKS = [
    ("NUMEXAMPLES", "1000000"),
    ("NUMVALEXAMPLES", "49999"),
    ("NUMCLASSES", "10"),
    ("IMAGE_SIZE", "192"),
    ("EVAL_RESIZE", "288"),
    ("CROP_AREA_MIN", "0.25"),
    ("WIDTH", "0.5"),
    ("BENCHMARK_STEPS", "100"),
]


@pytest.mark.parametrize("name, value", OTHER_TASKS)
def test_anything_but_the_whole_task_is_no_result(name, value):
    assert read().is_imagenet and read(DATADIR="/elsewhere").is_imagenet
    assert not read(**{name: value}).is_imagenet


@pytest.mark.parametrize("missing", sorted(IMAGENET))
def test_what_decides_convergence_has_no_default(missing):
    assert refusal(**{missing: ""}).startswith(f"{missing} is not set")


def test_every_problem_is_shown_in_a_line_of_its_own():
    lines = refusal(LR="1o.5", MOM="2", WARMUP_EPOCHS="37", KVSTORE="device").splitlines()
    assert [line.split("=")[0] for line in lines] == ["KVSTORE", "LR", "MOM", "WARMUP_EPOCHS"]
    assert "LR=1o.5 is not a number; for example LR=10.5" in lines[1]


@pytest.mark.parametrize("spelling", ["lars", "LARS", "sgdwfastlars", "sgdwfastlarsv2"])
def test_every_published_spelling_of_lars(spelling):
    assert read(OPTIMIZER=spelling).hyperparameters.optimizer == "lars"


def test_sgd_needs_no_trust_coefficient():
    without = {name: value for name, value in IMAGENET.items() if name != "LARSETA"}
    config = configuration.from_environment({**without, "OPTIMIZER": "SGD"})
    assert (config.hyperparameters.optimizer, config.hyperparameters.lars_eta) == ("sgd", None)
    assert configuration.from_environment(config.as_environment()) == config
    with pytest.raises(UserError, match="LARSETA is not set"):
        configuration.from_environment(without)
    row = states({**IMAGENET, "OPTIMIZER": "sgd"})["LARSETA"]
    assert (row.state, row.value, row.origin) == ("dead", "0.001", "environment")


@pytest.mark.parametrize("value", ["0.0", "-1", "nan", "none"])
def test_a_variable_that_the_optimizer_does_not_read_is_not_refused_for_its_value(value):
    environ = {**IMAGENET, "OPTIMIZER": "sgd", "LARSETA": value}
    assert configuration.from_environment(environ).hyperparameters.lars_eta is None
    row = states(environ)["LARSETA"]
    assert (row.state, row.value, row.note) == ("dead", value, "OPTIMIZER=sgd has no trust ratio")


def test_epochs_may_be_broken_and_the_decay_may_end_before_the_run():
    h = read(WARMUP_EPOCHS="7.6", DECAY_EPOCHS="32.97").hyperparameters
    assert (h.warmup_epochs, h.schedule_epochs, h.num_epochs) == (7.6, 32.97, 37)
    whole = read(WARMUP_EPOCHS="2.0").hyperparameters
    assert (str(whole.warmup_epochs), str(whole.schedule_epochs)) == ("2", "37")


@pytest.mark.parametrize("spelling", ["resnet-v1b-fl", "resnet-v1b-stats-fl", "resnet-v1b-dbar-fl", "resnet50"])
def test_every_published_spelling_of_the_network(spelling):
    read(NETWORK=spelling)


IMPOSSIBLE = [
    ("OPTIMIZER", "adam", "no known optimizer"),
    ("NETWORK", "vgg16", "not ResNet-50"),
    ("NETWORK", "resnet-v2-fl", "not ResNet-50"),
    ("LRSCHED", "30,60,80", "pow2"),
    ("KVSTORE", "device", "KVSTORE=horovod"),
    ("BN_GROUP", "2", "BN_GROUP=1"),
    ("BATCHSIZE", "0", "1 or more"),
    ("BATCHSIZE", "-408", "1 or more"),
    ("BATCHSIZE", "408.5", "whole number"),
    ("BATCHSIZE", "1e999", "finite"),
    ("LR", "0", "greater than 0"),
    ("LR", "-10.5", "greater than 0"),
    ("LR", "nan", "finite"),
    ("LR", "1o.5", "not a number"),
    ("WARMUP_EPOCHS", "-1", "negative"),
    ("WARMUP_EPOCHS", "37", "shorter than the schedule"),
    ("NUMEPOCHS", "0", "1 or more"),
    ("DECAY_EPOCHS", "0", "greater than 0"),
    ("DECAY_EPOCHS", "2", "raise DECAY_EPOCHS"),
    ("MOM", "1", "below 1"),
    ("MOM", "-0.1", "at least 0"),
    ("WD", "-1e-4", "negative"),
    ("LARSETA", "0.0", "greater than 0"),
    ("LABELSMOOTHING", "1", "below 1"),
    ("EVAL_OFFSET", "-1", "negative"),
    ("EVAL_OFFSET", "37", "no epoch would be evaluated"),
    ("EVAL_PERIOD", "0", "1 or more"),
    ("BN_GAMMA_ZERO", "yes", "neither 0 nor 1"),
    ("DGXNGPU", "0", "1 or more"),
    ("DGXNNODES", "0", "1 or more"),
    ("DGXNNODES", "1000", "more than the data set has"),
    ("DEVICE", "tpu", "gpu, cpu"),
    ("PRECISION", "float8", "float16"),
    ("SUBMISSION_DIVISION", "Closed division", "closed, open"),
    ("SUBMISSION_STATUS", "finished", "onprem"),
    ("SEED", "-1", "from 0"),
    ("SEED", "4294967296", "2147483647"),
    ("BENCHMARK_STEPS", "0", "1 or more"),
    ("NUMEXAMPLES", "0", "1 or more"),
    ("NUMEXAMPLES", "3000", "more than the data set has"),
    ("NUMVALEXAMPLES", "0", "1 or more"),
    ("NUMCLASSES", "1", "2 or more"),
    ("IMAGE_SIZE", "0", "1 or more"),
    ("IMAGE_SIZE", "288", "raise EVAL_RESIZE"),
    ("CROP_AREA_MIN", "0", "above 0"),
    ("CROP_AREA_MIN", "1.5", "at most 1"),
    ("WIDTH", "0", "from 0.01 to 16"),
    ("DALI_THREADS", "0", "1 or more"),
    ("DALI_PREFETCH_QUEUE", "0", "1 or more"),
    ("DALI_HW_DECODER_LOAD", "1.1", "at most 1"),
    ("DALI_ROI_DECODE", "true", "neither 0 nor 1"),
    ("DALI_CACHE_SIZE", "-1", "negative"),
    ("INPUT_BATCH_MULTIPLIER", "0", "1 or more"),
    ("LR", "1_0", "not a number"),
    ("LR", "\uff11\uff10", "not a number"),
    ("LR", "0x10", "not a number"),
    ("LR", "-Infinity", "not a finite number"),
    ("NUMEPOCHS", "1e300", "at most 10,000"),
    ("WARMUP_EPOCHS", "1e300", "at most 10,000"),
    ("WIDTH", "0.0001", "no channel"),
    ("WIDTH", "1e9", "from 0.01 to 16"),
    ("NUMCLASSES", "1e12", "at most 1,000,000"),
    ("DALI_THREADS", "1e9", "at most 1,024"),
    ("DALI_PREFETCH_QUEUE", "1e18", "at most 1,024"),
    ("OMP_NUM_THREADS", "abc", "not a number"),
    ("OMP_NUM_THREADS", "100000", "at most 1,024"),
    ("OMP_NUM_THREADS", "4,0", "1 or more"),
    ("SUBMISSION_ORG", "caf\udce9", "is not UTF-8"),
    ("DATADIR", "/data/\udcff", "is not UTF-8"),
]


@pytest.mark.parametrize("name, value, rule", IMPOSSIBLE)
def test_an_impossible_value_is_refused_with_the_rule_it_breaks(name, value, rule):
    message = refusal(**{name: value})
    assert f"{name}={value}" in message
    assert rule in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("variable", [variable for _, _, variable in configuration.variables()], ids=lambda each: each.name)
def test_no_number_is_accepted_whatever_its_size(variable):
    if variable.parse in (variables.integer, variables.number, variables.epochs):
        assert f"{variable.name}=1e300" in refusal(**{variable.name: "1e300"})


def test_batches_that_no_memory_holds_are_refused():
    assert "more than a tebibyte; lower BATCHSIZE" in refusal(BATCHSIZE="100000", DALI_PREFETCH_QUEUE="1000", DGXNGPU="1")


def test_a_very_long_value_is_shown_by_its_beginning():
    assert len(refusal(LR="1" * 100_000 + "x")) < 500


def test_numbers_of_threads_as_openmp_reads_them():
    assert read(OMP_NUM_THREADS="4").ranks == read(OMP_NUM_THREADS="4,2").ranks == read(OMP_NUM_THREADS="").ranks == 8


def test_float16_needs_a_gpu():
    assert read(DEVICE="gpu", PRECISION="float16").run.precision == "float16"
    assert "DEVICE=cpu PRECISION=float16" in refusal(DEVICE="cpu", PRECISION="float16")
    assert "DEVICE=gpu PRECISION=bfloat16" in refusal(DEVICE="gpu", PRECISION="bfloat16")


def test_an_epoch_that_leaves_samples_out_is_refused():
    # 10 samples on 4 ranks are shards of 2, 2, 3 and 3; one step of batch 2 would leave the third samples unseen.
    samples = {"NUMEXAMPLES": "10", "DGXNGPU": "4"}
    assert "leave out 2 samples" in refusal(BATCHSIZE="2", **samples)
    # Batch 1 needs three steps for a shard of 3, and the formula gives two.
    assert "leave out 2 samples" in refusal(BATCHSIZE="1", **samples)
    read(BATCHSIZE="2", NUMEXAMPLES="8", DGXNGPU="4")
    read(BATCHSIZE="2", NUMEXAMPLES="15", DGXNGPU="4")


def test_the_environment_of_a_configuration_reads_back_as_itself():
    config = read(SEED="7", DGXNSOCKET="2", DALI_ROI_DECODE="1", RESULT_FILE="results/a b.txt", DEVICE="cpu", WIDTH="0.25")
    assert configuration.from_environment(config.as_environment()) == config
    assert json.loads(json.dumps(config.to_dict()))["run"]["seed"] == 7


def test_a_misspelled_name_in_our_file_is_an_error_with_the_nearest_name(monkeypatch, tmp_path):
    monkeypatch.setattr(config_file, "CONFIGS", tmp_path)
    file = tmp_path / "config_MINE.sh"
    file.write_text("export LARSETTA=0.001\nexport DALI_THREDS=4\nexport HOROVOD_CYCLE_TIME=0.1\n  QQQQ=1\n#export COMMENT=1\n")
    with pytest.raises(UserError) as refused:
        configuration.from_environment(IMAGENET, str(file))
    lines = str(refused.value).splitlines()
    assert len(lines) == 3
    assert "LARSETTA" in lines[0] and "did you mean LARSETA?" in lines[0]
    assert "DALI_THREDS" in lines[1] and "did you mean DALI_THREADS?" in lines[1]
    assert "QQQQ" in lines[2] and "remove it" in lines[2]
    with pytest.raises(UserError):
        configuration.from_environment({**IMAGENET, "CONFIG_FILE": str(file)})


def test_anybodys_file_runs_unchanged(foreign):
    environ = config_file.source(foreign)
    config = configuration.from_environment(environ, foreign)
    assert config.run.system == "X8"
    assert config.global_batch_size == 3264
    rows = {row.name: row for row in show.describe(config, environ, foreign)}
    state = {name: row.state for name, row in rows.items()}
    assert {name for name in state if state[name] == "ignored"} == {"BATCHSIZ", "PLAIN_ASSIGNMENT", "NEIGHBOURS_OWN"}
    assert {name for name in state if state[name] == "dead" and rows[name].origin == "file"} == {
        "DGXNSOCKET", "WALLTIME", "NHWC_BATCHNORM_LAUNCH_MARGIN", "MXNET_EXTENDED_NORMCONV_SUPPORT",
    }
    assert state["HOROVOD_CYCLE_TIME"] == state["NCCL_SOCKET_IFNAME"] == "passed through"
    assert state["NETWORK"] == state["KVSTORE"] == state["LRSCHED"] == state["DALI_CACHE_SIZE"] == "used"
    assert rows["DATADIR"].origin == "default" and rows["LR"].origin == "file"


def test_names_of_other_makers():
    environ = {name: value for name, value in IMAGENET.items() if not name.startswith("DGX")}
    config = configuration.from_environment({**environ, "PGNGPU": "4", "PGNNODES": "2", "PGSYSTEM": "PG"})
    assert (config.run.ranks_per_node, config.run.nodes, config.run.system) == (4, 2, "PG")
    with pytest.raises(UserError, match="PGNGPU=0"):
        configuration.from_environment({**environ, "PGNGPU": "0", "PGNNODES": "1"})


CPU = {"DEVICE": "cpu"}
ROI = {"DALI_ROI_DECODE": "1"}
MXNET = frameworks.unimported("mxnet", "traits")
DATALOADER = {"INPUT_LIBRARY": "dataloader"}
DEAD = [
    ("DALI_PREALLOCATE_WIDTH", "5980", {"DALI_HW_DECODER_LOAD": "0"}, {"DALI_HW_DECODER_LOAD": "0.7"}, "DALI_HW_DECODER_LOAD=0"),
    ("DALI_CACHE_SIZE", "6144", ROI, {}, "DALI_ROI_DECODE=1"),
    ("DALI_HW_DECODER_LOAD", "0.7", CPU, {}, "DEVICE=cpu"),
    ("DALI_CACHE_SIZE", "6144", CPU, {}, "DEVICE=cpu"),
    ("DALI_NVJPEG_MEMPADDING", "64", CPU, {}, "DEVICE=cpu"),
    ("DALI_PREALLOCATE_WIDTH", "5980", CPU, {"DALI_HW_DECODER_LOAD": "0.7"}, "DEVICE=cpu"),
    ("DALI_PREALLOCATE_HEIGHT", "6430", CPU, {"DALI_HW_DECODER_LOAD": "0.7"}, "DEVICE=cpu"),
    ("DALI_TMP_BUFFER_HINT", "1000000", CPU, {}, "DEVICE=cpu"),
    ("DALI_DECODER_BUFFER_HINT", "1000000", CPU, {}, "DEVICE=cpu"),
    ("DALI_ROI_DECODE", "1", {"FRAMEWORK": "pytorch", **DATALOADER}, {}, "without DALI"),
    ("DALI_ROI_DECODE", "1", {"FRAMEWORK": "pytorch", "INPUT_LIBRARY": "torchvision"}, {}, "without DALI"),
    ("STEP_MODE", "graph", {"FRAMEWORK": "pytorch", **CPU}, {"FRAMEWORK": "pytorch"}, "DEVICE=cpu"),
    ("STEP_MODE", "fused", {"FRAMEWORK": "pytorch", **CPU}, {"FRAMEWORK": "pytorch"}, "DEVICE=cpu"),
    ("INPUT_BATCH_MULTIPLIER", "8", {}, {"INPUT_BATCH_MULTIPLIER": "1"}, "one at a time"),
]


@pytest.mark.parametrize("name, value, kills, revives, reason", DEAD)
def test_a_knob_that_does_nothing_is_called_dead(name, value, kills, revives, reason):
    row = states({**IMAGENET, name: value, **kills})[name]
    assert row.state == "dead" and reason in row.note
    assert states({**IMAGENET, name: value, **revives})[name].state == "used"


@pytest.mark.parametrize("changes, says", [
    ({"FRAMEWORK": "abacus"}, r"FRAMEWORK=abacus is no implementation \(there is mxnet, pytorch\)"),
    ({"INPUT_LIBRARY": "dataloader"}, "with FRAMEWORK=mxnet INPUT_LIBRARY is dali; use one of these"),
    ({"STEP_MODE": "compile"}, "with FRAMEWORK=mxnet STEP_MODE is eager; use one of these"),
    ({"PRECISION": "bfloat16"}, "with FRAMEWORK=mxnet and DEVICE=gpu PRECISION is auto or float32 or float16"),
    ({"FRAMEWORK": "pytorch", "PRECISION": "float16", **CPU}, "FRAMEWORK=pytorch and DEVICE=cpu PRECISION is auto or float32"),
])  # fmt: skip
def test_what_a_framework_does_not_have_is_refused(changes, says):
    with pytest.raises(UserError, match=says):
        configuration.from_environment({**IMAGENET, **changes})


def test_a_knob_turned_off_is_not_dead():
    assert states({**IMAGENET, "DALI_CACHE_SIZE": "0", "DALI_HW_DECODER_LOAD": "0", **ROI})["DALI_CACHE_SIZE"].state == "used"


def test_what_is_called_used_is_read_somewhere_and_what_is_dead_nowhere():
    code = "".join(
        path.read_text()
        for folder in ("rn50", "implementations")
        for path in (ROOT / folder).rglob("*.py")
        if path.parent.name != "settings"
    )
    everything_on = states({**IMAGENET, "DGXNSOCKET": "2", "DGXSOCKETCORES": "64", "DGXHT": "2", "WALLTIME": "1",
                            "INPUT_BATCH_MULTIPLIER": "8", "DALI_HW_DECODER_LOAD": "0.7", "DALI_CACHE_SIZE": "1"})
    unread = {variable.name for _, field, variable in configuration.variables() if not re.search(rf"\.{field}\b", code)}
    assert unread == {name for name, row in everything_on.items() if row.state == "dead"}


def test_what_the_rules_would_find():
    def found(**changes):
        return [finding.split("=")[0] for finding in show.findings(read(**changes))]

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
    assert found(EVAL_PERIOD="1", SUBMISSION_DIVISION="open") == []


def test_with_what_the_closed_division_does_not_allow_the_log_names_the_open_one():
    assert (read().division, read(WD="3e-5").division) == ("closed", "open")
    assert (read(OPTIMIZER="sgd").division, read(OPTIMIZER="sgd", LR="10.0005").division) == ("closed", "open")
    assert "will log" not in "".join(show.findings(read(SUBMISSION_DIVISION="open", WD="3e-5")))
    [finding] = show.findings(read(WD="3e-5"))
    assert finding == "WD=3e-05: the rules allow 0.0001 * 2^n with a whole n; the log will name the open division"


def test_the_table_fits_and_gives_the_reasons(foreign):
    environ = config_file.source(foreign)
    config = configuration.from_environment(environ, foreign)
    rows = show.describe(config, environ, foreign)
    out = io.StringIO()
    show.print_table(rows, config, Terminal(file=out))
    text = out.getvalue()
    assert "X8: ranks 8, global batch size 3264" in text
    assert "dead: DGXNSOCKET=2: ranks are bound to the cores that are there" in text
    assert "ignored: BATCHSIZ=1" in text
    report = show.to_json(rows, config)
    assert json.loads(json.dumps(report))["values"][0]["name"] == "OPTIMIZER"


def test_showing_a_file_leaves_the_environment_of_the_user_out(foreign, monkeypatch, capsys):
    monkeypatch.setenv("LR", "99")
    monkeypatch.setenv("NUMEPOCHS", "99")
    show.show(pathlib.Path(foreign), as_json=True)
    values = {row["name"]: row["value"] for row in json.loads(capsys.readouterr().out)["values"]}
    assert (values["LR"], values["NUMEPOCHS"]) == ("10.5", "37")


UNSOURCEABLE = [
    ("exit 3\n", "exit status 3"), ("export LR=1\nexit 0\n", "ends the shell"), ("set -e\nfalse\n", "exit status 1"),
    ("foo(\n", "cannot be sourced"), ("sleep 60\n", "longer than"),
    ("yes flood >&2\n", "prints more than 4,194,304 bytes"), ("while :; do echo x >&2; done\n", "longer than|prints more than"),
    ("\ufeffexport LR=1\n", "byte order mark"), ("source ./common.sh\n", r":1: sources \./common\.sh, which is not there"),
    (". \"$(dirname ${BASH_SOURCE[0]})/common.sh\"\n", "sources common.sh, which is not there"),
    ("source /nowhere/common.sh\n", "sources /nowhere/common.sh, which is not there"),
    (". " + "a" * 200_000 + "\n", "sources a{20,}[.]{3}, which is not there"),
]


@pytest.mark.parametrize("content, reason", UNSOURCEABLE, ids=[reason for _, reason in UNSOURCEABLE])
def test_a_file_that_cannot_be_sourced(tmp_path, monkeypatch, content, reason):
    monkeypatch.setattr(config_file, "TIME_LIMIT_S", 0.5)
    file = tmp_path / "config_BAD.sh"
    file.write_text(content)
    began = time.monotonic()
    with pytest.raises(UserError, match=reason) as refused:
        config_file.source(str(file))
    assert str(file) in str(refused.value) and len(str(refused.value)) < 500
    assert time.monotonic() - began < 5


def test_what_a_file_starts_ends_with_it_and_is_not_waited_for(tmp_path):
    file = tmp_path / "config_X.sh"
    file.write_text("sleep 300 &\nexport CHILD=$!\n")
    began = time.monotonic()
    child = int(config_file.source(str(file))["CHILD"])
    assert time.monotonic() - began < 5
    while pathlib.Path(f"/proc/{child}").exists() and "State:\tZ" not in pathlib.Path(f"/proc/{child}/status").read_text():
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("sourced", ["./common.sh", "common.sh", "lib/common.sh"])
def test_a_file_is_sourced_in_its_own_folder(tmp_path, monkeypatch, sourced):
    folder = tmp_path / "a blank"
    (folder / "lib").mkdir(parents=True)
    (folder / sourced).write_text("export LR=9\n")
    (folder / "config_X.sh").write_text(f"export LR=1\nsource {sourced}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CDPATH", str(tmp_path))
    assert config_file.source("a blank/config_X.sh", {"CDPATH": str(tmp_path)})["LR"] == "9"
    assert assignments.read(folder / "config_X.sh").values == {"LR": "9"}
    assert config_file.names_set_by(str(folder / "config_X.sh")) == ["LR"]
    (folder / sourced).unlink()
    with pytest.raises(UserError, match=f"config_X.sh:2: sources {sourced}, which is not there"):
        configuration.from_environment(IMAGENET, str(folder / "config_X.sh"))


def test_bytes_that_are_no_text_are_the_same_in_every_reading(tmp_path):
    file = tmp_path / "config_X.sh"
    file.write_bytes(b"export SUBMISSION_ORG='caf\xe9'\n")
    assert config_file.source(str(file)) == assignments.read(file).values == {"SUBMISSION_ORG": "caf\udce9"}


def test_variables_of_mxnet_that_no_release_reads_have_no_effect():
    environ = {**IMAGENET, "MXNET_DETERMINISTIC": "1", "MXNET_CUDNN_NHWC_BN_ADD_RELU": "1", "MXNET_ENFORCE_DETERMINISM": "1",
               "MXNET_UPDATE_AGGREGATION_SIZE": "4"}
    rows = states(environ)
    for name in ("MXNET_DETERMINISTIC", "MXNET_CUDNN_NHWC_BN_ADD_RELU"):
        assert (rows[name].state, rows[name].note) == ("dead", "no released MXNet reads it, at most a vendor's own build")
    assert rows["MXNET_ENFORCE_DETERMINISM"].state == rows["MXNET_UPDATE_AGGREGATION_SIZE"].state == "passed through"


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


def test_a_file_that_does_not_exist(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        config_file.source(str(tmp_path / "config_NONE.sh"))
