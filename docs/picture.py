"""Make the picture and the sample output of README.md from a real demo.

    python -m docs.picture [results/DEMO_CPU]

With the results of an existing campaign, only the picture is made again.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap

from rn50.files import ROOT

PICTURE = ROOT / "docs" / "images" / "report.png"
PAGE = ROOT / "README.md"
RESULTS = ROOT / "results" / "DEMO_CPU"
SAMPLE = re.compile(r"(<!-- sample: demo -->\n```text\n).*?(```\n)", re.DOTALL)
SHOWN = re.compile(r"\d+ of \d+ runs to make|run \d+ of|epoch +\d+: |(Score|Label|Speed|Checks|Report|Next) ")
FIRST_RUN, END = 4, 6
"""Lines of the beginning with its first run, and lines of the end."""
WIDTH, HEIGHT = 1280, 950
"""Pixels of the picture: one screen, with the table of the runs."""
COLUMNS = 92
"""Longest line that GitHub shows whole."""


def sample() -> str:
    """Make a campaign and return what it printed: its first run, and the end."""
    if RESULTS.exists():
        raise SystemExit(f"picture: {RESULTS} exists; move it away, or name it to make the picture alone")
    command = [sys.executable, "-m", "rn50", "run", "DEMO_CPU"]
    done = subprocess.run(command, cwd=str(ROOT), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(f"picture: the demo ended with status {done.returncode}:\n{done.stdout}")
    lines = [line for line in done.stdout.splitlines() if SHOWN.match(line)]
    shown = [*lines[:FIRST_RUN], "...", *lines[-END:]]
    return "\n".join(textwrap.fill(line, COLUMNS, subsequent_indent=" " * 8) for line in shown) + "\n"


def draw(report: pathlib.Path) -> None:
    """Write the picture of the top of a report."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if not browser:
        raise SystemExit("picture: no chromium here; sudo apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        shot = pathlib.Path(folder) / "report.png"
        subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                f"--window-size={WIDTH},{HEIGHT}",
                f"--user-data-dir={folder}/profile",
                f"--screenshot={shot}",
                report.resolve().as_uri(),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        PICTURE.parent.mkdir(exist_ok=True)
        shutil.copyfile(str(shot), str(PICTURE))


def main() -> None:
    if sys.argv[1:]:
        draw(pathlib.Path(sys.argv[1]) / "report.html")
        return
    text = sample()
    draw(RESULTS / "report.html")
    old = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(SAMPLE.sub(lambda match: match[1] + text + match[2], old), encoding="utf-8")


if __name__ == "__main__":
    main()
