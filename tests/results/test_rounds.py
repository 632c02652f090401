"""All published logs of rounds v0.7 to v3.1: the minutes of the table, no result refused without a fault."""

import shutil

import pytest

from rn50.errors import UserError
from rn50.results import compare, published, score
from tests.support.published import FOLDER, needs_published

ACCURACY = "is not a multiple of 1/50,000"
CADENCE = "an evaluation of epoch"
INTERVALS = "block_start comes again before a block_stop"
CONFIGURATION = "the runs are not of one configuration"
BEYOND = "the run goes on to epoch"
REFUSED = {
    "v0.7/DellEMC/4xC4140": "sgd_opt_momentum is 0.95 at a global batch size of 3,328",
    "v0.7/Fujitsu/gx_V100x8_fjmxnet": ACCURACY, "v0.7/Google/tpu-v4-128-TF": CADENCE,
    "v0.7/Google/tpu-v4-16-TF": CADENCE, "v0.7/Intel/1-node-8s-cpx-2-mxnet": ACCURACY,
    "v0.7/SIAT/modelarts_1024_tensorflow_open": ACCURACY,
    "v0.7/SIAT/modelarts_128_mindspore_open": "block_start has no block_stop",
    "v0.7/SIAT/modelarts_256_mindspore_open": CADENCE, "v0.7/SIAT/modelarts_512_tensorflow_close": ACCURACY,
    "v0.7/SIAT/modelarts_512_tensorflow_open": ACCURACY, "v1.0/Google/tpu-v4-128-TF": CADENCE,
    "v1.0/Intel/8-nodes-64s-8376H-tensorflow": ACCURACY,
    "v1.0/NVIDIA/dgxa100_n8_ngc21.05_mxnet": "lars_opt_momentum is 0.94 at a global batch size of 13,056",
    "v1.0/PCL/CloudBrainII_1024_mindspore_close": INTERVALS,
    "v1.0/PCL/CloudBrainII_256_mindspore_close": INTERVALS,
    "v1.0/Supermicro/SYS-420GP-TNAR+": "9 of its 9 accuracies are those of result_2.txt",
    "v1.0/nettrix/X660 G45_SXM4-80G-BPS_mxnet": BEYOND, "v1.1/Dell/XE8545x4A100-SXM-40GB": CONFIGURATION,
    "v1.1/Intel-HabanaLabs/HLS-1H-N2": CONFIGURATION, "v2.0/Dell/XE8545x4A100-SXM-40GB": CONFIGURATION,
    "v2.0/Graphcore/ipu-pod128-TF1-closed": BEYOND, "v2.0/Graphcore/ipu-pod256-TF1-closed": BEYOND,
    "v2.0/Intel-HabanaLabs/HLS-Gaudi2": ACCURACY, "v2.0/MosaicML/8xA100_80GB-baseline": INTERVALS,
    "v2.0/MosaicML/8xA100_80GB-methods": INTERVALS, "v2.1/Dell/XE8545x4A100-SXM-40GB": CONFIGURATION,
    "v2.1/Intel/16-nodes-SPR-pytorch": "block_stop has no block_start before it",
    "v2.1/Intel-HabanaLabs/HLS-Gaudi2-PT": ACCURACY, "v2.1/Intel-HabanaLabs/HLS-Gaudi2-TF": ACCURACY,
    "v3.0/Intel/16-nodes-SPR-pytorch": "block_stop has no block_start before it",
    "v3.0/Intel-HabanaLabs/HLS-Gaudi2-PT": ACCURACY, "v3.0/Intel-HabanaLabs/HLS-Gaudi2-TF": ACCURACY,
    "v3.0/Supermicro/SYS-820GH-TNR2": ACCURACY, "v3.1/Ailiverse/8xA100_40GB_open": INTERVALS,
    "v3.1/Intel/16-nodes-SPR-pytorch": "block_stop has no block_start before it",
    "v3.1/Intel-HabanaLabs/HLS-Gaudi2-PT": ACCURACY, "v3.1/Intel-HabanaLabs/HLS-Gaudi2-TF": ACCURACY}
"""Result -> a fault of its logs."""


@needs_published
@pytest.mark.slow
def test_every_published_result_has_its_minutes_and_only_faulty_ones_are_refused(tmp_path):
    shutil.unpack_archive(str(FOLDER / "rounds.tar.xz"), str(tmp_path))
    refused, differ = {}, []
    for row in published.results():
        if row.round == "v4.0":  # only its table is here, not its logs
            continue
        tree = tmp_path / f"training_results_{row.round}" / row.organisation
        try:
            [system] = score.score([tree / "results" / row.system / "resnet"])
        except UserError:  # logs by other names
            assert row.name == "v0.7/Alibaba/a100-8"
            continue
        if system.olympic_minutes != pytest.approx(row.olympic_minutes, abs=1e-4):
            differ.append(row.name)
        if not system.valid:
            refused[row.name] = system.reasons
    before, after = (
        tmp_path / f"training_results_{name}" / "resnet"
        for name in ("v0.7/Inspur/results/nf5488_mxnet", "v1.0/Inspur/results/nf5688m6_mxnet"))
    [found] = compare.compare(score.score([before, after]))
    assert found.split.sentence == (
        "33.38 to 27.38 minutes, -17.98%: +0.00% by epochs (35 to 35), -17.98% by the time of an epoch")
    assert differ == [] and refused.keys() == REFUSED.keys()
    for name, fault in REFUSED.items():
        assert any(fault in reason for reason in refused[name]), (name, refused[name])
