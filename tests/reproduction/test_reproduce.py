"""Reproduce: expectation, measurement, runs and verdict, on results of a tiny set and on published rows.

Processes: runs are made again; make test-all does it.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from rn50.cli import main
from rn50.errors import UserError, UserErrors
from rn50.hyperparameters.expected_epochs import ExpectedEpochs
from rn50.machine import hardware
from rn50.rates import Rates
from rn50.reproduction import display, expectation, here, measurement, reproduction
from rn50.results import published
from rn50.results.equivalence import DIFFERENT, EQUIVALENT, UNDECIDED
from rn50.settings.document import Document
from tests.conftest import with_changes
from tests.results.scored import save_beside, write_runs
from tests.support import documented
from tests.system.job import ROOT, configuration_file

OTHER_OPTIMIZERS = {
    "v0.7/SIAT/modelarts_128_mindspore_open", "v0.7/SIAT/modelarts_256_mindspore_open",
    "v1.0/Google/tpu-v4-256-JAX-Distributed-Shampoo"}

OPEN_RECIPES = {"v2.0/MosaicML/8xA100_80GB-methods", "v3.1/Ailiverse/8xA100_40GB_open"}


def planned(source, folder, runs=5, base=None):
    return reproduction.plan(str(source), base and Document(base), folder, runs, 0.03)


@pytest.mark.slow
def test_every_published_result_has_a_configuration_and_an_expectation(tmp_path):
    """But for those whose optimizer, or layers, the framework that is chosen here does not have; each in less
    than a second."""
    refused, begin = set(), time.process_time()
    for number, row in enumerate(published.results()):
        try:
            told = planned(row.name, tmp_path / str(number))
        except UserError as error:
            lacking = "FRAMEWORK=mxnet BLURPOOL=1: the framework does not implement it"
            assert ("is not a known optimizer" if row.name in OTHER_OPTIMIZERS else lacking) in str(error)
            refused.add(row.name)
            continue
        assert pathlib.Path(told.here.config_file).is_file() and len(told.expected) == 4
        assert told.expected[0].value and told.here.differences and told.here.prevented
    assert refused == {*OTHER_OPTIMIZERS, *OPEN_RECIPES}
    assert time.process_time() - begin < len(published.results())


def test_a_dry_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["reproduce", "v1.0/Inspur/nf5688m6_mxnet", "--dry-run", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert documented.differences("reproduce", told) == []
    assert told["verdict"] == "planned" and told["claim"]["accelerators"] == 8
    assert "STEP_MODE" in told["here"]["values"]
    assert told["here"]["values"]["LR"] == "10.5" and not told["here"]["same_machine"]
    assert list(tmp_path.iterdir()) == []
    done = CliRunner().invoke(main, ["reproduce", "v1.0/Inspur/nf5688m6_mxnet", "--dry-run"])
    assert "No run was made yet" in done.output and "8 x NVIDIA A100" in done.output


def test_the_machine_of_the_claim_is_expected_to_be_as_fast(campaign, tmp_path, machine, monkeypatch):
    monkeypatch.setattr(here.description, "read", lambda: machine)
    told = planned(campaign, tmp_path)
    assert told.here.same_machine and told.here.same_recipe
    epochs, rate, minutes, whole = told.expected
    assert epochs.low == epochs.high == pytest.approx(35) and rate.low < told.claim.training_rate < rate.high
    assert minutes.basis == "its 5 runs" and whole.low < whole.value < whole.high
    assert told.here.values["BATCHSIZE"] == "408" and told.here.values["DGXNGPU"] == "8"
    with pytest.raises(UserErrors, match="DATADIR"):
        here.refuse_prevented(told.here)


def test_another_recipe_is_expected_to_take_what_is_known_of_it(tmp_path):
    (tmp_path / "to").mkdir()
    base = ROOT / "configs" / "config_DGXH100.sh"
    told = planned("v1.0/Inspur/nf5688m6_mxnet", tmp_path / "to", base=base)
    assert told.here.values["DGXNGPU"] == "8" and told.here.values["LR"] == "10.5"
    assert told.here.same_recipe and not told.here.same_machine
    assert told.expected[0].basis == "its 5 runs" and told.expected[1].value is None
    with pytest.raises(UserError, match="of another claim or --on; give another --output"):
        planned("v1.0/NVIDIA/dgxa100_ngc21.05_mxnet", tmp_path / "to")


def test_a_recipe_at_a_batch_size_that_nobody_published_is_expected_without_an_interval(tmp_path):
    told = planned("v1.0/Inspur/nf5688m6_mxnet", tmp_path)
    config = with_changes(told.here.config, hyperparameters={"batch_size": 1})
    reference = ExpectedEpochs("no run of this recipe is known", 0, 0, 35, 33, 37)
    at = told.here._replace(same_recipe=False, config=config, prediction=reference)
    epochs = expectation.expected(told.claim, at, 5)[0]
    assert (epochs.value, epochs.low) == (
        pytest.approx(35), None,
    ) and epochs.basis == "what its runs took with their recipe; nobody published runs of the one here"
    known = at._replace(prediction=ExpectedEpochs("5 runs", 5, 0, 36, 35, 39))
    assert expectation.expected(told.claim, known, 5)[0].low == 35
    machine, size = hardware.read(), config.global_batch_size
    words = " ".join(here._differences(told.claim, config, machine, True, True))
    assert f"3264 there, {size} here, for which its learning rate was not chosen" in words
    assert f"rn50 borrow --suggest --global-batch-size {size}" in words


def of(told, seconds, folder, **options):
    write_runs(folder, *seconds, **options)
    save_beside(folder, told.here.config)
    return reproduction.judge(told, folder)


@pytest.mark.parametrize(
    "seconds, epochs, verdict, quantity, word",
    [((1640, 1651, 1660, 1645, 1656), 35, EQUIVALENT, 1, "equivalent"),
     ((1840, 1850, 1860, 1845, 1856), 35, DIFFERENT, 1, "different"),
     ((1640, 1651, 1660, 1645, 1656), 39, DIFFERENT, 0, "different"),
     ((1500, 1651, 1800, 1700, 1600), 35, UNDECIDED, 1, "undecided: ")])
def test_the_verdict(tmp_path, seconds, epochs, verdict, quantity, word):
    write_runs(tmp_path / "claimed", 1643, 1650, 1661, 1639, 1655)
    told = planned(tmp_path / "claimed", tmp_path / "to", base=ROOT / "configs" / "config_NF5688M6.sh")
    told = told._replace(here=told.here._replace(same_machine=True, same_recipe=True))
    judged = of(told, seconds, tmp_path / "results", epochs=epochs)
    assert judged.verdict == verdict and word in judged.judged[quantity].words
    judged = judged._replace(why=[*judged.here.differences, "LR: 1 there, 2 here"])
    rows = list(display.found(judged))
    assert ("found", judged.judged[quantity].words) in rows and ("differs", "LR: 1 there, 2 here") in rows
    assert rows[-2:] == [("the same?", display.answer(judged)), ("next", judged.next)] and judged.next


def test_on_another_machine_only_epochs_decide(tmp_path):
    write_runs(tmp_path / "claimed", 1643, 1650, 1661, 1639, 1655)
    told = planned(tmp_path / "claimed", tmp_path / "to", base=ROOT / "configs" / "config_NF5688M6.sh")
    judged = of(told, (2640, 2650, 2660, 2645, 2655), tmp_path / "results")
    assert judged.verdict == EQUIVALENT
    assert judged.judged[1].words.startswith("minutes: not comparable; 27.49 claimed, 44.17 found, 1.6")


@pytest.mark.parametrize("refused", ["claimed", "results"])
def test_of_a_result_that_is_not_valid_nothing_is_concluded(tmp_path, refused):
    write_runs(tmp_path / "claimed", 1643, 1650, 1661, 1639, 1655)
    write_runs(tmp_path / "results", 1640, 1651, 1662, 1645, 1656)
    for log in ("result_0.txt", "result_1.txt"):
        file = tmp_path / refused / log
        file.write_text(re.sub('"seed", "value": [0-9]+', '"seed", "value": 1', file.read_text()))
    told = planned(tmp_path / "claimed", tmp_path / "to", base=ROOT / "configs" / "config_NF5688M6.sh")
    save_beside(tmp_path / "results", told.here.config)
    judged = reproduction.judge(told, tmp_path / "results")
    assert judged.verdict == UNDECIDED and judged.next == "rn50 check tells what is wrong"
    side = {"claimed": "claim", "results": "result here"}[refused]
    refusal = f"The {side} is NOT A VALID RESULT: result_1.txt, line 8: seed 1 is that of"
    assert refusal in display.answer(judged)


def test_runs_that_miss_the_target_are_no_reproduction(tmp_path):
    write_runs(tmp_path / "claimed", 1643, 1650, 1661, 1639, 1655)
    told = planned(tmp_path / "claimed", tmp_path / "to", base=ROOT / "configs" / "config_NF5688M6.sh")
    judged = of(told, (1640, 1651), tmp_path / "results", accuracy=0.7, status="aborted")
    assert judged.verdict == DIFFERENT and "2 runs missed the target" in display.answer(judged)


def test_another_batch_size_that_misses_the_target_says_nothing_of_the_claim(tmp_path):
    write_runs(tmp_path / "claimed", 1643, 1650, 1661, 1639, 1655)
    told = planned(tmp_path / "claimed", tmp_path / "to", base=ROOT / "configs" / "config_NF5688M6.sh")
    told = told._replace(here=told.here._replace(same_machine=True, same_recipe=False))
    judged = of(told, (1640, 1651), tmp_path / "results", accuracy=0.7, status="aborted")
    assert judged.verdict == UNDECIDED
    judged = of(told, (1640, 1651, 1660), tmp_path / "others")
    assert judged.verdict == UNDECIDED and not any(one.comparable for one in judged.judged)


@pytest.mark.parametrize(
    "content, is_another",
    [({"passed": False}, False), ({"set_sha256": "a" * 64}, False), ({"set_sha256": "b" * 64}, True),
     (None, False)])
def test_other_data_are_known_by_their_certificate(campaign, tmp_path, content, is_another):
    """A certificate of data at fault may have no hash: doctor and run name the fault."""
    told = planned(campaign, tmp_path / "to")
    if content is not None:
        (tmp_path / "certificate.json").write_text(json.dumps(content))
    config = with_changes(told.here.config, data={"folder": str(tmp_path)})
    theirs = told.claim._replace(saved={"data certificate": {"set_sha256": "a" * 64}})
    assert here._other_data(theirs, config) == is_another


def rates(median):
    return Rates(median, 0.98 * median, 1.02 * median)


@pytest.mark.parametrize(
    "real, synthetic, sums, slow",
    [(1900, 2700, 0.0, "the input: training makes 1,900 images/s where 2,500 to 2,900 are expected"),
     (900, 2000, 0.0, "the input: training makes 900 images/s"),
     (1900, 1950, 0.3, "the all-reduce: it takes 30% of a step"),
     (1900, 1950, 0.05, "the training step: 1,900 images/s"), (2480, 2700, 0.0, ""), (2700, 2700, 0.5, ""),
    ])
def test_the_slow_part_is_named(tmp_path, monkeypatch, real, synthetic, sums, slow):
    monkeypatch.setattr(measurement, "_stages", lambda at, folder: "; stages")
    told = planned("v1.0/Inspur/nf5688m6_mxnet", tmp_path)
    expected = expectation.Expected(expectation.RATE, 2700, 2500, 2900, "its 5 runs")
    measured = measurement.Measurement(rates(real), rates(synthetic), sums)
    found, remedy = measurement._slow(told.here, expected, measured, tmp_path)
    assert found.startswith(slow) and bool(found) == bool(slow) == bool(remedy)
    unknown = expectation.Expected(expectation.RATE, None, None, None, "")
    assert measurement._slow(told.here, unknown, measured, tmp_path) == ("", "")


SLEEPS = """
import time
from rn50.data.pipeline import dali_batches
whole = dali_batches.DaliBatches.epoch
def epoch(self):
    for batch in whole(self):
        time.sleep(0.2)
        yield batch
