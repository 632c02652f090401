"""``rn50 audit`` on made-up sets: what was done to a set stands out, by the test that is for it, and nothing
stands out in one that nothing was done to."""

import json
import re
import weakref

import pytest

from rn50.audit import audit
from rn50.files import ROOT
from tests.audit import made
from tests.audit.made import found, typed
from tests.support import documented


@pytest.mark.parametrize("length", [5, 6, 10])
def test_nothing_stands_out_in_a_whole_campaign(tmp_path, length):
    one, seen = found(made.write(tmp_path / "r", made.campaign(length, stated=1.0)))
    assert (seen, one.verdict, one.runs) == ({}, "nothing stands out in 11 of 13 tests", length)
    assert [evidence.test for evidence in one.evidence] == audit.ORDER
    assert one.not_possible == {
        "no log has the count of its script": ["trials"], "no description of the system": ["hardware"]}


@pytest.mark.parametrize(
    "runs, changes, says, stands_out",
    [((), {}, "one configuration", False),
     ((1,), {"rate": 10.0}, "the runs are not of one configuration: lars_opt_base_learning_rate is "
      "10.5 in result_0.txt, result_2.txt, result_3.txt, result_4.txt, 10.0 in result_1.txt", True),
     ((1, 2), {"rate": 10.50}, "one configuration", False),
     ((3,), {"curve": [0.123456, *made.TOP_1[1:]]},
      "result_3.txt: eval_accuracy 0.123456 is not a multiple of 1/50,000 (1 of 9 are not); others are",
      True),
     (range(5), {"curve": [0.123456, *made.TOP_1[1:]]},
      "one configuration; every log has accuracies that are no multiples of 1/50,000", False)])
def test_settings_and_accuracies_of_some_runs(tmp_path, runs, changes, says, stands_out):
    placed = made.campaign(5)
    for number in runs:
        placed[number][1].update(changes)
    one, _ = found(made.write(tmp_path / "r", placed))
    (told,) = (evidence for evidence in one.evidence if evidence.test == "setup")
    assert (told.found, told.stands_out) == (says, stands_out)


def test_the_logs_of_a_set_are_let_go_before_the_next_is_read(tmp_path, monkeypatch):
    read, made_of = [], audit.RunSet.in_folder
    for number in range(3):
        made.write(tmp_path / str(number), made.campaign(5))

    def of(folder, runs):
        assert not [log for log in read if log() is not None]
        read.extend(weakref.ref(run.log) for run in runs)
        return made_of(folder, runs)

    monkeypatch.setattr(audit.RunSet, "in_folder", of)
    assert len(audit.audit([tmp_path]).audits) == 3 and len(read) == 15


def test_a_copy_is_found_among_many_sets(tmp_path):
    for number in range(8):
        placed = [(at + 1e6 * number, made.run(5 * number + i)) for i, (at, _) in enumerate(made.campaign(5))]
        if number == 7:
            placed[2][1]["curve"] = [round(top_1 + 0.0002, 5) for top_1 in made.run(3)["curve"]]
        made.write(tmp_path / str(number), placed)
    seen = {
        one.folder.name: [evidence.test for evidence in one.stands_out]
        for one in audit.audit([tmp_path]).audits}
    assert {name: tests for name, tests in seen.items() if tests} == {
        "0": ["curves alike"], "7": ["curves alike"]}


def test_files_that_were_numbered_anew(tmp_path):
    _, seen = found(made.write(tmp_path / "r", made.campaign(5), [3, 0, 2, 4, 1]))
    assert seen == {
        "file numbers": "one script made them, but their numbers do not follow the clock: 3, 0, 2, 4, 1"}
    for harmless in ([4, 3, 2, 1, 0], [1, 2, 3, 4, 0], [0, 4, 1, 2, 3]):
        assert found(made.write(tmp_path / "s", made.campaign(5), harmless))[1] == {}


def test_seeds(tmp_path):
    placed = made.campaign(5)
    for number, (_, one) in enumerate(placed):
        one["seed"] = 100 + number + (number > 2)
    assert found(made.write(tmp_path / "r", placed))[1] == {
        "seeds": "they count up by 1, and 103 is not there"}
    placed[3][1]["seed"] = 100
    assert found(made.write(tmp_path / "r", placed))[1] == {
        "seeds": "seed 100 in result_0.txt and result_3.txt"}


