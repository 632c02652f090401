"""Split a shell file's text into statements, and run none of them.

Source: POSIX, Shell Command Language, sections "Quoting", "Token Recognition" and "Shell Grammar"; bash's
manual for ``$'...'``.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_ANY = "\\$`'\"("
_QUOTES = {
    "'": ("'", ""),
    "$'": ("'", "\\"),
    '"': ('"', "\\$`"),
    "`": ("`", "\\$"),
    "(": (")", _ANY),
    "$(": (")", _ANY),
    "${": ("}", _ANY),
}
"""Beginning of a quote, a substitution or a group -> its end, and the characters that are special within."""
_OPERATOR = re.compile(r"[;&|<>]+|[()\n]")
_COMPOUND = {
    **dict.fromkeys(("for", "while", "until", "select"), "done"),
    **dict(zip(("if", "case", "{", "[[", "("), ("fi", "esac", "}", "]]", ")"), strict=True)),
}
"""First word of a compound command -> its last."""
_BEFORE_A_COMMAND = ("then", "do", "else", "elif", "if", "while", "until", "!", "time", "{")
_IN_A_CASE = ("(", ["esac"])
"""Parenthesis before a pattern, and what closes then."""
_DEEPEST = 20
"""Deepest nesting of quotes and substitutions."""


class NotPlainError(ValueError):
    """Syntax that only a shell can read. The message names it, and is worded to follow a colon."""


class Statement(NamedTuple):
    """A simple command, a list of commands or a compound command; it begins at ``line`` (from 1).

    ``tokens`` are its words, quotes included, and operators; none if it does not end. ``text`` is the whole.
    ``trouble`` says what makes it more than a simple command, else it is empty.
    """

    line: int
    tokens: tuple[str, ...]
    text: str
    trouble: str


def after(text: str, i: int, depth: int = 0) -> int:
    """Return the index behind the quote, escape, substitution or single character that begins at ``text[i]``.

    Raises NotPlainError if it has no end or is nested too deep.
    """
    if depth > _DEEPEST:
        raise NotPlainError("quotes or substitutions too deep in one another")
    if text[i] == "\\":
        return min(i + 2, len(text))
    opener = next((opener for opener in (text[i : i + 2], text[i]) if opener in _QUOTES), None)
    if opener is None:
        return i + 1
    closer, special = _QUOTES[opener]
    i += len(opener)
    while i < len(text) and text[i] != closer:
        plain = text[i] not in special or ("'" not in special and text.startswith("$'", i))
        i = i + 1 if plain else after(text, i, depth + 1)
    if i == len(text):
        raise NotPlainError(f"a {closer} that is missing")
    return i + 1


def _tokens(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield every word and operator, with its begin and end, and an empty one at the end of the text."""
    i = 0
    while i < len(text):
        start, operator = i, _OPERATOR.match(text, i)
        if text[i] in " \t\r":
            i += 1
        elif text.startswith("\\\n", i):
            i += 2
        elif text[i] == "#":
            end = text.find("\n", i)
            i = len(text) if end < 0 else end
        elif operator:
            i = operator.end()
            yield operator[0], start, i
        else:
            while i < len(text) and text[i] not in " \t\r\n;&|()<>":
                i = after(text, i)
            yield text[start:i], start, i
    yield "", i, i


def statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a file. One that does not end comes last, with all text behind it.

    The statements may be wrong: nothing checks whether a shell would run them.
    """
    tokens: list[str] = []
    closers: list[str] = []
    at_command = True
    begin, line, counted = 0, 1, 0
    try:
        for token, start, end in _tokens(text):
            if token == "\n" and tokens[-1:] in (["&&"], ["||"], ["|"], ["|&"]):
                continue
            if not token or (token in ("\n", ";") and not closers):
                if tokens:
                    line, counted = line + text.count("\n", counted, begin), begin
                    yield Statement(line, tuple(tokens), text[begin:start], _trouble(tokens))
                tokens, begin, at_command = [], end, True
                continue
            begin = begin if tokens else start
            tokens.append(token)
            if closers[-1:] == [token] and (at_command or token in (")", "]]")):
                closers.pop()
            elif token in _COMPOUND and (at_command or token == "(") and (token, closers[-1:]) != _IN_A_CASE:
                closers.append(_COMPOUND[token])
            at_command = bool(_OPERATOR.match(token)) or (at_command and token in _BEFORE_A_COMMAND)
    except NotPlainError as error:
        line += text.count("\n", counted, begin)
        yield Statement(line, (), text[begin:], f"has {error}, and what follows is not read")


def _trouble(tokens: list[str]) -> str:
    if tokens[0] == "function" or tokens[1:3] == ["(", ")"]:
        return "defines a function"
    if tokens[0] in (*_COMPOUND, "!", "time", "coproc"):
        return f"stands in a compound command ({tokens[0]} ...)"
    operator = next((token for token in tokens if _OPERATOR.match(token)), None)
    return f"is more than one command ({operator})" if operator else ""
