"""Read the assignments of a shell file without a shell. Nothing in the file is run, so nothing in it can do
harm.

The reader understands assignments, ``export`` and its like, ``: ${NAME:=...}``, ``unset``, ``source`` of a
file beside it or below, quotes, variables with their defaults, integer arithmetic and comments, as bash would
read them in an empty environment. Everything else is listed with its line. A variable that something else may
have changed is in doubt, and has no value until it is assigned again.

Source: POSIX, Shell Command Language, sections "Word Expansions" and "Simple Commands".
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from rn50 import files
from rn50.errors import UserError, UserErrors, excerpt
from rn50.settings.shell import arithmetic
from rn50.settings.shell.statements import NotPlainError, Statement, after, statements

LARGEST_FILE = 1 << 18
_MOST_FILES = 20
_LONGEST_VALUE = 10_000
_MOST_DOUBTS = 1_000_000
_DEEPEST = 20
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_DECLARES = ("export", "declare", "typeset", "readonly")
_PLAIN_OPTIONS = {"export": r"-p|--", "readonly": r"--", "declare": r"-[xrg]+|--", "typeset": r"-[xrg]+|--"}
_SHELL_OPTIONS = re.compile(r"[-+][abefhkmtuvxBCEHPT]*o?|pipefail|errexit|nounset|allexport|xtrace|posix")
_QUOTES_WITHIN = re.compile(r"\"|\$'|\\}")
"""Parts of a default within double quotes from which bash removes more than the reader would."""
_HERE = re.compile(r"(?:\$\w+|\$\{[^/}]*(?:/[^}]*)?\}|\$\(.*\))/", re.DOTALL)
"""Expressions for the folder of the file itself, before the name of a file that it sources."""
_BELOW = re.compile(r"(?!/)(?!(?:.*/)?\.\./).*")
"""Path that stays in its folder or below."""
_ELSEWHERE = re.compile(
    r"HOME|PATH|PWD|OLDPWD|USER|LOGNAME|UID|EUID|PPID|IFS|SHELL|SHLVL|HOSTNAME|HOSTTYPE|OSTYPE|MACHTYPE"
    r"|LINENO|RANDOM|SRANDOM|SECONDS|EPOCH\w+|BASH\w*|FUNCNAME|DIRSTACK|GROUPS|PIPESTATUS|OPTIND|TMPDIR"
)
"""Variables that a shell sets itself, differently on every machine or every time."""
_FUNCTION = re.compile(r"\s*(?:function\s+)?([\w.:-]+)\s*\(\s*\)|\s*function\s+([\w.:-]+)")
_SETS_ITS_WORDS = re.compile(
    r"\b(?:read|mapfile|readarray|let|getopts|unset|declare|typeset|export|local|readonly|printf\s+-v"
    r"|for|select)\b[^;&|\n]*"
)
_SETS_BY_DEFAULT = re.compile(r"\{([A-Za-z_]\w*):?=")
_SETS_IN_ARITHMETIC = re.compile(
    r"\b([A-Za-z_]\w*)\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|\b([A-Za-z_]\w*)(?=\+\+|--)"
)
_SETS_ANYTHING = re.compile(r"(?:^|[;&|({\n]|\b(?:then|do|else)\b)[ \t]*(?:eval|source|\.)\s")


@dataclass(frozen=True)
class NotRead:
    """Statement that is not read, and why; ``text`` is its beginning."""

    file: Path
    line: int
    text: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: not read: {self.text}: {self.reason}"


@dataclass(frozen=True)
class Assignments:
    """Result of reading a file. ``values`` are by name, in the order of their first assignment. ``doubtful``
    says why a name has no value. ``files`` were read, in this order. ``missing`` are statements that source a
    missing file."""

    values: dict[str, str]
    doubtful: dict[str, str]
    not_read: tuple[NotRead, ...]
    files: tuple[Path, ...]
    missing: tuple[NotRead, ...]

    def refuse_missing(self) -> None:
        """Raise UserError with a line for every sourced file that is missing."""
        if self.missing:
            places = [(f"{statement.file}:{statement.line}", statement.reason) for statement in self.missing]
            raise UserErrors(*(UserError(*place, "put it beside the file") for place in places))


def read(path: Path) -> Assignments:
    """Return the assignments of a file and of the files beside it that it sources. The working directory is
    the folder of ``path``, as when a shell sources it for us.

    Raises UserError if it is not a regular file, cannot be read, or has more than ``LARGEST_FILE`` bytes.
    """
    reader = _Reader()
    reader.file(path)
    return Assignments(
        reader.values, reader.doubtful, tuple(reader.not_read), tuple(reader.files), tuple(reader.missing)
    )


def text_of(path: Path) -> str:
    """Return the text of a configuration file; a byte that is not UTF-8 becomes a lone surrogate, as in the
    environment.

    Raises UserError as ``read`` does.
    """
    text = files.read_text(path, LARGEST_FILE, "give a configuration file", "surrogateescape")
    if "\0" in text:
        raise UserError(path, "holds bytes that are not text", "give a configuration file")
    if text.startswith("\ufeff"):
        problem = "begins with a byte order mark, which a shell takes for a command"
        raise UserError(path, problem, "save it as UTF-8 without one")
    return text


class _Stop(Exception):
    """The file calls ``exit``."""


class _Reader:
    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.doubtful: dict[str, str] = {}
        self.not_read: list[NotRead] = []
        self.files: list[Path] = []
        self.missing: list[NotRead] = []
        self._open: list[Path] = []
        self._functions: dict[str, set[str]] = {}
        self._readonly: set[str] = set()
        self._doubts = 0

    def file(self, path: Path) -> None:
        text = text_of(path)
        self.files.append(path)
        self._open.append(path)
        try:
            for statement in statements(text):
                if statement.trouble is None and statement.words[0] in ("return", "exit"):
                    self._note(statement, "ends the file; what follows is not read")
                    if statement.words[0] == "exit":
                        raise _Stop
                    break
                self._statement(statement)
        except _Stop:
            if len(self._open) > 1:
                raise
        finally:
            self._open.pop()

    def _noted(self, statement: Statement, reason: str) -> NotRead:
        beginning = excerpt(" ".join(statement.text.split()), 60)
        return NotRead(self._open[-1], statement.line, beginning, reason)

    def _note(self, statement: Statement, reason: str) -> str:
        note = self._noted(statement, reason)
        self.not_read.append(note)
        return f"{note.file.name}:{note.line} {reason}"

    def _statement(self, statement: Statement) -> None:
        try:
            self._simple(statement)
        except NotPlainError as error:
            names = self._refuse(statement, str(error))
            function = _FUNCTION.match(statement.text)
            if function and statement.trouble is not None:
                self._functions[function[1] or function[2]] = names

    def _simple(self, statement: Statement) -> None:
        if statement.trouble is not None:
            raise NotPlainError(statement.trouble)
        command, arguments = statement.words[0], statement.words[1:]
        if command in self._functions:
            raise NotPlainError(f"runs the function {command}")
        if all(map(_ASSIGNMENT.match, statement.words)):
            for word in statement.words:
                self._set(*self._evaluated(statement, word))
        elif command in _DECLARES:
            readonly = command == "readonly"
            while arguments and re.fullmatch(_PLAIN_OPTIONS[command], arguments[0]):
                readonly |= "r" in arguments[0]
                arguments = arguments[1:]
            if not all(re.fullmatch(r"[A-Za-z_]\w*(\+?=.*)?", word, re.DOTALL) for word in arguments):
                raise NotPlainError(f"{command} with options or words that are not read")
            names = [re.split(r"\+?=", word)[0] for word in arguments]
            if len(set(names)) < len(names):
                raise NotPlainError(f"{command} with a variable twice")
            # Unlike plain assignments, the words of a command are all expanded before the first of them takes
            # effect.
            assigning = filter(_ASSIGNMENT.match, arguments)
            for name, value in [self._evaluated(statement, word) for word in assigning]:
                self._set(name, value)
            if readonly:
                self._readonly |= set(names)
        elif command == ":":
            for word in arguments:
                self._expand(word)
        elif command in ("source", ".") and len(arguments) == 1:
            self._source(statement, arguments[0])
        elif command == "unset" and all(re.fullmatch(r"-v|[A-Za-z_]\w*", word) for word in arguments):
            for name in arguments:
                self._refuse_readonly(name)
                self.values.pop(name, None)
                self.doubtful.pop(name, None)
        elif command != "true" and not (command == "set" and all(map(_SHELL_OPTIONS.fullmatch, arguments))):
            raise NotPlainError(f"runs {excerpt(command, 40)}")

    def _evaluated(self, statement: Statement, word: str) -> tuple[str, str | None]:
        """Return the name and value that a word assigns. If the value is unknown, it is None, and all names
        that the word sets are put in doubt."""
        match = _ASSIGNMENT.match(word)
        assert match
        name, append, raw = match.groups()
        try:
            if raw.startswith("~") or ":~" in raw:
                raise NotPlainError("takes somebody's home directory (~)")
            value = self._expand(raw)
            if append:
                value = (self._value_of(name) or "") + value
            if len(value) > _LONGEST_VALUE:
                raise NotPlainError(f"a value of more than {_LONGEST_VALUE:,} characters")
        except NotPlainError as error:
            doubt = self._note(statement, str(error))
            for doubted in (name, *_SETS_BY_DEFAULT.findall(raw)):
                self.values.pop(doubted, None)
                self.doubtful[doubted] = doubt
            return name, None
        return name, value

    def _refuse_readonly(self, name: str) -> None:
        if name in self._readonly:
            raise NotPlainError(f"changes {name}, which is readonly")

    def _set(self, name: str, value: str | None) -> None:
        self._refuse_readonly(name)
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value
            self.doubtful.pop(name, None)

    def _refuse(self, statement: Statement, reason: str) -> set[str]:
        """List a statement, and put in doubt the names that it may set; return those names."""
        doubt, text = self._note(statement, reason), statement.text
        names = set(re.findall(r"\b([A-Za-z_]\w*)(?:\[[^\]\n]{0,200}\])?\+?=", text))
        names |= set(_SETS_BY_DEFAULT.findall(text))
        if "((" in text:
            names |= {name for pair in _SETS_IN_ARITHMETIC.findall(text) for name in pair if name}
        for words in _SETS_ITS_WORDS.findall(text):
            names |= set(re.findall(r"[A-Za-z_]\w*", words))
        for word in statement.words:
            names |= self._functions.get(word, set())
        if _SETS_ANYTHING.search(text):
            names |= set(self.values)
        self._doubts += len(names)
        if self._doubts > _MOST_DOUBTS:
            raise UserError(self._open[-1], "too much of it is not read", "give a file of plain assignments")
        for name in names:
            self.values.pop(name, None)
            self.doubtful[name] = doubt
        return names

    def _source(self, statement: Statement, word: str) -> None:
        word = word.replace('"', "").replace("'", "")
        here = _HERE.match(word)
        name = word[here.end() :] if here else word
        if not re.fullmatch(r"[\w.+/-]+", name):
            raise NotPlainError("sources what only a shell can name")
        path = (self._open[-1] if here else self._open[0]).parent / name
        if not os.path.exists(path) and (not here or "BASH_SOURCE" in here.group()):
            self.missing.append(self._noted(statement, f"sources {excerpt(name)}, which is not there"))
            raise NotPlainError(self.missing[-1].reason)
        if not _BELOW.fullmatch(name) or not path.is_file():
            raise NotPlainError("sources what is no file beside it or below")
        if path in self._open or len(self.files) >= _MOST_FILES:
            which = "a file that is being read" if path in self._open else "too many files"
            raise NotPlainError(f"sources {which}")
        try:
            self.file(path)
        except UserError as error:
            raise NotPlainError(f"sources what cannot be read ({error})") from None

    # Expansion

    def _value_of(self, name: str) -> str | None:
        """Return a variable's text, None if it is not set. Raises NotPlainError if it is in doubt or differs
        between machines."""
        if name in self.doubtful:
            raise NotPlainError(f"takes {name}, which is in doubt ({self.doubtful[name]})"[:200])
        if name not in self.values and _ELSEWHERE.fullmatch(name):
            raise NotPlainError(f"takes {name}, which is different everywhere")
        return self.values.get(name)

    def _expand(self, raw: str, in_quotes: bool = False, depth: int = 0) -> str:
        """Return the text that a word stands for. Raises NotPlainError if only a shell could tell."""
        if depth > _DEEPEST:
            raise NotPlainError("variables too deep in one another")
        parts: list[str] = []
        i = length = 0
        while i < len(raw):
            plain = raw[i] not in ("\\`$" if in_quotes else "\\`$'\"")
            plain = plain or (in_quotes and raw.startswith("$'", i))
            end = i + 1 if plain else after(raw, i)
            piece, i = raw[i:end], end
            parts.append(self._piece(piece, raw, in_quotes, depth))
            if piece == "$" and i < len(raw):
                name = re.compile(r"[A-Za-z_]\w*").match(raw, i)
                if name:
                    parts[-1], i = self._value_of(name.group()) or "", name.end()
                elif raw[i] in "0123456789@*#?$!-" or (raw[i] == '"' and not in_quotes):
                    raise NotPlainError(f"takes ${raw[i]}")
            length += len(parts[-1])
            if length > _LONGEST_VALUE:
                raise NotPlainError(f"a value of more than {_LONGEST_VALUE:,} characters")
        return "".join(parts)

    def _piece(self, piece: str, raw: str, in_quotes: bool, depth: int) -> str:
        if piece[0] == "\\" and len(piece) == 2:
            if piece[1] == "\n":
                return ""
            return piece if in_quotes and piece[1] not in '$`"\\' else piece[1]
        if piece[0] == "'" and not in_quotes:
            return piece[1:-1]
        if piece[0] == '"' and not in_quotes:
            return self._expand(piece[1:-1], True, depth + 1)
        if piece.startswith("$((") and piece.endswith("))"):
            expression = self._expand(piece[3:-2], True, depth + 1)
            return str(arithmetic.evaluate(expression, lambda name: self._value_of(name) or ""))
        if piece.startswith("${"):
            return self._parameter(piece[2:-1], in_quotes, depth)
        if piece.startswith(("$(", "`", "$'")):
            what = "has the quotes $'...'" if piece.startswith("$'") else "takes what a command prints:"
            raise NotPlainError(f"{what} {piece}"[:80])
        return piece

    def _parameter(self, inside: str, in_quotes: bool, depth: int) -> str:
        match = re.fullmatch(r"([A-Za-z_]\w*)(?:(:?)([-=+?])(.*))?", inside, re.DOTALL)
        if not match:
            raise NotPlainError(f"has ${{{inside}}}, which is not read"[:80])
        name, colon, operator, other = match.groups()
        value = self._value_of(name)
        is_set = value is not None and not (colon and value == "")
        if operator is None or (operator in "-=?" and is_set):
            return value or ""
        if operator == "?":
            raise NotPlainError(f"wants {name} to be set")
        if operator == "+" and not is_set:
            return ""
        if other.startswith("~") and not in_quotes:
            raise NotPlainError("takes somebody's home directory (~)")
        if in_quotes and _QUOTES_WITHIN.search(re.sub(r"\\[^}]", "", other)):
            raise NotPlainError(f"has quotes within quotes: ${{{inside}}}"[:80])
        expanded = self._expand(other, in_quotes, depth + 1)
        if operator == "=":
            self._set(name, expanded)
        return expanded
