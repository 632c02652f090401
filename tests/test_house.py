"""Numbers of the house that its reader pays for, each with a limit: `pytest tests/test_house.py -rP`.

A change that needs more raises the limit, and its commit says why.
"""

import ast
import functools
import io
import pathlib
import re
import sys
import tokenize

from rn50.files import ROOT
from rn50.run.engine import Communicator, Engine
from rn50.run.loop import Rank
from tests.support import tiers

FILES, TESTS = (
    sorted(file for room in rooms for file in (ROOT / room).rglob("*.py"))
    for rooms in (("rn50", "implementations"), ("tests",)))


@functools.cache
def trees():
    """The syntax tree of each file."""
    return {file: ast.parse(file.read_text(encoding="utf-8")) for file in FILES}


def test_the_files_that_run_in_every_step_are_few(tiny_config):
    """Files to read for the training story: those of which a function runs in every step of an epoch, or is
    called by one that does."""
    rank, seen = Rank(tiny_config), set()

    def profile(frame, event, argument):
        file = pathlib.Path(frame.f_code.co_filename).resolve()  # the checkout may be reached by a link
        if (
            event == "call" and file.suffix == ".py" and file.is_relative_to(ROOT)
            and file.parts[len(ROOT.parts)] != ".venv"
        ):
            seen.add(str(file.relative_to(ROOT)))

    try:
        rank.warm_up(7)
        rank.open_data()
        rank.train_epoch(lambda samples, loss: None)
        sys.setprofile(profile)
        rank.train_epoch(lambda samples, loss: None)
        rank.evaluate()
        sys.setprofile(None)
    finally:
        sys.setprofile(None)
        rank.close()
    seen = {file for file in seen if not file.startswith("tests")}
    print(f"{len(seen)} files train and evaluate, step by step: {', '.join(sorted(seen))}")
    assert {"rn50/run/loop.py", "implementations/mxnet/engine.py"} <= seen
    assert len(seen) + 1 <= 11  # and timed_run.py, where epochs are counted


def test_one_loop_trains():
    """Loops over batches whose body runs a step."""
    loops = [
        f"{file.relative_to(ROOT)}:{node.lineno}" for file, tree in trees().items() for node in ast.walk(tree)
        if isinstance(node, ast.For) and ".epoch(" in ast.unparse(node.iter)
        and any(".step(" in ast.unparse(statement) for statement in node.body)]
    print(f"{len(loops)} loop over batches trains: {', '.join(loops)}")
    assert len(loops) == 1 and loops[0].startswith("rn50/run/loop.py")


def test_an_author_of_a_framework_knows_few_members():
    members = [name for name in vars(Engine) if not name.startswith("_")]
    ranks = {*vars(Communicator), *Communicator.__annotations__}
    print(f"{len(members)} members of an engine: {', '.join(members)}")
    print(f"and its communicator's: {', '.join(sorted(name for name in ranks if name[0] != '_'))}")
    assert len(members) <= 12


def test_an_engine_comes_to_its_step_soon():
    """Lines of MXNet's file before the step."""
    (step,) = (
        node for node in ast.walk(trees()[ROOT / "implementations/mxnet/engine.py"])
        if isinstance(node, ast.FunctionDef) and node.name == "step")
    print(f"{step.lineno - 1} lines before the step of implementations/mxnet/engine.py")
    assert step.lineno - 1 <= 70


def test_a_configuration_carries_the_environment():
    """Functions with a parameter ``environ``, and with a configuration beside it."""
    functions = [
        node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    of = [{one.arg for one in (*node.args.args, *node.args.kwonlyargs)} for node in functions]
    alone, both = (
        sum(names <= parameters for parameters in of) for names in ({"environ"}, {"environ", "config"}))
    print(f"{alone} functions take environ, {both} of them a configuration too")
    assert alone <= 16 and both <= 4


STARTS = re.compile(r"subprocess\.(run|Popen)\(|on_terminal\(|in_pipe\(|\bJob\(")


def test_what_make_test_starts_says_why():
    """In a line of its file's docstring, or where its test is marked."""
    files = [file for file in TESTS if file.name.startswith("test_")]
    texts = {tiers.name(file): file.read_text(encoding="utf-8") for file in files}
    starting = [name for name, text in texts.items() if not tiers.is_long(name) and STARTS.search(text)]
    ends = sum(text.count("mark.smoke(") for text in texts.values())
    print(f"{len(starting)} files of make test start processes; {ends} tests of the slow files are in it")
    assert [name for name in starting if "\nProcesses: " not in texts[name]] == []
    assert [name for name, text in texts.items() if re.search(r"mark\.smoke\b(?!\()", text)] == []


def test_the_code_and_the_pages_stay_small():
    """Lines of code, without docstrings, comments and the demo's images, and words of the documentation."""
    product = [file for file in FILES if file != ROOT / "rn50" / "data" / "demo" / "images.py"]
    code, tests = (sum(map(code_lines, files)) for files in (product, TESTS))
    words = sum(len(file.read_text(encoding="utf-8").split()) for file in (ROOT / "docs").rglob("*.md"))
    print(f"{code:,} lines of code of product, {tests:,} of tests, {words:,} words of docs")
    assert code <= 25_767 and tests <= 29_870 and words <= 38_000


def code_lines(file):
    """Return the number of lines of a file with a token that is not of a comment or a docstring."""
    blank = (
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(file.read_text(encoding="utf-8")).readline):
        if token.type not in blank:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines.difference_update(range(node.lineno, node.end_lineno + 1))
    return len(lines)
