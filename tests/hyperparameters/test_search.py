"""Whole searches, with runs that are simulated: what is searched, confirmed and told, and runs that fail."""

import json

from rn50.hyperparameters.search import objective, search
from rn50.results.parse import read_log
from rn50.settings import config as configuration
from rn50.settings.shell import assignments
from tests.hyperparameters.searches import DEMO, DONE, USER_CAN_MEND, complaint, trials
from tests.support import documented


def configuration_of(file):
    return configuration.from_environment(assignments.read(file).values).as_environment()


def test_a_search_finds_something_better_and_confirms_it(seek, tmp_path):
    result = seek("--trials", 14, "--json")
    assert result.exit_code == DONE, result.stderr
    told, folder = json.loads(result.stdout), tmp_path / "to"
    assert documented.differences("search", told) == []
    assert told["stands"] and told["epochs"]["reduction"] > 0.15 and told["epochs"]["p"] < 0.01
    assert told["baseline"] == {
        "LR": "3", "BATCHSIZE": "32", "WARMUP_EPOCHS": "1", "WD": "5e-05", "NUMEPOCHS": "12"}
    assert len(told["trials"]) == 14

    written, before = (configuration_of(file) for file in (folder / "config_DEMO_CPU.sh", DEMO))
    differs = {name for name in before if before[name] != written[name]} - {"EVAL_OFFSET"}
    assert (
        differs == {name for name, value in told["winner"].items() if value != told["baseline"][name]}
        and "LR" in differs)
    assert {name: written[name] for name in told["winner"]} == told["winner"]

    seeds = [each["seed"] for each in told["trials"]]
    for who in ("baseline", "winner"):
        for number in range(5):
            log = read_log(folder / "confirmed" / who / f"result_{number}.txt")
            rate = next(event.value for event in log.events if event.key == "lars_opt_base_learning_rate")
            assert rate == float(told[who]["LR"])
            seeds.append(log.seed)
    assert len(set(seeds)) == len(seeds)

    report = (folder / "report.md").read_text()
    assert told["sentence"] in report and "demo data set, not an MLPerf result" in report
    for each in told["trials"]:
        assert str(each["seed"]) in report
        log = (
            read_log(folder / "trials" / f"{each['number']:03d}" / "result_0.txt")
            if each["state"] == "finished" else None)
        if log:
            assert log.seed == each["seed"] and objective.value(log.evaluations) == each["value"]
            assert log.global_batch_size == 2 * each["BATCHSIZE"]


def test_the_configuration_that_it_writes_is_evaluated_when_its_runs_reached_the_target(seek, tmp_path):
    assert seek("--trials", 14).exit_code == DONE
    written = assignments.read(tmp_path / "to" / "config_DEMO_CPU.sh").values
    epochs = [
        read_log(tmp_path / "to" / "confirmed" / "winner" / f"result_{n}.txt").reached.epoch for n in range(5)
    ]
    first, period = int(written["EVAL_OFFSET"]) + 1, int(written["EVAL_PERIOD"])
    assert period == 4 and max(epochs) in range(first, int(written["NUMEPOCHS"]) + 1, period)


def test_a_search_that_has_ended_is_told_again_and_nothing_is_run(seek, tmp_path):
    first = seek("--trials", 12)
    before = {file: file.read_bytes() for file in (tmp_path / "to").rglob("*") if file.is_file()}
    again = seek("--trials", 12)
    assert (again.exit_code, again.stdout) == (first.exit_code, first.stdout) and first.exit_code == DONE
    assert "begins" not in again.stderr
    assert {file: file.read_bytes() for file in (tmp_path / "to").rglob("*") if file.is_file()} == before


def test_the_report_names_all_the_code_that_ran(seek, tmp_path):
    seek("--trials", 3)
    report = tmp_path / "to" / "report.md"
    for number, commit in enumerate(("aaa", "bbb-dirty", "aaa")):
        (tmp_path / "to" / "trials" / f"{number:03d}" / "result_0.json").write_text(
            json.dumps({"commit": commit}))
    seek("--trials", 3)
    assert "- commit aaa; but bbb-dirty in trial 1; " in report.read_text()


