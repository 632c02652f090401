"""Output: all text for people and scripts goes through this module.

Names, logs and configurations may be a stranger's. Their text is shown and never interpreted: no escape
sequence, no new line that forges one of ours, no markup, no emoji code, no command of a CI job that keeps the
output. On a terminal, tables fit its width and sentences are folded between words; in a pipe, only cells of
tables are that have more than ``WIDEST`` columns.
"""

import contextlib
import csv
import io
import json
import os
import re
import select
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TextIO

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rn50 import printed
from rn50.process import environment

UNFOLDED = 1_000_000
"""Width of a pipe in columns; no table is as wide."""
WIDEST = 200
"""Largest width of a table's column, on a terminal or not."""

_WORD = re.compile(r"'[^']*'\S*|\S+")
"""A word; a quoted name of a file is one, with its spaces."""
_COMMAND = re.compile(r"#[^\n -~]*#(?=[^\n -~]*\[)|^[^\n!-~]*:(?=[^\n -~]*:[^:])", re.MULTILINE)
"""The beginning of a command of GitHub's runner, up to a character that spoils it: ``##[cmd]`` anywhere in a
line, ``::cmd::`` at its start (src/Runner.Common/ActionCommand.cs of actions/runner). Where it compares, it
skips some characters that are not ASCII."""


def safe(text: str) -> str:
    r"""Return ``text`` with every unprintable character escaped, so that it stays one harmless line.

    This escapes control characters, new lines, marks that reorder text, and the bytes of a file name that is
    not UTF-8: ESC becomes ``\x1b``. Spaces of other widths become plain ones.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    if character.isspace() and character > "\x85" and character not in "\u2028\u2029":
        return " "
    return character.encode("unicode_escape").decode("ascii")


def inert(text: str) -> str:
    r"""Return lines for people without a command of a CI job's runner in them: ``##[error]`` becomes
    ``#\x23[error]``. A job's containers do not know that they are in one, so this is done everywhere."""
    return _COMMAND.sub(lambda command: f"{command[0][:-1]}\\x{ord(command[0][-1]):x}", text)


def styled(text: str, style: str) -> Text:
    """Return ``text`` in a Rich style, such as "red"."""
    return Text(safe(text), style=style)


def _between_words(text: Text, width: int) -> Text:
    """Return ``text`` with spaces in front of each word that would not fit into its row of ``width`` columns.

    The terminal itself then folds there, so that text copied from it has no added line breaks. A word wider
    than a row stays as it is.
    """
    if text.cell_len <= width or "\n" in text.plain:
        return text
    folded, end = Text(), 0
    for word in _WORD.finditer(text.plain):
        folded.append_text(text[end : word.start()])
        size, end = cell_len(word[0]), word.end()
        space = 1 if end < len(text.plain) else 0  # the space behind it, which would begin the next row
        if size <= width < folded.cell_len % width + size + space:
            folded.pad_right(-folded.cell_len % width)
        folded.append_text(text[word.start() : end])
    return folded.append_text(text[end:])


class Terminal(Console):
    """A console on standard output, standard error or ``file`` that shows each string as it is, on one
    line."""

    def __init__(self, stderr: bool = False, file: TextIO | None = None):
        self._on_screen = (file or (sys.stderr if stderr else sys.stdout)).isatty()
        width = None if self._on_screen else UNFOLDED
        super().__init__(stderr=stderr, file=file, markup=False, emoji=False, highlight=False, width=width)

    @property
    def live(self) -> bool:
        """True if a progress bar can be drawn: on a terminal that moves its cursor, but not in a CI job,
        which keeps the text."""
        return (
            self._on_screen and self.is_terminal and not self.is_dumb_terminal and not environment().get("CI")
        )

    def folded(self, line: str | Text) -> Text:
        """Return a sentence that this terminal folds between words."""
        return _between_words(Text(safe(line)) if isinstance(line, str) else line, self.width)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(safe(text), **options)

    def print(self, *objects: Any, **options: Any) -> None:
        if all(isinstance(renderable, (str, Text)) for renderable in objects):
            options.setdefault("soft_wrap", True)
            if self.live and len(objects) == 1:
                objects = (self.folded(objects[0]),)
        with self.capture() as captured:
            super().print(*objects, **options)
        # Cells that fill their column would make every line of a table as long as its longest one.
        *lines, rest = captured.get().split("\n")
        text = "\n".join([*(line if self._on_screen else line.rstrip(" ") for line in lines), rest])
        print(inert(text), end="", file=self.file, flush=self._on_screen)

    def show_cursor(self, show: bool = True) -> bool:
        """Leave the cursor alone: a bar that hides it would leave it hidden where the process is killed."""
        return False

    def on_broken_pipe(self) -> None:
        raise  # Rich calls this while it handles the error


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, as in "1 run" and "2 runs"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def minutes(value: float | None) -> str:
    """Return minutes with two decimals, or where these say less with two significant digits; "-" for none."""
    return "-" if value is None else f"{value:.2f}" if value >= 0.1 else f"{value:#.2g}"


