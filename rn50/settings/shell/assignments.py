"""Read the assignments of a shell file without a shell: ``read``. Nothing in the file is run, so that a file
from a stranger can do no harm. ``settings/document.py`` reads every configuration file with it.

The reader understands assignments, ``export``, ``source`` of a file in the same folder or below, quotes,
variables with their defaults, integer arithmetic and comments, as bash would read them in an empty
environment. It lists any other statement in ``not_read`` and goes on behind it; behind a function, a
here-document or a command of ``_ENDS`` it lists all statements. A variable that a listed statement may change
is in doubt: it has no value until it is assigned again.

``_Reader`` follows statement after statement. The regular expressions before it say what it understands, and
which variables a listed statement may set.

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

# Limits far above what published configurations need, so that no file takes long to read.
LARGEST_FILE = 1 << 18
"""Most bytes of a file."""
_MOST_FILES = 20
"""Most files that are read: the first one, and those that are sourced."""
_LONGEST_VALUE = 10_000
"""Most characters of a value."""
_DEEPEST = 20
"""Deepest nesting of quotes and defaults in a value."""
PLAIN = "give a file of plain `export NAME=value` lines"
"""Remedy in the error about a file that is no configuration."""
_OTHERS = {".py": "Python", ".yaml": "YAML", ".yml": "YAML", ".json": "JSON", ".toml": "TOML"}
"""Suffix of a file that is no configuration -> its format."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=.*", re.DOTALL)
"""Word that assigns, as in ``LR=2`` or ``LIST+=,x``."""
_EXPORTED = re.compile(r"[A-Za-z_]\w*(\+?=.*)?", re.DOTALL)
"""Argument of ``export``: an assignment, or a name alone."""
_BLANK = re.compile(r"(?:export[ \t]+)?([A-Z]\w*)[ \t]+=|export[ \t]+(\w+)=[ \t]+\S")
"""Lines such as ``export LR = 2.0``, in which a shell sees three words and no assignment."""
_NAME = re.compile(r"\$([A-Za-z_]\w*)")
"""Variable without braces, as in ``$LR``."""
_PLAIN = {False: re.compile(r"[^\\`$'\"{]+"), True: re.compile(r"(?:[^\\`$]|\$')+")}
"""Characters that mean themselves. The key is True within double quotes, False outside of quotes, where a
``{`` may begin a list, as in ``a{b,c}``, which is not read."""
_QUOTES_WITHIN = re.compile(r"\"|\$'|\\}")
"""Quotes in a default that itself stands within double quotes. Bash removes more of them than this reader
would, so such a default is not read."""
# What a file writes for its own folder, as in $(dirname "$BASH_SOURCE")/common.sh, without its quotes:
_THIS_FILE = r"\$(?:BASH_SOURCE|\{BASH_SOURCE(?:\[0\])?\})"
_ITS_FOLDER = rf"\$\(dirname (?:-- )?{_THIS_FILE}\)"
_HERE = re.compile(
    rf"(?:{_ITS_FOLDER}|\$\(cd (?:-- )?{_ITS_FOLDER}[ >&/\w]*(?:&&|;) *pwd(?: -P)?\)"
    r"|\$\{BASH_SOURCE(?:\[0\])?%/\*\})/"
)
"""Beginning of the path of a sourced file: an expression for the folder of the file that sources it, and a
slash. Examples: ``$(dirname $BASH_SOURCE)/``, ``$(cd $(dirname ${BASH_SOURCE[0]}) >/dev/null && pwd)/``,
``${BASH_SOURCE%/*}/``."""
_BELOW = re.compile(r"(?!/)(?!(?:.*/)?\.\./).*")
"""Relative path that stays in its folder or below, as ``common.sh`` and ``parts/lars.sh``: without a slash at
the beginning, and without ``../``."""
_SHELLS_OWN = re.compile(
    r"HOME|PATH|PWD|OLDPWD|USER|LOGNAME|UID|EUID|PPID|IFS|SHELL|SHLVL|HOSTNAME|HOSTTYPE|OSTYPE|MACHTYPE"
    r"|LINENO|RANDOM|SRANDOM|SECONDS|EPOCH\w+|BASH\w*|FUNCNAME|DIRSTACK|GROUPS|PIPESTATUS|OPTIND|TMPDIR"
)
"""Names of variables that a shell has without any file, with values that differ between machines or runs."""
# Patterns of the variables that a statement that is not read may set:
_SETS = re.compile(r"\b([A-Za-z_]\w*)(?:\[[^\]\n]{0,200}\])?\+?=|\{([A-Za-z_]\w*):?=")
"""Name that the statement assigns: ``X=``, an element of an array, ``X[1]+=``, or a default, ``${X:=``."""
_SETS_ITS_WORDS = re.compile(
    r"\(\(|\b(?:read|mapfile|readarray|let|getopts|unset|local|declare|typeset|readonly|printf|for|select)\b"
)
"""Command or arithmetic in which any word may be the name of a variable that it sets, as in ``read A B`` or
``((A++))``."""
_SETS_ANYTHING = re.compile(
    r"^[$`]|\bexport\s+\w*[$`]|(?<![^\s;&|({])(?:eval|source)\s|(?<![^\s;&|({])\.\s+[^\s;&|<>()-]"
)
"""Command that may set any variable, because its text is only known when it runs: ``$COMMAND``,
``export $NAME=1`` or, where a word may begin, ``eval ...``, ``source FILE``, ``. FILE``."""
# The three parts of _STARTS: where a command begins; variables before its name, as in ``LR=2 python``; its
# name, perhaps with a folder.
_STARTS = re.compile(
    r"(?:^|[;&|(`{!\n]|\b(?:then|do|else|if|while|until|time|exec|nohup)[ \t])[ \t]*"
    r"(?:\w+=\S{0,200}[ \t]+){0,9}((?:[\w.$-]*/)*(?:[bq]sub|\w*run|sbatch|salloc|mpiexec|ssh|accelerate"
    r"|deepspeed|python[\d.]*|docker|podman|singularity|apptainer|enroot|kubectl|rn50|(?:ba)?sh"
    r"|[\w.-]+\.(?:sh|py)))(?=[\s;&|`]|$)"
)
"""Command that starts a job or another script. A file with such a command is never sourced: to look at a
configuration must start nothing."""
_ENDS = {"function", "declare", "typeset", "readonly", "alias", "shopt", "exec", "trap", "return", "exit"}
"""Commands after which nothing is read: what looks like an assignment may not be one, or a shell may not
reach it."""


