"""The rules of a result: what makes one of ``score``, ``check`` and ``package`` refuse makes all of them say
so."""

import json
import os
import shutil
import time

import pytest

from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.results import compare, run, score
from rn50.results.validity import result_rules
from rn50.results.validity.findings import ERROR, WARNING
from rn50.submission import check
from tests.conftest import every_fourth, in_test_all
from tests.results import scored
from tests.results.mutations import ALL, append, both, delete, double, insert, move, rewrite, times, value
from tests.results.mutations import change as change_record
from tests.support import campaigns
from tests.support.campaigns import packaged, replace

pytestmark = pytest.mark.xdist_group("campaign")
RATE = "lars_opt_base_learning_rate"
HUGE = "1" + 400 * "0"


FAULTS = {
    "an epoch after run_stop": (
        lambda f: rewrite(f, append("epoch_start", epoch_num=36)), "epoch_start comes after run_stop"),
    "an evaluation after run_stop": (lambda f: rewrite(f, move("eval_accuracy", "run_stop")), None),
    "run_stop before the last block ends": (
        lambda f: rewrite(f, move("run_stop", "block_stop", to_number=-1)), "block_stop comes after run_stop",
    ),
    "run_stop before the last evaluation ends": (
        lambda f: rewrite(f, move("run_stop", "eval_stop", to_number=-1)), "eval_stop comes after run_stop"),
    "run_stop before the last epoch ends": (
        lambda f: rewrite(f, move("run_stop", "epoch_stop", to_number=-1)), "epoch_stop comes after run_stop",
    ),
    "seconds": (lambda f: rewrite(f, times(lambda t, first: t // 1000)), "no time from 2018 on"),
    "one time": (lambda f: rewrite(f, times(lambda t, first: first)), "the run of 35 epochs takes no time"),
    "negative times": (lambda f: rewrite(f, times(lambda t, first: -t)), "no time from 2018 on"),
    "times that run backwards": (
        lambda f: rewrite(f, times(lambda t, first: 2 * first - t)), "earlier than run_start"),
    "a rate that cannot be": (
        lambda f: rewrite(f, times(lambda t, first: first + (t - first) // 1000)),
        "images/s, more than 10 times those of the"),
    "another learning rate": (
        lambda f: replace(f / "result_1.txt", '"value": 10.5', '"value": 11'),
        "lars_opt_base_learning_rate is 10.5 in"),
    "another epsilon": (lambda f: rewrite(f, value("lars_epsilon", 1e-6)), "lars_epsilon is 0.0 in"),
    "another organisation": (
        lambda f: rewrite(f, value("submission_org", "Other")), "submission_org is Somebody in"),
    "another platform": (
        lambda f: rewrite(f, value("submission_platform", "another")), "submission_platform is 1xNF5688M6 in",
    ),
    "another configuration": (
        lambda f: replace(f / "result_1.json", '"threads": 5', '"threads": 6'),
        "config / input_pipeline / threads is 5 in"),
    "one seed twice": (lambda f: rewrite(f, value("seed", 5)), "seed 5 is that of result_0.txt too"),
    "fewer images": (
        lambda f: rewrite(f, value("train_samples", 160_000), ALL), "train_samples is 160,000, not 1,281,167",
    ),
    "a key that is not there": (
        lambda f: rewrite(f, delete("lars_opt_weight_decay")), "lars_opt_weight_decay is not logged"),
    "a constant that is another": (
        lambda f: rewrite(f, value("lars_opt_end_learning_rate", 0.0), ALL),
        "lars_opt_end_learning_rate is 0.0"),
    "a log without its label": (
        lambda f: [
            replace(f / name.replace(".txt", ".json"), '"width": 1.0', '"width": 0.5') for name in ALL],
        f"what was saved beside the log says {rules.NOT_A_RESULT}, and the log does not"),
    "one run of another task": (
        lambda f: rewrite(f, value("submission_platform", f"box, {rules.NOT_A_RESULT}")),
        "the run is labelled, but not"),
    "a learning rate with two values": (
        lambda f: rewrite(f, both(double(RATE), value(RATE, 11)), ALL),
        f"{RATE} is logged 2 times with different values (11, 10.5)"),
    "half a step of accumulation": (
        lambda f: rewrite(f, value("gradient_accumulation_steps", 0.5), ALL),
        "gradient_accumulation_steps is 0.5"),
    "a record of two values": (
        lambda f: rewrite(f, lambda text: text.replace('"value": 10.5', '"value": 11, "value": 10.5')),
        "not an MLPerf record (ValueError: 'value' has two values)"),
    "a huge number": (
        lambda f: rewrite(f, lambda text: text.replace('"value": 10.5', f'"value": {HUGE}')), "of 401 digits",
    ),
    "a bomb": (
        lambda f: rewrite(f, insert(f":::MLLOG {'[' * 900}{']' * 900}\n", "run_start")),
        "not an MLPerf record")}


@pytest.mark.parametrize("name", every_fourth(FAULTS))
def test_score_check_and_package_refuse_alike(results, refused, name):
    refused(results, *FAULTS[name])


def test_a_result_that_is_whole_is_refused_by_none(results, judged):
    assert judged(results) == ([], [], [])


@pytest.mark.parametrize(
    "folder, hashes, fault",
    [("/nvme", "aaaaa", ""), ("/data", "aabaa", "/data (data set bbbbbbbb) in result_2.txt"),
     ("/nvme", "aaba", "/nvme in result_2.txt")])
def test_the_data_of_the_runs_are_compared_by_their_certificates_if_all_have_one(
    results, folder, hashes, fault
):
    for number, digit in enumerate(hashes):
        campaigns.change(
            results / f"result_{number}.txt", **{"data certificate": {"set_sha256": 64 * digit}})
    replace(results / "result_2.json", '"folder": "/data"', f'"folder": "{folder}"')
    found = [finding.message for finding in result_rules.configuration(run.read_folders([results])[results])]
    assert len(found) == bool(fault) and all(fault in message for message in found)


def test_the_minutes_are_told_of_what_is_not_valid(results):
    [before] = score.score([results])
    rewrite(results, value("lars_opt_base_learning_rate", 11))
    [system] = score.score([results])
    assert not system.valid and system.olympic_minutes == before.olympic_minutes
    assert [each.kept for each in system.runs] == [each.kept for each in before.runs]
    marked = f"{before.olympic_minutes:.2f} minutes (unverified), NOT A VALID RESULT"
    assert f"{marked}: result_1.txt: base learning rate is 11 in the log" in scored.printed([system])


MISS = (change_record("run_stop", metadata={"status": "aborted"}), value("eval_accuracy", 0.75, -1))


def miss(folder, *names):
    for mutate in MISS:
        rewrite(folder, mutate, names)


def test_one_run_may_miss_the_target_and_not_two(results, judged):
    miss(results, "result_2.txt")
    assert judged(results) == ([], [], [])
    [system] = score.score([results])
    assert [each.file.name for each in system.runs if not each.converged] == ["result_2.txt"]
    miss(results, "result_4.txt")
    reasons, errors, problems = judged(results)
    assert reasons == ["2 runs did not converge (result_2.txt, result_4.txt), and only one may"]
    assert len(errors) == 2 and all(
        "the run missed the target: its best accuracy is 0.75000" in error for error in errors)
    assert any(
        "2 runs did not reach the target (result_2.txt, result_4.txt)" in problem for problem in problems)


def test_the_compliance_checker_fails_the_run_that_missed_and_the_check_does_not(results):
    miss(results, "result_2.txt")
    report = check.check([results], ["1.0.0"])
    assert [verdict.ok for verdict in report.verdicts] == [True, True, False, True, True]
    assert report.ok and [finding.severity for finding in report.findings] == [WARNING]
    assert report.findings[0].rule == rules.ONE_MAY_MISS
    alone = check.check([results / "result_2.txt"], ["1.0.0"])
    assert alone.ok and [finding.rule for finding in alone.findings] == [rules.ONE_MAY_MISS]


def test_a_run_that_diverged_is_one_that_missed_and_one_warning(results):
    miss(results, "result_2.txt")
    for number in range(4, 9):
        rewrite(results, value("eval_accuracy", float("nan"), number), ["result_2.txt"])
    assert score.score([results])[0].valid
    report = check.check([results], ["4.0.0"])
    assert report.ok and {finding.severity for finding in report.findings} == {WARNING}
    [said] = [finding.message for finding in report.findings if "NaN" in finding.message]
    assert said == "eval_accuracy is NaN, which is below the target (5 of 9 are)"
    assert len(report.findings) == 2


def test_percent_in_place_of_a_fraction_is_told_the_fraction(results):
    rewrite(results, value("eval_accuracy", 31.948, 3))
    told = {finding.message: finding.remedy for finding in score.score([results])[0].errors}
    said = "eval_accuracy 31.948 is not a fraction between 0 and 1; not counted"
    assert told[said] == "log the fraction: 0.31948"


def test_a_package_may_hold_a_run_that_missed(results, checkout, tmp_path):
    miss(results, "result_2.txt")
    outcome = packaged(results, tmp_path / "submission", checkout)
    assert outcome.written and not outcome.errors


def test_a_folder_of_fewer_runs_is_no_result_yet(results):
    (results / "result_4.txt").unlink()
    report = check.check([results], ["1.0.0"])
    assert report.ok and [(each.severity, each.message) for each in report.findings] == [
        (WARNING, "4 runs of 5: no score yet")]


NUMBERS = (
    "global_batch_size", "gradient_accumulation_steps", "train_samples", "eval_samples", "seed",
    "eval_accuracy", "lars_opt_base_learning_rate", "lars_opt_momentum", "lars_opt_weight_decay",
    "lars_epsilon", "lars_opt_learning_rate_decay_steps", "lars_opt_learning_rate_warmup_epochs")
TEXTS = (
    "submission_benchmark", "submission_org", "submission_division", "submission_status",
    "submission_platform", "opt_name")


@pytest.mark.parametrize("key", every_fourth((*NUMBERS, *TEXTS, "cache_clear")))
def test_a_value_of_a_wrong_type_or_beyond_all_bounds_is_an_error(results, key):
    wrong = ['{"a": 1}', "[1]", HUGE, "1e400", "[[[[[[[]]]]]]]"]
    wrong += (
        ['"x"', "null", "true", "NaN"] if key in NUMBERS else [] if key == "cache_clear"
        else ["null", "true", "1"])
    wrong = wrong[:2] if key == "cache_clear" else wrong
    text = (results / "result_1.txt").read_text()
    runs = [run.read_run(results / name) for name in ALL]
    for each in wrong:
        mutated = value(key, "@")(text).replace('"@"', each)
        (results / "result_1.txt").write_text(mutated)
        runs[1] = run.read_run(results / "result_1.txt")
        assert result_rules.judge(runs, ["4.0.0"]).errors, (key, each)
    compare.compare([*score.score([results]), *score.score([results])])


@pytest.mark.parametrize(
    "name", ["time_ms", *in_test_all("key", "metadata", "epoch_num", "status", "first_epoch_num")])
def test_a_field_of_a_wrong_type_is_an_error(results, name):
    key = {"status": "run_stop", "first_epoch_num": "block_start"}.get(name, "eval_accuracy")
    text = (results / "result_1.txt").read_text()
    for wrong in ('{"a": 1}', "[1]", '"x"', "null", "true", HUGE, "1e400", "-1e300"):
        if name == "metadata" and wrong in ('{"a": 1}', "null") or name == "key" and wrong == '"x"':
            continue
        if name == "status" and wrong == '"x"':
            continue
        fields = {name: "@"} if name in ("time_ms", "key", "metadata") else {"metadata": {name: "@"}}
        changed = (
            on_last(text, key, fields) if name in ("key", "metadata")
            else change_record(key, -1, **fields)(text))
        (results / "result_1.txt").write_text(changed.replace('"@"', wrong))
        [system] = score.score([results])
        assert not system.valid, (name, wrong)


def on_last(text, key, fields):
    lines = text.splitlines(keepends=True)
    i = [i for i, line in enumerate(lines) if f'"key": "{key}"' in line][-1]
    lines[i] = ":::MLLOG " + json.dumps({**json.loads(lines[i].split(" ", 1)[1]), **fields}) + "\n"
    return "".join(lines)


SHAPES = [
    "", "null", "[]", "5", '"text"', "{", '{"config": 5}', '{"config": {"run": [], "data": 3}}',
    '{"config": {"run": {}}}', '{"config": {"data": {"width": {"a": []}}}}',
    '{"config": {}, "packages": [1]}', '{"config": {}, "system": {"a": 1}}',
    '{"config": {"run": {"nodes": "x", "ranks_per_node": []}}}',
    '{"\\ud800": "\\udfff", "config": {"run": {"\\ud800": 1}}}',
    f'{{"config": {{"run": {{"nodes": {HUGE}}}}}}}', "[" * 100_000, '{"a":' * 500 + "1" + "}" * 500,
    "\x00\x00", "NaN", '{"data certificate": [], "config": {}}']


@pytest.mark.parametrize("shape", every_fourth(SHAPES), ids=range(len(SHAPES)))
def test_whatever_lies_beside_a_log_is_no_crash(results, judged, shape):
    for name in ALL:
        (results / name).with_suffix(".json").write_bytes(shape.encode("utf-8", "surrogatepass"))
    reasons, _, problems = judged(results)
    assert sum("not there, or not what rn50 saves" in problem for problem in problems) == rules.RUNS
    systems = score.score([results])
    compare.compare([*systems, *systems])
    assert reasons == [] or systems[0].label  # a task that is not a number is another one


@pytest.mark.parametrize("place", ["a pipe", "a folder", "a loop", "a name that is not UTF-8"])
def test_what_is_no_file_neither_hangs_nor_crashes(tmp_path, place):
    scored.write_runs(tmp_path, 100, 101, 102, 103, 104)
    odd = tmp_path / "result_1.txt"
    if place == "a folder":
        odd.unlink()
        odd.mkdir()
        assert len(score.score([tmp_path])[0].runs) == 4
    elif place == "a name that is not UTF-8":
        odd.rename(os.fsdecode(os.fsencode(tmp_path) + b"/result_\xff.txt"))
        assert len(score.score([tmp_path])[0].runs) == 5
    else:
        odd.unlink()
        os.mkfifo(odd) if place == "a pipe" else odd.symlink_to(odd)
        with pytest.raises(UserError, match=r"result_1.txt: (is a pipe, no regular file|cannot be read)"):
            score.score([tmp_path])
        assert any(
            "no regular file" in each.message or "cannot be read" in each.message
            for each in check.check([tmp_path], ["4.0.0"]).findings)


def test_the_rules_of_v0_7_ask_for_less(tmp_path):
    scored.write_runs(tmp_path, 100, 101, 102, 103, 104)
    for name in ALL:
        for key in ("gradient_accumulation_steps", "seed"):
            rewrite(tmp_path, delete(key), (name,))
    [now], [then] = score.score([tmp_path]), score.score([tmp_path], "0.7.0")
    assert not now.valid and now.olympic_minutes == then.olympic_minutes
    assert then.valid and then.convergence is None and then.scaled_minutes is None
    assert check.check([tmp_path], ["0.7.0"]).ok and not check.check([tmp_path], ["1.0.0"]).ok


@pytest.mark.parametrize(
    "ruleset, scaled", [("1.0.0", None), ("2.0.0", None), ("2.1.0", 1.7075), ("4.0.0", 1.7075)])
def test_scores_are_scaled_from_v2_1_on(tmp_path, ruleset, scaled):
    scored.write_runs(tmp_path, 100, 101, 102, 103, 104)
    [system] = score.score([tmp_path], ruleset)
    assert system.valid and system.convergence.factor > 1
    assert system.scaled_minutes == (scaled and pytest.approx(scaled, abs=1e-4))
    assert ("scores are scaled from round v2.1 on only" in scored.printed([system])) == (scaled is None)


def test_the_time_grows_with_the_length_of_a_log_and_not_with_its_square(tmp_path):
    """Twenty thousand epochs: what looks at every evaluation for every epoch takes minutes of it."""
    scored.write_runs(tmp_path / "a", 200_000, epochs=20_000)
    rewrite(tmp_path / "a", with_epochs, ("result_0.txt",))
    scored.write_runs(tmp_path / "b", 100, 101)
    began = time.monotonic()
    systems = score.score([tmp_path / "a", tmp_path / "b"])
    compare.compare(systems)
    assert time.monotonic() - began < 20


def with_epochs(text):
    lines = []
    for line in text.splitlines(keepends=True):
        record = json.loads(line.split(" ", 1)[1])
        lines.append(line)
        if record["key"] == "block_start":
            first, count = record["metadata"]["first_epoch_num"], record["metadata"]["epoch_count"]
            for epoch in range(first, first + count):
                for what, after in (("epoch_start", 0), ("epoch_stop", 1)):
                    changed = {
                        **record, "key": what, "metadata": {"epoch_num": epoch},
                        "time_ms": record["time_ms"] + after}
                    lines.append(":::MLLOG " + json.dumps(changed) + "\n")
    return "".join(lines)


ODD = "odd: name; here"
"""A name in which the parts of a message seem to end."""


def test_a_folder_whose_name_looks_like_a_part_of_a_message(results, judged):
    rewrite(results, value("seed", 5))
    rewrite(results, delete("lars_opt_weight_decay"), ["result_2.txt"])
    odd = shutil.copytree(str(results), str(results.parent / ODD)) and results.parent / ODD
    plain = judged(results)
    assert all(plain)
    assert [[line.replace(str(odd), str(results)) for line in said] for said in judged(odd)] == list(plain)


def test_a_log_that_is_none_in_such_a_folder(results, checkout, tmp_path):
    odd = results.rename(results.parent / ODD)
    (odd / "result_1.txt").write_text("no log")
    for verb in (lambda: score.score([odd]), lambda: packaged(odd, tmp_path / "to: there; too", checkout)):
        with pytest.raises(UserError) as refused:
            verb()
        assert refused.value.lines == (f"{odd}/result_1.txt: no :::MLLOG line in it; give the log of a run",)
    [finding] = (each for each in check.check([odd]).findings if each.severity == ERROR)
    assert (finding.file, finding.message, finding.remedy) == (
        odd / "result_1.txt", "no :::MLLOG line in it", "give the log of a run")


def test_results_in_such_a_folder_are_packaged_into_another(results, checkout, tmp_path):
    odd = results.rename(results.parent / ODD)
    outcome = packaged(odd, tmp_path / "to: there; too", checkout)
    assert outcome.written and outcome.findings == ()
    assert sorted(path.name for path in outcome.systems[0].place.results.iterdir()) == list(ALL)
