"""Docstrings of the fields and properties of a class. Python does not keep the text below a field, so they
are read from the source.

docs/reference/ and ``rn50 config show`` use them to say what a field means.
"""

import ast
import functools
import inspect
import textwrap


@functools.cache
def of_attributes(record: type) -> dict[str, str]:
    """Return name -> meaning for the fields and properties of a class. A meaning is the docstring, beginning
    with a small letter and without a full stop. Without a docstring it is the name in words."""
    body = ast.parse(textwrap.dedent(inspect.getsource(record))).body[0]
    assert isinstance(body, ast.ClassDef)
    texts = {}
    # The docstring of a field is the statement behind it.
    for statement, next_statement in zip(body.body, [*body.body[1:], None], strict=True):
        if isinstance(statement, ast.FunctionDef):
            texts[statement.name] = ast.get_docstring(statement)
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = next_statement.value if isinstance(next_statement, ast.Expr) else None
            texts[statement.target.id] = str(text.value) if isinstance(text, ast.Constant) else None
    return {name: _plain(text or words(name)) for name, text in texts.items()}


def words(name: str) -> str:
    """Return the name of an attribute with spaces in place of underscores."""
    return name.replace("_", " ")


def _plain(text: str) -> str:
    """Return a docstring as one line, without full stop, its first letter small unless an abbreviation begins
    it."""
    text = " ".join(text.split()).replace("``", "`").removesuffix(".")
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
