"""``rn50 package``: every tree that it writes goes before the official checkers.

Processes: the official checkers are programs.
"""

import csv
import io
import json
import logging
import pathlib
import shutil
import subprocess
import sys

import pytest
from mlperf_logging.package_checker.seed_checker import SeedChecker
from mlperf_logging.rcp_checker import rcp_checker
from mlperf_logging.repo_checker import repo_checker
from mlperf_logging.system_desc_checker import system_desc_checker

from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.printed import as_json
from rn50.results import score, tree
from rn50.results.validity.findings import ERROR, Finding
from rn50.settings import config as configuration
from rn50.settings.document import Document
from rn50.submission import check, describe, package
from rn50.terminal import Terminal
from tests.support import documented, imagenet_run
from tests.support.campaigns import DETAILS, details, git, make, packaged, snapshot

pytestmark = pytest.mark.usefixtures("official_checkers")

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = imagenet_run.CONFIGURATION.with_name("config_DEMO_CPU.sh")
DEMO_ACCURACIES = (0.5, 0.8)


@pytest.fixture(scope="module")
def submission(tmp_path_factory, campaign, checkout):
    """The tree of the campaign, in a folder that names a round."""
    to = tmp_path_factory.mktemp("submission") / "training_results_v2.1"
    chosen = []

    def spy(paths, rulesets, progress):
        report = before(paths, rulesets, progress)
        chosen.extend(verdict.ruleset for verdict in report.verdicts)
        return report

    before, check.check = check.check, spy
    try:
        outcome = packaged(campaign, to, checkout, rulesets=())
    finally:
        check.check = before
    assert outcome.written and outcome.findings == () and outcome.warnings == ()
    assert set(chosen) == {"2.1.0"}
    return to


def test_the_tree(submission, checkout):
    organisation = submission / "Somebody"
    commit = git(checkout, "rev-parse", "HEAD")
    code = f"mxnet-{commit[:12]}"
    scripts = pathlib.Path("benchmarks/resnet/implementations/NF5688M6")
    assert {str(file) for file in snapshot(organisation)} == {
        "systems/NF5688M6.json", *(f"results/NF5688M6/resnet/result_{i}.txt" for i in range(5)),
        *(
            str(scripts.with_name(code) / name)
            for name in ("run_and_time.sh", "rn50/train.py", "docs/data.md")),
        *(
            str(scripts / name)
            for name in (
                "README.md", "setup.sh", "init_datasets.sh", "run_and_time.sh", "config_NF5688M6.sh",
                f"NF5688M6_{code}.json"))}
    assert [file.name for file in submission.parent.iterdir()] == [submission.name]
    there = organisation / scripts.with_name(code)
    assert (there / "rn50" / "train.py").read_text() == "rn50/train.py as it ran\n"
    assert (there / "run_and_time.sh").stat().st_mode & 0o111


def test_the_description_is_of_the_machine_that_ran_and_of_what_a_person_said(submission, checkout):
    fields = json.loads((submission / "Somebody" / "systems" / "NF5688M6.json").read_text())
    assert list(fields) == list(describe.FIELDS)
    stack = fields.pop("other_software_stack")
    assert {name: value for name, value in fields.items() if value} == {
        **DETAILS, "submitter": "Somebody", "division": "closed", "status": "Available on-premise",
        "system_name": "NF5688M6", "number_of_nodes": "1", "host_processors_per_node": "2",
        "host_processor_model_name": "AMD EPYC 7742 64-Core Processor", "host_processor_core_count": "64",
        "host_processor_vcpu_count": "128", "host_memory_capacity": "1007 GiB",
        "host_networking": "4 x 200 Gb/sec (4X HDR) InfiniBand", "host_networking_topology": "N/A",
        "accelerators_per_node": "8", "accelerator_model_name": "NVIDIA A100-SXM4-40GB (400 W)",
        "accelerator_frequency": "1410 MHz", "accelerator_memory_capacity": "40960 MiB",
        "accelerator_interconnect": "NVLink",
        "accelerator_interconnect_topology": "NV12 between 28 of 28 pairs", "framework": "MXNet 1.9.1"}
    assert (
        stack["cuda_driver_version"] == "535.129.03" and stack["nccl_version"] == "2.21"
        and stack["dali_version"])
    assert stack["rn50"].endswith(git(checkout, "rev-parse", "HEAD"))


def test_the_configuration_is_that_of_the_runs(submission):
    scripts = submission / "Somebody" / "benchmarks" / "resnet" / "implementations" / "NF5688M6"
    file = Document(scripts / "config_NF5688M6.sh")
    again = configuration.from_environment({**file.sourced({"DATADIR": "/data"}), "CACHE_CLEARED": "1"}, file)
    assert again == imagenet_run.configured()
    assert "SEED" not in (scripts / "config_NF5688M6.sh").read_text()


