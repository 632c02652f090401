"""``rn50 config new`` on simulated machines: what it chooses there, and that its file is a configuration like
ours.

Processes: one command shows that another reads the file.
"""

import dataclasses
import json
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from rn50 import files
from rn50.benchmark import rules
from rn50.benchmark.recipe import SHARED
from rn50.cli import main
from rn50.errors import UserError
from rn50.machine import hardware
from rn50.new_config import choices, new_config
from rn50.settings import config as configuration
from rn50.settings import document, show, writing
from rn50.settings.config import of_document
from rn50.settings.document import Document
from rn50.settings.fields import KNOWN_NAMES
from tests.support import machines, new_configs
from tests.support.machines import NAMES, simulated
from tests.support.new_configs import BARE


def packages(**installed):
    return dataclasses.replace(BARE, packages=installed)


def machine(number, name, capability, gib, used=None):
    """The DGX A100 with other GPUs."""
    return new_configs.machine("8xA100", number, name, capability, gib * 1024, used)


def file_of(new, folder):
    """The file that is written."""
    file = folder / f"config_{new.name}.sh"
    writing.write(new.text, file, force=True)
    return file


def config_of(new, folder):
    """The configuration of a run when bash has read the file; nothing in it is unknown or without effect."""
    file = Document(file_of(new, folder))
    config = configuration.from_environment(file.sourced(), file)
    rows = show.describe(config)
    assert [row for row in rows if row.origin != "default" and row.state in ("no effect", "ignored")] == []
    assert file.unknown(KNOWN_NAMES) == []
    return config


A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize("name", new_configs.MACHINES)
def test_what_is_written(name):
    """``python -m tests.support.new_configs`` writes it again."""
    file = new_configs.GOLDEN / f"{name}.sh"
    assert new_configs.text(name) == file.read_text(encoding="utf-8"), (
        f"to write it again: {new_configs.AGAIN}")


def test_no_golden_file_is_of_no_machine():
    assert {file.stem for file in new_configs.GOLDEN.iterdir()} == set(new_configs.MACHINES)


@pytest.mark.parametrize("name", new_configs.MACHINES)
def test_gpus_get_a_published_recipe_whole(tmp_path, name):
    facts = new_configs.machine(*new_configs.MACHINES[name])
    new = new_config.make("MINE", facts, BARE)
    config = config_of(new, tmp_path)
    assert config == new.config and config.is_imagenet and show.findings(config) == new.findings == []
    source = new.source.plan.hyperparameters.source
    for value in SHARED:
        if value != "global_batch_size":
            assert getattr(config.recipe, value) == getattr(source.recipe, value)
    assert source.name in new.text and f"organisation: {source.organisation}" in new.text
    assert ("changed     global batch size" in new.text) is (
        source.recipe.global_batch_size != config.global_batch_size)


@pytest.mark.parametrize(
    "number, gib, used, images",
    [
        (8, 80, 0, 408),
        (6, 80, 0, 400),  # not 544, a sixth of 3264: most published results have 408 images a GPU at most
        (2, 24, 0, 204),  # a half of 408 in all: no published size is a multiple of 8 here
        (1, 24, 0, 320),
        (1, 24, 1000, 304),
        (1, 24, None, 320),
        (1, 2, 0, 8),
    ],
)
def test_the_batch_fits_the_memory_that_is_free(number, gib, used, images):
    new = new_config.make("MINE", machine(number, "GPU", (8, 0), gib, used), BARE)
    assert new.config.hyperparameters.batch_size == images


def test_a_gpu_that_others_use_is_said():
    new = new_config.make("MINE", machine(2, A100, (8, 0), 80, 60_000), BARE)
    said = "are in use, which the batch size leaves to others: nvidia-smi names the processes"
    assert [each for each in new.cautions if "in use" in each] == [
        f"GPU {index}: 60000 MiB {said}" for index in (0, 1)]
    cautions = new_config.make("MINE", machine(2, A100, (8, 0), 80, 2000), BARE).cautions
    assert not any("in use" in line for line in cautions)


