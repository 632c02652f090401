"""Docstrings of attributes: the text below a field, which Python does not keep, and that of a property.

docs/reference/ and ``rn50 config show`` say with them what a field means.
"""

import ast
import functools
import inspect
import textwrap


@functools.cache
def of_attributes(record: type) -> dict[str, str]:
    """Return name -> meaning of the fields and properties of a class, read from its source: beginning with a
    small letter, without a full stop. Without a docstring it is the name in words."""
    body = ast.parse(textwrap.dedent(inspect.getsource(record))).body[0]
    assert isinstance(body, ast.ClassDef)
    texts = {}
    for statement, below in zip(body.body, [*body.body[1:], None], strict=True):
        if isinstance(statement, ast.FunctionDef):
            texts[statement.name] = ast.get_docstring(statement)
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = below.value if isinstance(below, ast.Expr) else None
            texts[statement.target.id] = str(text.value) if isinstance(text, ast.Constant) else None
    return {name: _plain(text or words(name)) for name, text in texts.items()}


def words(name: str) -> str:
    """Return the name of an attribute in words."""
    return name.replace("_", " ")


def _plain(text: str) -> str:
    text = " ".join(text.split()).replace("``", "`").removesuffix(".")
    word = text.partition(" ")[0]
    return text if word[1:2].isupper() else text[:1].lower() + text[1:]
