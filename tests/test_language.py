"""Docstrings begin with a verb or with the thing's name, and variables have the thing's name."""

import ast

import pytest

from rn50.files import ROOT

DANGLING = ("Of", "Those", "What", "That", "Whether")
PRONOUNS = {
    "one", "on", "known", "given", "each", "found", "own", "said", "told", "of", "there", "wanted", "to"}
FOLDERS = pytest.mark.parametrize("folder", ["rn50", "implementations", "benchmarks"])


def nodes(folder):
    """(path, node) of everything that the Python files of a folder hold."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield path, node


@FOLDERS
def test_no_docstring_begins_with_a_dangling_word(folder):
    dangling = []
    for path, node in nodes(folder):
        text = node.value.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else ""
        if isinstance(text, str) and text.split()[:1] and text.split()[0].strip(",:") in DANGLING:
            dangling.append(f"{path}:{node.lineno}: {text.splitlines()[0]}")
    assert dangling == []


@FOLDERS
def test_no_variable_is_a_pronoun(folder):
    """Fields of classes may be: ``finding.found`` reads well."""
    everything = list(nodes(folder))
    classes = [node for _, node in everything if isinstance(node, ast.ClassDef)]
    fields = {each.target for node in classes for each in node.body if isinstance(each, ast.AnnAssign)}
    bound = []
    for path, node in everything:
        name = node.arg if isinstance(node, ast.arg) else ""
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in fields:
            name = node.id
        if name in PRONOUNS:
            bound.append(f"{path}:{node.lineno}: {name}")
    assert bound == []
