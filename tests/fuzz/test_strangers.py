"""Nothing that comes with somebody's result is ever executed: neither what stands beside its logs, nor the
name of its folder, nor a name that is passed on to ``--set``, nor, by the runner of a CI job that keeps the
output, a text in a log."""

import csv
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from xml.etree import ElementTree

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from rn50.errors import UserError
from rn50.results import sidecar
from rn50.settings import config
from rn50.submission import source
from tests.fuzz.victim import assert_answers, rn50
from tests.results.mutations import change
from tests.support import campaigns
from tests.support.planted import marks, plant


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """Five results that everything accepts."""
    return campaigns.make(tmp_path_factory.mktemp("campaign") / "NF5688M6", "0" * 40, {})


TOUCH = "cd;touch mark.command"
FORMS = (
    "$({})",
    "`{}`",
    "';{};'",
    '";{};"',
    "\n{}\n",
    "\r\n{}\n#",
    ";{};",
    "&&{}",
    "|{}",
    "${{X:-$({})}}",
    "a[$({})0]",
)
COMMANDS = st.sampled_from([form.format(TOUCH) for form in FORMS])
"""Texts that leave a mark in HOME wherever a shell reads them as code."""
TEXT = st.text(max_size=8)
FEWER = settings(max_examples=min(400, settings().max_examples))
"""Each starts rn50 and shells several times: an hour of `make fuzz` is for all properties together."""


def drawn(data, texts=TEXT):
    """Text, a command, text."""
    return data.draw(texts) + data.draw(COMMANDS) + data.draw(texts)


@FEWER
@given(data=st.data())
def test_what_stands_beside_a_log(data, campaign):
    with tempfile.TemporaryDirectory() as name:
        folder, mark = pathlib.Path(name), pathlib.Path(name) / "mark"
        results = pathlib.Path(shutil.copytree(campaign, folder / "results"))
        strange = plant(folder / "planted", mark)
        known = sorted({*strange, *os.environ, *config.known_names(), "NCCL_ALGO", "OMP_NUM_THREADS"})
        names = st.sampled_from(known) | st.text(alphabet="ABCLNPTX_abc019", min_size=1, max_size=9)
        tables = {}
        for table in ("environment", "variables"):
            given_ = data.draw(st.lists(names, max_size=12))
            tables[table] = {each: strange.get(each) or drawn(data) for each in given_}
            tables[table] |= strange if data.draw(st.booleans()) else {}
        note(str(tables))
        for log in results.glob("result_*.txt"):
            saved = json.loads(log.with_suffix(".json").read_text())
            campaigns.change(log, **{table: saved.get(table, {}) | more for table, more in tables.items()})
        assert_answers(rn50("reproduce", results, "--dry-run", cwd=name, HOME=name), False)
        saved = sidecar.read(results / "result_0.txt")
        (folder / "config.sh").write_bytes(
            source.configuration(saved, drawn(data)).encode("utf-8", "replace")
        )
        script = 'set -a; . "$0"; /usr/bin/env git --version; /bin/bash -c :; python3 -c ""'
        subprocess.run(
            ["/bin/bash", "-c", script, folder / "config.sh"],
            capture_output=True,
            env={**os.environ, "HOME": name},
            timeout=60,
        )
        assert marks(mark) == []


@FEWER
@given(data=st.data())
def test_the_name_of_a_folder(data, campaign):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "in").mkdir()
        raw = drawn(data, st.binary(max_size=20).map(os.fsdecode)).replace("/", "").replace("\0", "")
        results = folder / "in" / raw
        note(repr(results))
        shutil.copytree(campaign, results)
        verbs = (
            ("reproduce", results, "--dry-run"),
            ("borrow", results, "NF5688M6", "-o", folder / "new.sh"),
        )
        for verb in verbs:
            assert_answers(rn50(*verb, cwd=name, HOME=name), False)
        if (folder / "new.sh").exists():
            environ = {**os.environ, "HOME": name}
            subprocess.run(
                ["/bin/bash", "-c", ". ./new.sh"], cwd=name, capture_output=True, env=environ, timeout=60
            )
        assert not [*folder.rglob("mark.*")]


@FEWER
@given(data=st.data())
def test_names_of_set(data):
    with tempfile.TemporaryDirectory() as name:
        prefix = data.draw(st.sampled_from(["NCCL_", "MXNET_x", "LD_a", "OMP_", "LR", ""]))
        value = data.draw(st.sampled_from(["1", ""]) | COMMANDS)
        assignment = f"{prefix}{drawn(data)}={value}".replace("\0", "").encode("utf-8", "replace").decode()
        note(repr(assignment))
        verb = ("config", "show", "DEMO_CPU", "--set", assignment)
        assert_answers(rn50(*verb, cwd=name, HOME=name), False)
        assert not os.listdir(name)


