"""Every command that README and docs print is one that there is; those of README are executed as printed.

A command is read as the shell would read it: its verb and options parse, its configurations, targets of make,
scripts, parts and sets of packages exist, a value of --set or of the environment is one that the variable
takes, and other than that of the configuration. Nothing of that asks what the machine has. README's commands
meet a fresh checkout without data, so each ends with what it prints or with the refusal that is named here.
"""

import ast
import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys

import click
import pytest

from rn50.cli import main
from rn50.errors import UserError
from rn50.files import ROOT
from rn50.settings import fields, named
from rn50.settings.document import Document, systems
from tests.support import campaigns

PAGES = [
    "README.md", "CONTRIBUTING.md", "implementations/README.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:[A-Z_]+=\S+ )*rn50 [^`]+)`")
COMMENT = re.compile(r"\s{2,}#.*$")
ASSIGNMENT = re.compile(r"[A-Z_]\w*=.*", re.DOTALL)
COMPLETION = 'eval "$(_RN50_COMPLETE=bash_source rn50)"'
OTHERS = ("cd", "docker", "git", "nvidia-smi", "head", "python3", "rm", "tail", "tensorboard")
"""Programs of others that the pages call."""
MINE = ("CONFIG", "MINE", "BEFORE", "AFTER")
"""Stand for the configuration and the results of the reader."""


def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


def commands(page):
    """The lines of the page's blocks, without their comments."""
    lines = [line for block in BLOCK.findall(text(page)) for line in block.splitlines()]
    stripped = (COMMENT.sub("", line).strip() for line in lines)
    return [line for line in stripped if line and not line.startswith("#")]


