"""``rn50 config new``: a complete configuration file for a machine, each value with its reason.

All hyperparameters are from one source, a configuration file or a published recipe, and ``rn50 borrow``'s
code takes them over. A user can name the source. By default a machine with GPUs gets the published recipe
that ``rn50 plan`` advises, and a machine without a GPU the demo's configuration. The data set is that of the
configuration file, else ImageNet. All other values follow from the machine (``choices.py``). ``make`` puts
the file together; rn50/cli writes and prints the ``NewConfig``.
"""

import dataclasses
import os
import pathlib
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from rn50 import files, frameworks
from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.hyperparameters.borrow import borrow
from rn50.hyperparameters.borrow.borrow import Borrowed
from rn50.hyperparameters.borrow.origin import Origin
from rn50.machine.hardware import Machine
from rn50.machine.software import Software
from rn50.new_config import choices
from rn50.new_config.choices import Choice, Devices
from rn50.new_config.source import Source, cautions, is_far, of_base, of_origin, of_plan
from rn50.printed import prints
from rn50.settings import document, show, writing
from rn50.settings.config import Config
from rn50.settings.document import Document
from rn50.settings.fields import VARIABLES, Data, variables
from rn50.settings.writing import Line
from rn50.terminal import counted

DEMO = "DEMO_CPU"
"""Configuration for a machine without a GPU."""
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*", re.ASCII)
"""Name that a system may have, such as MINE or DGX-H100_8. It becomes a part of a file's name."""


