"""Output: all text for people and scripts goes through this module.

Names, logs and configurations may come from a stranger. Their text is shown and never interpreted: no escape
sequence, no new line that forges a line of ours, no markup, no emoji code, no command to a CI job that reads
the output.

On a terminal, tables are fitted to its width, and sentences are folded between words. In a pipe, only cells
of tables are folded, and only those wider than ``WIDEST`` columns.
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
"""Width that a pipe is taken to have, in columns. No table is as wide."""
WIDEST = 200
"""Largest width of a column of a table, on a terminal and in a pipe."""

_WORD = re.compile(r"'[^']*'\S*|\S+")
"""A word. A name of a file in quotes is one word, with its spaces."""
_COMMAND = re.compile(r"#[^\n -~]*#(?=[^\n -~]*\[)|^[^\n!-~]*:(?=[^\n -~]*:[^:])", re.MULTILINE)
r"""The beginning of a command to GitHub's runner, up to the character that ``inert`` replaces: ``##[cmd]``
anywhere in a line, or ``::cmd::`` at its start, perhaps after spaces (src/Runner.Common/ActionCommand.cs of
actions/runner). The runner skips some characters that are not ASCII before and between these, so the pattern
skips all of them: ``[^\n -~]`` is a control character or not ASCII, ``[^\n!-~]`` may also be a space."""


def safe(text: str) -> str:
    r"""Return ``text`` as one harmless line, with every unprintable character escaped: ESC becomes ``\x1b``.

    Unprintable are control characters, new lines, marks that reorder text, and the bytes of a file name that
    is not UTF-8. Spaces of other widths become plain spaces.
    """
    return text if text.isprintable() else "".join(map(_printable, text))


def _printable(character: str) -> str:
    """Return a character, or its escape if it is unprintable."""
    if character.isprintable():
        return character
    # Tabs, new lines and other separators of lines, which are below U+0085 or the three named here, are
    # escaped. Any other space, such as a no-break space, becomes a plain one.
    if character.isspace() and character > "\x85" and character not in "\u2028\u2029":
        return " "
    return character.encode("unicode_escape").decode("ascii")


def inert(text: str) -> str:
    r"""Return lines of text with each command to a CI job's runner spoilt: ``##[error]`` becomes
    ``#\x23[error]``. This is done everywhere, because a process in a container of a job cannot tell that it
    is in a job."""
    return _COMMAND.sub(lambda command: f"{command[0][:-1]}\\x{ord(command[0][-1]):x}", text)


def styled(text: str, style: str) -> Text:
    """Return ``text``, made safe, in a style of Rich such as "red"."""
    return Text(safe(text), style=style)


def _between_words(text: Text, width: int) -> Text:
    """Return ``text`` folded between words for a terminal of ``width`` columns: before each word that would
    not fit into its row, the row is filled up with spaces.

    Then the terminal itself begins a new row there, and text that is copied from it has no added line breaks.
    A word that is wider than a row is not moved.
    """
    if text.cell_len <= width or "\n" in text.plain:
        return text
    folded = Text()
    end = 0  # of the word before
    for word in _WORD.finditer(text.plain):
        folded.append_text(text[end : word.start()])
        end = word.end()
        columns = cell_len(word[0])
        space = 1 if end < len(text.plain) else 0  # the space behind the word, which must not begin a row
        # The word fits into a row, but not into the rest of this one.
        if columns <= width < folded.cell_len % width + columns + space:
            folded.pad_right(-folded.cell_len % width)
        folded.append_text(text[word.start() : end])
    return folded.append_text(text[end:])


class Terminal(Console):
    """A Rich console on standard output, standard error or ``file``. It shows every string as it is, on one
    line, without markup."""

    def __init__(self, stderr: bool = False, file: TextIO | None = None):
        self._on_screen = (file or (sys.stderr if stderr else sys.stdout)).isatty()
        width = None if self._on_screen else UNFOLDED
        super().__init__(stderr=stderr, file=file, markup=False, emoji=False, highlight=False, width=width)

    @property
    def live(self) -> bool:
        """True if a progress bar can be drawn: on a terminal that can move its cursor, and not in a CI job,
        which keeps all output as text."""
        can_move_cursor = self.is_terminal and not self.is_dumb_terminal
        return self._on_screen and can_move_cursor and not environment().get("CI")

    def folded(self, line: str | Text) -> Text:
        """Return a sentence, folded between words for the width of this terminal."""
        return _between_words(Text(safe(line)) if isinstance(line, str) else line, self.width)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return ``text``, made safe, as Rich prints it. Rich calls this for every string, cells of tables
        included."""
        return super().render_str(safe(text), **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print texts or tables as the docstring of this file says."""
        if all(isinstance(renderable, (str, Text)) for renderable in objects):
            options.setdefault("soft_wrap", True)
            if self.live and len(objects) == 1:
                objects = (self.folded(objects[0]),)
        with self.capture() as captured:  # so that the text can be made inert before it is written
            super().print(*objects, **options)
        # Off the screen, drop the spaces with which Rich fills up every line of a table to the longest.
        *lines, rest = captured.get().split("\n")
        text = "\n".join([*(line if self._on_screen else line.rstrip(" ") for line in lines), rest])
        print(inert(text), end="", file=self.file, flush=self._on_screen)

    def show_cursor(self, show: bool = True) -> bool:
        """Do nothing. A progress bar would hide the cursor, and a process that is killed would not show it
        again."""
        return False

    def on_broken_pipe(self) -> None:
        raise  # again the error that Rich is handling when it calls this


def counted(number: int, noun: str) -> str:
    """Return a number and its noun: "1 run", "2 runs"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def minutes(value: float | None) -> str:
    """Return minutes with two decimals, below 0.1 with two significant digits; "-" for None."""
    if value is None:
        return "-"
    return f"{value:.2f}" if value >= 0.1 else f"{value:#.2g}"


def table(headings: Iterable[str], texts: Collection[str] = ("",), title: str | None = None) -> Table:
    """Return an empty table with these headings. Columns hold numbers, aligned on the right; those whose
    headings are in ``texts`` hold text, aligned on the left."""
    empty = Table(title=title, title_justify="left")
    for heading in headings:
        empty.add_column(heading, justify="left" if heading in texts else "right", max_width=WIDEST)
    return empty


def print_rows(rows: Iterable[tuple[str, str]], console: Terminal) -> None:
    """Print ``rows`` of (name, text) as two columns. If rows in sequence have the same name, only the first
    shows it."""
    grid = Table.grid(padding=(0, 2))  # a long text is folded within its column
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
    """Print one line on standard output, or with ``err`` on standard error, where it replaces what a progress
    bar may have left in the row."""
    console = Terminal(stderr=err)
    text = inert(safe(line))
    if console.live:  # on a terminal "\r\x1b[2K" empties the row
        text = ("\r\x1b[2K" if err else "") + console.folded(text).plain
    click.echo(text, err=err)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines for other programs, unchanged even on a terminal."""
    click.echo("\n".join(lines))


def json_text(value: Any) -> str:
    r"""Return records or plain data as JSON. NaN and infinity, which JSON does not have, become null; a
    command to a CI job's runner is spoilt as in ``inert``, by ``\u0023``, JSON's escape of "#"."""
    return json.dumps(printed.as_json(value), indent=1, allow_nan=False).replace("##[", r"#\u0023[")


def print_json(value: Any) -> None:
    """Print records or plain data as JSON."""
    click.echo(json_text(value))


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV. Texts are made safe, and a text that a spreadsheet would take for a formula gets a
    quote in front."""

    def quoted(cell: Any) -> Any:
        return re.sub("^(?=[-=+@])", "'", safe(cell)) if isinstance(cell, str) else cell

    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows(map(quoted, row) for row in rows)
    return inert(lines.getvalue())


def prepare() -> None:
    """Make standard output and error escape characters that their encoding lacks, in place of an error.

    Open the null device in place of each standard stream that is closed. Otherwise the next file that is
    opened would get the descriptor of such a stream, and output would go into it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it was closed when Python started
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 for as long as the process
            # Processes that this one starts inherit it, as they do every standard stream.
            os.set_inheritable(getattr(sys, name).fileno(), True)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # a test's stream may have no reconfigure
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def flush() -> None:
    """Write out the buffers of standard output and error. Raises OSError with the name of the stream if that
    fails."""
    for name, stream in (("standard output", sys.stdout), ("standard error", sys.stderr)):
        try:
            stream.flush()
        except OSError as error:
            raise OSError(error.errno, error.strerror, name) from None


def flush_or_drop() -> None:
    """Write out the buffers of standard output and error. If that fails, drop them, so that Python's own
    flush at the exit does not fail too."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # The next flush of the stream then writes to the null device.
            with open(os.devnull, "w", encoding="utf-8") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())


def reader_has_gone() -> bool:
    """Return whether standard output or error is a pipe whose reader has ended, as ``head`` does early."""
    return any(map(_is_closed, (sys.stdout, sys.stderr)))


def _is_closed(stream: TextIO) -> bool:
    """Return whether a stream's pipe has no reader. A stream without a descriptor has no pipe."""
    poll = select.poll()
    with contextlib.suppress(OSError, ValueError):
        poll.register(stream.fileno(), 0)  # 0: errors alone, which poll always reports
    return any(event & (select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))