@pytest.mark.parametrize("noise", [0.0, 0.0003, 0.001])
def test_a_copy_with_other_digits(tmp_path, noise):
    placed = made.campaign(5)
    signs = (1, -1, -1, 1, 1, -1, 1, -1)
    changed = [top_1 + noise * sign for top_1, sign in zip(placed[1][1]["curve"], signs, strict=False)]
    placed[3][1]["curve"] = [*changed, 0.7598]
    _, seen = found(made.write(tmp_path / "r", placed))
    told = "result_1.txt and result_3.txt have nearly the same accuracies at every epoch"
    same = "result_3.txt: 8 of its 9 accuracies are those of result_1.txt"
    assert seen == {"curves alike": told if noise else same}


def test_the_same_run_twice_and_in_two_sets(tmp_path):
    placed = made.campaign(5)
    made.write(tmp_path / "r", [*placed[:4], placed[1]])
    _, seen = found(tmp_path / "r")
    assert seen["curves alike"] == "result_4.txt: 9 of its 9 accuracies are those of result_1.txt"
    other = [(at + 1e6, made.run(number + 50)) for number, (at, _) in enumerate(placed)]
    other[2] = (other[2][0], placed[0][1])
    made.write(tmp_path / "s", placed), made.write(tmp_path / "t", other)
    report = audit.audit([tmp_path / "s", tmp_path / "t"])
    assert [len(one.stands_out) for one in report.audits] == [1, 1]
    assert "t/result_2.txt" in report.audits[0].stands_out[0].found
    again = made.write(tmp_path / "u", placed)
    report = audit.audit([tmp_path / "s", again])
    assert not report.stands_out and made.notes(report.audits[0]) == (f"the same logs: {again}",)


@pytest.mark.parametrize(("change", "told"), [
    (lambda one: {"seed": one["seed"] + 1}, True),
    (lambda one: {"curve": [top_1 + 0.0004 for top_1 in one["curve"]]}, True),
    (lambda one: {"platform": "8xOther"}, False)], ids=["seeds", "accuracies", "platform"])
def test_other_seeds_or_accuracies_at_the_same_times(tmp_path, change, told):
    placed = made.campaign(5)
    changed = [(at, one | change(one)) for at, one in placed]
    report = audit.audit([made.write(tmp_path / "s", placed), made.write(tmp_path / "t", changed)])
    seen = [{evidence.test: evidence.found for evidence in one.stands_out} for one in report.audits]
    times = f"result_0.txt has the times of {tmp_path}/s/result_0.txt, but another seed or other accuracies"
    assert seen[1] == ({"curves alike": times} if told else {}) and len(seen[0]) == len(seen[1])
    assert told != any("the same logs" in note for one in report.audits for note in one.notes)


def test_runs_of_two_recipes_are_no_copies(tmp_path):
    placed, others = made.campaign(5), [made.run(number) for number in range(9, 14)]
    worse = [{**one, "curve": [t - 0.2 * (i / 8) ** 3 for i, t in enumerate(one["curve"])]} for one in others]
    later = [(at + 1e6, one) for (at, _), one in zip(placed, worse, strict=True)]
    folders = made.write(tmp_path / "r", placed), made.write(tmp_path / "s", later)
    for one in audit.audit(folders).audits:
        assert "curves alike" not in {evidence.test for evidence in one.stands_out}, one.stands_out


def test_a_run_an_evaluation_ahead(tmp_path):
    placed = made.campaign(5)
    curve = placed[2][1]["curve"]
    placed[2][1].update(curve=[*curve[1:-1], 0.7601], epochs=made.EPOCHS[:-1], seconds=made.RUN_S * 31 / 35)
    _, seen = found(made.write(tmp_path / "r", placed))
    assert seen["curves shifted"] == "result_2.txt is one evaluation ahead of the others"


