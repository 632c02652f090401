"""``rn50 borrow`` makes of every published result, reference point and log a configuration that logs exactly
its values."""

import hashlib
import json
import os
import re

import pytest

from rn50.benchmark import rules
from rn50.benchmark.recipe import SHARED
from rn50.errors import UserError
from rn50.hyperparameters.borrow import borrow, origin
from rn50.results import parse, published, recipe
from rn50.run.mlperf_log import RunLog
from rn50.settings import document
from rn50.settings.config import of_document
from rn50.settings.document import Document
from tests.hyperparameters.borrowing import EIGHT, configured, rn50
from tests.support import four_epochs
from tests.support.published import LOGS, needs_published

ONE_RANK = document.CONFIGS / "config_1xA100.sh"


def logged(config, folder):
    """What a run of the configuration logs, as a recipe."""
    file = folder / "result_0.txt"
    file.unlink(missing_ok=True)
    log = RunLog(0, file)
    log.submission(config, 1_700_000_000_000)
    log.hyperparameters(config, 1, config.ranks, [])
    log.finish()
    return recipe.of_log(parse.read_log(file))


def assert_same(said, expected):
    """The decay is logged in epochs, to a hundredth."""
    assert said.decay_epochs == pytest.approx(expected.decay_epochs, abs=0.0051)
    assert [getattr(said, name) for name in SHARED if name != "decay_epochs"] == [
        getattr(expected, name) for name in SHARED if name != "decay_epochs"]


def from_text(text, folder):
    """Like ``configured``, without a shell: for hundreds of them."""
    file = folder / "config_BORROWED.sh"
    file.write_text(text)
    return of_document(Document(file))


@pytest.mark.slow
def test_every_published_result_gives_a_configuration_that_logs_its_values_or_is_refused_by_name(tmp_path):
    refused = []
    for result in published.results():
        try:
            borrowed = borrow.borrow(origin.find(result.name), Document(ONE_RANK))
        except UserError as error:
            refused.append(str(error))
            continue
        config = from_text(borrowed.text, tmp_path)
        said = logged(config, tmp_path)
        assert config == borrowed.config
        for name in SHARED:
            assert getattr(said, name) == getattr(result.recipe, name), (result.name, name)
        assert result.recipe.label_smoothing in (None, config.hyperparameters.label_smoothing)
        assert f"#               organisation: {result.organisation}\n" in borrowed.text
        longest = max(result.epochs_to_target)
        h = config.hyperparameters  # every one of its runs would have come to its last evaluation
        assert max(range(h.eval_offset + 1, h.num_epochs + 1, h.eval_period)) >= longest
        assert borrowed.prediction.runs >= len(result.run_status)
    assert len(refused) == 7
    assert sum("FRAMEWORK=mxnet BLURPOOL=1: the framework does not" in each for each in refused) == 2
    assert sum("says nothing readable of NUMEPOCHS;" in each for each in refused) == 1
    assert sum("is not a known optimizer, lars and sgd are" in each for each in refused) == 3
    assert sum("says nothing readable of OPTIMIZER, LR" in each for each in refused) == 1


@pytest.mark.parametrize("name", ["v2.0/MosaicML/8xA100_80GB-methods", "v3.1/Ailiverse/8xA100_40GB_open"])
def test_the_open_recipe_of_results_that_log_none_is_that_of_the_file_that_names_them(name):
    borrowed = borrow.borrow(origin.find(name), document.find("DGXH100"))
    ours = of_document(document.find("DGXH100_OPEN"))
    assert borrowed.config.hyperparameters == ours.hyperparameters
    assert "export SUBMISSION_DIVISION=open" in borrowed.text and borrowed.prediction.runs == 5
    assert "config_DGXH100_OPEN.sh has them, and says where they come from" in borrowed.origin.notes[0]


@pytest.mark.parametrize("ruleset", rules.RCP_RULESETS)
def test_every_reference_point_gives_a_configuration_that_logs_its_values(tmp_path, ruleset):
    points = json.loads(recipe.reference_file(ruleset).read_text())
    for point in points.values():
        borrowed = borrow.borrow(origin.find(f"rcp/{ruleset}/{point['BS']}"), Document(ONE_RANK))
        said, expected = logged(from_text(borrowed.text, tmp_path), tmp_path), recipe.of_point(point)
        assert said.global_batch_size == point["BS"]
        assert_same(said, expected)
        assert borrowed.config.hyperparameters.num_epochs >= max(point["Epochs to converge"])