@given(st.text(max_size=12), st.text(max_size=12))
def test_a_line_for_a_shell_is_what_was_meant_or_refused(name, value):
    from rn50.settings.shell.exports import exported, remark

    try:
        line = exported(name, value)
    except UserError:
        return
    script = f'# {remark(value)}\n{line}\nexport -p | /bin/grep -c .; printf %s "${name}"'
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, env={}, timeout=60)
    count, _, got = done.stdout.partition("\n")
    assert got == value and not done.stderr and int(count) <= 4  # with those of every shell


COMMAND = re.compile(r"##\[|^\s*::(?!:)", re.MULTILINE)
"""What GitHub's runner takes for a command (ActionCommand.cs of actions/runner)."""
IGNORED = re.compile("[\u034f\ufe00-\ufe0f]")
"""Characters that its comparison, which is ICU's, skips."""
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")
PIECES = (
    "##[",
    "##",
    "[",
    "]",
    "::",
    "::error::x",
    "##[stop-commands]x",
    "\n::debug::",
    "\x1b[2J",
    "\ufe0f",
    ":",
)
PIECE = st.sampled_from(PIECES)
FOREIGN = st.builds(lambda first, more: first + "".join(more), PIECE, st.lists(PIECE | TEXT, max_size=4))
KEYS = ("submission_org", "submission_status", "submission_platform", "submission_division", "opt_name")
PRINTED = {
    "check --ruleset 4.0.0": str,
    "check --ruleset 4.0.0 --json": json.loads,
    "check --ruleset 4.0.0 --format junit": ElementTree.fromstring,
    "check --ruleset 4.0.0 --format sarif": json.loads,
    "check --ruleset 4.0.0 --format github": str,
    "score": str,
    "score --json": json.loads,
    "score --csv": lambda text: list(csv.reader(text.splitlines(), strict=True)),
    "audit": str,
    "audit --json": json.loads,
    "compare": str,
    "compare --json": json.loads,
    "rcp": str,
    "rcp --json": json.loads,
    "report --ruleset 4.0.0 -o ../report.html": str,
    "atlas -o ../atlas.html": str,
}
"""Verbs that print what a log says, and what reads their output."""


@pytest.mark.smoke
@pytest.mark.usefixtures("official_checkers")
def test_no_text_of_a_log_or_a_name_is_a_command_or_a_control_byte(campaign):
    print_all(
        campaign,
        "::stop-commands::##[x]\x1b[2J",
        dict.fromkeys(KEYS[:3], "##[add-mask]e\n::error::\ufe0f\x07"),
    )


@pytest.mark.usefixtures("official_checkers")
@settings(max_examples=min(100, settings().max_examples // 2))
@given(FOREIGN, st.dictionaries(st.sampled_from(KEYS), FOREIGN, max_size=2))
def test_text_of_any_characters_is_no_command(campaign, folder, texts):
    print_all(campaign, folder, texts)


def print_all(campaign, folder, texts):
    """Hold every verb to it, and what it prints for machines to its form."""
    with tempfile.TemporaryDirectory() as name:
        raw = re.sub(b"[/\0]", b"", folder.encode("utf-8", "replace")[:200])
        results = pathlib.Path(name) / "in" / os.fsdecode(raw if raw.strip(b".") else b"x")
        shutil.copytree(campaign, results)
        for log in results.glob("result_*.txt") if texts else ():
            for key, text in texts.items():
                log.write_text(change(key, value=text)(log.read_text()))
        for verb, read in PRINTED.items():
            paths = (results.name, campaign) if verb.startswith("compare") else (results.name,)
            done = rn50(*verb.split(), "--", *paths, cwd=results.parent, GITHUB_ACTIONS="true")
            assert_answers(done, "--json" in verb)
            if done.out:
                read(done.out)
            ours = "^::(?:error|warning) [^:]*::" if "github" in verb else "^$"
            said = re.sub(ours, "", done.out, flags=re.MULTILINE) + done.err
            assert not COMMAND.search(IGNORED.sub("", said)), (verb, said)
            assert not CONTROL.search(said), (verb, said)
        for page in pathlib.Path(name).glob("*.html"):
            assert not CONTROL.search(page.read_text(encoding="utf-8")), page
