"""Foreign text in a log and in the name of its folder, through every verb that prints it: no command of a CI
job's runner, no control byte, and the form that machines read."""

import csv
import json
import os
import pathlib
import re
import shutil
import tempfile

from tests.fuzz.victim import assert_answers, rn50
from tests.results.mutations import change

COMMAND = re.compile(r"##\[|^\s*::(?!:)", re.MULTILINE)
"""What GitHub's runner takes for a command (ActionCommand.cs of actions/runner)."""
IGNORED = re.compile("[\u034f\ufe00-\ufe0f]")
"""Characters that its comparison, which is ICU's, skips."""
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")
KEYS = ("submission_org", "submission_status", "submission_platform", "submission_division", "opt_name")
PRINTED = {
    "check --ruleset 4.0.0": str, "check --ruleset 4.0.0 --json": json.loads,
    "check --ruleset 4.0.0 --format sarif": json.loads, "check --ruleset 4.0.0 --format github": str,
    "score": str, "score --json": json.loads,
    "score --csv": lambda text: list(csv.reader(text.splitlines(), strict=True)), "audit": str,
    "audit --json": json.loads, "compare": str, "compare --json": json.loads, "rcp": str,
    "rcp --json": json.loads, "report --ruleset 4.0.0 -o ../report.html": str, "atlas -o ../atlas.html": str}
"""Verbs that print what a log says, and what reads their output."""


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
