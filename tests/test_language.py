"""Docstrings begin with a verb or with the thing's name."""

import ast

import pytest

from rn50.files import ROOT

DANGLING = ("Of", "Those", "What", "That", "Whether")


@pytest.mark.parametrize("folder", ["rn50", "implementations", "benchmarks"])
def test_no_docstring_begins_with_a_dangling_word(folder):
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        bodies = [
            getattr(node, "body", None) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        ]
        for each in (statement for body in bodies if isinstance(body, list) for statement in body):
            text = (
                each.value.value
                if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
                else ""
            )
            if isinstance(text, str) and text.split()[:1] and text.split()[0].strip(",:") in DANGLING:
                found.append(f"{path}:{each.lineno}: {text.splitlines()[0]}")
    assert found == []
