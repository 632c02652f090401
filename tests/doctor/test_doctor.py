"""The doctor's verdict on ten machines and on this one, and what it says of their GPUs, of results and of a
submission.

Processes: the command looks at the environment that it was started in.
"""

import dataclasses
import io
import json
import pathlib
import subprocess
import sys

import pytest

from rn50 import files, frameworks, process
from rn50.doctor import doctor, gpus
from rn50.doctor import results as results_advice
from rn50.doctor.diagnosis import FAILURE, OK, WARNING, Diagnosis
from rn50.errors import UserError
from rn50.machine.hardware import Mount
from rn50.printed import as_json
from rn50.settings import document
from rn50.settings.document import Document
from rn50.terminal import Terminal
from tests.conftest import in_test_all, with_changes
from tests.doctor.examined import GPU_BUILD, config_of, examine
from tests.support.machines import NAMES, simulated


def subjects(findings, severity):
    return {each.subject for each in findings.values() if each.severity == severity}


# machine, system, what fails, what warns: nothing else may
CASES = [
    ("8xA100", "DGXA100", [], []), ("8xA100", "NF5688M6", [], []), ("8xA100", "1xA100", [], []),
    ("8xA100", "DEMO_CPU", [], []), ("1xA100", "1xA100", [], ["GPU clocks and power", "open files"]),
    ("1xA100", "NF5688M6", ["GPU"], ["GPU clocks and power", "open files", "threads"]),
    ("H100", "DGXA100", ["compute capability"], []), ("H100", "DEMO_CPU", [], ["compute capability"]),
    ("L40S", "2xA30", [], ["GPU clocks and power"]), ("MIG", "1xA100", [], ["MIG"]),
    ("MIG", "DGXA100", ["GPU", "MIG"], []), ("container-3-cores", "2xA30", [], ["/dev/shm", "threads"]),
    ("container-3-cores", "DEMO_CPU", [], []),
    ("VM-without-NUMA", "1xA100", [],
     ["compute capability", "driver", "GPU clocks and power", "open files", "BATCHSIZE"]),
    ("Slurm-cpuset", "2xA30", [], ["binding", "locked memory"]),
    ("arm64", "1xA100", ["processor", "compute capability"], []),
    ("arm64", "DEMO_CPU", ["processor"], ["compute capability"]), ("no-GPU", "DEMO_CPU", [], []),
    ("no-GPU", "NF5688M6", ["GPU"], ["threads"])]


