"""Repeat the figures that README quotes, and say which still hold: make claims.

    python -m docs.figures run [WORD ...]   figures whose name has a word, by default all; exit status 1 if
                                            one does not hold
    python -m docs.figures stale            a warning for each whose code has changed since

``docs/figures.yaml`` lists them. A figure of several runs holds if its runs and the new ones are equivalent
within its margin (``rn50.results.equivalence``), a single one if it lies within the margin; on another
machine it is repeated, not judged. With the variable FOLDER set, what the commands write stays there.
"""

import os
import re
import subprocess
import sys
import tempfile
from typing import Any

import yaml

from rn50.files import ROOT
from rn50.machine import hardware
from rn50.results import equivalence

LIST = ROOT / "docs" / "figures.yaml"
Figure = dict[str, Any]


def figures() -> list[Figure]:
    """Return all figures."""
    return list(yaml.safe_load(LIST.read_text(encoding="utf-8")))


def machine() -> str:
    """Return this machine as the list names it."""
    here = hardware.read()
    flags = ", AVX-512" if "avx512f" in here.cpu_flags else ""
    return f"{here.processor}, {here.usable_cpus} CPUs{flags}"


def stale(figure: Figure) -> str:
    """Return a line if commits have changed a figure's code since it was measured, else nothing."""
    if "by_hand" in figure:
        return ""
    command = ["git", "rev-list", "--count", f"{figure['commit']}..HEAD", "--", *figure["rooms"]]
    done = subprocess.run(command, cwd=str(ROOT), capture_output=True, text=True)
    count = done.stdout.strip()
    if done.returncode:
        return f"{figure['what']}: its commit {figure['commit'][:10]} is not in this checkout"
    changed = f"{', '.join(figure['rooms'])} changed (commits: {count})"
    return "" if count == "0" else f"{figure['what']}: since it was measured {changed}"


def values(figure: Figure, output: str) -> list[float]:
    """Return the values that a figure's pattern finds in what its command printed."""
    return [float(value) for value in re.findall(figure["pattern"], output)]


def judged(figure: Figure, found: list[float], here: str) -> str:
    """Return whether a figure still holds, in words; those that do not begin with "no"."""
    if not found:
        return "no: nothing was found"
    if figure["machine"] not in ("any", here):
        return f"repeated, not judged: it was measured on {figure['machine']}, {figure['date']}"
    claimed = figure["values"]
    if min(len(claimed), len(found)) < 2:
        holds = abs(found[0] / claimed[0] - 1) <= figure["margin"]
        return "yes" if holds else f"no: {claimed[0]:g} before"
    pair = equivalence.judge(claimed, found, figure["margin"])
    interval = f"{pair.ratio:.3f} times as much, {pair.low:.3f} to {pair.high:.3f}"
    words = {equivalence.EQUIVALENT: "yes", equivalence.DIFFERENT: "no"}
    return f"{words.get(pair.verdict, 'these runs cannot tell')}: {interval}"


def repeat(chosen: list[Figure]) -> bool:
    """Repeat figures, print a row for each, and return whether all that were judged hold."""
    here, statuses, all_hold = machine(), dict[str, int](), True
    print(f"{len(chosen)} figures on {here}")
    with tempfile.TemporaryDirectory() as folder:
        environ = {"FOLDER": folder, **os.environ}
        os.makedirs(environ["FOLDER"], exist_ok=True)
        for figure in chosen:
            shown = f"{figure['what']}: {figure['text']} in {', '.join(figure['pages'])}"
            if "by_hand" in figure:
                print(f"{shown}; {figure['by_hand']}: {figure['machine']}, {figure['date']}")
                continue
            run = figure.get("run", "true")
            if run not in statuses:
                statuses[run] = subprocess.run(
                    run, shell=True, cwd=str(ROOT), env=environ, stdout=2
                ).returncode
            read = subprocess.run(
                figure["read"], shell=True, cwd=str(ROOT), env=environ, stdout=subprocess.PIPE, text=True
            )
            found, status = values(figure, read.stdout), statuses[run]
            verdict = f"no: its command ended with {status}" if status else judged(figure, found, here)
            all_hold &= not verdict.startswith("no")
            print(f"{shown}; now {' '.join(f'{value:g}' for value in found)}: {verdict}", flush=True)
    return all_hold


def main(arguments: list[str]) -> int:
    """Run the command line."""
    verb, words = (arguments or [""])[0], [word.lower() for word in arguments[1:]]
    if verb == "stale":
        for line in filter(None, map(stale, figures())):
            print(f"warning: docs/figures.yaml: {line}")
        return 0
    if verb != "run":
        raise SystemExit(__doc__)
    chosen = [each for each in figures() if not words or any(word in each["what"].lower() for word in words)]
    if not chosen:
        names = "\n".join(figure["what"] for figure in figures())
        raise SystemExit(f"figures: none has {' or '.join(words)} in its name; there are\n{names}")
    return 0 if repeat(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
