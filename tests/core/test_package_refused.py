"""What ``rn50 package`` refuses: every line that it says, and that nothing is left behind."""

import pathlib
import shutil

import pytest

from rn50.errors import UserError
from rn50.submission import describe, own_results, package
from tests.core.campaigns import DETAILS, change, details, nobody, packaged, replace, snapshot


def spoil_missed(results):
    for name in ("result_1.txt", "result_3.txt"):
        replace(results / name, '"value": 0.76082', '"value": 0.75')
        replace(results / name, '"status": "success"', '"status": "aborted"')


def spoil_all(results, old, new):
    for log in results.glob("result_*.txt"):
        replace(log, old, new)


REFUSED = {
    "a run is missing": (lambda r: (r / "result_4.txt").unlink(), ["NF5688M6: 4 of 5 runs; the same ./run_experiments.sh again"]),
    "two missed the target": (spoil_missed, ["2 runs did not reach the target (result_1.txt, result_3.txt), and one may"]),
    "nothing beside a log": (lambda r: (r / "result_2.json").unlink(), ["result_2.json: not there, or not what rn50 saves"]),
    "something else beside a log": (
        lambda r: (r / "result_2.json").write_text('{"config": []}'), ["result_2.json: not there, or not what rn50 saves"],
    ),
    "no division": (
        lambda r: replace(r / "result_2.txt", '"key": "submission_division", "value": "closed"', '"key": "other", "value": ""'),
        ["result_2.txt: submission_division is not logged"],
    ),
    "not committed": (
        lambda r: [change(log, commit="c0ffee-dirty") for log in r.glob("*.txt")],
        ["made with changes that were not committed (c0ffee-dirty)"],
    ),
    "no commit": (lambda r: [change(log, commit=None) for log in r.glob("*.txt")], ["nobody knows which commit made it"]),
    "a commit that is not here": (
        lambda r: [change(log, commit="c0ffee" * 6 + "c0ff") for log in r.glob("*.txt")],
        [f"its commit {'c0ffee' * 6}c0ff is not in ", "git fetch it"],
    ),
    "two commits": (lambda r: change(r / "result_3.txt", commit="c0ffee"), ["commit is ", "c0ffee in result_3.txt"]),
    "two configurations": (
        lambda r: replace(r / "result_1.json", '"threads": 5', '"threads": 6'),
        ["not of one configuration: config / input_pipeline / threads is 5 in result_0.txt, result_2.txt", "6 in result_1.txt"],
    ),
    "two packages": (
        lambda r: replace(r / "result_1.json", '"mxnet": "1.9.1"', '"mxnet": "1.9.0", "pytest": "1.0"'),
        ["not of one configuration: packages / mxnet is 1.9.1 in", "1.9.0 in result_1.txt; make all"],
    ),
    "two learning rates": (
        lambda r: replace(r / "result_1.txt", '"value": 10.5', '"value": 11'), ["lars_opt_base_learning_rate is 10.5 in"],
    ),
    "two organisations": (
        lambda r: replace(r / "result_1.txt", '"Somebody"', '"Nobody"'),
        ["submission_org is Somebody in", "Nobody in result_1.txt"],
    ),
    "no organisation": (
        lambda r: spoil_all(r, '"Somebody"', '"unnamed organisation"'),
        ["submission_org is 'unnamed organisation'", "set SUBMISSION_ORG"],
    ),
    "two machines": (
        lambda r: replace(r / "result_1.json", "1007 GiB", "503 GiB"),
        ["not of one system: host_memory_capacity is 1007 GiB in", "503 GiB in result_1.txt"],
    ),
    "somebody else": (lambda r: details(r, submitter="Nobody"), ["submitter is 'Nobody', but the results say 'Somebody'"]),
    "a misspelled field": (
        lambda r: details(r, coolin="air"), ["coolin is no field of a system description; did you mean cooling?"],
    ),
    "a list": (lambda r: details(r, system_name=["a", "b"]), ["system_name is a list or a mapping; write its value on one line"]),
    "no number": (lambda r: details(r, host_processors_per_node="two"), ["host_processors_per_node is 'two', no whole number"]),
    "no YAML": (
        lambda r: (r / describe.DETAILS).write_text("cooling: air\nhw_notes: [\n"), ["system.yaml: line 3: not YAML ("],
    ),
    "no fields": (lambda r: (r / describe.DETAILS).write_text("air-cooled"), ["system.yaml: no fields and values"]),
    "no details": (
        lambda r: (r / describe.DETAILS).unlink(),
        [f"system.yaml: {field} is missing: no machine tells it, or this one did not; add a line as in  {field}: "
         for field in DETAILS],
    ),
}


@pytest.mark.parametrize("spoiled", REFUSED)
def test_what_is_incomplete_is_refused_and_leaves_nothing_behind(results, checkout, tmp_path, spoiled):
    spoil, says = REFUSED[spoiled]
    spoil(results)
    before = snapshot(tmp_path)
    with pytest.raises(UserError) as refused:
        packaged(results, tmp_path / "submission", checkout)
    for words in says:
        assert words in str(refused.value)
    assert len(str(refused.value).splitlines()) == (len(DETAILS) if spoiled == "no details" else 1), str(refused.value)
    assert snapshot(tmp_path) == before and not (tmp_path / "submission").exists()


def test_everything_that_is_missing_is_named_at_once(results, checkout, tmp_path):
    for spoil in ("a run is missing", "two machines", "no organisation", "a misspelled field"):
        REFUSED[spoil][0](results)
    with pytest.raises(UserError) as refused:
        packaged(results, tmp_path / "submission", checkout)
    lines = str(refused.value).splitlines()
    assert len(lines) == 4 and all("; " in line for line in lines), lines


def test_a_difference_that_a_person_explains_is_none(results):
    replace(results / "result_1.json", "1007 GiB", "1006 GiB")
    details(results, host_memory_capacity="1 TB")
    [result] = own_results.read([results])
    described = describe.describe(result, None, nobody)
    assert described.problems == () and described.fields["host_memory_capacity"] == "1 TB"


def test_runs_that_saved_no_machine_are_said_to_be_of_this_one(results, machine):
    for log in results.glob("result_*.txt"):
        change(log, system=None)
    [result] = own_results.read([results])
    described = describe.describe(result, None, lambda: machine)
    assert described.problems == () and described.fields["host_memory_capacity"] == "1007 GiB"
    [warning] = described.warnings
    assert warning.endswith("its runs saved nothing of their machine, so this one is described; is it the same?")


def test_two_results_of_one_name_are_refused(results, checkout, tmp_path):
    other = shutil.copytree(str(results), str(tmp_path / "results" / "other"))
    with pytest.raises(UserError, match="its system is called NF5688M6, as that of .*give each a system_name in system.yaml"):
        package.package([results, pathlib.Path(other)], tmp_path / "submission", nobody, checkout=checkout)


def test_what_a_checker_refuses_is_not_written(results, checkout, tmp_path):
    replace(results / "result_1.txt", '"key": "seed", "value": 22', '"key": "seed", "value": 5')
    before = snapshot(tmp_path)
    outcome = packaged(results, tmp_path / "submission", checkout)
    assert not outcome.written and outcome.errors
    seeds = tmp_path / "submission" / "Somebody" / "results" / "NF5688M6" / "resnet" / "result_1.txt"
    assert any(finding.file == seeds and "seed 5 is that of" in finding.message for finding in outcome.findings)
    assert snapshot(tmp_path) == before