@dataclass(frozen=True)
class NewConfig:
    """A complete configuration for a machine."""

    name: str
    """Name of the configuration."""
    machine: str
    """Description of the machine, in one line."""
    devices: Devices
    framework: Choice
    source: Source
    config: Config
    borrowed: Borrowed
    cautions: tuple[str, ...]
    """Cautions about the choice."""
    text: str
    """Content of the file."""
    file: pathlib.Path
    """Path that the configuration is written to."""

    @property
    def batch_size(self) -> int:
        """Images per rank and step."""
        return self.config.hyperparameters.batch_size

    @property
    def findings(self) -> list[str]:
        """Departures from the closed division's rules."""
        return show.findings(self.config)

    @property
    def values(self) -> dict[str, str]:
        """Variable -> text, for every variable."""
        return self.config.as_environment()

    @property
    def commands(self) -> list[str]:
        """Commands to go on with."""
        configuration = argument(self.name, self.file, short(self.file))
        data = "DATADIR=/path/to/imagenet " if self.config.is_imagenet else ""
        return [f"{data}rn50 doctor {configuration}", f"{data}rn50 run {configuration}"]

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Rows (name, text) that a terminal shows: the machine, the choices and their reasons, the file, and
        the next commands."""
        recipe, devices, total = self.borrowed.origin, self.devices, self.config.global_batch_size
        recipe_text = f"{recipe.name}, whole"  # all hyperparameters are of this one source
        if recipe.global_batch_size != total:
            recipe_text += f", chosen there for {recipe.global_batch_size}"
        ranks = counted(devices.ranks, devices.unit)
        return [
            ("machine", self.machine),
            ("framework", f"{frameworks.traits(self.framework.value).name}: {self.framework.reason}"),
            ("batch size", f"{self.batch_size} on {ranks}, {total} in all: {self.source.batch.reason}"),
            ("recipe", recipe_text),
            *expected(self.borrowed, self.source, devices),
            *(("caution", caution) for caution in self.cautions),
            *(("rules", finding) for finding in self.findings),
            ("written", short(self.file)),
            *(("next", command) for command in self.commands),
        ]


# Keys of --json, in this order.
prints(
    NewConfig,
    lambda r: (r.name, r.machine, r.framework, r.cautions, r.findings, r.values),
    lambda r: (r.devices.device, r.devices.ranks, r.batch_size, r.config.global_batch_size),
    lambda r: {"batch_reason": r.source.batch.reason, "source": r.borrowed.origin.name},
    lambda r: (r.borrowed.assumed, {"accelerator": r.source.accelerator}, r.source.minutes),
    lambda r: (r.source.this_code,),
    lambda r: {"written": r.file, "next": r.commands},
)


def file_for(name: str, output: pathlib.Path | None) -> pathlib.Path:
    """Return the path that a configuration called ``name`` is written to: ``output``, by default
    configs/config_NAME.sh. Raises UserError if no system can have this name."""
    # ``path_part`` changes names that are not safe in a file's name, such as "A." or a long one: refuse them.
    if not _NAME.fullmatch(name) or files.path_part(name) != name:
        remedy = "give a word of letters, digits, '.', '+', '-' and '_', like MINE"
        raise UserError(f"NAME {name}", "no name of a system", remedy)
    return output or document.file_of(name)


def make(
    name: str,
    machine: Machine,
    software: Software,
    base: Document | None = None,
    framework: str | None = None,
    output: pathlib.Path | None = None,
    recipe: Origin | None = None,
) -> NewConfig:
    """Return a configuration called ``name`` for a machine with this software.

    Hyperparameters and data are those of the file ``base``; or ``recipe`` has the hyperparameters, and the
    data set is ImageNet. At most one of the two is given; without both the machine decides. ``framework`` is
    the framework that the user asked for, if any. ``output`` is the path to write to, which the commands in
    the file name; by default it is in configs/.

    Raises UserError if the machine cannot train, or the configuration cannot be run.
    """
    file = file_for(name, output)
    devices = choices.devices(machine)
    chosen = choices.framework(devices, software, framework)
    if base is None and recipe is None and devices.device == "cpu":
        base = Document(document.file_of(DEMO))
    precision = choices.precision(devices, chosen.value).value
    if base:
        source = of_base(base, devices, precision)
    elif recipe:
        source = of_origin(recipe, devices, precision)
    else:
        source = of_plan(devices, precision)
    config_argument = argument(name, file)
    # The text of the file after the hyperparameters, which are borrowed below.
    behind = writing.section_text("run", _run(name, machine, devices, software, chosen, source.data))
    behind += writing.section_text("data", _data(source))
    behind += writing.section_text("input pipeline (speed only)", _inputs(config_argument, machine, devices))
    behind += writing.heading("environment (passed through)")
    behind += "# Nothing: libraries choose for themselves.\n"
    draft = pathlib.Path(document.file_of(name).name)  # errors about the text name this path
    borrowed = _borrowed(source, draft, devices, behind)
    if (division := borrowed.config.run.division) == "open":
        reason = "the hyperparameters break a rule of the closed one"
        behind = writing.section_text("division", [("SUBMISSION_DIVISION", division, reason)]) + behind
    about = choices.described(machine, devices)
    setting = f"DGXSYSTEM={name}" if config_argument == name else f"CONFIG_FILE={config_argument}"
    text = _text(setting, about, devices, source, borrowed, behind)
    # ``split`` also reads the configuration, and raises UserError if it cannot be run or if `rn50 tune input`
    # would not find the section that it rewrites.
    return NewConfig(
        name=name,
        machine=about,
        devices=devices,
        framework=chosen,
        source=source,
        config=writing.split(Document(draft, text), "input_pipeline").config,
        borrowed=borrowed,
        cautions=tuple(cautions(machine, devices, source, frameworks.traits(chosen.value))),
        text=text,
        file=file,
    )


def _run(
    name: str, machine: Machine, devices: Devices, software: Software, framework: Choice, data: Data
) -> Iterator[Line]:
    """Yield the lines of the section "run"."""
    yield "DGXSYSTEM", name, "name of this file"
    yield "FRAMEWORK", *framework
    yield "DGXNGPU", str(devices.ranks), "ranks: one per GPU" if devices.device == "gpu" else "ranks"
    yield "DGXNNODES", "1", "this machine"
    yield "DEVICE", devices.device, ", ".join(devices.models) or f"no GPU: {machine.no_gpu}"
    yield "PRECISION", *choices.precision(devices, framework.value)
    if step_mode := choices.step_mode(devices, framework.value, software):
        yield "STEP_MODE", *step_mode
    # True for ImageNet in any folder. With other data the log must say that the run is no MLPerf result.
    if dataclasses.asdict(data) == dataclasses.asdict(Data(folder=data.folder)):
        yield "SUBMISSION_PLATFORM", f"1x{name}", "as the log names it"
        return
    yield "SUBMISSION_ORG", rules.NOT_A_RESULT, "not ImageNet"
    yield "SUBMISSION_STATUS", "research", "not ImageNet"
    yield "SUBMISSION_PLATFORM", f"{name} ({rules.NOT_A_RESULT})", "as the log names it"


def _data(source: Source) -> Iterator[Line]:
    """Yield the lines of the section "data": the folder, and every value that differs from ImageNet's."""
    data = source.data
    reason = f"as {source.base.name}" if source.base else "packed by rn50 pack"
    yield "DATADIR", data.folder, reason
    for section, field, variable in variables():
        value = getattr(data, field, None) if section == "data" else None
        if value is not None and field != "folder" and value != variable.default:
            yield variable.name, variable.write(value), reason


def _inputs(config_argument: str, machine: Machine, devices: Devices) -> Iterator[Line]:
    """Yield the lines of the section "input pipeline". ``config_argument`` names the new configuration in a
    command."""
    threads, tune = choices.threads(machine, devices), f"rn50 tune input {config_argument}"
    yield "DALI_THREADS", threads.value, f"{threads.reason}; `{tune}` improves it"
    yield "DALI_PREFETCH_QUEUE", "2", f"the default; `{tune}` improves it"
    yield "DALI_ROI_DECODE", "1", "decode only the random crop"
    if devices.jpeg_engine:
        reason = "share of the JPEG engine; faster than 1.0 on an H200, else not measured"
        yield "DALI_HW_DECODER_LOAD", choices.ENGINE_LOAD, reason