dali_batches.DaliBatches.epoch = epoch
"""


@pytest.mark.slow
def test_a_result_of_this_machine_from_end_to_end(tiny_environment, tmp_path):
    """Reproduced; stopped where its input is slow; different where it learns otherwise; resumed."""
    pytest.importorskip("implementations.mxnet")
    # One image of them is enough, after the last epoch: so all runs take equally many, whatever their seeds.
    # Eight epochs: the times of two runs of half a second may be equal by chance, to the 5 ms of a copy.
    tiny_environment |= {"TARGET": "0.01", "NUMEPOCHS": "8", "EVAL_OFFSET": "7", "BATCHSIZE": "8"}
    del tiny_environment["SEED"]
    configuration_file(tmp_path / "config_TINY.sh", tiny_environment)

    def rn50(*arguments, **environ):
        code = "from rn50.reproduction import measurement as m; m.SECONDS = m.STAGES_S = 2; "
        code += "from rn50.cli import main; main(prog_name='rn50')"
        command = [sys.executable, "-c", code, *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "NEXP": "", **environ}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)

    made = rn50("run", tmp_path / "config_TINY.sh", "--runs", 3, "-o", tmp_path / "claimed")
    assert (tmp_path / "claimed" / "result_2.json").exists(), made.stderr
    asked = ("reproduce", tmp_path / "claimed", "--runs", 2, "--margin", "100%")
    done = rn50(*asked, "-o", tmp_path / "to", "--anyway", "--json")
    told = json.loads(done.stdout)
    assert told["here"]["same_machine"] and told["here"]["same_recipe"], done.stderr
    assert [one["quantity"] for one in told["judged"]] == ["epochs", "minutes", "images/s"]
    assert told["judged"][0]["equivalence"]["verdict"] == EQUIVALENT
    assert documented.differences("reproduce", told) == []
    made = {file: file.read_bytes() for file in (tmp_path / "to" / "results").glob("result_*")}
    again = rn50(*asked, "-o", tmp_path / "to", "--anyway", "--json")
    assert json.loads(again.stdout)["judged"] == told["judged"] and "kept, " in again.stderr
    assert len(made) >= 4 and all(file.read_bytes() == content for file, content in made.items())
    (tmp_path / "sitecustomize.py").write_text(SLEEPS)
    slow = rn50(*asked, "-o", tmp_path / "slow", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert slow.returncode == 1, slow.stdout + slow.stderr
    flat = re.sub(r"\s+", " ", slow.stdout)
    assert "slow the input: training makes" in flat and "rn50 tune input" in flat
    assert not (tmp_path / "slow" / "results").exists()


def test_one_run_that_misses_is_one_run(tmp_path):
    write_runs(tmp_path / "claimed", 1643, 1650)
    told = planned(tmp_path / "claimed", tmp_path / "to", base=ROOT / "configs" / "config_NF5688M6.sh")
    assert display.answer(told._replace(missed=1)).endswith(" 1 run missed the target.")


@pytest.mark.parametrize("seconds, told", [((1640,), True), ((1640, 1651), False)])
def test_that_a_claim_of_one_run_cannot_tell_is_said_before_any_run(tmp_path, seconds, told):
    write_runs(tmp_path / "claimed", *seconds)
    outcome = planned(tmp_path / "claimed", tmp_path / "to", base=ROOT / "configs" / "config_NF5688M6.sh")
    said = dict(display.planned(outcome)).get("caution", "")
    assert said.startswith("one run cannot be told from another; name") == told
