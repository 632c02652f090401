"""Advice of the doctor on a processor: AMX, and the precision of a run."""

import dataclasses

import pytest

from rn50.doctor import processor
from rn50.doctor.diagnosis import FAILURE, OK, WARNING
from rn50.machine import hardware
from rn50.machine.sources import Sources
from tests.conftest import with_changes
from tests.doctor.examined import config_of
from tests.support.machines import simulated

EPYC = (
    "processor\t: 0\nflags\t\t: fpu sse2 avx512f avx512dq avx512bw avx512vl avx512_bf16 wbnoinvd\n"
    "bugs\t\t: sysret_ss_attrs\n")
XEON = (
    "processor\t: 0\nflags\t\t: fpu sse2 avx512_bf16 amx_bf16 avx512_fp16 amx_tile amx_int8 "
    "arch_capabilities\n")
LAPTOP = "processor\t: 0\nflags\t\t: fpu sse2 avx2\n"


def machine(tmp_path, cpuinfo):
    """The laptop of tests/golden/machines with another /proc/cpuinfo."""
    (tmp_path / "proc").mkdir(exist_ok=True)
    (tmp_path / "proc" / "cpuinfo").write_text(cpuinfo)
    facts = hardware.read(Sources(tmp_path, lambda argv: (127, ""), {}))
    return dataclasses.replace(simulated("no-GPU"), cpu_flags=facts.cpu_flags)


def found(facts, config=None):
    """subject -> finding."""
    return {each.subject: each for each in processor.diagnoses(facts, config)}


def test_amx_is_named_with_the_framework_that_is_faster_there(tmp_path):
    facts = machine(tmp_path, XEON)
    for config in (None, config_of("DEMO_CPU"), config_of("DEMO_CPU_PYTORCH")):
        finding = found(facts, config)["AMX"]
        assert finding.severity == OK and not finding.remedy  # for small images MXNet may be the faster one
        assert finding.found.startswith(
            "amx_tile, amx_bf16, amx_int8: used by PyTorch alone, the faster framework here ")
        assert "PyTorch 18.3, MXNet 7.27)" in finding.found
    assert "AMX" not in found(facts, config_of("2xA30"))


def test_no_amx_is_not_spoken_of(tmp_path):
    for cpuinfo in (EPYC, LAPTOP, "", "processor : 0\nmodel name : an amx_tile of a name\n"):
        assert set(found(machine(tmp_path, cpuinfo))) == {"processor"}


@pytest.mark.parametrize(
    "cpuinfo, asked, severity, says",
    [(EPYC, "auto", OK, "auto: the faster of float32 and bfloat16, timed at warm-up"),
     (XEON, "auto", OK, "auto: the faster of float32 and bfloat16, timed at warm-up"),
     (LAPTOP, "auto", OK, "auto: float32, because the processor has no instructions for bfloat16"),
     (EPYC, "bfloat16", OK, "bfloat16"), (LAPTOP, "float32", OK, "float32"),
     (LAPTOP, "bfloat16", FAILURE, "bfloat16, in which MXNet does not compute on this processor")])
def test_the_precision_of_a_run(tmp_path, cpuinfo, asked, severity, says):
    config = with_changes(config_of("DEMO_CPU"), run={"precision": asked})
    finding = found(machine(tmp_path, cpuinfo), config)["precision"]
    assert finding.severity == severity and finding.found.startswith(says)
    assert bool(finding.remedy) == (severity != OK)


def test_bfloat16_without_instructions_is_slow_in_pytorch(tmp_path):
    run = {"precision": "bfloat16", "framework": "pytorch"}
    finding = found(machine(tmp_path, LAPTOP), with_changes(config_of("DEMO_CPU"), run=run))["precision"]
    assert finding.severity == WARNING
    assert (
        finding.found.startswith("bfloat16, for which the processor has no instructions") and finding.remedy)


def test_a_run_times_bfloat16_where_the_doctor_says_so(tmp_path):
    for cpuinfo, most, expected in ((EPYC, "", 1), (XEON, "ALL", 1), (XEON, "avx2", 0), (LAPTOP, "", 0)):
        machine(tmp_path, cpuinfo)
        source = Sources(tmp_path, environ={"DNNL_MAX_CPU_ISA": most})
        assert bool(hardware.BFLOAT16 & hardware.cpu_flags(source)) == expected


def test_this_machine_has_flags():
    assert "fpu" in hardware.read().cpu_flags
