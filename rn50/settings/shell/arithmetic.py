"""Integer arithmetic as bash does it in ``$((...))``, for expressions that set nothing.

Source: POSIX, Shell Command Language, section "Arithmetic Expansion", and bash's manual for ``**``: signed
integers of 64 bits that wrap, division towards zero, C's operators and precedence. No expression can take
long: nothing is run, and no number is ever larger than 64 bits.
"""

import re
from collections.abc import Callable

_TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]+|\d+)|([A-Za-z_]\w*)"
    r"|(\+\+|--|\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^~!<>?:()])|(\S))",
    re.ASCII,
)
_DEEPEST = 20
"""Deepest nesting of parentheses and signs."""
_INTEGER = re.compile(r"\s*(-?)(0[xX][0-9a-fA-F]+|\d{1,20})?\s*", re.ASCII)
_PRECEDENCE = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", "<=", ">", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)


def evaluate(expression: str, value_of: Callable[[str], str]) -> int:
    """Return the value of ``expression``. ``value_of`` gives the text that a name stands for; an empty text
    counts as 0.

    Raises ValueError with what is wrong: no expression, one that assigns, a name that stands for another
    expression, a division by zero.
    """
    tokens: list[str] = []
    for number, name, operator, other in _TOKEN.findall(expression):
        if other:
            raise ValueError(f"{other!r} in the arithmetic {_short(expression)}")
        tokens.append(number or name or operator)
    if not tokens:
        return 0
    parser = _Parser(tokens, value_of)
    value = parser.conditional(0)
    if parser.tokens:
        raise ValueError(f"{parser.tokens[-1]!r} in the arithmetic {_short(expression)}")
    return value


def _short(text: str) -> str:
    return text if len(text) < 40 else text[:37] + "..."


def _wrap(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


class _Parser:
    """Recursive descent parser; ``tokens`` are those still to come, the next one last."""

    def __init__(self, tokens: list[str], value_of: Callable[[str], str]):
        self.tokens = tokens[::-1]
        self._value_of = value_of

    def _next(self) -> str:
        if not self.tokens:
            raise ValueError("an arithmetic expression that ends too early")
        return self.tokens.pop()

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise ValueError(f"an arithmetic expression without its {token!r}")

    def conditional(self, depth: int) -> int:
        if depth > _DEEPEST:
            raise ValueError("an arithmetic expression that is too deep")
        condition = self._binary(0, depth)
        if not self.tokens or self.tokens[-1] != "?":
            return condition
        self._next()
        first = self.conditional(depth + 1)
        self._expect(":")
        second = self.conditional(depth + 1)
        return first if condition else second

    def _binary(self, level: int, depth: int) -> int:
        if level == len(_PRECEDENCE):
            return self._power(depth)
        left = self._binary(level + 1, depth)
        while self.tokens and self.tokens[-1] in _PRECEDENCE[level]:
            operator = self._next()
            left = _wrap(_apply(operator, left, self._binary(level + 1, depth)))
        return left

    def _power(self, depth: int) -> int:
        base = self._unary(depth)
        if not self.tokens or self.tokens[-1] != "**":
            return base
        self._next()
        if depth > _DEEPEST:
            raise ValueError("an arithmetic expression that is too deep")
        exponent = self._power(depth + 1)
        if exponent < 0:
            raise ValueError("a negative exponent")
        return _wrap(pow(base, exponent, 2**64))

    def _unary(self, depth: int) -> int:
        if depth > _DEEPEST:
            raise ValueError("an arithmetic expression that is too deep")
        token = self._next()
        if token in ("-", "+", "!", "~"):
            value = self._unary(depth + 1)
            return _wrap({"-": -value, "+": value, "!": int(not value), "~": ~value}[token])
        if token == "(":
            value = self.conditional(depth + 1)
            self._expect(")")
            return value
        if token[0].isdigit():
            return _number(token)
        if token[0].isalpha() or token[0] == "_":
            stands_for = _INTEGER.fullmatch(self._value_of(token))
            if not stands_for:
                raise ValueError(f"{token}, which is no whole number, in the arithmetic")
            value = _number(stands_for.group(2) or "0")
            return -value if stands_for.group(1) else value
        raise ValueError(f"{token!r} in the arithmetic where a number should be")


def _number(text: str) -> int:
    if text[:2].lower() == "0x":
        return _wrap(int(text, 16))
    if len(text) > 20 or (text[0] == "0" and set(text) & {"8", "9"}):
        raise ValueError(f"the number {_short(text)}")
    return _wrap(int(text, 8 if text[0] == "0" else 10))


def _apply(operator: str, a: int, b: int) -> int:
    if operator in ("/", "%"):
        if b == 0:
            raise ValueError("a division by zero")
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return quotient if operator == "/" else a - quotient * b
    table: dict[str, Callable[[int, int], int]] = {
        "||": lambda x, y: int(bool(x or y)),
        "&&": lambda x, y: int(bool(x and y)),
        "|": lambda x, y: x | y,
        "^": lambda x, y: x ^ y,
        "&": lambda x, y: x & y,
        "==": lambda x, y: int(x == y),
        "!=": lambda x, y: int(x != y),
        "<": lambda x, y: int(x < y),
        "<=": lambda x, y: int(x <= y),
        ">": lambda x, y: int(x > y),
        ">=": lambda x, y: int(x >= y),
        "<<": lambda x, y: x << (y % 64),
        ">>": lambda x, y: x >> (y % 64),
        "+": lambda x, y: x + y,
        "-": lambda x, y: x - y,
        "*": lambda x, y: x * y,
    }
    return table[operator](a, b)