@pytest.mark.slow  # needs the set of linters
def test_the_scripts_are_sound(submission):
    scripts = submission / "Somebody" / "benchmarks" / "resnet" / "implementations" / "NF5688M6"
    shellcheck = [str(pathlib.Path(sys.executable).with_name("shellcheck")), *map(str, scripts.glob("*.sh"))]
    complaints = subprocess.run(shellcheck, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert complaints.returncode == 0, complaints.stdout


@pytest.mark.parametrize("ruleset", rules.RULESETS)
def test_the_official_checkers_pass_it(submission, ruleset, tmp_path):
    def start(checker, *arguments):
        """On a copy of its own: each of them writes a scaling.json, which the summarizer then calculates
        with."""
        organisation = shutil.copytree(str(submission / "Somebody"), str(tmp_path / checker / "Somebody"))
        command = [
            sys.executable, "-m", f"mlperf_logging.{checker}", str(organisation), "training", ruleset,
            *arguments]
        return subprocess.Popen(
            command, cwd=str(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    summarizer, checker = start("result_summarizer", "--csv", "summary.csv"), start("package_checker")
    said = summarizer.communicate()[0]
    with (tmp_path / "summary.csv").open() as file:
        [row] = csv.DictReader(file)
    [ours] = score.score([submission], ruleset)
    assert float(row["resnet"]) == pytest.approx(ours.olympic_minutes, abs=1e-9), said
    assert (row["submitter"], row["system"], row["accelerators_count"]) == ("Somebody", "NF5688M6", "8")
    said = checker.communicate()[0]  # runs the others itself
    of_the_whole = (
        "System description checker passed for NF5688M6", "Running Seed Checker",
        "RCP Test Passed: RCP found")
    for words in (
        *(of_the_whole if ruleset in rules.RCP_RULESETS else ()),
        "PACKAGE CHECKER FOUND NO ERRORS, SUCCESS !",
    ):
        assert words in said, said
    assert "ERROR -" not in said and "WARNING -" not in said, said


def test_the_checkers_of_a_part_pass_it_alone(submission, tmp_path, caplog):
    organisation = pathlib.Path(shutil.copytree(str(submission / "Somebody"), str(tmp_path / "Somebody")))
    results = organisation / "results" / "NF5688M6" / "resnet"
    with caplog.at_level(logging.INFO):
        assert SeedChecker("4.0.0").check_seeds(sorted(map(str, results.glob("result_*.txt"))))
        description = str(organisation / "systems" / "NF5688M6.json")
        valid, name, _, _ = system_desc_checker.check_system_desc(description, "training", "4.0.0")
        assert valid and name == "NF5688M6"
        passed, found, _ = rcp_checker.check_directory(
            str(results), "training", "4.0.0", False, False, rcp_pass="pruned_rcps")
        assert passed and found == "RCP found"
        repo_checker.run_checks(str(organisation))
    assert "ALL CHECKS PASSED." in caplog.text and "ERROR" not in caplog.text


def test_a_second_system_of_more_runs_joins_the_first(submission, checkout, machine, campaign, tmp_path):
    to = pathlib.Path(shutil.copytree(str(submission), str(tmp_path / "submission")))
    before = snapshot(to)
    commit = git(checkout, "rev-parse", "HEAD")
    results = make(
        tmp_path / "DGXA100", commit, machine, 7, imagenet_run.CONFIGURATION.with_name("config_DGXA100.sh"),
        first=20)
    shutil.copy(str(campaign / describe.DETAILS), str(results))
    outcome = packaged(results, to, checkout)
    assert outcome.written and outcome.findings == ()
    after = snapshot(to)
    assert {name: after[name] for name in before} == before  # scaling.json stayed in the copy as well
    [scored] = score.score([results])
    there = to / "Somebody" / "results" / "DGXA100" / "resnet"
    chosen = [run.file for run in scored.runs if run.in_set]
    assert [file.read_bytes() for file in sorted(there.iterdir())] == [file.read_bytes() for file in chosen]
    assert (
        chosen[0].name == "result_1.txt"
    )  # every run is slower than the one before, so the middle one of three sets counts
    assert list(outcome.systems[0].runs.values()) == chosen
    page = (
        to / "Somebody" / "benchmarks" / "resnet" / "implementations" / "DGXA100" / "README.md").read_text()
    assert f"Score: {scored.olympic_minutes:.4f} minutes" in page and "7 runs were made" in page
    with pytest.raises(
        UserError, match="results/DGXA100, .*systems/DGXA100.json, .*: there already; move them away"
    ):
        packaged(results, to, checkout)
    assert snapshot(to) == after


def test_a_disk_that_fails_in_the_middle_leaves_the_submission_as_it_was(
    submission, campaign, checkout, tmp_path, monkeypatch
):
    to = pathlib.Path(shutil.copytree(str(submission), str(tmp_path / "submission")))
    results = pathlib.Path(shutil.copytree(str(campaign), str(tmp_path / "results" / "other")))
    details(results, system_name="other")
    before, renamed, rename = snapshot(to), [], pathlib.Path.rename

    def fail_at_the_third(self, target):
        renamed.append(target)
        if len(renamed) == 3:
            raise OSError(28, "No space left on device", str(target))
        return rename(self, target)

    monkeypatch.setattr(pathlib.Path, "rename", fail_at_the_third)
    monkeypatch.setattr(
        package.check, "check", lambda *_: check.CheckReport((), ())
    )  # other tests have run the checkers
    with pytest.raises(UserError, match="results/other: cannot write the package .No space left on device."):
        packaged(results, to, checkout)
    assert len(renamed) == 5  # two were undone
    assert snapshot(to) == before


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the checkout")
def test_the_command_packages_a_demo_with_the_errors_that_are_true_of_one(machine, tmp_path):
    commit = git(ROOT, "rev-parse", "HEAD")
    results = make(tmp_path / "DEMO_CPU", commit, machine, config_file=DEMO, accuracies=DEMO_ACCURACIES)

    def run(*arguments):
        command = [
            sys.executable, "-m", "rn50", "package", str(results), "-o", str(tmp_path / "to"), *arguments]
        return subprocess.run(command, cwd=str(ROOT), capture_output=True, text=True)

    nowhere = tmp_path / "nowhere.yaml"
    refused = run("--system-file", str(nowhere))
    assert refused.returncode == 2 and not (tmp_path / "to").exists()
    assert refused.stderr == (
        f"rn50: {nowhere}: cannot be read (No such file or directory); write lines as in  cooling: "
        "air-cooled\n")
    details(results)
    done = run("--json", "--ruleset", "1.0.0")
    assert done.returncode == 1 and done.stdout, done.stderr + done.stdout
    outcome = json.loads(done.stdout)
    assert documented.differences("package", outcome) == []
    assert (outcome["written"], outcome["ok"]) == (True, False)
    assert sorted(finding["rule"] for finding in outcome["findings"]) == [
        "a submission trains ResNet-50 on all 1,281,167 images of ImageNet", "package checker 1.0.0",
        "reference convergence 1.0.0"]
    [demo] = outcome["systems"]
    organisation = tmp_path / "to" / "demo_data_set_not_an_MLPerf_result"
    assert demo["label"] == rules.NOT_A_RESULT and demo["organisation"] == str(organisation)
    fields = json.loads((organisation / "systems" / "DEMO_CPU.json").read_text())
    assert fields["sw_notes"] == rules.NOT_A_RESULT
    told = [fields[f"accelerator{name}"] for name in ("s_per_node", "_model_name", "_frequency")]
    assert told == ["0", "N/A", ""]  # though the machine has some
    assert fields["status"] == "Research, Development, or Internal (RDI)"
    code = organisation / "benchmarks" / "resnet" / "implementations" / demo["implementation"]
    assert (code / "rn50" / "run" / "timed_run.py").is_file() and not (code / "tests").exists()


def test_the_outcome_in_words_and_as_json(tmp_path):
    box = tree.Place(tmp_path / "Org", "box")
    one = package.Package(box, "mxnet-c0ffee", 27.37794, None, {"result_0.txt": tmp_path / "result_3.txt"})
    demo = package.Package(box, "mxnet-c0ffee", 1.0, rules.NOT_A_RESULT, {})
    finding = Finding(
        ERROR, tmp_path, None, "reference convergence 4.0.0", "no such batch size", "submit one")
    for outcome, said in (
        (package.Packaging((one,), (), (), True), "written; the official checkers find no error"),
        (package.Packaging((demo,), (finding,), (), True),
         f"written; 1 error, each of them true of a demo: {rules.NOT_A_RESULT}"),
        (package.Packaging((one,), (finding,), (), False), "1 error: nothing was written"),
    ):
        stream = io.StringIO()
        package.print_outcome(outcome, Terminal(file=stream))
        assert stream.getvalue().splitlines()[-1] == said
    assert as_json(package.Packaging((one,), (), ("a warning",), True)) == {
        "written": True, "ok": True, "warnings": ["a warning"], "findings": [],
        "systems": [
            {"system": "box", "organisation": str(tmp_path / "Org"), "results": str(box.results),
             "implementation": "mxnet-c0ffee", "minutes": 27.3779, "label": None,
             "runs": {"result_0.txt": str(tmp_path / "result_3.txt")}}]}
