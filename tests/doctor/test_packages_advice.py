"""Advice of the doctor on Python, packages and shared libraries."""

import dataclasses
import re
import sys

import pytest

from rn50 import frameworks
from rn50.doctor import packages as software_advice
from rn50.doctor.diagnosis import FAILURE, OK, WARNING
from rn50.files import ROOT
from rn50.machine import software as software_facts
from rn50.machine.sources import Sources
from tests.conftest import with_changes
from tests.doctor.examined import GPU_BUILD, config_of
from tests.support import machines

MXNET = frameworks.unimported("mxnet", "doctor")


def software_findings(software, config=None):
    framework = config.run.framework if config else "mxnet"
    return {each.subject: each for each in software_advice.diagnoses(software, config, framework)}


@pytest.mark.parametrize(
    "machine, packages, examined",
    [("H100", ("torch",), "pytorch"), ("H100", ("mxnet-cu112", "torch"), "pytorch"),
     ("H100", ("mxnet-cu112",), "mxnet"), ("H100", (), "pytorch"), ("no-GPU", (), "mxnet"),
     ("no-GPU", ("paddlepaddle",), "paddle")])
def test_the_framework_to_examine_where_nothing_is_configured(machine, packages, examined):
    software = dataclasses.replace(GPU_BUILD, packages=dict.fromkeys(packages, "1"))
    assert software_advice.framework(machines.simulated(machine), software) == examined


@pytest.mark.parametrize(
    "version, severity", [("3.9.17", FAILURE), ("3.10.0", OK), ("3.12.4", OK), ("3.13.0", FAILURE)])
def test_python(version, severity):
    finding = software_findings(dataclasses.replace(GPU_BUILD, python=version))["Python"]
    assert finding.severity == severity
    assert finding.remedy == "" or finding.remedy.startswith(
        "PYTHON=python3.11 requirements/install.sh mxnet-cpu (")


@pytest.mark.parametrize(
    "device, version, severity",
    [("cpu", "3.9.2", FAILURE), ("cpu", "3.10.12", OK), ("cpu", "3.12.4", OK), ("gpu", "3.9.2", FAILURE),
     ("gpu", "3.10.12", OK), ("gpu", "3.12.4", OK), ("gpu", "3.13.0", FAILURE)])
def test_python_for_a_pytorch_that_is_not_installed(device, version, severity):
    config = with_changes(config_of("2xA30"), run={"framework": "pytorch", "device": device})
    found = software_findings(dataclasses.replace(GPU_BUILD, python=version, packages={}), config)
    assert found["Python"].severity == severity and found["packages"].severity == FAILURE
    for each in found.values():
        assert each.severity == OK or f"requirements/install.sh pytorch-{device}" in each.remedy
        assert "PYTHON=python3.11 " in each.remedy or severity == OK, (
            "with this Python the command would fail")


@pytest.mark.parametrize(
    "device, step_mode, needed",
    [("cpu", "eager", False), ("cpu", "fused", False), ("cpu", "compile", True), ("gpu", "graph", False),
     ("gpu", "fused", True)])
def test_a_compiler_for_pytorch(device, step_mode, needed):
    config = with_changes(
        config_of("2xA30"), run={"framework": "pytorch", "device": device, "step_mode": step_mode})
    bare = dataclasses.replace(GPU_BUILD, missing_to_compile=("g++", "python3-dev"))
    found = software_findings(bare, config).get("compiler")
    assert (found is not None) == needed
    assert not needed or (
        found.severity == FAILURE
        and found.remedy.startswith("sudo apt-get install g++ python3-dev, or set STEP_MODE=")
        and found.remedy.endswith("graph" if device == "gpu" else "eager"))
    assert "compiler" not in software_findings(GPU_BUILD, config)


def test_what_is_missing_to_compile_is_found(monkeypatch, tmp_path):
    compiler, header = tmp_path / "g++", tmp_path / "Python.h"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(software_facts.sysconfig, "get_path", lambda *name: str(tmp_path))
    assert software_facts.read().missing_to_compile == ("g++", "python3-dev")
    header.touch()
    assert software_facts.read().missing_to_compile == ("g++",)
    compiler.touch(mode=0o755)
    assert software_facts.read().missing_to_compile == ()


