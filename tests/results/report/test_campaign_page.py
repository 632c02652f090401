"""The page of campaigns of ours: what ran where, what it may be called, and how to run it again.

Processes: bash runs the commands of the page.
"""

import html
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from click.testing import CliRunner

from rn50.benchmark import rules
from rn50.cli import main
from rn50.results import score
from rn50.results.report import report, what_ran
from rn50.settings import config as configuration
from rn50.settings import document, header
from rn50.settings.document import Document
from tests.conftest import in_test_all
from tests.support import imagenet_run
from tests.support.campaigns import change
from tests.support.four_epochs import write_result

pytestmark = pytest.mark.xdist_group("campaign")


@pytest.fixture(scope="module")
def page(campaign):
    """That of a campaign which nobody has spoilt."""
    return page_of(campaign)


def page_of(*folders, rulesets=()):
    return report.render(score.score(folders), rulesets, folder=folders[0])


def head_of(page):
    """What ran where, by name, of the first result."""
    head = page.split('<dl class="head">')[1].split("</dl>")[0]
    return {
        name: html.unescape(value) for name, value in re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", head)}


def test_the_page_first_says_what_ran_where(results):
    for number in range(5):
        log = results / f"result_{number}.txt"
        change(
            log, packages={"mxnet-cu112": "1.9.1"}, system={"accelerator_model_name": "A100"},
            commit="c0ffee" * 6 + "-dirty", **{"data certificate": {"sha256": "5e" * 32, "imagenet": True}})
    page = page_of(results)
    assert head_of(page) == {
        "trained": "ResNet-50, 1000 classes, 224x224",
        "expected": header.read(document.find("NF5688M6"))["expected"], "framework": "MXNet 1.9.1",
        "precision": "float16", "ranks": "8 on GPU", "machine": "8 x A100",
        "date (UTC)": "2023-11-14 to 2023-11-15", "commit": "c0ffeec0ffee-dirty",
        "data certificate": "5e" * 6}
    [end_to_end, each] = (
        float(rate.replace(",", "")) for rate in re.findall(r'<dd class="rate">([\d,]+)', page)[1:])
    assert each == pytest.approx(end_to_end / 8, abs=1) and "on each of 8 accelerators." in page
    assert "A grey bar is the range of earlier runs" in page
    assert page.index('<dl class="head">') < page.index('<p class="score">') < page.index("<table")
    assert "git checkout" not in page  # nobody has what was not committed
    run = {**json.loads((results / "result_1.json").read_text())["config"]["run"], "precision": "auto"}
    saved = json.loads((results / "result_1.json").read_text())["config"]
    change(results / "result_1.txt", config={**saved, "run": run}, precision="bfloat16")
    head = dict(what_ran.head(score.score([results])[0].runs))
    assert head["precision"] == "float16, bfloat16 (auto)"


def test_the_head_of_logs_that_saved_nothing(tmp_path):
    far = write_result(tmp_path / "box", start_ms=1 << 61)
    assert head_of(page_of(far)) == {}


def test_the_head_of_a_published_system(tmp_path, monkeypatch):
    folder = write_result(tmp_path / "Org" / "results" / "box" / "resnet", start_ms=1_600_000_000_000)
    (tmp_path / "Org" / "systems").mkdir()
    described = {
        "framework": "MXNet NVIDIA 22.04", "number_of_nodes": "2", "accelerators_per_node": "8",
        "accelerator_model_name": "A100"}
    (tmp_path / "Org" / "systems" / "box.json").write_text(json.dumps(described))
    page = page_of(folder)
    assert head_of(page) == {
        "framework": "MXNet NVIDIA 22.04", "machine": "2 nodes of 8 x A100", "date (UTC)": "2020-09-13"}
    rates = page.split('<dl class="rates">')[1].split("</dl>")[0]
    assert (
        re.findall("<dt>([^<]*)", rates) == ["training", "end to end", "per accelerator"]
        and "16 accelerators" in rates)
    assert "images/s over the whole run" not in page
    monkeypatch.chdir(folder.parent)
    here = page_of(pathlib.Path("resnet"))
    assert here.count("system description, box.json") == page.count("system description, box.json") == 1


def test_our_result_on_imagenet_carries_the_words_of_the_messaging_guidelines(page, results):
    assert re.search(r'<p class="score">[\d.]+ <small>minutes <span class="tag">unverified</span>', page)
    assert (
        page.count(rules.NOT_VERIFIED) == 1
        and "0.1" in re.findall("<tr><td>label smoothing(.*?)</tr>", page)[0])
    for number in range(5):
        change(results / f"result_{number}.txt", **{"data certificate": {"imagenet": False}})
    assert "verified" not in page_of(results)


def test_a_campaign_that_goes_on(results):
    """``rn50 run`` writes the report after each long run, without the official checks, which take longest."""
    for number in (3, 4):
        (results / f"result_{number}.txt").unlink()
    logs = map(str, sorted(results.glob("result_?.txt")))
    done = CliRunner().invoke(main, ["summary", *logs, "--system", "NF5688M6", "--so-far"])
    page = (results / "report.html").read_text().replace("<wbr>", "")
    assert (done.exit_code, done.output) == (0, "") and '<p class="score">run 3 of 5 so far' in page
    assert "The official checks run at the end of the campaign." in page and "checks passed" not in page
    assert "is the mean so far" in page and "rcp/3264" in page
    assert re.findall("<dt>minutes</dt><dd>([^<]*)", page) == ["26.84 to 26.85"]
    [system] = score.score([results / "result_0.txt"])
    assert "<dt>minutes</dt><dd>26.84</dd>" in report.render([system], ())


def test_checks_that_passed_are_folded(results):
    page = page_of(results, rulesets=("1.0.0", "4.0.0"))
    assert '<details><summary class="good">10 of 10 checks passed</summary>' in page


def test_the_checker_fails_the_run_that_may_miss(results):
    imagenet_run.write(results / "missed.txt", seed=277, accuracies=imagenet_run.ACCURACIES[:-1])
    (results / "missed.txt").replace(results / "result_4.txt")
    page = page_of(results, rulesets=("4.0.0",))
    assert '<details open><summary class="bad">4 of 5 checks passed</summary>' in page
    assert "It fails a run that missed the target; of five runs one may." in page


def test_the_course_has_the_loss_and_marks_without_lines(page, results):
    assert 'aria-label="training loss over epochs"' in page

    def lines(plot):
        drawing = page.split(f'aria-label="{plot}"')[1].split("</svg>")[0]
        return re.findall(
            r'<path d="[^"]*" clip-path="[^"]*" style="fill: none; stroke: (var\(--\w+)', drawing)

    assert lines("training loss over epochs").count("var(--series") == 3  # and two dashed ones
    assert "var(--series" not in lines(
        "top-1 accuracy over epochs"
    )  # nobody has seen the accuracy between two evaluations
    shutil.copytree(str(results), str(results / "old"))
    for file in (results / "old").glob("*.txt"):
        file.write_text(re.sub(r', "train_loss": [\d.]+', "", file.read_text()))
    assert "training loss over epochs" not in page_of(results / "old")  # logs from before it was logged


@pytest.mark.slow
def test_the_courses_of_several_results_lie_over_each_other(results, tmp_path):
    other = pathlib.Path(shutil.copytree(str(results), str(tmp_path / "other")))
    imagenet_run.write(tmp_path / "log.txt", seed=99).replace(other / "result_0.txt")
    overview = page_of(results, other).split("<section")[0]
    for plot in ("training loss over epochs", "learning rate over epochs"):
        drawing = overview.split(f'aria-label="{plot}"')[1].split("</svg>")[0]
        assert {"var(--series-0)", "var(--series-1)"} <= set(
            re.findall(r"stroke: (var\(--series-\d\))", drawing))
    for file in (*results.glob("*.txt"), *other.glob("*.txt")):
        file.write_text(re.sub(r', "train_loss": [\d.]+', "", file.read_text()))
    overview = page_of(results, other).split("<section")[0]
    assert "training loss over epochs" not in overview and "learning rate over epochs" in overview


@pytest.mark.parametrize(
    "width, part",
    [(1.0, ""), (0.25, " with a quarter of the channels"), (0.5, " with half of the channels"),
     (0.125, " with 0.125 of the channels")])
def test_the_part_of_the_network_is_named(results, width, part):
    saved = json.loads((results / "result_0.json").read_text())["config"]
    for log in results.glob("*.txt"):
        change(log, config={**saved, "data": {**saved["data"], "width": width}})
    head = dict(what_ran.head(score.score([results])[0].runs))
    assert head["trained"] == f"ResNet-50{part}, 1000 classes, 224x224"


def test_links_lead_to_the_logs(results, tmp_path):
    os.rename(results / "result_0.txt", results / "result_a b:?#<.txt")
    elsewhere = tmp_path / "pages" / "report.html"
    elsewhere.parent.mkdir()
    report.write([results], (), elsewhere)
    links = re.findall(r'<a class="what" href="([^"]*)"', elsewhere.read_text())
    assert sorted(links) == [
        f"../results/NF5688M6/result_{name}.txt" for name in ("1", "2", "3", "4", "a%20b%3A%3F%23%3C")]


@pytest.mark.parametrize(
    "changes, given",
    [({"DATADIR": "/a b"}, " DATADIR='/a b'"), ({"DALI_THREADS": "7"}, None), *in_test_all(({}, ""))])
def test_the_command_that_repeats_the_run(results, changes, given):
    """What the commands would set is what the run was configured with."""
    log = results / "result_0.txt"
    config = imagenet_run.configured(RESULT_FILE=str(log), SEED="5", **changes)
    change(log, variables=config.as_environment(), commit="c0ffee" * 6)
    page = page_of(results)
    commands = html.unescape(re.findall("<pre>(.*?)</pre>", page, re.DOTALL)[0]).splitlines()
    assert commands[0] == f"git checkout {'c0ffee' * 6}"
    settings = commands[6].split(" ./run_and_time.sh")[0]
    named = "config_REPEAT.sh" if given is None else "NF5688M6"
    before = settings.partition(" ")[2].replace("SEED=5", "")
    assert commands[2] == f"{before}rn50 run {named} -o results/NF5688M6_again"
    assert commands[4] == f"RESULTS=results/NF5688M6_again {settings[:-7]} ./run_experiments.sh"
    shell = ["env", "-i", "bash", "-c", f"{settings} /usr/bin/env"]
    said = subprocess.run(shell, stdout=subprocess.PIPE, text=True, check=True).stdout
    environment = dict(line.split("=", 1) for line in said.splitlines())
    if given is None:  # the file of the system has another value, which would win
        assert environment["CONFIG_FILE"] == "config_REPEAT.sh"
        file = results / "config_REPEAT.sh"
        file.write_text(html.unescape(re.findall("<pre>(.*?)</pre>", page, re.DOTALL)[1]))
    else:
        assert settings == f"DGXSYSTEM=NF5688M6 SUBMISSION_ORG=Somebody{given} SEED=5"
        file = document.file_of(environment["DGXSYSTEM"])
    repeated = configuration.from_environment(
        {**Document(file).sourced(environment), "RESULT_FILE": str(log)})
    assert {**repeated.as_environment(), "CACHE_CLEARED": ""} == {
        **config.as_environment(), "CACHE_CLEARED": ""}


def test_commands_and_configuration_to_repeat_hold_nothing_that_runs(results, tmp_path):
    """Commands of a page are copied into a shell; their values come from a file of somebody else."""
    log = results / "result_0.txt"
    odd = {"DGXSYSTEM": f"x; touch {tmp_path}/P #", "SUBMISSION_PLATFORM": f"$(touch {tmp_path}/P)"}
    variables = imagenet_run.configured(RESULT_FILE=str(log), **odd).as_environment()
    loads = {"LD_PRELOAD": "e.so", "PATH": str(tmp_path), "OMP_NUM_THREADS": "2"}
    change(log, variables=variables, environment=loads)
    commands, configuration_ = map(html.unescape, re.findall("<pre>(.*?)</pre>", page_of(results), re.DOTALL))
    assert "export OMP_NUM_THREADS=2" in configuration_
    assert "LD_PRELOAD" not in configuration_ and "PATH" not in configuration_
    script = configuration_ + commands.replace("./run", "echo ./run").replace("rn50", "echo rn50").replace(
        "git", "echo git")
    subprocess.run(["bash", "-c", script], cwd=tmp_path, stdout=subprocess.DEVNULL, check=True)
    assert not (tmp_path / "P").exists()


def test_a_result_beside_its_own_copy(results, tmp_path):
    copy = shutil.copytree(str(results), str(tmp_path / "copy"))
    page = page_of(results, tmp_path / "copy")
    assert f"<p>The same logs: 1xNF5688M6 in {results} and 1xNF5688M6 in {copy} are one result.</p>" in page
    assert page.count("Minutes to target") == 0
    assert [row.count("<td>") for row in re.findall('<tr><th scope="row">(.*?)</tr>', page)] == [2] * 16
