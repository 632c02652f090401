"""What a source claims, and what is refused."""

import json

import pytest

from rn50.errors import UserError
from rn50.machine import hardware
from rn50.reproduction import claim
from tests.results.scored import write_run, write_runs


def test_a_published_result():
    told = claim.claim_of("v1.0/Inspur/nf5688m6_mxnet")
    assert (told.accelerators, told.origin.global_batch_size, told.epochs) == (8, 3264, [35.0] * 5)
    assert told.minutes == pytest.approx([27.38] * 5, abs=0.02)
    assert told.images_per_second == pytest.approx([35 * 1281167 / 60 / minutes for minutes in told.minutes])
    assert 1.0 < told.training_rate / told.images_per_second[0] < 1.1
    assert told.origin.values["LR"] == "10.5" and told.borrowed == () and told.variables == {}


def test_logs_of_somebody(tmp_path):
    write_runs(tmp_path, 1643, 1650, 1661, 1639, 1655)
    told = claim.claim_of(str(tmp_path))
    assert told.minutes == pytest.approx([1643 / 60, 1650 / 60, 1661 / 60, 1639 / 60, 1655 / 60])
    assert told.epochs == [35] * 5 and told.accelerator == "not said" and len(told.logs) == 5


def test_a_result_of_ours_says_its_machine_and_every_variable(campaign):
    told = claim.claim_of(str(campaign))
    assert told.accelerator.startswith("NVIDIA A100") and told.accelerators == 8
    assert told.framework == "mxnet" and told.variables["BATCHSIZE"] == "408"
    here = hardware.read()
    assert told.is_of(here, told.saved["system"])
    assert not told.is_of(here, {**told.saved["system"], "host_processor_model_name": "another"})


def test_hyperparameters_that_are_not_logged_are_those_of_the_nearest_recipe():
    told = claim.claim_of("v2.0/MosaicML/8xA100_80GB-baseline")
    assert len(told.borrowed) == 6 and told.borrowed[1].startswith("LR of ")
    assert {"LR", "WD", "NUMEPOCHS"} <= set(told.origin.values)


@pytest.mark.parametrize(
    "source, says",
    [("rcp/3264", "claims no minutes; give a published result"),
     ("v1.0/Inspur/nf5688m7_mxnet", "did you mean v1.0/Inspur/nf5688m6_mxnet"),
     ("v0.7/SIAT/modelarts_128_mindspore_open", "its optimizer 'THOR' is not a known optimizer")])
def test_what_claims_nothing(source, says):
    with pytest.raises(UserError, match=says.replace("(", "\\(")):
        claim.claim_of(source)


def test_folders_without_a_claim(tmp_path):
    write_run(tmp_path / "missed" / "result_0.txt", 1643, accuracy=0.7, status="aborted")
    with pytest.raises(UserError, match="no run of it reached the target"):
        claim.claim_of(str(tmp_path / "missed"))
    write_run(tmp_path / "one" / "result_0.txt", 1643)
    write_run(tmp_path / "other" / "result_0.txt", 1643)
    with pytest.raises(UserError, match="results of 3 systems; name one of them"):
        claim.claim_of(str(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no result_"):
        claim.claim_of(str(tmp_path / "empty"))
    (tmp_path / "one" / "result_0.json").write_text(json.dumps({"config": 7}))
    with pytest.raises(UserError, match=r"result_0.json beside it is missing, or not what rn50 saves"):
        claim.claim_of(str(tmp_path / "one"))


def test_runs_of_cut_epochs_claim_nothing(tmp_path):
    write_run(tmp_path / "result_0.txt", 1643, epoch_samples=6400)
    with pytest.raises(UserError, match="cut short by BENCHMARK_STEPS, so it claims nothing; name a result"):
        claim.claim_of(str(tmp_path))
