"""Split a shell file's text into statements, and run none of them.

Source: POSIX, Shell Command Language, sections "Quoting", "Token Recognition" and "Shell Grammar"; bash's
manual for ``$'...'``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_OPERATOR = re.compile(r"<<<|<<-|&&|\|\||;;|<<|>>|<&|>&|&>|<>|>\||\|&|[;&|()<>]")
_LOOPS = ("for", "while", "until", "select")
_CLOSERS = {**dict.fromkeys(_LOOPS, "done"), "if": "fi", "case": "esac", "{": "}", "[[": "]]"}
_CLOSES = {"$(": ")", "${": "}", "$'": "'"}
_BEFORE_A_COMMAND = ("then", "do", "else", "elif", "if", "while", "until", "!", "time", "{")
_DEEPEST = 20
"""Deepest nesting of quotes and substitutions."""


class NotPlainError(ValueError):
    """Syntax that only a shell can read. The message names it, and is worded to follow a colon."""


@dataclass(frozen=True)
class Statement:
    """One statement; it begins at ``line`` (from 1). ``words`` are as they stand in the file, quotes
    included. ``text`` is the whole.

    ``trouble`` is None for one command and nothing else. Otherwise it says what makes it more: a list of
    commands, a pipe, a redirection, a compound command, quotes that do not close.
    """

    line: int
    words: tuple[str, ...]
    text: str
    trouble: str | None


def after(text: str, i: int, depth: int = 0) -> int:
    """Return the index behind the quote, escape, substitution or single character that begins at ``text[i]``.

    Raises NotPlainError if it has no end or is nested too deep.
    """
    if depth > _DEEPEST:
        raise NotPlainError("quotes or substitutions too deep in one another")
    start, opened = text[i], text[i : i + 2]
    if start == "\\":
        return min(i + 2, len(text))
    if start == "'":
        end = text.find("'", i + 1)
        if end < 0:
            raise NotPlainError("a ' that is never closed")
        return end + 1
    if start in '"`':
        return _behind(text, i + 1, start, depth, in_quotes=True)
    if opened in _CLOSES:
        return _behind(text, i + 2, _CLOSES[opened], depth, in_quotes=opened == "$'")
    return _behind(text, i + 1, ")", depth) if start == "(" else i + 1


def _behind(text: str, i: int, closer: str, depth: int, in_quotes: bool = False) -> int:
    """Return the index behind ``closer``. In quotes, a quote of the other kind and a parenthesis are plain
    characters."""
    special = {"'": "\\", "`": "\\$"}.get(closer, "\\$`" if in_quotes else "\\$`'\"(")
    while i < len(text):
        if text[i] == closer:
            return i + 1
        plain = text[i] not in special or (in_quotes and text.startswith("$'", i))
        i = i + 1 if plain else after(text, i, depth + 1)
    raise NotPlainError(f"a {closer} that is missing")


_Token = tuple[str, int, int, bool]
"""Text, begin, end, and whether it is a word."""


def _tokens(text: str) -> Iterator[_Token]:
    i, delimiter_next = 0, False
    here_documents: list[str] = []
    while i < len(text):
        if text[i] in " \t\r":
            i += 1
        elif text.startswith("\\\n", i):
            i += 2
        elif text[i] == "#":
            end = text.find("\n", i)
            i = len(text) if end < 0 else end
        elif text[i] == "\n":
            yield "\n", i, i + 1, False
            i += 1
            for delimiter in here_documents:
                i = _behind_here_document(text, i, delimiter)
            here_documents = []
        else:
            operator, start = _OPERATOR.match(text, i), i
            if operator:
                i, delimiter_next = operator.end(), operator[0] in ("<<", "<<-")
                yield operator[0], start, i, False
                continue
            while i < len(text) and text[i] not in " \t\r\n;&|()<>":
                i = after(text, i)
            if delimiter_next:
                here_documents.append("".join(c for c in text[start:i] if c not in "\\'\""))
                delimiter_next = False
            yield text[start:i], start, i, True


def _behind_here_document(text: str, i: int, delimiter: str) -> int:
    while i < len(text):
        end = text.find("\n", i)
        end = len(text) if end < 0 else end
        line, i = text[i:end], end + 1
        if line.lstrip("\t") == delimiter:
            return i
    return i


def statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a file. One that does not end comes last, with all text behind it, and is not
    simple.

    The statements may be wrong: nothing checks whether a shell would run them.
    """
    current: list[_Token] = []
    closers: list[str] = []
    at_command = True
    line, counted = 1, 0

    def statement(begin: int, end: int, trouble: str | None) -> Statement:
        nonlocal line, counted
        line, counted = line + text.count("\n", counted, begin), begin
        words = tuple(token for token, _, _, is_word in current if is_word)
        return Statement(line, words, text[begin:end], trouble)

    def whole() -> Statement:
        first, operators = current[0][0], [token for token, _, _, is_word in current if not is_word]
        trouble = None
        if first in (*_CLOSERS, "function", "!", "time", "coproc"):
            trouble = f"stands in a compound command ({first} ...)"
        elif operators:
            trouble = f"is more than one command ({operators[0]})"
        return statement(current[0][1], current[-1][2], trouble)

    try:
        for token in _tokens(text):
            name, _, _, is_word = token
            is_end = not closers and name in ("\n", ";") and not is_word
            if not is_end:
                current.append(token)
            if name == "(" and closers[-1:] != ["esac"]:
                closers.append(")")
            elif closers and name == closers[-1] and (at_command or name in (")", "]]")):
                closers.pop()
            elif is_word and at_command and name in _CLOSERS:
                closers.append(_CLOSERS[name])
            if is_end or (not closers and name == "&"):
                if current:
                    yield whole()
                current, at_command = [], True
            else:
                at_command = not is_word or (at_command and name in _BEFORE_A_COMMAND)
        if current:
            yield whole()
    except NotPlainError as error:
        # The place of the fault is unknown, so everything from the current statement on is in doubt.
        begin = current[0][1] if current else counted
        yield statement(begin, len(text), f"has {error}, and what follows is not read")