def table(headings: Iterable[str], texts: Collection[str] = ("",), title: str | None = None) -> Table:
    """Return a table of numbers; the columns with a heading of ``texts`` hold text, which begins on the
    left."""
    empty = Table(title=title, title_justify="left")
    for heading in headings:
        empty.add_column(heading, justify="left" if heading in texts else "right", max_width=WIDEST)
    return empty


def print_rows(rows: Iterable[tuple[str, str]], console: Terminal) -> None:
    """Print texts, each behind its name; a name that several in a row share is printed once."""
    grid = Table.grid(padding=(0, 2))  # long texts wrap within their column
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    before = ""
    for name, text in rows:
        grid.add_row("" if name == before else name, text)
        before = name
    console.print(grid)


def markdown(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    cells = ([str(cell).replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def say(line: str, err: bool = False) -> None:
    """Print one line on standard output; with ``err`` on standard error, over the remains of a progress
    bar."""
    line, console = inert(safe(line)), Terminal(stderr=err)
    if console.live:
        line = ("\r\x1b[2K" if err else "") + console.folded(line).plain
    click.echo(line, err=err)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines for machines as they are, on a terminal too."""
    click.echo("\n".join(lines))


def json_text(value: Any) -> str:
    """Return records, or plain data, as JSON. NaN and infinity, which JSON does not know, become null."""
    return json.dumps(printed.as_json(value), indent=1, allow_nan=False).replace("##[", r"#\u0023[")


def print_json(value: Any) -> None:
    """Print records, or plain data, as JSON."""
    click.echo(json_text(value))


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV; text is as on a terminal, and spreadsheet formulas are quoted."""

    def shown(cell: Any) -> Any:
        return re.sub("^(?=[-=+@])", "'", safe(cell)) if isinstance(cell, str) else cell

    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(map(shown, row) for row in rows)
    return inert(table.getvalue())


def prepare() -> None:
    """Make standard output and error escape characters that their encoding lacks, instead of raising.

    Open a closed stream on the null device, else the next opened file would take its place.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 for as long as the process
            os.set_inheritable(getattr(sys, name).fileno(), True)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # a test's stream may have no reconfigure
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def flush() -> None:
    """Write out what standard output and error still hold. Raises OSError, which names the stream, if that
    fails."""
    for name, stream in (("standard output", sys.stdout), ("standard error", sys.stderr)):
        try:
            stream.flush()
        except OSError as error:
            raise OSError(error.errno, error.strerror, name) from None


def flush_or_drop() -> None:
    """Write out what standard output and error still hold, and drop what cannot be written."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with open(os.devnull, "w", encoding="utf-8") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())


def reader_has_gone() -> bool:
    """Return whether the reader of standard output or error has gone, as ``head`` does."""
    return any(map(_is_closed, (sys.stdout, sys.stderr)))


def _is_closed(stream: TextIO) -> bool:
    poll = select.poll()
    try:
        poll.register(stream.fileno(), 0)
    except (OSError, ValueError):
        return False
    return any(event & (select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))
