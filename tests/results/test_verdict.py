"""One verdict: what ``rn50 score`` refuses, no verb uses without a word."""

import json
import pathlib
import re

import pytest
from click.testing import CliRunner

from rn50.cli import main
from rn50.results.validity.result_rules import NOT_VALID
from tests.audit import made
from tests.results.scored import write_runs


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """Ten runs, two of which have one seed, and a valid result of the same recipe."""
    folder = tmp_path_factory.mktemp("refused")
    write_runs(folder / "good", 100, 101, 102, 103, 104, platform="good")
    write_runs(folder / "bad", 80, 81, 82, 83, 84, platform="bad")
    log = folder / "bad" / "result_1.txt"
    log.write_text(log.read_text().replace('"seed", "value": 81', '"seed", "value": 80'))
    return folder


@pytest.mark.parametrize(
    "arguments, says",
    [("check hole", r"warning: \S*hole: launch gaps: 27.* room for 1 run \[audit\]"),
     ("check hole", r"\(\d+ errors, 1 warning\) audit: look at: launch gaps"),
     ("check hole --json", r'"severity": "warning", [^}]*"message": "launch gaps: 27'),
     ("check copy", r"^(?!.*warning: \S*copy: (curves alike|setup))"),
     ("report hole -o page.html", "<p class=\"bad\">Audit: look at: launch gaps.</p> <p>launch gaps: 27"),
     ("compare copy faster", "target: nothing is concluded: the runs of both have the same seeds and acc"),
     ("compare hole copy", "caution: an audit of 8xBox in [^ ]*hole: look at: launch gaps"),
     ("atlas hole -o page.html", "<small>audit: look at: launch gaps</small>"),
     ("score hole", r"next: rn50 check \S+ \| rn50 audit "), ("audit hole", "next: rn50 check ")])
def test_what_stands_out_in_an_audit_is_said_by_the_other_verbs(tmp_path, monkeypatch, arguments, says):
    placed = made.campaign(6)
    made.write(tmp_path / "hole", [placed[0], *placed[2:]])
    placed[3][1].update(curve=placed[0][1]["curve"], rate=10.0)
    made.write(tmp_path / "copy", placed[:5])
    faster = [(at, one | {"seconds": 0.95 * one["seconds"]}) for at, one in placed[:5]]
    made.write(tmp_path / "faster", faster)
    monkeypatch.chdir(tmp_path)
    called = CliRunner().invoke(main, arguments.split())
    page = tmp_path / "page.html"
    said = called.output + (page.read_text() if page.exists() else "")
    assert re.search(says, re.sub(r"\s+", " ", said)), said


@pytest.mark.parametrize(
    "arguments, says",
    [("score bad", f"{NOT_VALID}: result_1.txt, line 8: seed 80 is that of result_0.txt too"),
     ("check bad", "seed 80 is that of result_0.txt too"),
     ("compare good bad", f"caution: bad is {NOT_VALID}: result_1.txt, line 8: seed 80 is that of"),
     ("compare bad good", f"minutes to target: nothing is concluded: bad is {NOT_VALID}"),
     ("rcp bad", "line 8: seed 80 is that of result_0.txt too"),
     ("rcp good --passes bad", "line 8: seed 80 is that of result_0.txt too"),
     ("reproduce bad --dry-run", f"the claim is {NOT_VALID}: result_1.txt, line 8: seed 80"),
     ("borrow bad NF5688M6 --partial", f"{NOT_VALID}: result_1.txt, line 8: seed 80"),
     ("audit bad", f"{NOT_VALID}: result_1.txt, line 8: seed 80"),
     ("report bad -o page.html", "seed 80 is that of result_0.txt too"),
     ("atlas bad -o page.html", ">not valid<")])
def test_every_verb_that_computes_with_a_refused_result_says_so(
    refused, tmp_path, monkeypatch, arguments, says
):
    words = [str(refused / word) if word in ("good", "bad") else word for word in arguments.split()]
    monkeypatch.chdir(tmp_path)
    called = CliRunner().invoke(main, words)
    page = tmp_path / "page.html"
    said = called.output + (page.read_text() if page.exists() else "")
    assert says in re.sub(r"\s+", " ", said)
    assert "show that bad is faster" not in said and "Traceback" not in said
    if words[0] == "atlas":
        CliRunner().invoke(main, ["atlas", str(refused / "good"), "-o", "good.html"])
        assert 'href="#own-1"' in pathlib.Path("good.html").read_text() and 'href="#own-1"' not in said
    if words[0] == "compare":
        [found] = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)["comparisons"]
        assert not any(change["shown"] for change in found["differences"]) and found["split"] is None