def test_fewer_epochs_than_anybody(tmp_path):
    curve = [*made.TOP_1[1:-1], 0.7601]
    placed = made.campaign(5, epochs=made.EPOCHS[:-1])
    for number, (_, one) in enumerate(placed):
        noise = made.run(number)["curve"]
        one["curve"] = [
            top_1 + own - usual for top_1, own, usual in zip(curve, noise, made.TOP_1, strict=False)]
        one["curve"][-1] = 0.7601
    _, seen = found(made.write(tmp_path / "r", placed))
    assert seen["epochs"].startswith("31.0 epochs on average, as few as known runs")
    assert seen["epochs"].endswith("not even the best 5 of 100 would have as few")
    for _, one in placed:
        one["division"] = "open"  # where other rules hold
    assert "epochs" not in found(made.write(tmp_path / "s", placed))[1]


def test_clocks_that_were_edited(tmp_path):
    stated = [(at, {**one, "stated": 0.97}) for at, one in made.campaign(5)]
    _, seen = found(made.write(tmp_path / "r", stated))
    assert seen["clock"].startswith("5 of 5 logs differ from their time stamps; most of all result_")
    assert seen["clock"].endswith("states 3.0% fewer images/s than its time stamps give")
    placed = made.campaign(5)
    placed[1][1]["seconds"] *= 0.93
    _, seen = found(made.write(tmp_path / "s", placed))
    assert seen["pace"].startswith("result_1.txt takes 6.9%")
    placed[1][1]["seconds"] *= 0.985 / 0.93
    _, seen = found(made.write(tmp_path / "t", placed))
    assert "result_1.txt is 1.4% shorter, and the gap after it longer by as much" in seen["pace"]


def test_an_event_out_of_the_clock(tmp_path):
    folder = made.write(tmp_path / "r", made.campaign(5))
    file = folder / "result_2.txt"
    lines = file.read_text().splitlines()
    stop = json.loads(lines[-1].removeprefix(":::MLLOG "))
    stop["time_ms"] -= 60_000  # as if the run had ended before its last evaluation
    file.write_text("\n".join([*lines[:-1], f":::MLLOG {json.dumps(stop)}"]) + "\n")
    _, seen = found(folder)
    assert "of result_2.txt is out of order, or of the clock" in seen["order"]


def test_a_run_with_other_evaluations(tmp_path):
    placed = made.campaign(5)
    placed[3][1]["epochs"] = [epoch - 1 for epoch in made.EPOCHS]
    _, seen = found(made.write(tmp_path / "r", placed))
    assert seen["curves shifted"] == "result_3.txt is evaluated after epochs 2, 6, 10, the others are not"


def test_too_few_runs_and_runs_without_an_end(tmp_path):
    folder = made.write(tmp_path / "r", made.campaign(1))
    one, seen = found(folder)
    assert (seen, one.runs, made.notes(one)) == ({}, 1, ())
    assert one.verdict == "nothing stands out in 1 of 13 tests"
    assert one.not_possible["fewer than 3 runs"] == ["launch gaps", "file numbers", "seeds", "epochs"]
    text = (folder / "result_0.txt").read_text()
    (folder / "result_1.txt").write_text("\n".join(text.splitlines()[:-1]) + "\n")
    one, seen = found(folder)
    assert seen == {} and one.notes[0] == "no time from start to stop: result_1.txt"


def test_an_unfinished_run_is_not_called_missing(tmp_path):
    placed = made.campaign(6)
    for number, (_, one) in enumerate(placed):
        one["trial"] = f"{number + 1} of 10"
    folder = made.write(tmp_path / "r", placed)
    log = folder / "result_3.txt"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:40]))
    one, seen = found(folder)
    rest = "the script's own count: 7 to 10 of 10 are not here"
    assert seen == {} and made.notes(one) == ("no time from start to stop: result_3.txt", rest)
    trials = next(evidence.found for evidence in one.evidence if evidence.test == "trials")
    assert trials.endswith("6 of 10; 7 to 10 of 10 are not here")
    log.unlink()
    assert {*found(folder)[1]} == {"trials", "launch gaps", "file numbers"}


