"""``rn50 config show``: the value of every variable of a configuration, and its state: rn50 uses it, passes
it through to a library, or ignores it, or it has no effect with the other values.

``describe`` makes a ``Row`` of every value, ``findings`` checks the rules of MLPerf, ``show_table`` prints
both. ``rn50 tune`` asks ``why_no_effect`` before it tries a value.
"""

import dataclasses
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Sequence

from rich.table import Table

from rn50 import frameworks
from rn50.benchmark import rules
from rn50.settings import libraries, named
from rn50.settings.config import Config, from_environment
from rn50.settings.document import find
from rn50.settings.fields import SECTIONS, VARIABLES, spelling, variables
from rn50.settings.libraries import is_passed_through
from rn50.settings.variables import FIXED, UNUSED
from rn50.terminal import UNFOLDED, Terminal, print_json

NO_EFFECT = "no effect"
PASSED_THROUGH = "passed through"
IGNORED = "ignored"


@dataclasses.dataclass(frozen=True)
class Row:
    """One value of a configuration."""

    name: str
    """Name of the variable."""
    value: str
    """Its value, as a file would set it; empty: it is not set."""
    section: str
    """hyperparameters, run, data, input_pipeline or environment."""
    state: str
    """used, passed through, no effect or ignored."""
    meaning: str
    """Its effect; empty: not known."""
    reason: str
    """Why it has no effect or is ignored, or which library it is passed to; empty for a value that is
    used."""
    origin: str
    """Who set it: file, --set, environment or default."""

    @property
    def text(self) -> str:
        """Meaning, state and origin of the variable, in words."""
        # Such as "passed through to NCCL" and "no effect: one rank has nothing to sum".
        separator = " " if self.state == PASSED_THROUGH else ": "
        state = "" if self.state == "used" else self.state + separator + self.reason
        description = "; ".join(filter(None, (self.meaning, state)))
        return description if self.origin == "file" else f"{description} [{self.origin}]"


@dataclasses.dataclass(frozen=True)
class NoEffect:
    """A rule: in a configuration to which it applies, some variables have no effect."""

    names: tuple[str, ...]
    """The variables."""
    applies: Callable[[Config], bool]
    reason: str


# Variables that several rules of WITHOUT_EFFECT name.
PREALLOCATED = ("DALI_PREALLOCATE_WIDTH", "DALI_PREALLOCATE_HEIGHT")
GPU_DECODER = ("DALI_HW_DECODER_LOAD", "DALI_NVJPEG_MEMPADDING", "DALI_CACHE_SIZE", *PREALLOCATED)
GROUPS = ("MXNET_HOROVOD_NUM_GROUPS",)
GPU_BUFFERS = tuple(name for name in VARIABLES if name.endswith("_BUFFER_HINT"))

WITHOUT_EFFECT = (
    NoEffect(
        ("DALI_ROI_DECODE", "DALI_DONT_USE_MMAP", *GPU_DECODER, *GPU_BUFFERS),
        lambda c: c.input_pipeline.library not in ("auto", "dali"),
        "INPUT_LIBRARY has images read and decoded without DALI",
    ),
    NoEffect(GPU_DECODER, lambda c: c.run.device == "cpu", "DEVICE=cpu decodes without nvJPEG"),
    NoEffect(GPU_BUFFERS, lambda c: c.run.device == "cpu", "DEVICE=cpu has no GPU buffers to size"),
    NoEffect(
        PREALLOCATED,
        lambda c: c.input_pipeline.hw_decoder_load == 0,
        "DALI_HW_DECODER_LOAD=0: no image goes through the JPEG engine",
    ),
    NoEffect(
        ("DALI_CACHE_SIZE",),
        lambda c: c.input_pipeline.roi_decode,
        "DALI_ROI_DECODE=1 decodes another part of an image each time; only whole decoded images can "
        "be cached",
    ),
    NoEffect(GROUPS, lambda c: c.ranks == 1 and c.run.gradient_groups > 1, "one rank has nothing to sum"),
    NoEffect(
        GROUPS,
        lambda c: c.run.gradient_groups > 1 and not frameworks.traits(c.run.framework).gradient_buckets,
        "this FRAMEWORK sums all gradients at once",
    ),
    NoEffect(
        ("STEP_MODE",),
        lambda c: c.run.device == "cpu" and c.run.step_mode in ("graph", "fused"),
        "DEVICE=cpu has neither graphs nor kernels of ours",
    ),
    NoEffect(
        ("LARSETA",), lambda c: c.hyperparameters.optimizer == "sgd", "OPTIMIZER=sgd has no trust ratio"
    ),
    NoEffect(("HOSTS",), lambda c: c.run.nodes == 1, "DGXNNODES=1 runs on this machine"),
)
"""The rules. ``why_no_effect`` returns the reason of the first one that applies."""