@dataclass(frozen=True)
class NotRead:
    """Statement that is not read, and the reason."""

    file: Path
    line: int
    text: str
    """Beginning of the statement."""
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: not read: {self.text}: {self.reason}"


@dataclass
class Assignments:
    """Result of reading a file and the files that it sources."""

    text: str
    """Text of the first file."""
    values: dict[str, str] = field(default_factory=dict)
    """Variable -> value, in the order of the first assignments."""
    doubtful: dict[str, str] = field(default_factory=dict)
    """Variable in doubt -> the reason, with file and line of the statement that may have set it."""
    not_read: list[NotRead] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    """Files that were read, in the order of reading, the first file before those that it sources."""
    anything: str = ""
    """Reason why a statement may have set any variable; empty: there is no such statement."""
    starts: tuple[str, str] | None = None
    """FILE:LINE of the first command that starts a job (``_STARTS``), and what is wrong with it; None: there
    is none."""


def read(path: Path, text: str | None = None) -> Assignments:
    """Return the assignments of the file ``path`` and of the files that it sources. A relative path of a
    sourced file begins in the folder of ``path``, because a shell sources it with that working directory.

    ``text`` is the content of a file that is not yet written; such a file cannot source another one. None:
    the content is read from ``path``.

    Raises UserError if a file is missing, not a regular file, unreadable, or larger than ``LARGEST_FILE``,
    and for a line such as ``export LR = 2.0``, which assigns nothing.
    """
    reader = _Reader(text_of(path) if text is None else text, is_written=text is None)
    reader.file(path, reader.result.text)
    return reader.result


