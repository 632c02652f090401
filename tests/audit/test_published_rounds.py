"""``rn50 audit`` on all published logs of rounds v0.7 to v3.1: what stands out, and how much it finds of what
is forged from the others."""

import re
import shutil

import pytest

from benchmarks import forged_selections
from rn50.audit import audit
from tests.support.published import FOLDER, needs_published

pytestmark = [needs_published, pytest.mark.xdist_group("published rounds")]
TRIALS = {"trials"}
GAPS = {"launch gaps"}
NUMBERS = {"file numbers"}
SETUP = {"setup"}
STANDS_OUT = {
    "v0.7/DellEMC/2xC4140": NUMBERS, "v0.7/DellEMC/4xC4140": TRIALS, "v0.7/DellEMC/C4140": {"curves shifted"},
    "v0.7/Fujitsu/gx_V100x8_ngc20.06_mxnet": GAPS, "v0.7/NVIDIA/dgxa100_n96_ngc20.06_mxnet": TRIALS,
    "v0.7/NVIDIA/dgxa100_n2_ngc20.06_mxnet": TRIALS, "v0.7/SIAT/modelarts_512_tensorflow_open": SETUP,
    "v1.0/PCL/CloudBrainII_256_mindspore_close": GAPS,
    "v1.0/Supermicro/SYS-420GP-TNAR+": {"curves alike"} | TRIALS | GAPS,
    "v1.0/Supermicro/as-2124gq-nart+": TRIALS | GAPS, "v1.1/Azure/nd96amsr_a100_v4_n8_ngc21.09_mxnet": GAPS,
    "v1.1/Dell/R750xax4A100-PCIE-80GB": TRIALS | GAPS, "v1.1/Dell/XE8545x4A100-SXM-40GB": SETUP,
    "v1.1/HPE/HPE-ProLiant-XL675d-Gen10-Plus_A100-SXM4-80GB_mxnet": TRIALS,
    "v1.1/Intel-HabanaLabs/HLS-1H-N16": NUMBERS, "v1.1/Intel-HabanaLabs/HLS-1H-N2": SETUP,
    "v2.0/Azure/ND96amsr_A100_v4_n1_mxnet": TRIALS, "v2.0/Azure/ND96amsr_A100_v4_n8_mxnet": TRIALS | GAPS,
    "v2.0/Dell/XE8545x4A100-SXM-40GB": SETUP, "v2.0/Intel-HabanaLabs/HLS-Gaudi2": GAPS,
    "v2.1/Azure/NC96ads_A100_v4_mxnet": TRIALS | GAPS, "v2.1/Azure/ND96amsr_A100_v4_n1_mxnet": TRIALS,
    "v2.1/Azure/ND96amsr_A100_v4_n8_mxnet": TRIALS | GAPS, "v2.1/Dell/XE8545x4A100-SXM-40GB": SETUP,
    "v2.1/Intel-HabanaLabs/HLS-Gaudi2-TF": NUMBERS, "v3.0/ASUSTeK/ESC4000-E11-4xA100-PCIE-80GB": TRIALS,
    "v3.0/ASUSTeK/ESC4000-E11-4xA100-PCIE-80GB-NVBridge": TRIALS, "v3.0/GIGABYTE/G593-SD0_mxnet": GAPS,
    "v3.0/Intel/16-nodes-SPR-pytorch": GAPS, "v3.0/Supermicro/SYS-421GU-TNXR": NUMBERS,
    "v3.1/Intel/16-nodes-SPR-pytorch": GAPS, "v3.1/Lenovo/SR675v3-8xH100_PCIe_80GB_350W": TRIALS,
    "v3.1/Quanta_Cloud_Technology/D74H-7U": TRIALS | GAPS,
    "v3.1/Supermicro-RedHat/AS-4125GS-TNRT-RedHat-OpenShift": TRIALS | GAPS}
"""Published set -> the tests in which it stands out."""


@pytest.fixture(scope="module")
def rounds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rounds")
    shutil.unpack_archive(str(FOLDER / "rounds.tar.xz"), str(folder))
    return folder


@pytest.mark.slow
def test_what_stands_out_in_the_published_rounds(rounds):
    report = audit.audit([rounds])
    seen = {one.name: {evidence.test for evidence in one.stands_out} for one in report.audits}
    assert {name: tests for name, tests in seen.items() if tests} == STANDS_OUT
    assert len(seen) == 304
    counted = {test.name: test.false_alarms for test in report.tests}
    for name, told in counted.items():
        assert told.startswith(f"{sum(name in tests for tests in seen.values())} of 304"), (name, told)


@pytest.mark.slow
def test_most_forged_selections_are_found(rounds, capsys):
    """A few of each kind, of the rounds on which nothing was tuned."""
    assert forged_selections.main([str(rounds), "--each", "6", "--only", "v3.0", "v3.1"]) == 0
    rows = re.findall(r"^\| (.+?) +\| 6 \| (\d+)% \|", capsys.readouterr().out, re.MULTILINE)
    found = {kind: int(share) for kind, share in rows}
    told = {kind for kind in found if not kind.startswith("clock")} - {*forged_selections.HIDDEN}
    kept = [found[kind] for kind in told]
    assert len(found) == 28 and sum(kept) / len(kept) >= 80, found