def test_a_larger_budget_goes_on_where_nothing_better_was_found(seek, tmp_path):
    assert seek("--trials", 1).exit_code == DONE
    assert [trial.state for trial in trials(tmp_path / "to")] == ["finished"]
    assert "there is nothing to confirm" in (tmp_path / "to" / "report.md").read_text()
    assert not (tmp_path / "to" / "config_DEMO_CPU.sh").exists()
    assert seek("--trials", 12).exit_code == DONE and (tmp_path / "to" / "config_DEMO_CPU.sh").exists()
    assert len(trials(tmp_path / "to")) == 12


def test_no_time_left_but_for_the_confirmation(seek, tmp_path):
    result = seek("--minutes", "0.0001", "--json")
    assert (
        result.exit_code == DONE and not json.loads(result.stdout)["stands"]
    )  # one trial tells how long one takes
    assert len(trials(tmp_path / "to")) == 1


def test_the_baseline_is_the_first_trial_that_reaches_the_target(seek, tmp_path):
    config = tmp_path / "config_FAR.sh"
    config.write_text(DEMO.read_text().replace("LR=3.0", "LR=0.03"))
    result = seek("--trials", 9, "--json", config=config)
    assert result.exit_code == DONE, result.stderr
    told = json.loads(result.stdout)
    missed = [each["number"] for each in told["trials"] if each["LR"] == 0.03]
    first = next(each for each in told["trials"] if each["value"] is not None and each["value"] < 100)
    assert missed == [0] and float(told["baseline"]["LR"]) == first["LR"] != 0.03


def test_nothing_reaches_the_target(seek, tmp_path):
    config = tmp_path / "config_FAR.sh"
    config.write_text(DEMO.read_text().replace("NUMEPOCHS=12", "NUMEPOCHS=4"))
    result = seek("--trials", 3, config=config)
    assert result.exit_code == DONE
    assert result.stdout.startswith("No trial reached the target; there is nothing to confirm.")


def test_a_bad_run_is_stopped_and_its_log_says_aborted(seek, tmp_path):
    seek("--trials", 4, "--repeats", 2, SIMULATED_EPOCH_S="0.3")  # a busy machine looks at a log less often
    stopped = [trial for trial in trials(tmp_path / "to") if trial.state == "stopped"]
    assert [trial.point.learning_rate for trial in stopped] == [0.3]
    log = read_log(tmp_path / "to" / "trials" / f"{stopped[0].number:03d}" / "result_0.txt.partial")
    assert log.status == "aborted" and 4 <= len(log.evaluations) < 12
    assert stopped[0].note.startswith("after epoch")


# Runs that fail


def test_a_loss_that_is_no_number_is_an_answer(seek, tmp_path):
    assert seek("--trials", 9, SIMULATED_FAULTS='{"LR=30": "diverged"}').exit_code != USER_CAN_MEND
    gone = [trial for trial in trials(tmp_path / "to") if trial.point.learning_rate == 30]
    assert len(gone) == 1 and gone[0].state == "finished" and gone[0].value > 1000
    assert gone[0].note.startswith("the training loss is nan")


def test_a_larger_batch_that_cannot_be_run_is_out(seek, tmp_path):
    result = seek(
        "--trials", 14, "--repeats", 1, "--seeds-to-confirm", 2, SIMULATED_FAULTS='{"BATCHSIZE=64": "fault"}')
    assert result.exit_code == DONE, result.stderr
    large = [trial for trial in trials(tmp_path / "to") if trial.point.batch_size == 64]
    assert large and all(trial.state == "stopped" and "the disk is on fire" in trial.note for trial in large)


def test_any_other_fault_ends_the_search_and_it_goes_on_when_that_is_mended(seek, tmp_path):
    said = complaint(seek("--trials", 6, SIMULATED_FAULTS='{"LR=30": "fault"}'))
    assert "LR=30" in said and "the disk is on fire; put it out" in said and "trials/0" in said
    assert [trial.state for trial in trials(tmp_path / "to")][-1] == "failed"
    seek("--trials", 6)
    told = trials(tmp_path / "to")
    assert sum(trial.state in ("finished", "stopped") for trial in told) == 6
    assert [trial.state for trial in told if trial.point.learning_rate == 30] == [
        "failed", "finished", "finished"]


def test_a_run_that_is_killed_begins_again_but_not_for_ever(seek, tmp_path):
    said = complaint(seek("--trials", 6, SIMULATED_FAULTS='{"LR=30": "killed"}'))
    assert "LR=30" in said
    assert sum(trial.state == "failed" for trial in trials(tmp_path / "to")) == search.MOST_KILLED + 1
