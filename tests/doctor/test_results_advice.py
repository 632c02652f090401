"""What the doctor says of a folder of results: room, files that are none, runs of another configuration."""

import json
import re

import pytest

from rn50.data import layout
from rn50.doctor import results as results_advice
from rn50.doctor.diagnosis import FAILURE, OK
from rn50.run import provenance
from tests.conftest import with_changes
from tests.support.four_epochs import write_run


def test_room_for_results(monkeypatch, tmp_path, tiny_config):
    result = tmp_path / "not" / "there" / "yet" / "result_0.txt"
    assert [each.severity for each in results_advice.diagnoses(result, tiny_config)] == [OK]
    monkeypatch.setattr(results_advice, "LEAST_SPACE", 1 << 60)
    [finding] = results_advice.diagnoses(result, tiny_config)
    assert finding.severity == FAILURE and finding.found.endswith(f"free in {tmp_path}")


@pytest.mark.parametrize(
    "spoil, says",
    ((lambda file: file.write_text(""), "no :::MLLOG line in it"),
     (lambda file: file.write_bytes(bytes(range(256))), "no :::MLLOG line in it"),
     (lambda file: (file.unlink(), file.mkdir()), "folder|directory"),
     (lambda file: (file.unlink(), file.symlink_to(file.name)), "cannot be read"),
     (lambda file: file.write_text(file.read_text().replace('"resnet"', '"bert"')),
      "is a log of bert, not of resnet"),
     (lambda file: file.write_text(file.read_text().rpartition(":::MLLOG")[0]),
      "its clock did not start, or never stopped")))
def test_what_is_no_result_is_found_before_the_first_run(tmp_path, tiny_config, spoil, says):
    result = write_run(tmp_path / "result_1.txt")
    following = tmp_path / "result_2.txt"
    assert [each.severity for each in results_advice.diagnoses(following, tiny_config)] == [OK]
    spoil(result)
    [_, finding] = results_advice.diagnoses(following, tiny_config)
    assert finding.severity == FAILURE and re.search(f"{result}: .*({says})", finding.found)
    assert finding.remedy.startswith(f"move {result} away")


def test_runs_of_another_configuration_are_found_before_the_first_run(tmp_path, tiny_config):
    for number in (0, 1):
        log = write_run(tmp_path / f"result_{number}.txt", epoch_ms=10_000 + number)
        provenance.save(with_changes(tiny_config, run={"seed": number, "save_weights": "1"}), number, log)
    (tmp_path / "result_4.txt").write_bytes(log.read_bytes())  # somebody else's: nothing is known of it

    def found(**changes):
        _, *others = results_advice.diagnoses(tmp_path / "result_2.txt", with_changes(tiny_config, **changes))
        return [str(each.found) for each in others]

    assert found() == found(run={"result_file": "x"}) == []
    there = f"{tmp_path} has runs of another configuration: "
    assert found(hyperparameters={"learning_rate": 1.0}) == [
        f"{there}LR is 2.0 in result_0.txt, result_1.txt, 1.0 in the next run"]
    assert found(hyperparameters={"decay_epochs": 3.0}) == [
        f"{there}DECAY_EPOCHS is not there in result_0.txt, result_1.txt, 3.0 in the next run"]
    assert found(input_pipeline={"threads": 0}) == [], "a run saves how many it took"
    assert found(input_pipeline={"threads": 2}) != []
    saved = json.loads((tmp_path / "result_1.json").read_text())
    older = {name: text for name, text in saved["variables"].items() if name != "LOSS"}
    provenance.add(log, {"variables": older})
    assert found() == [], "a run of an older rn50 has not saved a newer variable"
    assert "LOSS is softmax in result_0.txt, result_1.txt, binary in the next run" in str(
        found(hyperparameters={"loss": "binary"}))
    whole = (tmp_path / "result_1.json").read_text()
    (tmp_path / "result_1.json").write_text(whole.replace('"commit": "', '"commit": "0'))
    assert [each.partition(": ")[2].partition(" is ")[0] for each in found()] == ["commit"]
    (tmp_path / "result_1.json").write_text(whole)
    for digest, places in (("a", []), ("b", [f"DATADIR is {tiny_config.data.folder} (data set aaaaaaaa"])):
        for log in (tmp_path / "result_0.txt", tmp_path / "result_1.txt"):
            provenance.add(log, {"data certificate": {"set_sha256": 64 * "a"}})
        (tmp_path / "nvme").mkdir(exist_ok=True)
        certified = {"files": dict.fromkeys(layout.FILES, {}), "set_sha256": 64 * digest}
        (tmp_path / "nvme" / "certificate.json").write_text(json.dumps(certified))
        elsewhere = found(data={"folder": str(tmp_path / "nvme")})
        assert [each.partition("configuration: ")[2].partition(")")[0] for each in elsewhere] == places
