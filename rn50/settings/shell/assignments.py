"""Read the assignments of a shell file without a shell. Nothing in the file is run, so nothing in it can do
harm.

The reader understands assignments, ``export``, ``source`` of a file beside it or below, quotes, variables
with their defaults, integer arithmetic and comments, as bash would read them in an empty environment.
Everything else is listed with its line. A variable that something else may have changed is in doubt, and has
no value until it is assigned again.

Source: POSIX, Shell Command Language, sections "Word Expansions" and "Simple Commands".
"""

import itertools
import os
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from rn50 import files
from rn50.errors import UserError, excerpt
from rn50.settings.shell import arithmetic
from rn50.settings.shell.statements import NotPlainError, Statement, after, statements

LARGEST_FILE = 1 << 18
_MOST_FILES = 20
_LONGEST_VALUE = 10_000
_DEEPEST = 20
PLAIN = "give a file of plain `export NAME=value` lines"
_OTHERS = {".py": "Python", ".yaml": "YAML", ".yml": "YAML", ".json": "JSON", ".toml": "TOML"}
"""Ending of a file that is no configuration -> what it is."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=.*", re.DOTALL)
_EXPORTED = re.compile(r"[A-Za-z_]\w*(\+?=.*)?", re.DOTALL)
_BLANK = re.compile(r"(?:export[ \t]+)?([A-Z]\w*)[ \t]+=|export[ \t]+(\w+)=[ \t]+\S")
"""Lines such as ``export LR = 2.0``, which a shell reads as three names."""
_NAME = re.compile(r"\$([A-Za-z_]\w*)")
_PLAIN = {False: re.compile(r"[^\\`$'\"{]+"), True: re.compile(r"(?:[^\\`$]|\$')+")}
"""Characters that mean themselves, without and within double quotes."""
_QUOTES_WITHIN = re.compile(r"\"|\$'|\\}")
"""Parts of a default within double quotes from which bash removes more than the reader would."""
_THIS_FILE = r"\$(?:BASH_SOURCE|\{BASH_SOURCE(?:\[0\])?\})"
_ITS_FOLDER = rf"\$\(dirname (?:-- )?{_THIS_FILE}\)"
_HERE = re.compile(
    rf"(?:{_ITS_FOLDER}|\$\(cd (?:-- )?{_ITS_FOLDER}[ >&/\w]*(?:&&|;) *pwd(?: -P)?\)"
    r"|\$\{BASH_SOURCE(?:\[0\])?%/\*\})/"
)
"""Expressions for the folder of the file itself, before the name of a file that it sources."""
_BELOW = re.compile(r"(?!/)(?!(?:.*/)?\.\./).*")
"""Path that stays in its folder or below."""
_ELSEWHERE = re.compile(
    r"HOME|PATH|PWD|OLDPWD|USER|LOGNAME|UID|EUID|PPID|IFS|SHELL|SHLVL|HOSTNAME|HOSTTYPE|OSTYPE|MACHTYPE"
    r"|LINENO|RANDOM|SRANDOM|SECONDS|EPOCH\w+|BASH\w*|FUNCNAME|DIRSTACK|GROUPS|PIPESTATUS|OPTIND|TMPDIR"
)
"""Variables that a shell sets itself, differently on every machine or every time."""
_SETS = re.compile(r"\b([A-Za-z_]\w*)(?:\[[^\]\n]{0,200}\])?\+?=|\{([A-Za-z_]\w*):?=")
_SETS_ITS_WORDS = re.compile(
    r"\(\(|\b(?:read|mapfile|readarray|let|getopts|unset|local|declare|typeset|readonly|printf|for|select)\b"
)
_SETS_ANYTHING = re.compile(
    r"^[$`]|\bexport\s+\w*[$`]|(?<![^\s;&|({])(?:eval|source)\s|(?<![^\s;&|({])\.\s+[^\s;&|<>()-]"
)
_STARTS = re.compile(
    r"(?:^|[;&|(`{!\n]|\b(?:then|do|else|if|while|until|time|exec|nohup)[ \t])[ \t]*"
    r"(?:\w+=\S{0,200}[ \t]+){0,9}((?:[\w.$-]*/)*(?:[bq]sub|\w*run|sbatch|salloc|mpiexec|ssh|accelerate"
    r"|deepspeed|python[\d.]*|docker|podman|singularity|apptainer|enroot|kubectl|rn50|(?:ba)?sh"
    r"|[\w.-]+\.(?:sh|py)))(?=[\s;&|`]|$)"
)
"""Command that starts a job or another script: whoever looks at a configuration wants none started."""
_ENDS = {"function", "declare", "typeset", "readonly", "alias", "shopt", "exec", "trap", "return", "exit"}
"""Commands behind which what looks like an assignment may be something else, or is not reached."""


@dataclass(frozen=True)
class NotRead:
    """Statement that is not read, and why; ``text`` is its beginning."""

    file: Path
    line: int
    text: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: not read: {self.text}: {self.reason}"


@dataclass
class Assignments:
    """Result of reading a file. ``values`` are by name, in the order of their first assignment. ``doubtful``
    says why a name has no value, and ``anything`` why any name may have one. ``files`` were read, in this
    order; ``text`` is that of the first. ``starts`` are the place of the first command that starts a job, and
    what is wrong with it."""

    text: str
    values: dict[str, str] = field(default_factory=dict)
    doubtful: dict[str, str] = field(default_factory=dict)
    not_read: list[NotRead] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    anything: str = ""
    starts: tuple[str, str] | None = None


def read(path: Path, text: str | None = None) -> Assignments:
    """Return the assignments of a file and of the files beside it that it sources. The working directory is
    the folder of ``path``, as when a shell sources it for us. ``text`` is that of a file not yet written,
    which has none beside it.

    Raises UserError if it is not a regular file, cannot be read, or has more than ``LARGEST_FILE`` bytes, or
    if a file that it sources is missing or such a file.
    """
    reader = _Reader(text_of(path) if text is None else text, is_written=text is None)
    reader.file(path, reader.result.text)
    return reader.result


def text_of(path: Path) -> str:
    """Return the text of a configuration file; a byte that is not UTF-8 becomes a lone surrogate, as in the
    environment.

    Raises UserError as ``read`` does.
    """
    if other := _OTHERS.get(path.suffix.lower()):
        raise UserError(path, f"a {other} file, no configuration", PLAIN)
    text = files.read_text(path, LARGEST_FILE, "give a configuration file", "surrogateescape")
    if "\0" in text:
        raise UserError(path, "holds bytes that are not text", "give a configuration file")
    if text.startswith("\ufeff"):
        problem = "begins with a byte order mark, which a shell takes for a command"
        raise UserError(path, problem, "save it as UTF-8 without one")
    return text


class _Reader:
    def __init__(self, text: str, is_written: bool) -> None:
        self.result, self._is_written = Assignments(text), is_written
        self._open: list[Path] = []
        self._end = ""
        """Why nothing more is read."""

    def file(self, path: Path, text: str) -> None:
        self.result.files.append(path)
        self._open.append(path)
        for statement in statements(text):
            trouble = self._end or statement.trouble
            try:
                if trouble:
                    raise NotPlainError(trouble)
                if statement.tokens == ("return",):
                    self._note(statement, "ends the file; what follows is not read")
                    break
                self._follow(statement)
            except NotPlainError as error:
                self._doubt(statement, str(error))
        self._open.pop()

    def _note(self, statement: Statement, reason: str) -> str:
        beginning = excerpt(" ".join(statement.text.split()), 60)
        note = NotRead(self._open[-1], statement.line, beginning, reason)
        self.result.not_read.append(note)
        return f"{note.file.name}:{note.line} {reason}"

    def _doubt(self, statement: Statement, reason: str) -> None:
        """List a statement, and put in doubt the names that it may set."""
        doubt, text = self._note(statement, reason), statement.text
        started = _STARTS.search(re.sub(r"(?<!\S)#.*", "", text))  # without comments
        if started and not self.result.starts:
            line = statement.line + started.string.count("\n", 0, started.start(1))
            problem = f"runs {excerpt(started[1])}, so it is a script and no configuration"
            self.result.starts = f"{self._open[-1]}:{line}", problem
        names = {name for pair in _SETS.findall(text) for name in pair if name}
        if _SETS_ITS_WORDS.search(text):
            names |= set(re.findall(r"[A-Za-z_]\w*", text))
        if _SETS_ANYTHING.search(re.sub(r"[\\'\"]", "", text)):
            names |= set(self.result.values)
            self.result.anything = doubt
        tokens = [re.sub(r"[\\'\"]", "", token) for token in statement.tokens]
        here_document = any(token.startswith("<<") and token != "<<<" for token in tokens)
        function = ("(", ")") in itertools.pairwise(tokens)
        if not self._end and (not tokens or here_document or function or _ENDS.intersection(tokens)):
            place = f"line {statement.line} of {self._open[-1].name}"
            self._end = f"follows {place}, behind which nothing is read"
        for name in names:
            self.result.values.pop(name, None)
            self.result.doubtful[name] = doubt

    def _follow(self, statement: Statement) -> None:
        command, *arguments = statement.tokens
        if all(map(_ASSIGNMENT.fullmatch, statement.tokens)):
            for word in statement.tokens:
                self._set(*self._assigned(word))
        elif command == "export" and all(map(_EXPORTED.fullmatch, arguments)):
            names = [re.split(r"\+?=", word)[0] for word in arguments]
            if len(set(names)) < len(names):
                raise NotPlainError("export with a variable twice")
            # Unlike plain assignments, the words are all expanded before the first of them takes effect.
            for name, value in [self._assigned(word) for word in arguments if "=" in word]:
                self._set(name, value)
        elif command in ("source", ".") and len(arguments) == 1:
            self._source(statement, arguments[0])
        else:
            blank = _BLANK.match(statement.text)
            if blank:
                variable = blank[1] or blank[2]
                problem = f"line {statement.line}: a blank beside the = of {variable}"
                raise UserError(self._open[-1], problem, f"write export {variable}=VALUE")
            raise NotPlainError(f"runs {excerpt(command, 40)}")

    def _set(self, name: str, value: str) -> None:
        self.result.values[name] = value
        self.result.doubtful.pop(name, None)

    def _assigned(self, word: str) -> tuple[str, str]:
        """Return the name and value that a word assigns."""
        name, append, raw = re.split(r"(\+?)=", word, maxsplit=1)
        if raw.startswith("~") or ":~" in raw:
            raise NotPlainError("takes somebody's home directory (~)")
        before = self._value_of(name) if append else None
        return name, (before or "") + self._expand(raw)

    def _source(self, statement: Statement, word: str) -> None:
        plain = re.sub("['\"]", "", word)
        here = _HERE.match(plain)
        name = plain[here.end() :] if here else word if "$" in word else shlex.split(word)[0]
        if not re.fullmatch(r"[\w.+/-]+", name):
            raise NotPlainError("sources what only a shell can name")
        path = (self._open[-1] if here else self._open[0]).parent / name
        if not (self._is_written and os.path.exists(path)):
            place = f"{self._open[-1]}:{statement.line}"
            problem = f"sources {excerpt(name)}, which is not there"
            raise UserError(place, problem, "put it beside the file")
        if not _BELOW.fullmatch(name) or not path.is_file():
            raise NotPlainError("sources what is no file beside it or below")
        if path in self._open or len(self.result.files) >= _MOST_FILES:
            which = "a file that is being read" if path in self._open else "too many files"
            raise NotPlainError(f"sources {which}")
        self.file(path, text_of(path))

    # Expansion

    def _value_of(self, name: str) -> str | None:
        """Return a variable's text, None if it is not set. Raises NotPlainError if it is in doubt or differs
        between machines."""
        if name in self.result.values:
            return self.result.values[name]
        doubt = self.result.doubtful.get(name, self.result.anything)
        if doubt:
            raise NotPlainError(f"takes {name}, which is in doubt ({doubt})"[:200])
        if _ELSEWHERE.fullmatch(name):
            raise NotPlainError(f"takes {name}, which is different everywhere")
        return None

    def _expand(self, raw: str, in_quotes: bool = False, depth: int = 0) -> str:
        """Return the text that a word stands for. Raises NotPlainError if only a shell could tell."""
        if depth > _DEEPEST:
            raise NotPlainError("variables too deep in one another")
        text, i = "", 0
        while i < len(raw):
            plain, name = _PLAIN[in_quotes].match(raw, i), _NAME.match(raw, i)
            if plain:
                text, i = text + plain[0], plain.end()
            elif name:
                text, i = text + (self._value_of(name[1]) or ""), name.end()
            else:
                start, i = i, after(raw, i)
                text += self._piece(raw[start:i], raw[i : i + 1], in_quotes, depth + 1)
            if len(text) > _LONGEST_VALUE:
                raise NotPlainError(f"a value of more than {_LONGEST_VALUE:,} characters")
        return text

    def _piece(self, piece: str, following: str, in_quotes: bool, depth: int) -> str:
        """Return the text of a quote, an escape, a substitution or a special character."""
        if piece.startswith("\\"):
            if piece[1:] == "\n":
                return ""
            return piece if in_quotes and piece[1:] not in tuple('$`"\\') else piece[1:]
        if piece.startswith("'"):
            return piece[1:-1]
        if piece.startswith('"'):
            return self._expand(piece[1:-1], True, depth)
        if piece.startswith("$((") and piece.endswith("))"):
            expression = self._expand(piece[3:-2], True, depth)
            return str(arithmetic.evaluate(expression, lambda name: self._value_of(name) or ""))
        if piece.startswith("${"):
            return self._parameter(piece[2:-1], in_quotes, depth)
        if piece == "$" and following not in tuple('0123456789@*#?$!-"'):
            return piece
        raise NotPlainError(f"has {piece}{following}, which is not read"[:80])

    def _parameter(self, inside: str, in_quotes: bool, depth: int) -> str:
        match = re.fullmatch(r"([A-Za-z_]\w*)(?:(:?)([-+])(.*))?", inside, re.DOTALL)
        if not match:
            raise NotPlainError(f"has ${{{inside}}}, which is not read"[:80])
        name, colon, operator, other = match.groups()
        value = self._value_of(name)
        is_set = value is not None and not (colon and value == "")
        if operator is None or (operator == "-" and is_set):
            return value or ""
        if operator == "+" and not is_set:
            return ""
        if other.startswith("~") and not in_quotes:
            raise NotPlainError("takes somebody's home directory (~)")
        if in_quotes and _QUOTES_WITHIN.search(re.sub(r"\\[^}]", "", other)):
            raise NotPlainError(f"has quotes within quotes: ${{{inside}}}"[:80])
        return self._expand(other, in_quotes, depth)