@pytest.mark.parametrize(
    "capability, load", [((8, 0), 0.7), ((8, 6), 0), ((8, 9), 0), ((9, 0), 0.7), (None, 0)])
def test_images_go_through_the_jpeg_engine_where_there_is_one(tmp_path, capability, load):
    new = new_config.make("MINE", machine(1, "GPU", capability, 24), BARE)
    assert config_of(new, tmp_path).input_pipeline.hw_decoder_load == load


def test_an_instance_has_no_jpeg_engine():
    assert new_config.make("MINE", simulated("MIG"), BARE).config.input_pipeline.hw_decoder_load == 0


def test_minutes_are_promised_only_of_what_was_published():
    published = new_config.make("MINE", machine(8, H100, (9, 0), 80), BARE)
    assert published.source.accelerator == "H100-SXM-80GB"
    assert re.search(
        r"minutes \(.*\) at the rate of others' code on H100-SXM-80GB$", published.text, re.MULTILINE)
    other = new_config.make("MINE", machine(1, "NVIDIA GeForce RTX 3070", (8, 6), 8), BARE)
    assert other.source.accelerator is None and not re.search(r"(minutes|epochs) \(", other.text)
    assert (
        "minutes are not known; rn50 plan --accelerators 1 --gbs 64 --images-per-second N tells" in other.text
    )
    assert any("nobody published a result with NVIDIA GeForce RTX 3070" in each for each in other.cautions)
    assert any("the nearest published recipe is far away" in each for each in other.cautions)


@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_one_like_ours_on_every_machine(tmp_path, name):
    new = new_config.make("MINE", simulated(name), BARE)
    config_of(new, tmp_path)
    sections = re.findall(r"^# --- ([a-z ]+?)(?: \(|:| -)", new.text, re.MULTILINE)
    assert sections == ["hyperparameters", "run", "data", "input pipeline", "environment"]
    assert len(new.text.splitlines()) <= 60 and "DGXSYSTEM=MINE " in new.text
    assert files.MARK in new.text.splitlines()[1]
    values = [line for line in new.text.splitlines() if line.startswith("export ")]
    assert all(re.match(r"export [A-Z_]+=\S.* # \S", line) for line in values), "every value has its reason"
    for section in ("hyperparameters", "input_pipeline"):  # rn50 borrow and rn50 tune input can go on from it
        writing.split(Document(file_of(new, tmp_path)), section)


WHY = "the default from compute capability 7.5 on: MXNet's wheel is channels-first, by estimate slower"
INSTALL = "rn50 doctor says how to install it"
NEWER = "PyTorch is for compute capability 7.5 and newer"
BOTH = {"mxnet-cu112": "1.9.1", "torch": "2.13.0"}


@pytest.mark.parametrize(
    "capability, installed, chosen, reason",
    [
        ((8, 0), {}, "pytorch", f"{WHY}; {INSTALL}"),
        ((7, 5), BOTH, "pytorch", WHY),
        ((8, 9), {"torch": "2.13.0+cu130"}, "pytorch", WHY),
        ((8, 0), {"mxnet-cu112": "1.9.1", "torch": "2.13.0+cpu"}, "mxnet",
         "installed; PyTorch, the default from compute capability 7.5 on, is not"),
        ((8, 0), {"mxnet": "1.9.1", "paddlepaddle": "2.6.2"}, "pytorch", f"{WHY}; {INSTALL}"),  # for CPUs
        ((9, 0), {"torch": "2.13.0"}, "pytorch", "MXNet has no code for compute capability 9.0"),
        ((7, 0), BOTH, "mxnet", f"the default; {NEWER}"),
        ((7, 0), {"torch": "2.13.0"}, "mxnet", f"the default; {INSTALL}; {NEWER}"),
        ((6, 1), {"paddlepaddle-gpu": "2.6.2"}, "paddle", "installed; MXNet, the default, is not"),
        (None, {}, "mxnet", f"the default; {INSTALL}"),
        (None, {"torch": "2.13.0"}, "pytorch", "installed; MXNet, the default, is not"),
    ],
)
def test_the_framework_is_one_that_suits_the_gpus(capability, installed, chosen, reason):
    new = new_config.make("MINE", machine(1, "GPU", capability, 40), packages(**installed))
    assert new.framework == (chosen, reason)