def text_of(path: Path) -> str:
    """Return the text of a configuration file. A byte that is not UTF-8 becomes a lone surrogate, as in
    Python's copy of the environment.

    Raises UserError as ``read`` does, and for a file in another format than a shell's.
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
    """Reader of one file and the files that it sources; ``result`` grows statement by statement."""

    def __init__(self, text: str, is_written: bool) -> None:
        self.result = Assignments(text)
        self._is_written = is_written
        """False for a text that is not yet in a file, which cannot source another file."""
        self._open: list[Path] = []
        """Files that are being read: the first one, the file that it sources, and so on."""
        self._end = ""
        """Why nothing more is read; empty while the reader goes on."""

    def file(self, path: Path, text: str) -> None:
        """Follow the statements of a file with this ``text``: add what they assign to ``result``."""
        self.result.files.append(path)
        self._open.append(path)
        for statement in statements(text):
            try:
                # ``trouble`` is syntax beyond a simple command, such as a loop or a function.
                if reason := self._end or statement.trouble:
                    raise NotPlainError(reason)
                if statement.tokens == ("return",):
                    self._note(statement, "ends the file; what follows is not read")
                    break
                self._follow(statement)
            except NotPlainError as error:
                self._doubt(statement, str(error))
        self._open.pop()

    def _note(self, statement: Statement, reason: str) -> str:
        """List a statement in ``not_read``. Return its file and line, and ``reason``, as one text."""
        beginning = excerpt(" ".join(statement.text.split()), 60)
        note = NotRead(self._open[-1], statement.line, beginning, reason)
        self.result.not_read.append(note)
        return f"{note.file.name}:{note.line} {reason}"

    def _doubt(self, statement: Statement, reason: str) -> None:
        """List a statement that is not read, for this ``reason``, and put the variables that it may set in
        doubt. If it is a command of ``_STARTS``, or ends the reading, record that too."""
        doubt = self._note(statement, reason)
        text = statement.text
        started = _STARTS.search(re.sub(r"(?<!\S)#.*", "", text))  # without comments
        if started and not self.result.starts:
            line = statement.line + started.string.count("\n", 0, started.start(1))
            problem = f"runs {excerpt(started[1])}, so it is a script and no configuration"
            self.result.starts = f"{self._open[-1]}:{line}", problem
        # The variables that the statement may set.
        names = {name for pair in _SETS.findall(text) for name in pair if name}
        if _SETS_ITS_WORDS.search(text):
            names |= set(re.findall(r"[A-Za-z_]\w*", text))
        # Without quotes and backslashes, e'v'al is found too.
        if _SETS_ANYTHING.search(re.sub(r"[\\'\"]", "", text)):
            names |= set(self.result.values)
            self.result.anything = doubt
        tokens = [re.sub(r"[\\'\"]", "", token) for token in statement.tokens]
        has_here_document = any(token.startswith("<<") and token != "<<<" for token in tokens)
        defines_function = ("(", ")") in itertools.pairwise(tokens)
        # A statement without an end has no tokens.
        ends = not tokens or has_here_document or defines_function or _ENDS.intersection(tokens)
        if ends and not self._end:
            place = f"line {statement.line} of {self._open[-1].name}"
            self._end = f"follows {place}, behind which nothing is read"
        for name in names:
            self.result.values.pop(name, None)
            self.result.doubtful[name] = doubt

    def _follow(self, statement: Statement) -> None:
        """Do what a command does: assign, export or source. Raises NotPlainError for any other command."""
        command, *arguments = statement.tokens
        if all(map(_ASSIGNMENT.fullmatch, statement.tokens)):
            for word in statement.tokens:
                self._set(*self._assigned(word))
        elif command == "export" and all(map(_EXPORTED.fullmatch, arguments)):
            names = [re.split(r"\+?=", word)[0] for word in arguments]
            if len(set(names)) < len(names):
                raise NotPlainError("export with a variable twice")
            # Unlike the words of a plain assignment, all words are expanded before the first one takes
            # effect. A word without = is the name of a variable to export, which changes no value.
            for name, value in [self._assigned(word) for word in arguments if "=" in word]:
                self._set(name, value)
        elif command in ("source", ".") and len(arguments) == 1:
            self._source(statement, arguments[0])
        else:
            if blank := _BLANK.match(statement.text):
                variable = blank[1] or blank[2]
                problem = f"line {statement.line}: a blank beside the = of {variable}"
                raise UserError(self._open[-1], problem, f"write export {variable}=VALUE")
            raise NotPlainError(f"runs {excerpt(command, 40)}")

    def _set(self, name: str, value: str) -> None:
        """Give a variable a value, which is not in doubt."""
        self.result.values[name] = value
        self.result.doubtful.pop(name, None)

    def _assigned(self, word: str) -> tuple[str, str]:
        """Return the name and value that a word, NAME=TEXT or NAME+=TEXT, assigns. ``+=`` appends the text to
        the variable."""
        name, append, raw = re.split(r"(\+?)=", word, maxsplit=1)
        if raw.startswith("~") or ":~" in raw:
            raise NotPlainError("takes somebody's home directory (~)")
        old_value = self._value_of(name) if append else None
        return name, (old_value or "") + self._expand(raw)

    def _source(self, statement: Statement, word: str) -> None:
        """Read the file that a statement sources; ``word`` is its argument."""
        unquoted = re.sub("['\"]", "", word)
        if here := _HERE.match(unquoted):
            folder, name = self._open[-1].parent, unquoted[here.end() :]
        else:
            # Any other relative path begins in the folder of the first file. A word with a $ is left as it
            # is, and refused below.
            folder = self._open[0].parent
            name = word if "$" in word else shlex.split(word)[0]
        if not re.fullmatch(r"[\w.+/-]+", name):
            raise NotPlainError("sources what only a shell can name")
        path = folder / name
        if not (self._is_written and os.path.exists(path)):
            problem = f"sources {excerpt(name)}, which is not there"
            raise UserError(f"{self._open[-1]}:{statement.line}", problem, "put it beside the file")
        if not _BELOW.fullmatch(name) or not path.is_file():
            raise NotPlainError("sources what is no file beside it or below")
        if path in self._open or len(self.result.files) >= _MOST_FILES:
            which = "a file that is being read" if path in self._open else "too many files"
            raise NotPlainError(f"sources {which}")
        self.file(path, text_of(path))

    # Expansion

    def _value_of(self, name: str) -> str | None:
        """Return the text of a variable; None: it is not set. Raises NotPlainError if the variable is in
        doubt or differs between machines."""
        if name in self.result.values:
            return self.result.values[name]
        if doubt := self.result.doubtful.get(name, self.result.anything):
            raise NotPlainError(f"takes {name}, which is in doubt ({doubt})"[:200])
        if _SHELLS_OWN.fullmatch(name):
            raise NotPlainError(f"takes {name}, which is different everywhere")
        return None

    def _expand(self, raw: str, in_quotes: bool = False, depth: int = 0) -> str:
        """Return the text that ``raw``, a word or a part of one, stands for. ``in_quotes``: it stands within
        double quotes. ``depth`` counts the quotes and defaults around it. Raises NotPlainError if only a
        shell could tell."""
        if depth > _DEEPEST:
            raise NotPlainError("variables too deep in one another")
        text, i = "", 0
        while i < len(raw):
            if plain := _PLAIN[in_quotes].match(raw, i):
                expanded, end = plain[0], plain.end()
            elif variable := _NAME.match(raw, i):
                expanded, end = self._value_of(variable[1]) or "", variable.end()
            else:
                end = after(raw, i)
                expanded = self._piece(raw[i:end], raw[end : end + 1], in_quotes, depth + 1)
            text, i = text + expanded, end
            if len(text) > _LONGEST_VALUE:
                raise NotPlainError(f"a value of more than {_LONGEST_VALUE:,} characters")
        return text

    def _piece(self, piece: str, following: str, in_quotes: bool, depth: int) -> str:
        """Return the text that ``piece``, a quote, an escape, a substitution or a special character, stands
        for. ``following`` is the character behind it, empty at the end."""
        if piece.startswith("\\"):
            if piece[1:] == "\n":  # the word goes on in the next line
                return ""
            # Within double quotes a backslash stays, unless it is before one of these characters. They are a
            # tuple because an empty text is in every string.
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
        # A $ means itself, unless it and the next character are a special variable, as $1 and $?, or $"...".
        if piece == "$" and following not in tuple('0123456789@*#?$!-"'):
            return piece
        raise NotPlainError(f"has {piece}{following}, which is not read"[:80])

    def _parameter(self, inside: str, in_quotes: bool, depth: int) -> str:
        """Return the text of ``${inside}``: a variable, ``NAME``, perhaps with a default for one that is not
        set, ``NAME-other``, or with a text in place of one that is set, ``NAME+other``. After a colon, as in
        ``NAME:-other``, an empty variable counts as not set."""
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
        # Escaped quotes do not count.
        if in_quotes and _QUOTES_WITHIN.search(re.sub(r"\\[^}]", "", other)):
            raise NotPlainError(f"has quotes within quotes: ${{{inside}}}"[:80])
        return self._expand(other, in_quotes, depth)