def describe(config: Config, replaced: Collection[str] = ()) -> list[Row]:
    """Return a row for every variable of ``fields.py``, and for every other name that the file or --set sets
    or that is passed through. ``replaced`` are the names that --set sets.

    A variable left at its default has a row too, so that no value in effect is hidden.
    """
    environ = config.environment
    in_file = config.document.names if config.document else []
    origins = {name: "file" if name in in_file else "environment" for name in environ}
    origins |= dict.fromkeys(replaced, "--set")
    resolved = config.as_environment()
    rows = []
    for section, _, variable in variables():
        name, text = variable.given(environ)  # the name or alias that is set, and its text; None: not set
        value = text or resolved.get(variable.name, "")
        reason = why_no_effect(variable.name, config)
        state = NO_EFFECT if reason else "used"
        origin = origins[name] if text else "default"
        rows.append(Row(name, value, section, state, variable.meaning, reason or "", origin))
    names = {row.name for row in rows}
    for name in dict.fromkeys([*in_file, *replaced, *sorted(filter(is_passed_through, environ))]):
        if name in environ and name not in names:
            rows.append(Row(name, environ[name], *_other(name, config.run.framework), origins[name]))
    # Sections in the order of SECTIONS; the sort keeps the order within a section.
    return sorted(rows, key=lambda row: [*SECTIONS, "environment"].index(row.section))


def why_no_effect(name: str, config: Config) -> str | None:
    """Return why the value of a variable has no effect in ``config``; None: it has an effect."""
    resolved = config.as_environment()
    # An empty value or 0 turns a feature off, which is an effect in any configuration. But a variable that
    # nothing reads (``is_read``), such as LARSETA without LARS, is empty too.
    if resolved.get(name, "") in ("", "0", "0.0") and VARIABLES[name].is_read(resolved):
        return None
    reasons = (entry.reason for entry in WITHOUT_EFFECT if name in entry.names and entry.applies(config))
    return next(reasons, None)


def _other(name: str, chosen: str) -> tuple[str, str, str, str]:
    """Return (section, state, meaning, reason), as in ``Row``, of a name that fills no field. ``chosen`` is
    the value of FRAMEWORK."""
    if name in FIXED:
        meaning = f"{FIXED[name].meaning}; any accepted value means the one that rn50 has"
        return "hyperparameters", "used", meaning, ""
    # NSOCKET, PGNSOCKET and NFNSOCKET are read as DGXNSOCKET; SOCKETCORES and HT likewise.
    if unused := UNUSED.get(re.sub("^(PG|NF)?(?=(NSOCKET|SOCKETCORES|HT)$)", "DGX", name)):
        return "run", NO_EFFECT, *unused  # meaning, reason
    meaning = libraries.MEANINGS.get(name, "")
    # A variable that published files set for a framework, or that has its prefix, such as MXNET_, although
    # no release of the framework reads it.
    for framework in frameworks.every().values():
        names = framework.variables
        if names and (name in names.elsewhere or (name.startswith(names.prefix) and name not in names.read)):
            reason = f"no released {framework.name} reads it, at most a vendor's own build"
            return "environment", NO_EFFECT, meaning, reason
    running = frameworks.traits(chosen)
    libraries_of_all = {"Horovod", *(framework.name for framework in frameworks.every().values())}
    absent = libraries_of_all - {running.name, running.horovod and "Horovod"}
    for prefix, library in libraries.READERS.items():
        if name.startswith(prefix):
            if library in absent:
                return "environment", NO_EFFECT, meaning, f"FRAMEWORK={chosen} runs without {library}"
            return "environment", PASSED_THROUGH, meaning, f"to {library}"
    reason = "neither rn50 nor a library that it knows reads it"
    return "environment", IGNORED, meaning, "; ".join(filter(None, (reason, spelling(name))))


def findings(config: Config) -> list[str]:
    """Return one line for each reason why the official rules would reject a result of this configuration. In
    the open division these are the rules of the closed one that it breaks.

    Source: MLPerf Training rules, closed division: the table of ResNet's hyperparameters, and its evaluation
    every 4 epochs with an offset of 0 to 3.
    """
    if config.run.division != "closed":
        texts = config.as_environment()
        broken = [f"{name}={texts[name]}: {rule}" for name, rule in config.departures.items()]
        return [*config.labels, *broken]
    h, period = config.hyperparameters, rules.EVAL_PERIOD_EPOCHS
    problems = [*config.labels]  # such as "demo data set, not an MLPerf result"
    if config.is_imagenet and h.eval_period != period:
        problems.append(f"EVAL_PERIOD={h.eval_period}: the rules have an evaluation every {period} epochs")
    if config.is_imagenet and h.eval_offset >= period:
        problems.append(f"EVAL_OFFSET={h.eval_offset}: the rules have it below {period}")
    return problems


