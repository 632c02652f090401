"""Every command that README and docs print, executed as it is printed, page by page, in a fresh checkout.

What needs a GPU, ImageNet, a container engine or Slurm runs to the line that says what is missing. What
trains or generates for minutes is ended by Ctrl-C once it has begun. Targets of make are dry runs, because CI
itself runs them.
"""

import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

import click
import pytest

from rn50.cli import main
from rn50.files import ROOT
from tests.support import campaigns

PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "implementations/README.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
]
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:[A-Z_]+=\S+ )*rn50 [^`]+)`")
COMMENT = re.compile(r"\s{2,}#.*$")
LIMIT_S = 8
"""Seconds after which a command that still runs gets Ctrl-C."""
MISSING = re.compile(
    r"/path/to/|/data/|/scratch|data/(demo|tune)|search/demo|(model|int8|rounded)\.onnx: cannot be read|"
    r"before/profile\.json|no (such file|NVIDIA GPU|result_|host)|"
    r"no configs/|GPU: none|is missing|nvidia-smi|sbatch|image|engine|torchvision|not "
    r"(set|there|installed)|SUBMISSION_ORG|HOSTS|"
    r"has nothing to send|no GPU|safetensors: cannot be read"
)
"""What a command may miss here."""


ENTRY = """#!{python}
import sys
sys.path.insert(0, {folder!r})
from rn50.cli import main
sys.exit(main(prog_name="rn50"))
"""
"""The program that an installation puts there."""


def commands(page):
    """The lines of the page's blocks, without their comments."""
    lines = [
        line
        for block in BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
        for line in block.splitlines()
    ]
    return [
        line
        for line in (COMMENT.sub("", line).strip() for line in lines)
        if line and not line.startswith("#")
    ]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo data set."""
    folder = tmp_path_factory.mktemp("data") / "demo"
    subprocess.run(
        [sys.executable, "-m", "rn50", "demo-data", str(folder)],
        cwd=str(ROOT),
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture
def checkout(tmp_path, demo):
    """The files of the repository, packages in .venv, and results of earlier campaigns."""
    folder = tmp_path / "checkout"
    for name in subprocess.check_output(["git", "ls-files", "-z"], cwd=str(ROOT), text=True).split("\0")[:-1]:
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(ROOT / name), str(folder / name))
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    (programs / "rn50").write_text(ENTRY.format(python=sys.executable, folder=str(folder)))
    for program in programs.iterdir():
        program.chmod(0o755)
    (folder / "data").mkdir()
    (folder / "data" / "demo").symlink_to(demo)
    for number, name in enumerate(("DEMO_CPU", "NF5688M6", "BEFORE", "AFTER")):
        campaigns.make(folder / "results" / name, "0" * 40, {}, runs=5, first=5 * number)
    return folder


class Session:
    """A shell in a checkout, as far as its variables go."""

    def __init__(self, folder):
        self.folder = folder
        path = f"{folder}/.venv/bin:/usr/bin:/bin"
        self.environ = {"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8", "CUDA_VISIBLE_DEVICES": ""}

    def run(self, line):
        """Return the exit status, the output, and whether Ctrl-C has ended it."""
        process = subprocess.Popen(
            ["bash", "-c", line],
            cwd=str(self.folder),
            env=self.environ,
            start_new_session=True,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            said = process.communicate(timeout=LIMIT_S)[0]
            return process.returncode, said, False
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            said = process.communicate(timeout=60)[0]
            return process.returncode, said, True

    def export(self, line):
        for word in shlex.split(line)[1:]:
            name, _, value = word.partition("=")
            self.environ[name] = value.replace("$PWD", str(self.folder)).replace(
                "$PATH", self.environ["PATH"]
            )


def dry_run(session, line):
    """Look whether a command that changes the machine, or takes an hour, is one that there is."""
    words = [word for word in shlex.split(line) if not re.fullmatch(r"[A-Z_]+=\S*", word) and word != "sudo"]
    if words[0] == "make":
        status, said, _ = session.run(line.replace("make", "make -n", 1))
        assert status == 0 or MISSING.search(said), said
    elif words[0] == "requirements/install.sh":
        assert f"{words[1]})" in re.sub(r"[ |]+", ")", (ROOT / words[0]).read_text(encoding="utf-8")), line
    else:
        assert words[0] == "nvidia-smi" or (ROOT / words[0]).is_file(), line


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_the_commands_of_a_page(page, checkout):
    session = Session(checkout)
    for line in commands(page):
        if line.startswith("export "):
            session.export(line)
            continue
        if re.search(r"(^|[A-Z]=\S+ |sudo )(make|requirements/\S+|nvidia-smi)\b", line):
            dry_run(session, line)
            continue
        status, said, ended = session.run(line)
        assert "Traceback" not in said and not re.search("^bash: .*command not found", said, re.MULTILINE), (
            line,
            said,
        )
        if ended:
            assert status in (130, -signal.SIGINT, 0, 2) and said.strip(), (line, status, said)
        elif status:
            assert status in (1, 2), (line, status, said)
            assert MISSING.search(said) or status == 1, (line, status, said)


def verb_of(words):
    """The command that the words name, and the words behind it."""
    command = main
    while isinstance(command, click.Group):
        command = command.commands[words[0]]
        words = words[1:]
    return command, words


@pytest.mark.parametrize("page", PAGES)
def test_verbs_and_options_within_sentences_exist(page):
    """Also those that are named without their arguments."""
    text = re.sub(
        r"^```.*?^```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    for line in INLINE.findall(text):
        words = shlex.split(line.split(" | ")[0])
        words = words[words.index("rn50") + 1 :]
        if words[0].startswith("-") or words[0] in ("...", "VERB"):
            continue
        if words in (["bench"], ["tune"], ["config"]):
            continue
        command, rest = verb_of(words)
        known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {
            "--help"
        }
        assert {word.split("=")[0] for word in rest if word.startswith("-")} <= known, line


def test_every_page_with_commands_is_among_them():
    assert {"README.md", "docs/getting-started.md", "docs/borrowing.md", "docs/gpus.md"} <= set(
        filter(commands, PAGES)
    )
    assert pathlib.Path(ROOT / "README.md").read_text(encoding="utf-8").count("\n") <= 120