def test_a_pause_beside_a_hole_is_no_hole(tmp_path):
    placed = made.campaign(7)
    later = [(at + 0.1 * made.RUN_S * (number > 5), run) for number, (at, run) in enumerate(placed)]
    _, seen = found(made.write(tmp_path / "r", [*later[:1], *later[2:]]))
    assert (
        seen["launch gaps"].count("room for") == 1 and "result_0.txt and result_1.txt" in seen["launch gaps"])


def test_a_pause_between_two_calls_of_the_script_is_no_hole(tmp_path):
    placed = made.campaign(8)
    for number, (_, one) in enumerate(placed):
        one["trial"] = f"{number % 4 + 1} of 4"
    day = [(at + 86_400 * (number > 3), one) for number, (at, one) in enumerate(placed)]
    assert found(made.write(tmp_path / "r", day))[1] == {}
    _, seen = found(made.write(tmp_path / "s", [*day[:1], *day[2:]]))
    assert seen["launch gaps"].count("room for") == 1 and "trial 2 of 4" in seen["trials"]


def test_a_batch_size_between_reference_points_decides_nothing(tmp_path):
    one, seen = found(made.write(tmp_path / "r", made.campaign(5, batch=3520)))
    epochs = next(evidence for evidence in one.evidence if evidence.test == "epochs")
    assert seen == {} and epochs.p > 0.05 and "best" not in epochs.found


def test_nothing_stands_out_in_the_evidence_of_a_gpu():
    report = audit.audit([ROOT / "docs" / "evidence"])
    assert [one.runs for one in report.audits] == [1, 5] and not report.stands_out
    assert report.audits[1].notes == ("demo data set, not an MLPerf result",)


def test_the_command(tmp_path):
    folder = made.write(tmp_path / "r", made.campaign(5))
    done = typed("audit", folder)
    assert (
        done.exit_code == 0 and "5 runs, nothing stands out in 10 of 13" in done.stdout
        and "launch gaps" in done.stdout)
    assert "\nnot possible: trials (no log has the count of its script); clock (no log states" in done.stdout
    placed = made.campaign(6)
    made.write(folder, [placed[0], *placed[2:]])
    done = typed("audit", folder, "--json")
    fields = json.loads(done.stdout)
    assert documented.differences("audit", fields) == []
    assert done.exit_code == 1 and fields["audits"][0]["verdict"] == "look at: launch gaps"
    gaps = next(one for one in fields["audits"][0]["evidence"] if one["test"] == "launch gaps")
    assert gaps["p"] == pytest.approx(1 / gaps["statistic"]) and gaps["p"] <= gaps["q"]
    assert {test["name"] for test in fields["tests"]} >= {
        one["test"] for one in fields["audits"][0]["evidence"]}
    done = typed("audit", folder, made.write(tmp_path / "s", made.campaign(5, stated=1.0)))
    assert done.exit_code == 1 and "1 of 2 sets to look at" in done.stdout
    assert re.search(r"room for 1 run \(p 0\.\S+, q 0\.\S+\)$", done.stdout, re.MULTILINE)
    done = typed("audit", tmp_path / "nothing")
    assert done.exit_code == 2 and "no such file or folder" in done.stderr
    (tmp_path / "s" / "result_3.txt").write_text("no log\n")
    done = typed("audit", folder, tmp_path / "s")  # the other set is audited all the same
    assert done.exit_code == 2 and "5 runs, look at: launch gaps" in done.stdout
    assert done.stderr.splitlines()[-1].startswith(f"rn50: {tmp_path}/s/result_3.txt: no :::MLLOG line in it")
    assert f"{tmp_path}/s:" not in done.stdout and "1 of 1 set to look at; 1 unreadable log" in done.stdout
    for log in folder.glob("result_*.txt"):
        log.write_text(re.sub(r'"time_ms": \d+', '"time_ms": 1', log.read_text()))
    done = typed("audit", folder, tmp_path / "s")
    assert done.exit_code == 2 and [line.count("rn50: ") for line in done.stderr.splitlines()[-2:]] == [1, 1]
    done = typed("audit", tmp_path / "s")
    assert done.exit_code == 2 and done.stderr.count("rn50: ") == 1