@needs_published
def test_every_published_log_gives_a_configuration_that_logs_its_values(tmp_path):
    folders = sorted({file.parent for file in LOGS.rglob("result_*.txt")})
    assert folders
    for folder in folders:
        logs = sorted(folder.glob("result_*.txt"))
        if "Shampoo" in folder.parent.name:
            with pytest.raises(UserError, match="'distributed shampoo' is not a known optimizer"):
                origin.find(str(folder))
            continue
        source = origin.find(str(folder))
        borrowed = borrow.borrow(source, Document(ONE_RANK))
        said = logged(from_text(borrowed.text, tmp_path), tmp_path)
        original = recipe.of_log(parse.read_log(logs[0]))
        assert_same(said, original)
        assert (
            f"round: {folder.parents[3].name}\n" in borrowed.text
            and f"system: {folder.parent.name}\n" in borrowed.text)
        for log in logs:
            assert f"SHA-256: {hashlib.sha256(log.read_bytes()).hexdigest()} {log.name}" in borrowed.text
        assert len(source.epochs) == len(logs)


def test_the_proven_path_for_eight_gpus(tmp_path):
    borrowed = borrow.borrow(origin.find("v1.0/Inspur/nf5688m6_mxnet"), Document(EIGHT))
    ours = configured(EIGHT.read_text(), tmp_path)
    assert configured(borrowed.text, tmp_path) == ours  # what we took by hand
    assert all(change.before == change.after for change in borrowed.changes)
    assert borrowed.findings == []
    said = borrowed.prediction
    assert said.basis.endswith("published results of this very recipe")
    assert (said.low, said.high) == (35, 36) and said.runs > 100 and 0 < said.missed_share < 0.1
    assert borrowed.text.split("# --- run")[1] == EIGHT.read_text().split("# --- run")[1]
    assert re.findall(r"^# --- ([a-z ]+?)(?: \(|:| -)", borrowed.text, re.MULTILINE) == [
        "hyperparameters", "run", "data", "input pipeline", "environment"]


def test_sgd_of_ipus_is_borrowed_with_its_decay_and_without_what_lars_has():
    borrowed = borrow.borrow(origin.find("v1.0/Graphcore/ipu-pod16-TF1"), Document(EIGHT))
    h = borrowed.config.hyperparameters
    assert (h.optimizer, h.lars_eta, h.decay_epochs, h.num_epochs, h.eval_offset) == ("sgd", None, 39, 48, 3)
    assert borrowed.assumed == ("LABELSMOOTHING=0.1",)
    assert "batch norm is over 240 images here, and was over 40" in borrowed.text


def test_another_batch_size_changes_nothing_else_and_is_said():
    source = origin.find("v1.0/Inspur/nf5688m6_mxnet")
    borrowed = borrow.borrow(source, Document(EIGHT), 2000)
    assert {change.name for change in borrowed.changes if change.before != change.after} == {"BATCHSIZE"}
    assert borrowed.config.global_batch_size == 2000
    assert "global batch size 3264 there, 2000 here" in borrowed.text
    assert borrowed.prediction.runs == 0 and "no run of this recipe is known" in borrowed.prediction.basis
    with pytest.raises(UserError, match="8 ranks of NF5688M6 do not divide it; give --gbs 2000 or 2008"):
        borrow.borrow(source, Document(EIGHT), 2004)


def test_epochs_of_imagenet_are_not_promised_to_other_data(tmp_path):
    demo = document.CONFIGS / "config_DEMO_CPU.sh"
    for source in ("v1.0/Inspur/nf5688m6_mxnet", "rcp/3264"):
        borrowed = borrow.borrow(origin.find(source), Document(demo))
        assert borrowed.prediction is None
        [said] = re.findall("^#   expected +(.+)$", borrowed.text, re.MULTILINE)
        assert (
            said == "not known: the epochs of published runs are those of ImageNet, and this data set is "
            "another one")
        assert (
            "its runs trained on 1,281,167 images, and this configuration trains on 6,000" in borrowed.text)
    status, said = rn50("rcp/3264", demo)
    assert (
        status == 0 and "epochs to expect: not known: " in said
        and "35" not in said.split("epochs to expect")[1])