def test_a_gpu_for_which_there_is_no_framework():
    with pytest.raises(
        UserError,
        match="MXNet has no code for compute capability 3.7; Paddle has .*; PyTorch .*; use another machine",
    ):
        new_config.make("MINE", machine(1, "Tesla K80", (3, 7), 12), BARE)


def test_a_vendors_container_goes_before_all_others():
    inside = dataclasses.replace(packages(torch="2.13.0"), nvidia_container="24.06")
    new = new_config.make("MINE", machine(8, H100, (9, 0), 80), inside)
    assert new.framework == ("mxnet", "that of NVIDIA's container 24.06")


def test_a_framework_may_be_asked_for():
    old, hopper = machine(8, A100, (8, 0), 80), machine(8, H100, (9, 0), 80)
    assert new_config.make("MINE", old, BARE, framework="pytorch").config.run.framework == "pytorch"
    with pytest.raises(
        UserError, match="MXNet has no code for compute capability 9.0; give --framework pytorch"
    ):
        new_config.make("MINE", hopper, BARE, framework="mxnet")
    with pytest.raises(
        UserError, match="Paddle has no code for compute capability 9.0; give --framework pytorch"
    ):
        new_config.make("MINE", hopper, BARE, framework="paddle")
    for model, capability in ((A100, (8, 0)), ("Tesla V100-SXM2-32GB", (7, 0))):
        made = new_config.make("MINE", machine(8, model, capability, 32), BARE, framework="paddle").config
        assert (made.run.framework, made.run.precision) == ("paddle", "float16")
    with pytest.raises(UserError, match="no such implementation"):
        new_config.make("MINE", hopper, BARE, framework="none")
    of_nvidia = dataclasses.replace(BARE, nvidia_container="23.10")
    assert new_config.make("MINE", hopper, of_nvidia, framework="mxnet").config.run.framework == "mxnet"


@pytest.mark.parametrize("capability, precision", [((6, 1), "float32"), ((7, 0), "float16"), (None, "auto")])
def test_precision_is_what_the_gpu_computes_fast(tmp_path, capability, precision):
    new = new_config.make("MINE", machine(1, "GPU", capability, 16), BARE)
    assert config_of(new, tmp_path).run.precision == precision
    assert new.config.hyperparameters.batch_size == {"float32": 96}.get(precision, 192)


@pytest.mark.parametrize(
    "installed, framework",
    [({"mxnet": "1.9.1", "torch": "2.13.0"}, "mxnet"), ({"torch": "2.13.0"}, "pytorch")])
def test_without_a_gpu_it_is_the_demo(tmp_path, installed, framework):
    new = new_config.make("LAPTOP", simulated("no-GPU"), packages(**installed))
    config = config_of(new, tmp_path)
    demo = of_document(document.find("DEMO_CPU"))
    assert (config.hyperparameters, config.data, config.input_pipeline) == (
        demo.hyperparameters, demo.data, demo.input_pipeline)
    assert (config.run.framework, config.run.device, config.ranks, config.run.precision) == (
        framework, "cpu", 2, "auto")
    assert new.findings == [rules.NOT_A_RESULT]
    assert rules.NOT_A_RESULT in config.run.organisation and rules.NOT_A_RESULT in config.run.platform
    assert "configs/config_DEMO_CPU.sh" in new.text and str(files.ROOT) not in new.text
    assert "epochs (" not in new.text, "ImageNet's epochs say nothing of the demo's"


@pytest.mark.parametrize(
    "base, number, gib, images, says",
    [("NF5688M6", 8, 80, 408, "as config_NF5688M6.sh"), ("NF5688M6", 4, 80, 816, "as config_NF5688M6.sh"),
     ("NF5688M6", 4, 40, 576, "3264 in config_NF5688M6.sh; no more fit 40 GiB"),
     ("DGXH100", 6, 80, 533, "3200 in config_DGXH100.sh, which 6 ranks do not divide"),
     ("DEMO_GPU_PYTORCH", 2, 24, 128, "as config_DEMO_GPU_PYTORCH.sh")])