@dataclasses.dataclass(frozen=True)
class Shown:
    """A configuration and its values."""

    system: str
    """DGXSYSTEM."""
    global_batch_size: int
    """BATCHSIZE times all ranks."""
    findings: list[str]
    """Why the official rules would reject a result of it."""
    values: list[Row]


def show_table(rows: list[Row], config: Config, console: Terminal) -> None:
    """Print the value and the meaning of every variable, by section. Then print the names of the variables
    that are set but have no effect or are ignored, the findings, and advice.

    In a pipe each variable is one line, so that grep finds it whole. A terminal gets columns that fit its
    width, and no defaults that have no effect.
    """
    title = f"{config.run.system}: ranks {config.ranks}, global batch size {config.global_batch_size}"
    console.print(title, style="bold")
    console.print("[default], [environment]: not set by the file")
    width = max(len(row.name) for row in rows)
    for section, of_section in itertools.groupby(rows, key=lambda row: row.section):
        console.print(section.replace("_", " "), style="bold")
        if console.width < UNFOLDED:
            shown = [row for row in of_section if row.state != NO_EFFECT or row.origin != "default"]
            console.print(_columns(shown, console.width))
            continue
        for row in of_section:
            console.print(f"  {row.name:<{width}}  {row.value or '-':<10}  {row.text}")
    for state in (NO_EFFECT, IGNORED):
        if in_vain := [row.name for row in rows if row.state == state and row.origin != "default"]:
            console.print(f"{state}: {', '.join(in_vain)}", soft_wrap=False)
    for line in (*(f"rules: {finding}" for finding in findings(config)), *_advice(config)):
        console.print(line, soft_wrap=False)


def _advice(config: Config) -> Iterator[str]:
    """Yield sentences on better values of FRAMEWORK and STEP_MODE on a GPU if these are not set, and on
    values that do not fit one that replaces the file's (``named.unchosen``)."""
    traits = frameworks.traits(config.run.framework)
    on_gpu = config.run.device == "gpu"
    if on_gpu and not config.environment.get("FRAMEWORK") and (other := frameworks.instead(traits)):
        default = f"{traits.name}, whose packages have code for compute capability {traits.code} only"
        yield f"FRAMEWORK: not set, so {default}; for a newer GPU, like an H100: {other[0]}"
    may_fuse = config.run.quantization == "none" and not config.environment.get("STEP_MODE")
    if traits.fused and may_fuse and on_gpu:
        newer = "from compute capability {}.{} on".format(*traits.fused[0])
        yield f"STEP_MODE: not set, so eager; {newer} fused is fastest: --set STEP_MODE=fused"
    yield from (f"{name}: {text}" for name, text in named.unchosen(config))


def _columns(rows: Sequence[Row], width: int) -> Table:
    """Return a table of rows: the columns of names and values are as narrow as this section allows, and the
    meanings get the rest of the ``width``."""
    table = Table(box=None, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", max_width=width // 5)
    table.add_column(overflow="fold")
    for row in rows:
        style = "yellow" if row.state in (NO_EFFECT, IGNORED) else ""
        table.add_row(row.name, row.value or "-", row.text, style=style)
    return table


def show(name: str | None, values: Sequence[str], set_only: bool, as_json: bool) -> None:
    """Print the state of the values of a configuration.

    With ``name`` or ``values`` it is the configuration file ``name``, which a shell sources in an empty
    environment, changed by the ``values`` of --set, each NAME=VALUE. Without both it is the configuration
    that the environment describes. ``set_only`` leaves out the variables that have their default.

    Raises UserError if the file cannot be read or the configuration cannot be run.
    """
    if name or values:
        choice = named.Choice(find(name), values, {})
        changes = choice.changes
        config = from_environment(named.changed(choice.sourced, changes), choice.document)
    else:
        config, changes = named.read(None), {}
    # The variables that --set replaces: those of ``changes``, and SUBMISSION_PLATFORM, to which ``changed``
    # adds them, so that the log names them.
    rows = describe(config, named.changed({}, changes))
    rows = [row for row in rows if not set_only or row.origin != "default"]
    if as_json:
        print_json(Shown(config.run.system, config.global_batch_size, findings(config), rows))
    else:
        show_table(rows, config, Terminal())
