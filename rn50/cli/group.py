"""The root command ``main``, how it handles errors and signals, and the arguments and options that several
verbs share.

The other files of this folder make their verbs with ``main.under(HEADING)``, ``option`` and ``flag``.
"""

import atexit
import contextlib
import errno
import functools
import os
import pathlib
import re
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
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

_signals: list[int] = []
"""Numbers of the signals that ``_interrupt`` has handled. ``_Group.invoke`` reads them, because a library
that was loading may have replaced the KeyboardInterrupt by an error of its own."""


def _interrupt(number: int, _: object) -> None:
    """Handle a signal: raise KeyboardInterrupt with its number. A second SIGTERM or SIGHUP kills the
    process."""
    _signals.append(number)
    if number != signal.SIGINT:
        signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt(number)


_OTHER_NAMES = {"epochs": "NUMEPOCHS", "gpus": "DGXNGPU"}
"""Name under which other programs have a value, in small letters -> its variable."""
_OF_OTHER_PROGRAMS = {"help": "Write rn50 --help", "version": "Write rn50 --version"}
"""Word that is a verb of other programs -> what to write in its place."""


class _Verb(click.Command):
    """A verb. If it has the option ``--set``, its error for ``--lr 1``, ``-lr 1`` or ``LR=1`` says how to set
    that variable."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        typed = [*args]  # click empties ``args`` as it parses
        try:
            return super().parse_args(context, args)
        except click.UsageError as error:
            options = {name for parameter in self.params for name in parameter.opts}
            if advice := _as_option(typed, options):
                raise click.UsageError(f"{error.message}; {advice}", context) from None
            raise


class CleanedUpVerb(_Verb):
    """A verb that cleans up unfinished work when it ends: SIGTERM and SIGHUP raise an exception in it.

    Other verbs end at once on these signals. In them native code may hang, which would delay an exception for
    ever. A second signal ends even a verb of this class at once.
    """

    def invoke(self, context: click.Context) -> Any:
        numbers = process.not_ignored(signal.SIGTERM, signal.SIGHUP)
        with process.handling(dict.fromkeys(numbers, _interrupt)):
            return super().invoke(context)


def _as_option(typed: Sequence[str], options: Collection[str]) -> str:
    """Return ``write --set LR=1`` if the arguments ``typed`` have ``--lr 1``, ``-lr 1``, ``--lr=1``,
    ``LR=1`` or ``--set LR 1``, of a verb with these ``options``. Return how else to give the value if --set
    refuses the variable, or if the verb has an option of its own for it. Return "" if ``typed`` has no
    value."""
    # Name of a variable or of its field in ``Config``, in small letters and without _ -> the variable.
    names = {**_OTHER_NAMES}
    for _, field, variable in variables():
        for text in (field, variable.name):
            names[text.replace("_", "").lower()] = variable.name
    # Each argument is seen with the one before, because ``--set LR=1`` needs no advice, and with the one
    # after, which is the value of ``--lr 1``.
    for before, argument, after in zip(["", *typed], typed, [*typed[1:], ""], strict=False):
        option, equals, value = argument.lstrip("-").partition("=")
        name = names.get(re.sub("[-_]", "", option).lower())
        is_setting = bool(equals) or argument.startswith("-")
        # After --set a whole setting is right, and a name alone (``--set LR 1``) is not.
        if not name or is_setting == (before in ("--set", "--against")):
            continue
        setting = f"{name}={value if equals else after}"
        if name == "DGXNGPU" and "--accelerators" in options:
            return f"write --accelerators {setting.partition('=')[2]}"
        if name == "SEED" and "--runs" in options:
            return f"every run draws its own; {setting} DGXSYSTEM=NAME ./run_and_time.sh makes one with it"
        if "--set" in options and argument not in options:
            return f"put {setting} in front of rn50" if name in RUNS_OWN_NAMES else f"write --set {setting}"
    return ""


class Verbs(click.Group):
    """Group of verbs. Its error for an unknown verb suggests the verb of the nearest name, or lists all verbs
    if they are few."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sections: dict[str, list[click.Command]] = {}
        """Heading of the help -> its verbs."""

    def verb(
        self, name: str, summary: str, example: str | None = None, heading: str = "", cls: type = _Verb
    ) -> Callable[[Callable[..., Any]], Any]:
        """Return a decorator that makes a function a verb of this group. The help lists it under ``heading``
        with ``summary``; the help of the verb itself ends with ``example``."""

        def add(function: Callable[..., Any]) -> click.Command:
            epilog = example and f"Example: {example}"
            command = self.command(name, cls=cls, short_help=summary, epilog=epilog)(function)
            self.sections.setdefault(heading, []).append(command)
            return command

        return add

    def under(self, heading: str, cls: type[click.Command] = _Verb) -> Callable[..., Any]:
        """Return the method ``verb`` with the arguments ``heading`` and ``cls`` filled in."""
        return functools.partial(self.verb, heading=heading, cls=cls)

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            names = [name for name, verb in self.commands.items() if not verb.hidden]
            all_verbs = f"there are: {', '.join(names)}" if len(names) < 9 else ""
            hint = _OF_OTHER_PROGRAMS.get(args[0]) or did_you_mean(args[0], names) or all_verbs
            error.message += hint and f" {hint[:1].upper()}{hint[1:]}"
            raise