def test_from_a_system_the_global_batch_stays_where_memory_and_ranks_allow(
    tmp_path, base, number, gib, images, says
):
    file = document.find(base)
    new = new_config.make("MINE", machine(number, A100, (8, 0), gib), BARE, file)
    config, before = config_of(new, tmp_path), of_document(file)
    assert config.hyperparameters.batch_size == images and new.source.batch.reason == says
    kept = dataclasses.replace(before.hyperparameters, batch_size=images)
    assert (config.hyperparameters, config.data, config.ranks) == (kept, before.data, number)
    changed = (
        f"changed     global batch size {before.global_batch_size} there, {images * number} here" in new.text)
    assert changed is (config.global_batch_size != before.global_batch_size)
    assert config.is_imagenet is before.is_imagenet


def test_a_batch_that_no_run_can_have_is_refused_under_the_name_of_the_file(tmp_path):
    base = tmp_path / "theirs.sh"
    text = document.file_of("NF5688M6").read_text()
    base.write_text(text.replace("BATCHSIZE=408", "BATCHSIZE=10").replace("DGXNGPU=8", "DGXNGPU=4"))
    with pytest.raises(UserError, match=r"^config_MINE.sh: NUMEXAMPLES=1281167 .* change BATCHSIZE by one$"):
        new_config.make("MINE", machine(8, A100, (8, 0), 80), BARE, Document(base))


def test_imagenet_on_a_cpu_takes_what_fits_its_memory(tmp_path):
    new = new_config.make("MINE", simulated("no-GPU"), BARE, document.find("NF5688M6"))
    config = config_of(new, tmp_path)
    assert config.run.device == "cpu" and config.is_imagenet and config.ranks == 2
    assert config.hyperparameters.batch_size == choices.fitting(new.devices, "auto", config.data) == 30
    assert "3264 in config_NF5688M6.sh; no more fit 8 GiB" in new.text
    assert (
        "expected    epochs are not known: the recipe was chosen for a global batch size of 3264" in new.text)
    assert ["rn50 borrow --suggest --gbs 60" in each for each in new.cautions] == [True]


def test_gpus_that_no_rank_can_use():
    sliced = simulated("MIG")
    assert new_config.make("MINE", sliced, BARE).devices.memory_mib == 20 * 1024
    whole = dataclasses.replace(sliced.gpus[0], mig=False, index=1)
    with pytest.raises(UserError, match="sudo nvidia-smi -i 0 -mig 0"):
        new_config.make("MINE", dataclasses.replace(sliced, gpus=(*sliced.gpus, whole)), BARE)
    silent = machine(1, "NVIDIA GB10", (12, 1), 8)
    silent = dataclasses.replace(silent, gpus=(dataclasses.replace(silent.gpus[0], memory_mib=None),))
    with pytest.raises(UserError, match="does not report its memory; give --from SYSTEM"):
        new_config.make("MINE", silent, BARE)
    assert (
        new_config.make("MINE", silent, BARE, document.find("1xL40S")).config.global_batch_size == 408)


def test_cautions(tmp_path):
    two = machine(2, A100, (8, 0), 80)
    mixed = dataclasses.replace(
        two, gpus=(two.gpus[0], dataclasses.replace(two.gpus[1], name="NVIDIA T400", memory_mib=8192)))
    new = new_config.make("MINE", mixed, BARE)
    assert new.config.hyperparameters.batch_size <= 96
    assert any(f"the GPUs differ ({A100}, NVIDIA T400)" in each for each in new.cautions)


@pytest.mark.parametrize(
    "status, printed, hardware_is_seen, reason",
    [(127, "", True, "nvidia-smi: command not found"),
     (124, "nvidia-smi gave no answer within 20 s", False, "nvidia-smi gave no answer within 20 s"),
     (9, "NVIDIA-SMI has failed because\nof it\n", False, "NVIDIA-SMI has failed because"),
     (127, "", False, "")])