def _borrowed(source: Source, draft: pathlib.Path, devices: Devices, behind: str) -> Borrowed:
    """Return the new configuration with the hyperparameters of ``source``.

    ``borrow`` replaces the hyperparameters of an existing configuration, so it gets a draft of one: example
    hyperparameters, and ``behind``, the text of the other sections. The draft is never written; ``draft`` is
    the path that errors name.
    """
    # The hyperparameters without a default, which every configuration must set.
    needed = [VARIABLES[key] for key in writing.GROUP if VARIABLES[key].default is dataclasses.MISSING]
    examples = {variable.name: variable.example for variable in needed} | {"BATCHSIZE": source.batch.value}
    lines = ((variable, value, "") for variable, value in examples.items())
    text = writing.section_text("hyperparameters", lines) + behind
    return borrow.borrow(source.origin, Document(draft, text), int(source.batch.value) * devices.ranks)


def _text(setting: str, about: str, devices: Devices, source: Source, borrowed: Borrowed, behind: str) -> str:
    """Return the content of the file: header, hyperparameters with their reasons, and ``behind``, the other
    sections. ``setting`` is the NAME=VALUE by which a command names the file; ``about`` describes the
    machine."""
    total, recipe_total = borrowed.config.global_batch_size, borrowed.origin.global_batch_size
    data, more_settings = "ImageNet", ' DATADIR=/path/to/imagenet SUBMISSION_ORG="yours"'
    if source.base and not borrowed.config.is_imagenet:
        data, more_settings = f"the data of {source.base.name}", ""
    rows = [("command", f"{setting}{more_settings} ./run_and_time.sh"), ("machine", about)]
    rows += [*expected(borrowed, source, devices), *borrowed.header]
    h = borrowed.config.hyperparameters
    # The first three epochs after which a run is evaluated.
    evaluated = ", ".join(str(h.eval_offset + 1 + number * h.eval_period) for number in range(3))
    notes = {"LR": f": for {recipe_total} in all", "EVAL_OFFSET": f": epochs {evaluated}, ..."}
    lines = []
    for change in borrowed.changes:
        reason = change.origin + notes.get(change.name, "")
        if change.name == "BATCHSIZE":
            reason = f"per {devices.unit}, {total} in all: {source.batch.reason}"
        # A hyperparameter of another origin has its default, and needs no line.
        if change.origin in ("borrowed", "assumed"):
            lines.append((change.name, change.after or "", reason))
    title = f"on {data}, global batch size {total}; {files.MARK}, `rn50 config new`."
    return writing.beginning(title, rows, lines) + behind


def expected(borrowed: Borrowed, source: Source, devices: Devices) -> list[tuple[str, str]]:
    """Return rows (name, text) of a header: the epochs and minutes to expect, and that they were not
    measured."""
    total, recipe_total = borrowed.config.global_batch_size, borrowed.origin.global_batch_size
    if not borrowed.config.is_imagenet:
        text = "not known"
        if source.base and recipe_total == total:
            text = f"as {source.base.name} says; not measured on this machine"
        return [("expected", text)]
    epochs = str(borrowed.prediction or "epochs are not known")
    if is_far(borrowed.origin, total):
        epochs = f"epochs are not known: the recipe was chosen for a global batch size of {recipe_total}"
    plan = f"rn50 plan --accelerators {borrowed.config.ranks} --gbs {total} --images-per-second N"
    without = "" if devices.is_model_known else " without the model"
    minutes = f"minutes are not known{without}; {plan} tells, once measured"
    if source.plan and source.accelerator:
        prediction = source.plan.prediction
        span = f"{prediction.minutes_low:.3g} to {prediction.minutes_high:.3g}"
        minutes = f"{prediction.minutes:.3g} minutes ({span})"
        minutes += f" at the rate of others' code on {source.accelerator}"
    ours = source.this_code.sentence if source.this_code else "not measured with this code"
    return [("expected", epochs), ("", minutes), ("", ours)]


def short(file: pathlib.Path) -> str:
    """Return the path of a file, relative to the working directory if the file lies in it or below."""
    path = os.path.relpath(file)
    return str(file) if path.startswith("..") else path


def argument(name: str, output: pathlib.Path, path: str = "") -> str:
    """Return the argument by which a command names the configuration in the file ``output``: ``name`` if the
    file lies in configs/, else ``path``, quoted, by default the absolute path."""
    path = path or str(output.resolve())
    return name if output.resolve() == document.file_of(name) else shlex.quote(path)