@pytest.mark.parametrize("name, system, fails, warns", CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
def test_what_fails_and_what_warns(data, name, system, fails, warns):
    found = examine(name, system, data=data)
    assert subjects(found, FAILURE) == set(fails)
    assert subjects(found, WARNING) == set(warns)


def test_every_machine_is_in_a_case():
    assert {case[0] for case in CASES} == set(NAMES)


def test_advice_for_h100(data):
    finding = examine("H100", "DGXA100", data=data)["compute capability"]
    assert "H100 80GB HBM3 has 9.0" in finding.found and "5.0 6.0 7.0 8.0 8.6" in finding.found
    assert (
        "requirements/install.sh pytorch-gpu" in finding.remedy
        and "NVIDIA's MXNet container" in finding.remedy)


def test_h100_under_other_software_is_well(data):
    config = config_of("DGXA100", DATADIR=str(data))
    in_container = dataclasses.replace(GPU_BUILD, nvidia_container="23.10")
    assert all(each.severity == OK for each in doctor.examine(simulated("H100"), in_container, config))
    pytorch = with_changes(config, run={"framework": "pytorch"})
    without_mxnet = dataclasses.replace(
        GPU_BUILD, packages={"torch": "2.4.0", "nvidia-dali-cuda120": "1.40.0", "mlperf_logging": "4.1.68"})
    assert all(each.severity == OK for each in doctor.examine(simulated("H100"), without_mxnet, pytorch))


@pytest.mark.parametrize("machine, severity", [("H100", FAILURE), ("1xA100", OK), ("MIG", OK)])
def test_advice_for_paddle(machine, severity):
    config = with_changes(config_of("1xA100"), run={"framework": "paddle"})
    there = dataclasses.replace(
        GPU_BUILD, packages={"paddlepaddle-gpu": "2.6.2", "nvidia-dali-cuda110": "1.34.0"})
    found = {each.subject: each for each in doctor.examine(simulated(machine), there, config)}
    assert found["packages"].severity == OK and found["compute capability"].severity == severity
    assert "6.1 7.0 7.5 8.0 8.6" in found["compute capability"].found
    assert severity == OK or "requirements/install.sh pytorch-gpu" in found["compute capability"].remedy


@pytest.mark.parametrize(
    "device, packages, says",
    [("cpu", ("paddlepaddle", "paddlepaddle-gpu", "nvidia-dali-cuda110"), "two builds of Paddle"),
     ("cpu", ("paddlepaddle-gpu", "nvidia-dali-cuda110"), "no paddlepaddle beside"),
     ("gpu", ("paddlepaddle", "nvidia-dali-cuda110"), "no paddlepaddle-gpu beside")])
def test_packages_that_paddle_lacks(device, packages, says):
    config = with_changes(config_of("DEMO_CPU"), run={"framework": "paddle", "device": device})
    there = dataclasses.replace(GPU_BUILD, packages=dict.fromkeys(packages, "1"))
    found = {each.subject: each for each in doctor.examine(simulated("no-GPU"), there, config)}["packages"]
    assert (
        found.severity == FAILURE and says in found.found
        and f"requirements/install.sh paddle-{device}" in found.remedy)


@pytest.mark.parametrize(
    "capability, runs",
    [((3, 7), False), ((5, 2), True), ((6, 1), True), ((7, 0), True), ((7, 5), True), ((8, 0), True),
     ((8, 6), True), ((8, 9), True), ((9, 0), False), ((10, 0), False), ((12, 0), False)])
def test_machine_code_runs_on_newer_minor_versions_only(capability, runs):
    assert frameworks.traits("mxnet").runs_on(capability) is runs


def test_advice_for_other_gpus(data):
    l40s = examine("L40S", "2xA30", data=data)["GPU clocks and power"]
    assert (
        "GPU 0 limited to 300 of 350 W" in l40s.found
        and "GPU 1 slowed down (software thermal slowdown)" in l40s.found)
    assert "sudo nvidia-smi -i 0 -pl 350" in l40s.remedy and "sudo nvidia-smi -pm 1" in l40s.remedy
    assert "8.9" in examine("L40S", "2xA30", data=data)["compute capability"].found
    assert "GPU 1" not in examine("L40S", "1xA100", data=data)["GPU clocks and power"].found, (
        "only GPUs that are used count")
    mig = examine("MIG", "1xA100", data=data)["MIG"]
    assert "3g.20gb" in mig.found and mig.remedy == "sudo nvidia-smi -i 0 -mig 0"
    assert "NCCL does not connect instances" in examine("MIG", "DGXA100", data=data)["MIG"].found
    few = examine("1xA100", "NF5688M6", data=data)["GPU"]
    assert "DGXNGPU=8" in few.found and "DGXNGPU=1" in few.remedy
    dgx = examine("8xA100", "DGXA100", data=data)
    assert (
        dgx["GPU links"].found == "NVLink between all (NV12)" and "mlx5_3: 200 Gb/sec" in dgx["network"].found
    )
    assert "rank 7: CPU 88-95,104-111,216-223,232-239" in dgx["binding"].found


def test_advice_for_an_old_driver(data):
    old = examine("VM-without-NUMA", "1xA100", data=data)
    assert "470.182.03" in old["driver"].found and "export MXNET_USE_FUSION=0" in old["driver"].remedy
    assert (
        examine("VM-without-NUMA", "1xA100", data=data, environ={"MXNET_USE_FUSION": "0"})["driver"].severity
        == OK)
    facts = simulated("8xA100")
    older = dataclasses.replace(
        facts, gpus=tuple(dataclasses.replace(each, driver="418.226.00") for each in facts.gpus))
    found = {
        each.subject: each
        for each in doctor.examine(older, GPU_BUILD, config_of("DGXA100", DATADIR=str(data)))}
    assert found["driver"].severity == FAILURE and "450.80.02" in found["driver"].found


@pytest.mark.parametrize(
    "changes, says",
    [({"no_gpu": "CUDA_VISIBLE_DEVICES=7 hides all of 2"}, "unset CUDA_VISIBLE_DEVICES"),
     ({"no_gpu": "nvidia-smi: command not found", "nvidia_hardware": True,
       "mounts": (Mount("/", "overlay", "overlay", "rw"),)},
      "docker run --gpus all"),
     ({"no_gpu": "nvidia-smi: command not found", "nvidia_hardware": True},
      "apt-get install nvidia-driver"),
     ({"no_gpu": "Failed to initialize NVML: Driver/library version mismatch", "nvidia_hardware": True},
      "sudo reboot"),
     ({"no_gpu": "nvidia-smi gave no answer within 20 s"}, "apt-get install nvidia-driver"),
     ({}, "rn50 run DEMO_CPU"),
     ({"mounts": (Mount("/", "overlay", "overlay", "rw"),)}, "rn50 run DEMO_CPU")])
def test_why_there_is_no_gpu(data, changes, says):
    facts = dataclasses.replace(simulated("no-GPU"), **changes)
    found = {
        each.subject: each
        for each in doctor.examine(facts, GPU_BUILD, config_of("1xA100", DATADIR=str(data)))}
    assert found["GPU"].severity == FAILURE and says in found["GPU"].remedy
    assert changes.get("no_gpu", "command not found") in found["GPU"].found


@pytest.mark.parametrize(
    "reason, severity",
    [("nvidia-smi: command not found", OK), ("nvidia-smi gave no answer within 20 s", WARNING)])
def test_a_failing_nvidia_smi_is_named_where_no_gpu_is_asked_for(reason, severity):
    facts = dataclasses.replace(simulated("no-GPU"), no_gpu=reason)
    found = {each.subject: each for each in doctor.examine(facts, GPU_BUILD, config_of("DEMO_CPU"))}
    assert found["GPU"].severity == severity and (severity == OK or reason in found["GPU"].found)


def test_warnings_stop_nothing():
    warning, failure = Diagnosis(WARNING, "a", "b", "c"), Diagnosis(FAILURE, "a", "b", "c")
    assert as_json(doctor.Examination([warning])) == {
        "ok": True, "findings": [{"severity": "warning", "subject": "a", "found": "b", "remedy": "c"}]}
    assert not doctor.Examination([warning, failure]).ok


def test_what_is_configured(tmp_path, tiny_environment, monkeypatch):
    environ = {"PATH": "/usr/bin:/bin"}
    monkeypatch.setattr(process, "environment", lambda: environ)
    assert doctor.configured(None) is None
    environ["DGXSYSTEM"] = "NF5688M7"
    with pytest.raises(
        UserError, match="DGXSYSTEM=NF5688M7: no such file, .* did you mean NF5688M6. there are: "
    ):
        doctor.configured(None)
    file = tmp_path / "theirs.sh"
    file.write_text('export BATCHSIZE=7\nDATADIR="${DATADIR:-/data}"\n')
    environ.update(tiny_environment, CONFIG_FILE=str(file), DGXSYSTEM="ignored", DATADIR="/given", LR="1")
    config = doctor.configured(None)
    h = config.hyperparameters
    assert (h.batch_size, config.data.folder, h.learning_rate) == (7, "/given", 1)


@pytest.mark.parametrize(
    "system, organisation, commit, warned",
    [("NF5688M6", "Somebody", "c0ffee", []), ("NF5688M6", None, "c0ffee", ["SUBMISSION_ORG"]),
     ("NF5688M6", None, "c0ffee-dirty", ["SUBMISSION_ORG", "code"]),
     ("NF5688M6", "Somebody", None, ["code"]), ("DEMO_CPU", None, "c0ffee-dirty", [])])
def test_what_would_keep_results_out_of_a_submission_is_said_before(system, organisation, commit, warned):
    given = {"SUBMISSION_ORG": organisation} if organisation else {}
    found = list(results_advice.of_submission(config_of(system, **given), commit))
    assert [each.subject for each in found if each.severity == WARNING] == warned
    assert all(each.remedy for each in found if each.severity == WARNING)


def test_epochs_of_a_few_steps_are_no_result():
    config = with_changes(config_of("DEMO_CPU"), run={"benchmark_steps": 8})
    [found] = results_advice.of_submission(config, None)
    assert (found.severity, found.subject) == (WARNING, "BENCHMARK_STEPS") and "8 steps" in found.found


def test_a_name_of_somebodys_own_file_that_is_nearly_a_variable(tmp_path):
    file = tmp_path / "own.sh"
    file.write_text("export DALI_THREDS=2 BATCHSZIE=2 THREADS_OF_OTHERS=2 NUMEPOCHS=35\n")
    assert {found.subject: found.remedy for found in doctor.misspelt(Document(file))} == {
        "DALI_THREDS": "did you mean DALI_THREADS?", "BATCHSZIE": "did you mean BATCHSIZE?"}


def test_what_the_environment_says_in_vain_is_said(monkeypatch):
    environ = {"LR": "9", "SEED": "5", "MOM": "0.9", "DATADIR": "relative"}
    monkeypatch.setattr(process, "environment", lambda: environ)
    [found] = doctor.overridden(doctor.configured("DEMO_CPU"))
    assert (found.severity, found.subject) == (
        WARNING, "LR") and "9 of the environment has no effect" in found.found


def fitting(machine):
    """The systems of this repository, without those that a user has added."""
    found = doctor.fitting(machine, GPU_BUILD)
    return {
        name: each for name, each in found.items() if files.MARK not in document.file_of(name).read_text()}


def test_which_systems_fit():
    can = fitting(simulated("1xA100"))
    fits = {name for name, each in can.items() if each.severity == OK}
    assert fits == {"1xA100", "DEMO_CPU", "DEMO_CPU_OPEN"}
    assert "DGXNGPU=8" in can["NF5688M6"].found and can["NF5688M6"].subject == "DGXSYSTEM=NF5688M6"
    assert not any("DATADIR" in each.found for each in can.values())
    assert "driver: 535.161.08; CUDA 13 needs 580" in can["1xL40S"].found
    assert "nvidia-driver" in can["1xL40S"].remedy
    machine = simulated("1xA100")
    newer = tuple(dataclasses.replace(each, driver="580.95.05") for each in machine.gpus)
    l40s = fitting(dataclasses.replace(machine, gpus=newer))["1xL40S"]
    assert "no PyTorch" in l40s.found and "install.sh pytorch-gpu" in l40s.remedy, "what a command mends"
    assert "no PyTorch" not in can["DGXH100"].found and not can["DGXH100"].remedy, (
        "what none mends goes before it")


def test_a_missing_gpu_is_graver_than_a_missing_compiler():
    bare = dataclasses.replace(GPU_BUILD, missing_to_compile=("g++",))
    fits = doctor.fitting(simulated("no-GPU"), bare)
    assert config_of("H200").run.step_mode == "fused"
    assert "no NVIDIA GPU" in fits["H200"].found and not fits["H200"].remedy


def test_systems_that_cannot_run_for_one_reason_take_one_line():
    fits = fitting(simulated("no-GPU"))
    can, without_gpu, without_paddle, without_pytorch = doctor.grouped(fits)
    assert (can.severity, can.subject, can.found) == (OK, "can run here", "DEMO_CPU, DEMO_CPU_OPEN")
    assert without_gpu.subject == without_paddle.subject == without_pytorch.subject == "cannot run here"
    names, reason = without_gpu.found.split(": ", 1)
    assert names.split(", ") == [name for name in fits if not name.startswith("DEMO_CPU")]
    assert reason.startswith("no NVIDIA GPU (nvidia-smi: ") and not without_gpu.remedy
    assert without_paddle.found.startswith("DEMO_CPU_PADDLE: no paddlepaddle beside numpy 1.23.5")
    assert without_paddle.remedy == "for DEMO_CPU_PADDLE: requirements/install.sh paddle-cpu"
    assert without_pytorch.found.startswith("DEMO_CPU_PYTORCH: no PyTorch beside numpy 1.23.5")
    assert without_pytorch.remedy == "for DEMO_CPU_PYTORCH: requirements/install.sh pytorch-cpu"


@pytest.mark.parametrize("name", ["8xA100", *in_test_all(*(each for each in NAMES if each != "8xA100"))])
def test_there_are_few_such_lines_on_every_machine(name):
    findings = doctor.grouped(fitting(simulated(name)))
    assert len(findings) <= 6
    named = [system for each in findings for system in each.found.split(": ")[0].split(", ")]
    assert sorted(named) == document.systems()


def test_a_remedy_that_mends_two_things_is_said_once():
    out = io.StringIO()
    doctor.show_table(
        [Diagnosis(FAILURE, "Python", "3.8.1", "do it"), Diagnosis(FAILURE, "packages", "none", "do it")],
        Terminal(file=out))
    assert out.getvalue().splitlines()[-1] == "Python, packages: do it"


def rn50_doctor(*options, **environ):
    """The command as a user types it."""
    clean = {"PATH": "/usr/bin:/bin", "COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, "-m", "rn50", "doctor", *options], env={**clean, **environ}, capture_output=True,
        text=True, timeout=120, cwd=str(pathlib.Path(__file__).resolve().parents[2]))


def test_the_command_on_this_machine(data):
    well = rn50_doctor("--json", DGXSYSTEM="DEMO_CPU", DATADIR=str(data))
    report = json.loads(well.stdout)
    failures = [each for each in report["findings"] if each["severity"] == FAILURE]
    assert report["ok"] is (not failures) and well.returncode == (1 if failures else 0) and not well.stderr
    assert {"severity", "subject", "found", "remedy"} == set(report["findings"][0])

    (data / "train.rec").unlink()
    ill = rn50_doctor("--brief", DGXSYSTEM="DEMO_CPU", DATADIR=str(data))
    assert ill.returncode == 1 and not ill.stdout
    assert any(
        line.startswith(f"rn50: DATADIR: {data / 'train.rec'}: No such file or directory; set DATADIR")
        for line in ill.stderr.splitlines())
    assert not any("Python" in line for line in ill.stderr.splitlines()), "what is well is not mentioned"
    table = rn50_doctor(DGXSYSTEM="DEMO_CPU", DATADIR=str(data))
    assert (
        table.returncode == 1 and "failure" in table.stdout
        and "DATADIR: set DATADIR to a folder" in table.stdout)

    anywhere = {each["subject"] for each in json.loads(rn50_doctor("--json").stdout)["findings"]}
    assert {f"DGXSYSTEM={system}" for system in document.systems()} <= anywhere
    piped = rn50_doctor().stdout.splitlines()
    # Systems that lack the same share a line: three frameworks, for CPUs and for GPUs, and one set is here.
    assert sum("can run here" in line for line in piped) == 1
    assert 1 <= sum("cannot run here" in line for line in piped) <= 5
    assert all(line == line.rstrip() for line in piped)

    unknown = rn50_doctor(DGXSYSTEM="NF5688M7")
    assert unknown.returncode == 2 and unknown.stderr.startswith("rn50: DGXSYSTEM=NF5688M7: no ")


def test_a_variable_that_the_file_empties_and_a_relative_path_that_stays(tmp_path, tiny_config, monkeypatch):
    file = tmp_path / "mine.sh"
    file.write_text(f". {document.file_of('DEMO_CPU')}\nSEED=\n")
    environ = {"SEED": "5", "DATADIR": "", "CONFIG_FILE": str(file)}
    monkeypatch.setattr(process, "environment", lambda: environ)
    [found] = doctor.overridden(doctor.configured(None))
    assert found.found == "5 of the environment has no effect: the configuration sets nothing"
    sourced = {"DATADIR": "data/demo", "LR": "2.0"}  # as after `set -a; . FILE`
    monkeypatch.setattr(process, "environment", lambda: sourced)
    assert doctor.overridden(with_changes(tiny_config, sourced)) == []


@pytest.mark.parametrize(
    "links, text",
    [(["SYS", "PIX", "PIX"], "1 pair between CPU sockets, 2 pairs over one PCIe bridge"),
     (["NV12", "NODE"], "1 pair over NVLink NV12, 1 pair within a NUMA node"),
     (["NV12", "NV12", "NV6"], "NVLink between all (NV12, NV6)"),
     ([], "not reported by nvidia-smi topo -m")])
def test_links_of_gpus_are_in_words(links, text):
    assert gpus._links(links) == text