def test_a_configuration_for_the_cpu_says_why_no_gpu_could_be_asked(
    tmp_path, status, printed, hardware_is_seen, reason
):
    source = machines.source("no-GPU")

    def run(argv):
        return (status, printed) if argv[0] == "nvidia-smi" else source.run(argv)

    facts = hardware.read(source._replace(run=run, environ={}))
    facts = dataclasses.replace(facts, nvidia_hardware=hardware_is_seen)
    new = new_config.make("MINE", facts, BARE)
    said = [f"no GPU can be used ({reason}), so this trains on the CPU"] if reason else []
    assert [each.rpartition(":")[0] for each in new.cautions] == said
    assert config_of(new, tmp_path).run.device == "cpu"
    [line] = [line for line in new.text.splitlines() if line.startswith("export DEVICE=cpu")]
    assert line.endswith(f"# no GPU: {reason or 'nvidia-smi: command not found'}")


@pytest.mark.parametrize(
    "framework, driver, needed",
    [("pytorch", "535.129.03", "580.65.06"), ("pytorch", "580.65.06", ""),
     ("mxnet", "440.33.01", "450.80.02")])
def test_a_driver_that_is_too_old_for_the_packages_is_said(framework, driver, needed):
    one = machine(1, A100, (8, 0), 80)
    one = dataclasses.replace(one, gpus=(dataclasses.replace(one.gpus[0], driver=driver),))
    said = [
        line for line in new_config.make("MINE", one, BARE, framework=framework).cautions if "driver" in line]
    assert bool(said) is bool(needed)
    assert all(line.startswith(f"driver {driver} is too old") and needed in line for line in said)


def command(*arguments):
    return CliRunner(mix_stderr=False).invoke(main, ["config", "new", *map(str, arguments)])


def test_the_command_writes_once_and_says_what(tmp_path):
    file = tmp_path / "config_MINE.sh"
    done = command("MINE", "--from", "DEMO_CPU", "-o", file)
    assert done.exit_code == 0, done.stderr
    assert (
        str(file) in done.stdout and f"rn50 run {file}" in done.stdout
        and "64 in all: as config_DEMO_CPU.sh" in done.stdout)
    text = file.read_text()
    assert f"CONFIG_FILE={file} ./run_and_time.sh" in text and f"`rn50 tune input {file}`" in text
    again = command("MINE", "-o", file)
    assert again.exit_code == 2 and f"{file}: exists; " in again.stderr and "--force" in again.stderr
    forced = command("MINE", "--from", file, "-o", file, "--force", "--json")
    said = json.loads(forced.stdout)
    assert forced.exit_code == 0 and said["global_batch_size"] == 64 and said["written"] == str(file)
    shown = subprocess.run(
        [sys.executable, "-m", "rn50", "config", "show", str(file)], capture_output=True, text=True)
    assert shown.returncode == 0 and "MINE: ranks 2, global batch size 64" in shown.stdout


@pytest.mark.parametrize(
    "arguments, message",
    [(["a/b"], "NAME a/b: no name of a system"), (["-x"], "No such option"),
     ([".."], "NAME ..: no name of a system"), (["é"], "no name of a system"),
     (["x" * 300], "no name of a system"),
     (["NO_USER_HAS_THIS", "--from", "NOBODYS"], "NOBODYS: no such file"),
     (["NO_USER_HAS_THIS", "--framework", "none"], "FRAMEWORK=none: no such implementation"),
     (["DEMO_CPU"], "config_DEMO_CPU.sh: exists"),
     (["NO_USER_HAS_THIS", "-o", "/nowhere/config_MINE.sh"], "/nowhere/config_MINE.sh: cannot be written"),
    ])
def test_refusals_are_a_line(arguments, message):
    done = command(*arguments)
    assert done.exit_code == 2 and message in done.stderr
    assert "Traceback" not in done.stderr
    assert not document.file_of("NO_USER_HAS_THIS").exists()