def parts(line):
    """The words of each command of a line, as the shell parts them."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;()&")
    lexer.whitespace_split = True
    found = [[]]
    for word in lexer:
        if word in ("|", ";", "(", ")", "&&"):
            found.append([])
        else:
            found[-1].append(word)
    return [words for words in found if words]


def verb_of(words):
    """(the path of the verb that the words name, its command, the words behind it)."""
    command, path = main, []
    while isinstance(command, click.Group):
        assert words and words[0] in command.commands, f"there is no verb {' '.join([*path, *words[:1]])}"
        command, path, words = command.commands[words[0]], [*path, words[0]], words[1:]
    return path, command, words


class Reader:
    """Reads the commands of a page, one after another."""

    def __init__(self):
        self.written = set()
        """Files that commands so far would have written."""

    def read(self, line):
        """Fail unless every command of the line is one that there is."""
        if line == COMPLETION:
            return
        for words in parts(line):
            if words[0] in ("export", "sudo"):
                words = words[1:]
            while words and ASSIGNMENT.fullmatch(words[0]):
                self._variable(*words.pop(0).split("=", 1))
            if words:
                self._program(words[0], words[1:])

    def _variable(self, name, value):
        if name in ("DGXSYSTEM", "CONFIG_FILE"):
            self._configuration(value)
        elif name == "PATH":
            assert value.startswith("$PWD/.venv/bin:")
        else:
            variables = (
                text("docs/reference/configuration.md") + text("run_with_docker.sh") + text("Makefile"))
            assert re.search(rf"\b{name}\b", variables + text("run_experiments.sh")), f"nobody reads {name}"
        for _, _, variable in fields.variables():
            if name in (variable.name, *variable.aliases) and not value.startswith("$"):
                variable.read(value)

    def _values(self, name, values):
        """Values of ``--set``: known, possible, and other than those that the configuration has anyway."""
        values = [value for value in values if value != "OPTIMIZER=adamw"]  # the reader writes that one
        file = ROOT / "configs" / f"config_{name if name in systems() else 'NF5688M6'}.sh"
        named.Choice(Document(file), values, {}).system  # noqa: B018 - refuses what is not possible
        if name not in systems():
            return
        named.read(name, values, {})
        # What only the open division admits is read with it.
        opened = [value for value in values if value == "SUBMISSION_DIVISION=open"]
        own = named.read(name, opened, {})
        for value in (value for value in values if value not in opened):
            changed = named.read(name, [value, *opened], {})
            both = changed.as_environment() | {
                "SUBMISSION_PLATFORM": own.as_environment()["SUBMISSION_PLATFORM"]}
            known = value.partition("=")[0] in fields.VARIABLES
            assert not known or both != own.as_environment(), f"{name} has {value} anyway"

    def _configuration(self, name):
        assert name in (*systems(), *MINE, *self.written) or name.startswith("/path/to/"), f"no system {name}"

    def _program(self, program, arguments):
        if program.endswith("python") and arguments[:2] == ["-m", "rn50"]:
            self._rn50(arguments[2:])
        elif program.endswith("python"):
            assert arguments[0] == "-m" and importlib.util.find_spec(arguments[1]), arguments
        elif program == "rn50":
            self._rn50(arguments)
        elif program == "make":
            self._make(arguments)
        elif program == ".":
            assert (ROOT / arguments[0]).is_file(), arguments
        elif program not in OTHERS:
            self._script(program, arguments)

    def _rn50(self, words):
        path, command, words = verb_of(words)
        with command.make_context(" ".join(path), list(words)) as context:
            given = context.params
        if given.get("name"):
            self._configuration(str(given["name"]))
        self._values(given.get("name"), given.get("values") or ())
        for name in ("output", "plot", "to"):
            if given.get(name):
                self.written.add(str(given[name]))

    def _make(self, words):
        makefile = text("Makefile")
        for word in words:
            if ASSIGNMENT.fullmatch(word):
                assert re.search(rf"\$[({{]{word.split('=')[0]}[)}}]", makefile), f"nobody reads {word}"
            else:
                assert re.search(rf"^{re.escape(word)}:", makefile, re.MULTILINE), f"no target {word}"

    def _script(self, script, arguments):
        assert os.access(ROOT / script, os.X_OK) and (ROOT / script).is_file(), f"no script {script}"
        if script == "requirements/install.sh":
            sets = re.sub(r"[ |]+", ")", text(script))
            assert all(f"{each})" in sets for each in arguments), arguments
        elif script == "benchmarks/gpu.sh":
            assert arguments[0] == "--parts"
            for part in arguments[1].split(","):
                assert re.search(rf'^ +"?{part} ', text(script), re.MULTILINE), f"no part {part}"
        elif script != "./run.sub":  # which gives all to sbatch
            assert not arguments, "the script takes none"


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_the_commands_of_a_page_are_there(page):
    reader = Reader()
    for line in commands(page):
        reader.read(line)


@pytest.mark.parametrize(
    "line, fault",
    [("rn50 dance", "there is no verb dance"), ("rn50 bench dance", "there is no verb bench dance"),
     ("rn50 run DEMO_CPU --fast", "No such option: --fast"),
     ("rn50 plan --accelerators many", "many is not a number"),
     ("rn50 run DEMO_TPU", "no system DEMO_TPU"),
     ("DGXSYSTEM=DEMO_TPU ./run_and_time.sh", "no system DEMO_TPU"),
     ("NO_SUCH=1 ./run_and_time.sh", "nobody reads NO_SUCH"),
     ("LR=fast rn50 run DEMO_CPU", "is not a number"),
     ("rn50 run MINE --set POWER=auto", "--set POWER=auto: no part of a configuration"),
     ("rn50 run DEMO_CPU --set LR=fast", "LR=fast is not a number"),
     ("rn50 run DEMO_CPU --set NUMEPOCHS=2 --set EVAL_OFFSET=3", "no epoch would be evaluated"),
     ("rn50 profile DEMO_CPU --set STEP_MODE=eager", "DEMO_CPU has STEP_MODE=eager anyway"),
     ("rn50 run DEMO_CPU --set LERNING_RATE=1", "no such variable"), ("make dance", "no target dance"),
     ("make image FLOOR=1", "nobody reads FLOOR=1"), ("./dance.sh", "no script ./dance.sh"),
     ("requirements/install.sh dance", "dance"), ("benchmarks/gpu.sh --parts dance", "no part dance"),
     ("dance", "no script dance")])
def test_a_command_that_is_not_there_is_found(line, fault):
    with pytest.raises((AssertionError, ValueError, UserError, click.ClickException)) as found:
        Reader().read(line)
    assert fault in getattr(found.value, "message", str(found.value))


@pytest.mark.parametrize("page", PAGES)
def test_verbs_and_options_within_sentences_exist(page):
    """Also those that are named without their arguments."""
    reader = Reader()
    reader.written.update(re.findall(r" (?:-o|--output|--plot) ([^\s`]+)", text(page)))
    for line in INLINE.findall(re.sub(BLOCK, "", re.sub(r"^```.*?^```", "", text(page), flags=re.M | re.S))):
        words = shlex.split(line.split(" | ")[0])
        words = words[words.index("rn50") + 1 :]
        if (
            words[0].startswith("-") or words[0] in ("...", "VERB")
            or words in (["bench"], ["tune"], ["config"])
        ):
            continue
        _, command, rest = verb_of(words)
        known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        assert {word.split("=")[0] for word in rest if word.startswith("-")} <= known | {"--help"}, line
        with contextlib.suppress(click.MissingParameter, click.BadOptionUsage):  # left to the reader
            reader.read(line)


def heads():
    """Commands at the top of scripts and configurations, and the examples of the help."""
    for path in (*ROOT.glob("run*.sh"), ROOT / "run.sub"):
        for line in re.findall(r"^#   (\S.*)$", path.read_text(encoding="utf-8"), re.MULTILINE):
            yield path.name, line
    for path in sorted((ROOT / "configs").glob("config_*.sh")):
        head = path.read_text(encoding="utf-8").partition("\nexport ")[0].replace("\\\n#", "")
        for line in re.findall(r"^#   command +(\S.*)$|`((?:rn50|make) [^`]+)`", head, re.MULTILINE):
            yield path.name, "".join(line)
    groups = [main]
    while groups:
        for command in groups.pop().commands.values():
            groups += [command] * isinstance(command, click.Group)
            example = re.match("Example: ((?:[A-Z_]+=\\S+ )*rn50 .*)", command.epilog or "")
            if example:
                yield command.name, re.sub(" calls it.*", "", example[1])


@pytest.mark.parametrize("where, line", sorted(set(heads())))
def test_commands_at_the_top_of_files_and_examples_of_the_help_are_there(where, line):
    Reader().read(re.split(r"\s{2,}[(a-z]", line)[0])


def test_options_that_messages_name_exist():
    """Also those of errors and remedies, as far as a verb stands before them."""
    wrong = []
    for path in sorted((ROOT / "rn50").rglob("*.py")) + sorted((ROOT / "implementations").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            sentences = node.value.replace(". ", "|")
            for words in re.findall(r"\brn50 ([a-z-]+ [^`;|\n)]*--[a-z][^`;|\n)]*)", sentences):
                if words.split()[0] in main.commands:
                    _, command, rest = verb_of(words.split())
                    known = {option for each in command.params for option in each.opts} | {"--help"}
                    wrong += [
                        (path.name, words) for each in re.findall("--[a-z-]+", " ".join(rest))
                        if each not in known]
    assert not wrong


ENTRY = """#!{python}
import sys
sys.path.insert(0, {folder!r})
from rn50.cli import main
sys.exit(main(prog_name="rn50"))
"""
"""The program that an installation puts there."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """The files of the repository, packages in .venv, and results of the demo; no data."""
    folder = tmp_path_factory.mktemp("fresh") / "checkout"
    for name in subprocess.check_output(["git", "ls-files", "-z"], cwd=str(ROOT), text=True).split("\0")[:-1]:
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(ROOT / name), str(folder / name), follow_symlinks=False)
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    (programs / "rn50").write_text(ENTRY.format(python=sys.executable, folder=str(folder)))
    for program in programs.iterdir():
        program.chmod(0o755)
    campaigns.make(folder / "results" / "DEMO_CPU", "0" * 40, {}, runs=5)
    return folder


NO_IMAGENET = r"/path/to/imagenet: No such file or directory; set DATADIR"
NO_DATA = r"data\S*: No such file or directory; set DATADIR"
README = {
    "rn50 score /path/to/logs": (2, "/path/to/logs: no such file"),
    "rn50 check /path/to/logs": (2, "/path/to/logs: no such file"),
    "rn50 audit /path/to/logs": (2, "/path/to/logs: no such file"),
    "rn50 config show /path/to/config_X.sh": (2, "/path/to/config_X.sh: no such file"), COMPLETION: (0, ""),
    "rn50 doctor": (0, "DEMO_CPU"), "rn50 config new MINE": (0, "configs/config_MINE.sh"),
    "DATADIR=/path/to/imagenet rn50 doctor MINE": (1, r"failure +DATADIR +/path/to/imagenet: No such file"),
    "DATADIR=/path/to/imagenet rn50 run MINE": (2, NO_IMAGENET),
    "DGXSYSTEM=MINE DATADIR=/path/to/imagenet ./run_experiments.sh": (2, NO_IMAGENET),
    "rn50 predict results/DEMO_CPU photo.jpg": (2, r"0 \.safetensors files in it; a run saves weights"),
    "rn50 pack /path/to/ILSVRC2012 /path/to/imagenet": (2, "/path/to/ILSVRC2012"),
    "rn50 watch results/MINE": (2, "results/MINE: no such folder"), "rn50 bench input DEMO_CPU": (2, NO_DATA),
    "rn50 profile DEMO_CPU": (2, NO_DATA), "rn50 search DEMO_CPU -o search/demo": (2, NO_DATA),
    "rn50 plan --accelerators 8 --accelerator H100-SXM-80GB": (0, "minutes"),
    "rn50 borrow v1.0/Inspur/nf5688m6_mxnet DGXH100": (0, "LR +│ 11.0 +│ 10.5 +│ borrowed"),
    "rn50 score results/DEMO_CPU": (0, "epochs +┃ accuracy"),
    # An audit finds that these runs were written, not trained.
    "rn50 check results/DEMO_CPU": (0, "no errors, but read the warnings"),
    "rn50 package results/MINE -o submission": (2, "results/MINE")}
"""Command of README, in an order that works -> its exit status, and what it says, on any machine."""


def test_the_commands_of_readme(checkout):
    environ = {"HOME": str(checkout), "LANG": "C.UTF-8", "CUDA_VISIBLE_DEVICES": ""}
    environ["PATH"] = f"{checkout}/.venv/bin:{os.environ['PATH']}"
    found = {}
    for line in README:
        done = subprocess.run(
            ["bash", "-c", line], cwd=str(checkout), env=environ, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=120)
        found[line] = done.returncode, done.stdout + done.stderr
    wrong = {
        line: found[line] for line, (status, says) in README.items()
        if found[line][0] != status or not re.search(says, found[line][1]) or "Traceback" in found[line][1]}
    assert not wrong, "\n".join(f"{line}: {status}\n{said}" for line, (status, said) in wrong.items())


def test_readme_prints_what_is_executed():
    printed = set(commands("README.md"))
    assert not [line for line in README if line not in printed and f"`{line}`" not in text("README.md")]
    left = {line.split()[0] for line in printed - set(README)}
    assert left == {"export", "git", "make", "rm", "nvidia-smi"}


def test_every_page_with_commands_is_among_them():
    known = {"README.md", "docs/getting-started.md", "docs/borrowing.md", "docs/gpus.md"}
    assert known <= set(filter(commands, PAGES))
    assert text("README.md").count("\n") <= 120
