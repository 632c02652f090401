"""Integer arithmetic as bash does it in ``$((...))``, for ``assignments.py``. Numbers, names, parentheses and
``+ - * / %`` are understood, because published configurations have no other operators.

Python's parser reads the expression, after ``_PLAIN`` has checked that it means the same in bash.

Source: POSIX, Shell Command Language, section "Arithmetic Expansion": signed integers of 64 bits that wrap,
and division towards zero.
"""

import ast
import operator
import re
from collections.abc import Callable

from rn50.settings.shell.statements import NotPlainError

_NUMBER = r"0[xX][0-9a-fA-F]{1,16}|[1-9]\d{0,18}|0"
"""Hexadecimal or decimal number; not 010, which is octal in bash and an error in Python."""
_PLAIN = re.compile(rf"(?:(?:{_NUMBER})(?!\w)|[A-Za-z_]\w*|[-+*/%()\s])*", re.ASCII)
"""Numbers, names, operators, parentheses and white space: ``(BATCHSIZE * DGXNGPU + 7) / 8``."""
_NAME = re.compile(r"\b[A-Za-z_]\w*", re.ASCII)
_OTHER_OPERATORS = re.compile(r"\+\+|--|\*\*|//")
"""Pairs of characters of ``_PLAIN`` that are other operators in bash or in Python."""
_LONGEST = 200
"""Most characters of an expression. The limit also bounds the depth of ``_value``'s recursion."""
_OPERATORS: dict[type[ast.AST], Callable[..., int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    # Division towards zero; the remainder has the sign of ``a``.
    ast.Div: lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    ast.Mod: lambda a, b: abs(a) % abs(b) * (1 if a > 0 else -1),
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def evaluate(expression: str, value_of: Callable[[str], str]) -> int:
    """Return the value of ``expression``. ``value_of(name)`` returns the text of a variable; an empty text
    counts as 0.

    Raises NotPlainError for any other operator, a variable that is not a whole number, or a division by zero.
    """
    if len(expression) > _LONGEST or not _PLAIN.fullmatch(expression) or _OTHER_OPERATORS.search(expression):
        raise NotPlainError(f"has arithmetic that is not read: {expression[:40]}")

    def number(name: re.Match[str]) -> str:
        """Return the value of a variable as text in parentheses, which replaces its name in the
        expression."""
        value = value_of(name.group()).strip() or "0"
        if not re.fullmatch(f"-?(?:{_NUMBER})", value):
            raise NotPlainError(f"has {name.group()}, which is not a plain whole number, in the arithmetic")
        return f"({value})"

    try:
        return _value(ast.parse(_NAME.sub(number, expression).strip() or "0", mode="eval").body)
    except (SyntaxError, ZeroDivisionError) as error:
        raise NotPlainError(f"has arithmetic that bash refuses: {expression[:40]}") from error


def _value(node: ast.expr) -> int:
    """Return the value of a node of the syntax tree, as a signed integer of 64 bits."""
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, int)
        value = node.value
    elif isinstance(node, ast.UnaryOp):
        value = _OPERATORS[type(node.op)](_value(node.operand))
    elif isinstance(node, ast.BinOp):
        value = _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    else:
        raise SyntaxError("a call")  # such as 2(3), or empty parentheses; no name is left
    return (value + 2**63) % 2**64 - 2**63
