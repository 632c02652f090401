"""Render what a shell will source: the one place where a name, a value or a remark becomes shell code."""

import re
import shlex

from rn50.errors import UserError, excerpt

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def exported(name: str, value: str, overridable: bool = False) -> str:
    """Return the line that exports a variable; if ``overridable``, a value of the environment comes first.

    Raises UserError if the name is none of a variable, or the value is not one line of text.
    """
    if not NAME.fullmatch(name):
        problem = "no name of a variable, which has letters, digits and _"
        raise UserError(excerpt(ascii(name)), problem, "correct it")
    if not is_line(value):
        raise UserError(name, f"the value {excerpt(ascii(value))} is not one line of text", "correct it")
    word = shlex.quote(value)
    if overridable:
        word = f'"${{{name}:-{word}}}"' if word == value else f"${{{name}:-{word}}}"
    return f"export {name}={word}"


def is_line(value: str) -> bool:
    """Return True for a text without line ends and other control characters. Where the locale is ASCII, the
    bytes of UTF-8 arrive as lone surrogates."""
    try:
        value.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        return False
    return not _CONTROL.search(value)


def remark(text: str) -> str:
    """Return text as one printable line of at most 200 characters, because names from other files must not
    end the comment that they stand in."""
    return excerpt("".join(character if character.isprintable() else " " for character in text), 200)
