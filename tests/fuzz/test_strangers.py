"""Nothing that comes with somebody's result is ever executed: neither what stands beside its logs, nor the
name of its folder, nor a name that is passed on to ``--set``, nor, by the runner of a CI job that keeps the
output, a text in a log."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from rn50.errors import UserError
from rn50.results import sidecar
from rn50.settings import fields
from rn50.submission import source
from tests.fuzz.victim import assert_answers, rn50
from tests.support import campaigns
from tests.support.foreign_text import KEYS, print_all
from tests.support.planted import marks, plant


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """Five results that everything accepts."""
    return campaigns.make(tmp_path_factory.mktemp("campaign") / "NF5688M6", "0" * 40, {})


TOUCH = "cd;touch mark.command"
FORMS = (
    "$({})", "`{}`", "';{};'", '";{};"', "\n{}\n", "\r\n{}\n#", ";{};", "&&{}", "|{}", "${{X:-$({})}}",
    "a[$({})0]")
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
        known = sorted({*strange, *os.environ, *fields.KNOWN_NAMES, "NCCL_ALGO", "OMP_NUM_THREADS"})
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
            source.configuration(saved, drawn(data)).encode("utf-8", "replace"))
        script = 'set -a; . "$0"; /usr/bin/env git --version; /bin/bash -c :; python3 -c ""'
        subprocess.run(
            ["/bin/bash", "-c", script, folder / "config.sh"], capture_output=True,
            env={**os.environ, "HOME": name}, timeout=60)
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
            ("reproduce", results, "--dry-run"), ("borrow", results, "NF5688M6", "-o", folder / "new.sh"))
        for verb in verbs:
            assert_answers(rn50(*verb, cwd=name, HOME=name), False)
        if (folder / "new.sh").exists():
            environ = {**os.environ, "HOME": name}
            subprocess.run(
                ["/bin/bash", "-c", ". ./new.sh"], cwd=name, capture_output=True, env=environ, timeout=60)
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
    from rn50.settings.writing import exported, remark

    try:
        line = exported(name, value)
    except UserError:
        return
    script = f'# {remark(value)}\n{line}\nexport -p | /bin/grep -c .; printf %s "${name}"'
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, env={}, timeout=60)
    count, _, got = done.stdout.partition("\n")
    assert got == value and not done.stderr and int(count) <= 4  # with those of every shell


PIECES = (
    "##[", "##", "[", "]", "::", "::error::x", "##[stop-commands]x", "\n::debug::", "\x1b[2J", "\ufe0f", ":")
PIECE = st.sampled_from(PIECES)
FOREIGN = st.builds(lambda first, more: first + "".join(more), PIECE, st.lists(PIECE | TEXT, max_size=4))


@pytest.mark.usefixtures("official_checkers")
@settings(max_examples=min(100, settings().max_examples // 4))
@given(FOREIGN, st.dictionaries(st.sampled_from(KEYS), FOREIGN, max_size=2))
def test_text_of_any_characters_is_no_command(campaign, folder, texts):
    print_all(campaign, folder, texts)
