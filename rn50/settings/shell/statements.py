"""Split the text of a shell file into statements, without running them, for ``assignments.py``.

``_tokens`` splits the text into words and operators, with ``after``, which finds the end of a quote or
substitution within a word. ``statements`` groups the tokens.

Source: POSIX, Shell Command Language, sections "Quoting", "Token Recognition" and "Shell Grammar"; bash's
manual for ``$'...'``.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_ANY = "\\$`'\"("
"""Characters with which a nested quote or substitution begins outside of quotes."""
_QUOTES = {
    "'": ("'", ""),
    "$'": ("'", "\\"),
    '"': ('"', "\\$`"),
    "`": ("`", "\\$"),
    "(": (")", _ANY),
    "$(": (")", _ANY),
    "${": ("}", _ANY),
}
"""Beginning of a quote, a substitution or a group -> its end, and the characters with which a nested one, or
an escape, begins between them."""
_OPERATOR = re.compile(r"[;&|<>]+|[()\n]")
_COMPOUND = dict.fromkeys(("for", "while", "until", "select"), "done")
_COMPOUND |= {"if": "fi", "case": "esac", "{": "}", "[[": "]]", "(": ")"}
"""First word of a compound command -> its last word, called the closer."""
_BEFORE_A_COMMAND = ("then", "do", "else", "elif", "if", "while", "until", "!", "time", "{")
"""Words behind which a command begins."""
_IN_A_CASE = ("(", ["esac"])
"""The parenthesis before a pattern of ``case``, and the closer of the innermost open command there. This
parenthesis begins no subshell."""
_DEEPEST = 20
"""Deepest nesting of quotes and substitutions, which bounds the recursion of ``after``."""


class NotPlainError(ValueError):
    """Error: syntax that only a shell can read. The message describes it, in words that can follow a
    colon."""


class Statement(NamedTuple):
    """A simple command, a list of commands or a compound command."""

    line: int
    """Line of the file in which it begins, counted from 1."""
    tokens: tuple[str, ...]
    """Its operators and its words, with their quotes; empty if the statement has no end."""
    text: str
    trouble: str
    """Syntax that makes it more than a simple command; empty for a simple command."""


def after(text: str, i: int, depth: int = 0) -> int:
    """Return the index behind the quote, escape, substitution or single character that begins at ``text[i]``.
    ``depth`` is the number of quotes and substitutions around it.

    Raises NotPlainError if the quote or substitution has no end, or is nested too deep.
    """
    if depth > _DEEPEST:
        raise NotPlainError("quotes or substitutions too deep in one another")
    if text[i] == "\\":
        return min(i + 2, len(text))  # a backslash may be the last character
    opener = next((opener for opener in (text[i : i + 2], text[i]) if opener in _QUOTES), None)
    if opener is None:
        return i + 1
    closer, special = _QUOTES[opener]
    i += len(opener)
    while i < len(text) and text[i] != closer:
        # Between double quotes $ is special, but ' begins no quote, so that $' begins none either.
        is_plain = text[i] not in special or ("'" not in special and text.startswith("$'", i))
        i = i + 1 if is_plain else after(text, i, depth + 1)
    if i == len(text):
        raise NotPlainError(f"a {closer} that is missing")
    return i + 1


def _tokens(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield (token, index of its begin, index behind its end) for every word and operator. The last token is
    empty, and stands at the end of the text."""
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
    """Yield the statements of a file. A statement without an end comes last, and its text goes to the end of
    the file.

    The statements may be wrong: nothing checks whether a shell would accept them.
    """
    tokens: list[str] = []  # of the current statement
    closers: list[str] = []  # last words of the compound commands that are open, the innermost last
    at_command = True  # a command may begin with the next token
    begin = 0  # index at which the current statement begins
    line, line_index = 1, 0  # ``line`` is the number of the line at index ``line_index``
    try:
        for token, start, end in _tokens(text):
            # Behind these operators a line break does not end the statement.
            if token == "\n" and tokens[-1:] in (["&&"], ["||"], ["|"], ["|&"]):
                continue
            # The end of the text ends a statement, and so does a line break or ";" outside of any compound.
            if not token or (token in ("\n", ";") and not closers):
                if tokens:
                    line += text.count("\n", line_index, begin)
                    line_index = begin
                    yield Statement(line, tuple(tokens), text[begin:start], _trouble(tokens))
                tokens, begin, at_command = [], end, True
                continue
            begin = begin if tokens else start  # the first token begins the statement
            tokens.append(token)
            # ")" and "]]" close a compound command anywhere, other closers only where a command may begin.
            if closers[-1:] == [token] and (at_command or token in (")", "]]")):
                closers.pop()
            elif token in _COMPOUND and (at_command or token == "(") and (token, closers[-1:]) != _IN_A_CASE:
                closers.append(_COMPOUND[token])
            at_command = bool(_OPERATOR.match(token)) or (at_command and token in _BEFORE_A_COMMAND)
    except NotPlainError as error:
        line += text.count("\n", line_index, begin)
        yield Statement(line, (), text[begin:], f"has {error}, and what follows is not read")


def _trouble(tokens: list[str]) -> str:
    """Return text on what makes a statement more than a simple command; empty for a simple command."""
    # "function f { ..." or "f() { ..."
    if tokens[0] == "function" or tokens[1:3] == ["(", ")"]:
        return "defines a function"
    if tokens[0] in (*_COMPOUND, "!", "time", "coproc"):
        return f"stands in a compound command ({tokens[0]} ...)"
    operator = next((token for token in tokens if _OPERATOR.match(token)), None)
    return f"is more than one command ({operator})" if operator else ""