def test_every_command_that_a_remedy_names_is_one_that_install_sh_knows():
    known = set(
        re.findall(r"^ +([a-z0-9 |-]+)\)", (ROOT / "requirements" / "install.sh").read_text(), re.MULTILINE))
    known = {name for names in known for name in names.split(" | ")}
    for framework in frameworks.every().values():
        for sets in framework.requirements.values():
            assert set(sets) <= known and all(
                (ROOT / "requirements" / f"{name}.in").is_file() for name in sets)
    for system in ("2xA30", "DEMO_CPU", "DGXH100"):
        for packages in (
            {}, {"mxnet": "1.9.1"}, {"mxnet-cu112": "1.9.1", "nvidia-dali-cuda110": "1.34.0"},
            {"torch": "2.13.0"},
        ):
            config = with_changes(config_of(system), run={"nodes": 2})
            for each in software_findings(dataclasses.replace(GPU_BUILD, packages=packages), config).values():
                assert set(re.findall(r"install\.sh (\S+?)[,;]?(?:\s|$)", each.remedy)) <= known
                assert "make setup" not in each.remedy and "make test" not in each.remedy


@pytest.mark.parametrize(
    "packages, severity, says",
    [({}, FAILURE, "requirements/install.sh mxnet-cu112"),
     ({"mxnet": "1.9.1", "nvidia-dali-cuda110": "1.34.0"}, FAILURE, "requirements/install.sh mxnet-cu112"),
     ({"mxnet-cu112": "1.9.1"}, FAILURE, "requirements/install.sh mxnet-cu112"),
     ({"mxnet-cu112": "1.9.1", "nvidia-dali-cuda110": "1.34.0"}, FAILURE,
      "requirements/install.sh horovod-build && requirements/install.sh horovod-nccl, or set DGXNGPU=1",
     ),
     ({**GPU_BUILD.packages, "numpy": "2.1.0"}, WARNING, "-m pip install numpy==1.23.5"),
     (GPU_BUILD.packages, OK, "")])
def test_packages(packages, severity, says):
    finding = software_findings(dataclasses.replace(GPU_BUILD, packages=packages), config_of("2xA30"))[
        "packages"]
    assert finding.severity == severity and says in finding.remedy


@pytest.mark.parametrize(
    "device, packages, severity, says",
    [("cpu", {"numpy": "1.23.5"}, FAILURE, "requirements/install.sh pytorch-cpu"),
     ("cpu", {"torch": "2.13.0+cpu"}, OK, ""),
     ("cpu", {"torch": "2.13.0+cpu", "nvidia-dali-cuda110": "1.34.0"}, OK, ""),
     ("cpu", {}, FAILURE, "requirements/install.sh pytorch-cpu"),
     ("gpu", {}, FAILURE, "requirements/install.sh pytorch-gpu"),
     ("gpu", {"torch": "2.13.0+cpu", "nvidia-dali-cuda110": "1.34.0"}, FAILURE,
      "rm -rf .venv && requirements/install.sh pytorch-gpu"),
     ("gpu", {"torch": "2.13.0", "nvidia-dali-cuda130": "2.0.0"}, OK, "")])
def test_packages_of_pytorch(device, packages, severity, says):
    config = with_changes(config_of("2xA30"), run={"framework": "pytorch", "device": device})
    finding = software_findings(dataclasses.replace(GPU_BUILD, packages=packages), config)["packages"]
    assert finding.severity == severity and says in finding.remedy


@pytest.mark.parametrize(
    "packages, missed",
    [
        ({"torch": "2.13.0"}, True),
        ({"torch": "2.13.0", "mlperf-logging": "4.1.68"}, False),
        ({"torch": "2.13.0", "mlperf_logging": "4.1.68"}, False),
        ({}, False),  # the command that installs PyTorch brings it
    ],
)
def test_what_writes_the_log_is_missed_beside_a_framework(packages, missed):
    config = with_changes(config_of("2xA30"), run={"framework": "pytorch", "device": "gpu"})
    found = software_findings(dataclasses.replace(GPU_BUILD, packages=packages), config)
    assert ("log" in found) == missed
    assert (
        not missed or found["log"].severity == FAILURE
        and found["log"].remedy.endswith("install mlperf-logging==4.1.68"))


@pytest.mark.parametrize(
    "device, library, severity, found, remedy",
    [("gpu", "dali", FAILURE, "no DALI beside", "install.sh {}-gpu, or set INPUT_LIBRARY=auto"),
     ("cpu", "dali", FAILURE, "no DALI beside", "install.sh {}-cpu, or set INPUT_LIBRARY=auto"),
     ("gpu", "auto", WARNING, "decodes the images, some 230 a second .* the GPU", "install.sh {}-gpu"),
     ("cpu", "auto", OK, "no DALI: the DataLoader decodes the images$", "^$"),
     ("gpu", "dataloader", OK, "^[^;]*numpy 1.23.5[^;]*$", "^$")])
