"""Render what a shell will source: the one place where a name, a value or a remark becomes shell code."""

import shlex

from rn50.errors import UserError, excerpt


def is_name(name: str) -> bool:
    """Return True for the name of a variable of a shell."""
    return name.isascii() and name.isidentifier()


def refuse_impossible(name: str, value: str) -> None:
    """Raise UserError if the name is none of a variable, or the value is not one printable line."""
    if not is_name(name) or not value.isprintable():
        problem = "not the name of a variable and one line of text"
        raise UserError(excerpt(ascii(f"{name}={value}")), problem, "correct it")


def exported(name: str, value: str, overridable: bool = False) -> str:
    """Return the line that exports a variable; if ``overridable``, a value of the environment comes first.
    Raises UserError as ``refuse_impossible`` does."""
    refuse_impossible(name, value)
    word = shlex.quote(value)
    if overridable:
        word = f'"${{{name}:-{word}}}"' if word == value else f"${{{name}:-{word}}}"
    return f"export {name}={word}"


def remark(text: str) -> str:
    """Return text as one printable line of at most 200 characters, because names from other files must not
    end the comment that they stand in."""
    return excerpt("".join(character if character.isprintable() else " " for character in text), 200)