def test_epochs_of_own_runs_are_those_of_their_data_alone(tmp_path):
    said = [
        (3000, f"lars_opt_{name}", value, {}) for name, value in (("momentum", 0.9), ("weight_decay", 5e-5))]
    log = four_epochs.write_run(tmp_path / "result_0.txt", train_samples=6_000, extra=said)
    source, demo = origin.find(str(log)), document.CONFIGS / "config_DEMO_CPU.sh"
    assert source.train_samples == 6_000
    batch = source.global_batch_size
    own = borrow.borrow(source, Document(demo))
    assert (own.prediction.mean, own.prediction.basis) == (4, "the runs that it was borrowed from")
    assert borrow.borrow(source, Document(demo), batch // 2).prediction is None
    on_imagenet = borrow.borrow(source, Document(ONE_RANK))
    assert (
        on_imagenet.prediction.runs == 0 and "no run of this recipe is known" in on_imagenet.prediction.basis)
    assert "its runs trained on 6,000 images, and this configuration trains on 1,281,167" in on_imagenet.text


def test_what_leaves_the_closed_rules_is_found():
    borrowed = borrow.borrow(origin.find("rcp/1.0.0/2048"), Document(EIGHT))  # a weight decay of 0.002
    assert [finding.split(":")[0] for finding in borrowed.findings] == ["open recipe", "WD=0.002"]
    assert borrowed.config.run.division == "open"
    assert "export SUBMISSION_DIVISION=open\n" in borrowed.text


def test_the_command_writes_whole_files_and_replaces_none_unasked(tmp_path):
    target = tmp_path / "config_MINE.sh"
    status, said = rn50("rcp/3264", EIGHT)
    assert status == 0 and "nothing is written" in said and list(tmp_path.iterdir()) == []
    status, said = rn50("rcp/3264", "NF5688M6", "-o", target)
    assert status == 0 and "written:" in said
    assert [file.name for file in tmp_path.iterdir()] == ["config_MINE.sh"]
    target.write_text("MINE=1\n")
    status, said = rn50("rcp/3264", "-o", target, DGXSYSTEM="NF5688M6")
    assert status == 2 and "exists" in said and target.read_text() == "MINE=1\n"
    assert rn50("rcp/3264", "-o", target, "--force", CONFIG_FILE=str(EIGHT))[0] == 0
    assert configured(target.read_text(), tmp_path).hyperparameters.learning_rate == 10.5
    assert rn50("rcp/3264", EIGHT, "-o", tmp_path / "absent" / "x.sh")[0] == 2
    log = tmp_path / "run.log"
    log.write_text(":::MLLOG {}\n")
    for there in (log, "/dev/null", tmp_path):
        status, said = rn50("rcp/3264", EIGHT, "-o", there, "--force")
        assert (
            status == 2 and said.startswith(f"rn50: {there}: is a")
            and said.endswith("give another --output\n"))
    assert log.read_text() == ":::MLLOG {}\n"
    other = tmp_path / "passwd"
    other.write_text("root:x:0:0:root:/root:/bin/bash\n")
    status, said = rn50("rcp/3264", EIGHT, "-o", other, "--force")
    assert status == 2 and "is not a configuration file" in said and other.read_text().startswith("root:")


def test_the_command_names_what_it_misses():
    for arguments, message in (
        ((), "borrow from what"), (("rcp/3264",), "which configuration"),
        (("rcp/3264", "NONE"), "there are: 1xA100"), (("--suggest",), "wants --global-batch-size"),
        (("--suggest", "rcp/3264", "--gbs", "8"), "no SOURCE"),
    ):
        status, said = rn50(*arguments)
        assert status == 2 and message in said and "Traceback" not in said


def test_json(tmp_path):
    status, said = rn50("v1.0/Graphcore/ipu-pod16-TF1", EIGHT, "--json", "-o", tmp_path / "x.sh")
    found = json.loads(said)
    assert status == 0
    assert found["written"] == str(tmp_path / "x.sh") and found["config"] == (tmp_path / "x.sh").read_text()
    assert {"name": "LR", "before": "10.5", "after": "3.824", "origin": "borrowed"} in found["changes"]
    assert found["prediction"]["mean"] == 44 and found["prediction"]["missed_share"] == 0


def test_a_base_that_is_no_file_is_named(tmp_path):
    os.mkfifo(str(tmp_path / "pipe"))
    for name in (tmp_path / "pipe", "/dev/zero"):
        status, said = rn50("rcp/3264", name)
        assert (
            status == 2 and f"{name}: is a " in said and "no regular file; give a configuration file" in said)
    status, said = rn50("rcp/3264", "a" * 100_000)
    assert status == 2 and "no such file" in said and len(said) < 1000


def test_what_is_not_utf8_in_a_base_stays_as_it_is(tmp_path):
    base, target = tmp_path / "config_Y.sh", tmp_path / "config_Z.sh"
    base.write_bytes(EIGHT.read_bytes() + b"# caf\xe9\n")
    assert rn50("rcp/3264", base, "-o", target)[0] == 0
    assert target.read_bytes().endswith(b"# caf\xe9\n")