class _Group(Verbs):
    """Root group. An error that the user can fix is printed as one line and ends with status 2, a fault of
    the code with status 1. If the output is a pipe whose reader has ended, nothing is printed."""

    def format_help(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        # Without the options, which are -h and --version, and without a blank line, so that it fits a screen.
        formatter.write_usage(context.command_path, "VERB [OPTIONS] [ARGS]")
        formatter.write_text(self.help or "")
        self.format_commands(context, formatter)

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
        except OSError as error:  # raised outside of ``invoke``, as by a write of the help to a full disk
            with contextlib.suppress(OSError):  # standard error may fail too
                report(error)
            sys.exit(Status.USER_ERROR)
        except SystemExit as ended:
            if not ranks.is_rank() or not isinstance(ended.code, int):
                raise
            # End a rank without Python's teardown, in which a Gloo thread may abort the process
            # (pytorch#179291).
            atexit._run_exitfuncs()
            end_at_once(ended.code)
        finally:
            terminal.flush_or_drop()

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        with _shown_safely():
            return super().make_context(*args, **options)

    def invoke(self, context: click.Context) -> Any:
        _signals.clear()  # an earlier call in this process, as in tests, may have filled it
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
            if _signals or isinstance(error, KeyboardInterrupt):
                number = _signals[0] if _signals else signal.SIGINT
                if number == signal.SIGINT:
                    say("rn50: stopped by SIGINT; the same command starts again", err=True)
                context.exit(128 + number)
            if isinstance(error, BrokenPipeError) and terminal.reader_has_gone():
                context.exit(128 + signal.SIGPIPE)
            if context.params["debug"]:
                raise
            context.exit(report(error))


def _warn_of_other_checkout() -> None:
    """Warn if the working folder is in another checkout than this code. This happens in a copy of a checkout,
    whose .venv leads to the original.

    Do not warn if PYTHONPATH has the folder of this code: either the user has set it on purpose, or a process
    of rn50 has set it for this one, and has warned already.
    """
    checkout = files.other_checkout()
    if checkout and str(files.PACKAGES) not in process.environment().get("PYTHONPATH", "").split(os.pathsep):
        problem = f"not the checkout whose code, configurations and results are used, which is {files.ROOT}"
        remedy = "make setup there, or requirements/install.sh with the set that you use, makes its own"
        say(f"warning: {checkout}: {problem}; {remedy}", err=True)


@contextlib.contextmanager
def _shown_safely() -> Iterator[None]:
    """In this context, make the messages of click's errors safe, because they repeat arguments: escape
    unprintable characters, and alter text that the runner of a CI job would take for a command. At the end
    of the context write out the output."""
    try:
        yield
    except click.ClickException as error:
        error.message = terminal.inert(terminal.safe(error.message))
        raise
    finally:
        terminal.flush()


def report(error: BaseException) -> int:
    """Print ``error`` on standard error, in a line for each problem that it has. Return the exit status. If
    memory is used up, or ``ulimit -v`` may be the reason of a fault, end the process here."""
    limit = process.memory_limit_kib()
    # Without ``ulimit -v``, a UserError whose message speaks of memory is about something else.
    can_be_memory = limit or not isinstance(error, UserError)
    if isinstance(error, MemoryError) or (can_be_memory and process.OUT_OF_MEMORY.search(str(error))):
        say("rn50: out of memory; end other programs, or raise the limit of this shell (ulimit -v)", err=True)
        end_at_once(Status.USER_ERROR)
    if isinstance(error, (UserError, RankLostError)):
        for line in error.lines:
            say(f"rn50: {line}", err=True)
        return error.status
    if fixable := _fixable(error):
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
    """Return problem and remedy of an error of Python's own that the user can fix; "" for other errors."""
    if isinstance(error, OSError) and isinstance(error.filename, (str, pathlib.Path)):
        return f"{error.filename}: {error.strerror}; name another file or folder, or fix this one"
    if isinstance(error, FileNotFoundError) and not files.has_working_folder():
        return "the working folder: it was removed; change to another one"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "name another place for the output or for temporary files (TMPDIR)"
        return f"{error.strerror}; free some, or {remedy}"
    missing = packages.distribution(error) if isinstance(error, ModuleNotFoundError) else ""
    # A missing module of our own is a fault of the code, not a package to install.
    if missing and missing not in ("rn50", "implementations"):
        return f"the package {missing} is not installed; {packages.install(missing)}"
    return ""


def end_at_once(status: int) -> NoReturn:
    """Write out the output and end this process without Python's teardown, in which native libraries may wait
    for ever or abort."""
    terminal.flush_or_drop()
    os._exit(status)


class _Path(click.Path):
    """A path. An empty text is refused, because it would mean the working folder: "$VARIABLE" is empty if the
    variable is not set."""

    def convert(self, value: Any, *where: Any) -> Any:
        if not os.fspath(value):
            raise UserError("''", "an empty name", "name a file or a folder, . for the working folder")
        return super().convert(value, *where)


PATH = _Path(path_type=pathlib.Path)
paths = click.argument("paths", nargs=-1, required=True, type=PATH)
"""Argument of a verb that takes one path or more."""


def option(name: str, help_: str, *parameter: str, **settings: Any) -> Any:
    """Return an option with the help text ``help_``. ``parameter`` may have its short name, and the name of
    the function's argument that gets the value, by default that of the option."""
    return click.option(name, *parameter, help=help_, **settings)


flag = functools.partial(option, is_flag=True)
"""Return an option without a value, with the arguments of ``option``."""


def output(help_: str, *parameter: str, **settings: Any) -> Any:
    """Return the option ``--output`` of a verb that writes a file or a folder. ``parameter`` may have the
    name of the function's argument that gets the value, by default ``output``."""
    return option("--output", help_, "-o", *parameter, type=PATH, **settings)


def rulesets(named_by: str = "") -> Any:
    """Return the option ``--ruleset``.

    With ``named_by`` its default is empty: the verb then takes the ruleset from the name of a folder, as
    2.1.0 from training_results_v2.1. ``named_by`` says in the help which folder: with "of --output names" the
    default is "that of the round a folder of --output names".
    """
    help_ = f"Version of the official rules, of {', '.join(rules.RULESETS)}; may be given several times"
    if named_by:
        help_ += f" [default: that of the round a folder {named_by}, else 1.0.0, 1.1.0, 2.0.0 and 4.0.0]"
    versions = () if named_by else ("1.0.0", "1.1.0", "2.0.0", "4.0.0")
    return option("--ruleset", f"{help_}.", "rulesets", multiple=True, default=versions)


class _Json(click.Option):
    """The option ``--json``. ``records`` maps an option to the full name of the class whose records the verb
    prints with it; "" stands for no option."""

    def __init__(self, *arguments: Any, records: dict[str, str], **settings: Any):
        super().__init__(*arguments, **settings)
        self.records = records


def as_json(record: str, **with_option: str) -> Any:
    """Return the option ``--json`` of a verb that prints a record (``rn50.printed``). ``record`` is the full
    name of the record's class. ``with_option`` maps an option to the class that the verb prints with it."""
    return flag("--json", "Print JSON.", "as_json", cls=_Json, records={"": record, **with_option})


def complete_configurations(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return completions of the name of a configuration, or of a path if no name begins so."""
    names = [CompletionItem(system) for system in systems() if system.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]


class _Configuration(click.Argument):
    """The argument CONFIG, which the help shows with its default."""

    def get_help_record(self, context: click.Context) -> tuple[str, str]:
        default = "[default: CONFIG_FILE or DGXSYSTEM of the environment]"
        return "CONFIG", f"A system of configs/, or a file {default}."


config = click.argument(
    "name", metavar="[CONFIG]", required=False, cls=_Configuration, shell_complete=complete_configurations
)
"""Argument of verbs that take a configuration."""


def config_with_values(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument ``config`` and the option ``--set`` to a verb."""
    help_ = "A value in place of CONFIG's; may be given several times."
    return config(option("--set", help_, "values", multiple=True, metavar="NAME=VALUE")(command))


against = option(
    "--against",
    "A configuration, or a value NAME=VALUE in place of CONFIG's, to alternate with; may be given several "
    "times, and --set counts for both.",
    multiple=True,
    metavar="CONFIG|NAME=VALUE",
)
"""Option of verbs that measure two configurations in turn."""


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(rn50.__version__, prog_name="rn50")
# Hidden, so that the help fits a screen; messages name RN50_DEBUG=1 where it helps.
@flag("--debug", "Show tracebacks; RN50_DEBUG=1: of every process.", envvar="RN50_DEBUG", hidden=True)
def main(debug: bool) -> None:
    """Train ResNet-50, MLPerf-style. Begin: docs/index.md. A verb: rn50 VERB -h"""
