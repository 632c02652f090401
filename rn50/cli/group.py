"""Root command of all verbs, its handling of errors, and the options that several verbs share."""

import atexit
import contextlib
import errno
import functools
import os
import pathlib
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

import rn50
from rn50 import files, packages, process, terminal
from rn50.benchmark import rules
from rn50.cli import ranks
from rn50.errors import RankLostError, Status, UserError, did_you_mean
from rn50.settings.document import systems
from rn50.settings.fields import RUNS_OWN_NAMES, variables
from rn50.terminal import say

_came: list[int] = []
"""Signals that were answered. A library that one interrupts while it loads raises an error of its own."""


def _interrupt(number: int, _: object) -> None:
    _came.append(number)
    if number != signal.SIGINT:
        signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt(number)


class _Verb(click.Command):
    """A verb. One with ``--set`` answers ``--lr 1`` and ``LR=1`` with what sets that value."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        typed = [*args]
        try:
            return super().parse_args(context, args)
        except click.UsageError as error:
            meant = any("--set" in parameter.opts for parameter in self.params) and _as_set(typed)
            if meant:
                raise click.UsageError(f"{error.message}; {meant}", context) from None
            raise


class CleanedUpVerb(_Verb):
    """A verb with unfinished work to clean up: SIGTERM and SIGHUP raise an exception in it.

    No other verb is one, because native code that hangs would delay the exception for ever; a second signal
    ends even that.
    """

    def invoke(self, context: click.Context) -> Any:
        numbers = process.not_ignored(signal.SIGTERM, signal.SIGHUP)
        with process.handling(dict.fromkeys(numbers, _interrupt)):
            return super().invoke(context)


def _as_set(typed: Sequence[str]) -> str:
    """Return ``write --set LR=1`` where ``typed`` has ``--lr 1`` or ``LR=1``; else nothing."""
    named = {text.replace("_", "").lower(): v.name for _, field, v in variables() for text in (field, v.name)}
    for before, argument, after in zip(["", *typed], typed, [*typed[1:], ""], strict=False):
        option, equals, value = argument.removeprefix("--").partition("=")
        name = named.get(re.sub("[-_]", "", option).lower()) if equals or argument.startswith("--") else None
        if name and name not in RUNS_OWN_NAMES and before != "--set":
            return f"write --set {name}={value if equals else after}"
    return ""


class Verbs(click.Group):
    """Group of verbs that answers a wrong name with the nearest one, or with all."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sections: dict[str, list[click.Command]] = {}

    def verb(
        self,
        name: str,
        summary: str,
        example: str | None = None,
        heading: str = "",
        cls: type[click.Command] = _Verb,
    ) -> Callable[[Callable[..., Any]], Any]:
        """Return a decorator that makes a function a verb, listed in the help under ``heading``."""

        def add(function: Callable[..., Any]) -> click.Command:
            epilog = example and f"Example: {example}"
            command = self.command(name, cls=cls, short_help=summary, epilog=epilog)(function)
            self.sections.setdefault(heading, []).append(command)
            return command

        return add

    def under(self, heading: str, cls: type[click.Command] = _Verb) -> Callable[..., Any]:
        """Return ``verb`` for the verbs under ``heading``."""
        return functools.partial(self.verb, heading=heading, cls=cls)

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            names = self.list_commands(context)
            few = f"there are: {', '.join(names)}" if len(names) < 9 else ""
            hint = did_you_mean(args[0], names) or few
            error.message += f" {hint[:1].upper()}{hint[1:]}"
            raise