@pytest.mark.parametrize("framework", ["pytorch", "paddle"])
def test_what_reads_without_dali_is_told(framework, device, library, severity, found, remedy):
    config = with_changes(
        config_of("2xA30"), run={"framework": framework, "device": device},
        input_pipeline={"library": library})
    packages = {"numpy": "1.23.5", "torch": "2.6.2", f"paddlepaddle{'-gpu' * (device == 'gpu')}": "2.6.2"}
    finding = software_findings(dataclasses.replace(GPU_BUILD, packages=packages), config)["packages"]
    assert finding.severity == severity
    assert re.search(found, finding.found) and re.search(remedy.format(framework), finding.remedy)


@pytest.mark.parametrize("framework, severity", [("pytorch", OK), ("mxnet", FAILURE)])
def test_only_pytorch_does_without_dali(framework, severity):
    config = with_changes(
        config_of("2xA30"), run={"framework": framework}, input_pipeline={"library": "dataloader"})
    packages = {"torch": "2.13.0", "mxnet-cu112": "1.9.1", "numpy": "1.23.5", "horovod": "0.28.1"}
    assert (
        software_findings(dataclasses.replace(GPU_BUILD, packages=packages), config)["packages"].severity
        == severity)


@pytest.mark.parametrize(
    "library, says",
    [("libcudnn.so.8", "pip install nvidia-cudnn-cu11==8.9.6.50"),
     ("libnccl.so.2", "pip install nvidia-nccl-cu11==2.21.5"),
     ("libcublas.so.11", "pip install nvidia-cublas-cu11==11.11.3.6"),
     ("libcufft.so.10", "pip install nvidia-cufft-cu11==10.9.0.58"),
     ("libcusolver.so.11", "pip install nvidia-cusolver-cu11==11.4.1.48"),
     ("libcurand.so.10", "pip install nvidia-curand-cu11==10.3.0.86"),
     ("libnvrtc.so.11.2", "pip install nvidia-cuda-nvrtc-cu11==11.8.89"),
     ("libcudart.so.11.0", "pip install nvidia-cuda-runtime-cu11==11.8.89"),
     ("libnvToolsExt.so.1", "pip install nvidia-nvtx-cu11==11.8.86"),
     ("libgomp.so.1", "sudo apt-get install libgomp1"),
     ("libquadmath.so.0", "sudo apt-get install libquadmath0"), ("libcuda.so.1", "nvidia-driver"),
     ("libodd.so.3", "apt-file search libodd.so.3")])
def test_the_command_that_brings_a_library(library, says):
    finding = software_findings(dataclasses.replace(GPU_BUILD, missing_libraries=(library,)))["libraries"]
    assert finding.severity == FAILURE and library in finding.found and says in finding.remedy


LDD = """\tlinux-vdso.so.1 (0x00007ffd4a9f2000)
\tlibcudnn.so.8 => not found
\tlibcuda.so.1 => not found
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f2f1c000000)
\tlibcudnn.so.8 => not found
"""


def test_libraries_are_looked_for_as_the_loader_does(tmp_path, monkeypatch):
    """An installed wheel whose folder the loader does not know is told from one that is not there."""
    (tmp_path / "mxnet").mkdir()
    for file in ("__init__.py", "libmxnet.so"):
        (tmp_path / "mxnet" / file).write_text("")
    wheel = tmp_path / "nvidia" / "cudnn" / "lib"
    wheel.mkdir(parents=True)
    (wheel / "libcudnn.so.8").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(
        sys.modules, "mxnet", raising=False
    )  # one that another test imported would be found first
    asked = []
    source = Sources(
        run=lambda argv: asked.append(argv) or (0, LDD), environ={"NVIDIA_MXNET_VERSION": "23.10"})
    software = software_facts.read(source)
    assert asked == [["ldd", str(tmp_path / "mxnet" / "libmxnet.so")]]
    assert software.missing_libraries == ("libcudnn.so.8", "libcuda.so.1")
    assert software.libraries_off_path == (wheel,) and software.nvidia_container == "23.10"
    first, second = MXNET._libraries(software)
    assert first.remedy == f"export LD_LIBRARY_PATH={wheel}" and "libcuda.so.1" in second.found