class _Group(Verbs):
    """Root group. A user error ends with a line and status 2, a fault with a line and status 1, a closed
    output pipe silently."""

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(context, formatter)  # the text names both options

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(len(verb.name or "") for verbs in self.sections.values() for verb in verbs)
        for heading, verbs in self.sections.items():
            with formatter.section(heading):
                rows = [((verb.name or "").ljust(widest), verb.get_short_help_str()) for verb in verbs]
                formatter.write_dl(rows)

    def main(self, *args: Any, **options: Any) -> Any:
        terminal.prepare()
        try:
            return super().main(*args, **options)
        except OSError as error:  # even the reason could not be printed
            with contextlib.suppress(OSError):
                report(error)
            sys.exit(Status.USER_ERROR)
        except SystemExit as ended:
            if not ranks.is_rank() or not isinstance(ended.code, int):
                raise
            # A Gloo thread may abort a rank whose work is done during teardown (pytorch#179291).
            atexit._run_exitfuncs()
            end_at_once(ended.code)
        finally:
            terminal.flush_or_drop()

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        with _shown_safely():
            return super().make_context(*args, **options)

    def invoke(self, context: click.Context) -> Any:
        _came.clear()
        try:
            ctrl_c = process.not_ignored(signal.SIGINT)
            with _shown_safely(), process.handling(dict.fromkeys(ctrl_c, _interrupt)):
                _warn_of_other_checkout()
                process.keep_working_folder_off_paths()
                process.refuse_little_memory()
                return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, click.Abort, SystemExit):
            raise
        except BaseException as error:  # a library's panic in Rust is not an Exception
            if _came or isinstance(error, KeyboardInterrupt):
                number = (*_came, signal.SIGINT)[0]
                if number == signal.SIGINT:
                    say("rn50: stopped by SIGINT; the same command starts again", err=True)
                context.exit(128 + number)
            if isinstance(error, BrokenPipeError) and terminal.reader_has_gone():
                context.exit(128 + signal.SIGPIPE)
            if context.params["debug"]:
                raise
            context.exit(report(error))


def _warn_of_other_checkout() -> None:
    """Warn where the working folder is in another checkout than this code: a copied .venv leads to the old
    one.

    PYTHONPATH with this code in it was set on purpose, or by a process of rn50 that has warned.
    """
    other = files.other_checkout()
    if other and str(files.PACKAGES) not in process.environment().get("PYTHONPATH", "").split(os.pathsep):
        problem = f"not the checkout whose code, configurations and results are used, which is {files.ROOT}"
        remedy = "make setup there, or requirements/install.sh with the set that you use, makes its own"
        say(f"warning: {other}: {problem}; {remedy}", err=True)


@contextlib.contextmanager
def _shown_safely() -> Iterator[None]:
    """Escape wrong arguments that click repeats in its errors, and flush the output."""
    try:
        yield
    except click.ClickException as error:
        error.message = terminal.inert(terminal.safe(error.message))
        raise
    finally:
        terminal.flush()


def report(error: BaseException) -> int:
    """Print on standard error what went wrong, and return the exit status."""
    limit = process.memory_limit_kib()
    if isinstance(error, MemoryError) or (
        process.OUT_OF_MEMORY.search(str(error)) and (limit or not isinstance(error, UserError))
    ):
        say("rn50: out of memory; end other programs, or raise the limit of this shell (ulimit -v)", err=True)
        end_at_once(Status.USER_ERROR)
    if isinstance(error, (UserError, RankLostError)):
        for line in error.lines:
            say(f"rn50: {line}", err=True)
        return error.status
    fixable = _fixable(error)
    if fixable:
        say(f"rn50: {fixable}", err=True)
        return Status.USER_ERROR
    reason = str(error).strip().splitlines() or [""]
    message = f"rn50: {type(error).__name__}: {reason[0]}"
    if limit:
        say(f"{message}; ulimit -v {limit} may be the reason, raise it", err=True)
        end_at_once(Status.FAULT)
    say(f"{message} (RN50_DEBUG=1 in the environment shows where)", err=True)
    return Status.FAULT


def _fixable(error: BaseException) -> str:
    """Return what is wrong and the remedy, if the user can fix an error of Python's own; else nothing."""
    if isinstance(error, OSError) and isinstance(error.filename, (str, pathlib.Path)):
        return f"{error.filename}: {error.strerror}; name another file or folder, or fix this one"
    if isinstance(error, FileNotFoundError) and not files.has_working_folder():
        return "the working folder: it was removed; change to another one"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        another = "name another place for the output or for temporary files (TMPDIR)"
        return f"{error.strerror}; free some, or {another}"
    missing = packages.distribution(error) if isinstance(error, ModuleNotFoundError) else ""
    if missing and missing not in ("rn50", "implementations"):
        return f"the package {missing} is not installed; {packages.install(missing)}"
    return ""


def end_at_once(status: int) -> NoReturn:
    """Write out what was printed and end this process without teardown, in which native libraries may wait
    for ever or abort."""
    terminal.flush_or_drop()
    os._exit(status)


class _Path(click.Path):
    """A path. An empty one, as of a variable that is not set, is refused: it would mean the working
    folder."""

    def convert(self, value: Any, *where: Any) -> Any:
        if not os.fspath(value):
            raise UserError("''", "an empty name", "name a file or a folder, . for the working folder")
        return super().convert(value, *where)


PATH = _Path(path_type=pathlib.Path)
paths = click.argument("paths", nargs=-1, required=True, type=PATH)


def option(name: str, help_: str, *parameter: str, **settings: Any) -> Any:
    """Return an option; ``parameter`` are its short name and the function's argument that gets its value, as
    for ``click.option``."""
    return click.option(name, *parameter, help=help_, **settings)


flag = functools.partial(option, is_flag=True)
"""Return an option without a value."""


def output(help_: str, *parameter: str, **settings: Any) -> Any:
    """Return the option ``--output`` of a verb that writes a file or a folder; ``parameter`` gets its value
    where that is not called output."""
    return option("--output", help_, "-o", *parameter, type=PATH, **settings)


def rulesets(named_by: str = "") -> Any:
    """Return the option ``--ruleset``; by default that of the round which a folder, ``named_by``, names."""
    meaning = f"Version of the official rules, of {', '.join(rules.RULESETS)}; may be given several times"
    default = f"[default: that of the round a folder {named_by}, else 1.0.0, 1.1.0, 2.0.0 and 4.0.0]"
    return click.option(
        "--ruleset",
        "rulesets",
        multiple=True,
        default=() if named_by else ("1.0.0", "1.1.0", "2.0.0", "4.0.0"),
        help=f"{meaning} {default}." if named_by else f"{meaning}.",
    )


class _Json(click.Option):
    """``--json``. ``records`` are the names of the classes that it prints: of the verb, under "", and of the
    verb with one of its options."""

    def __init__(self, *arguments: Any, records: dict[str, str], **settings: Any):
        super().__init__(*arguments, **settings)
        self.records = records


def as_json(record: str, **with_option: str) -> Any:
    """Return the option ``--json`` of a verb that prints ``record``, the full name of a class of
    ``rn50.printed``, or with an option another one."""
    records = {"": record, **with_option}
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.", cls=_Json, records=records)


def complete_configurations(
    context: click.Context, argument: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a configuration; a path where no name fits."""
    names = [CompletionItem(system) for system in systems() if system.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]


class _Configuration(click.Argument):
    def get_help_record(self, context: click.Context) -> tuple[str, str]:
        default = "[default: CONFIG_FILE or DGXSYSTEM of the environment]"
        return "CONFIG", f"A system of configs/, or a file {default}."


config = click.argument(
    "name", metavar="[CONFIG]", required=False, cls=_Configuration, shell_complete=complete_configurations
)
"""Argument of every verb that takes a configuration."""


def config_with_values(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``config`` and the option ``--set``, which may be given several times, to a verb."""
    help_ = "A value in place of CONFIG's; may be given several times."
    return config(click.option("--set", "values", multiple=True, metavar="NAME=VALUE", help=help_)(command))


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(rn50.__version__, prog_name="rn50")
@click.option(
    "--debug",
    is_flag=True,
    envvar="RN50_DEBUG",
    hidden=True,  # errors of ours name RN50_DEBUG=1 where it helps, and help fits a screen
    help="Show tracebacks; RN50_DEBUG=1: of every process.",
)
def main(debug: bool) -> None:
    """Train ResNet-50, MLPerf-style. Begin: docs/index.md. A verb: rn50 VERB --help"""
