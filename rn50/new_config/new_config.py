"""A complete configuration file for this machine, each value with its reason.

Hyperparameters are one group from one source, taken as ``rn50 borrow`` does: with GPUs the published recipe
that ``rn50 plan`` names for the batch size with the fewest predicted minutes, without one those of the demo,
or those of a configuration that is named. Data are those of that configuration, else ImageNet. The run is
this machine's.
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


@dataclass(frozen=True)
class NewConfig:
    """A complete configuration for this machine."""

    name: str
    """Name of the configuration."""
    machine: str
    """Machine, in one line."""
    devices: Devices
    framework: Choice
    source: Source
    config: Config
    borrowed: Borrowed
    cautions: tuple[str, ...]
    """Cautions about the choice."""
    text: str
    """The whole file."""
    file: pathlib.Path
    """File that it is written to."""

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
        """Every variable."""
        return self.config.as_environment()

    @property
    def commands(self) -> list[str]:
        """Commands to go on with."""
        configuration = argument(self.name, self.file, short(self.file))
        data = "DATADIR=/path/to/imagenet " if self.config.is_imagenet else ""
        return [f"{data}rn50 doctor {configuration}", f"{data}rn50 run {configuration}"]

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Return what people are shown, each text with its name: the machine, what was chosen and why, the
        file, and the next commands."""
        recipe, devices, total = self.borrowed.origin, self.devices, self.config.global_batch_size
        whole = f"{recipe.name}, whole"
        if recipe.global_batch_size != total:
            whole += f", chosen there for {recipe.global_batch_size}"
        ranks = counted(devices.ranks, devices.unit)
        return [
            ("machine", self.machine),
            ("framework", f"{frameworks.traits(self.framework.value).name}: {self.framework.reason}"),
            ("batch size", f"{self.batch_size} on {ranks}, {total} in all: {self.source.batch.reason}"),
            ("recipe", whole),
            *expected(self.borrowed, self.source, devices),
            *(("caution", caution) for caution in self.cautions),
            *(("rules", finding) for finding in self.findings),
            ("written", short(self.file)),
            *(("next", command) for command in self.commands),
        ]


prints(
    NewConfig,
    lambda r: (r.name, r.machine, r.framework, r.cautions, r.findings, r.values),
    lambda r: (r.devices.device, r.devices.ranks, r.batch_size, r.config.global_batch_size),
    lambda r: {"batch_reason": r.source.batch.reason, "source": r.borrowed.origin.name},
    lambda r: (r.borrowed.assumed, {"accelerator": r.source.known}, r.source.minutes),
    lambda r: {"written": r.file, "next": r.commands},
)


def file_for(name: str, output: pathlib.Path | None) -> pathlib.Path:
    """Return the file that a configuration called ``name`` is written to: ``output``, by default one of
    configs/. Raises UserError if no system can have this name."""
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
    """Return a configuration called ``name`` for a machine, with hyperparameters and data of ``base``, or for
    ImageNet with those of ``recipe``, if one is given. Its commands name ``output``, the file to write, by
    default one of configs/.

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
    else:
        source = of_origin(recipe, devices, precision) if recipe else of_plan(devices, precision)
    by = argument(name, file)
    behind = writing.section_text("run", _run(name, machine, devices, software, chosen, source.data))
    behind += writing.section_text("data", _data(source))
    behind += writing.section_text("input pipeline (speed only)", _inputs(by, machine, devices))
    behind += writing.heading("environment (passed through)")
    behind += "# Nothing: libraries choose for themselves.\n"
    draft = pathlib.Path(document.file_of(name).name)  # errors name it so
    borrowed = _borrowed(source, draft, devices, behind)
    about = choices.described(machine, devices)
    named = f"DGXSYSTEM={name}" if by == name else f"CONFIG_FILE={by}"
    text = _text(named, about, devices, source, borrowed, behind)
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
    yield "DGXSYSTEM", name, "name of this file"
    yield "FRAMEWORK", *framework
    yield "DGXNGPU", str(devices.ranks), "ranks: one per GPU" if devices.device == "gpu" else "ranks"
    yield "DGXNNODES", "1", "this machine"
    yield "DEVICE", devices.device, ", ".join(devices.models) or f"no GPU: {machine.no_gpu}"
    yield "PRECISION", *choices.precision(devices, framework.value)
    if step_mode := choices.step_mode(devices, framework.value, software):
        yield "STEP_MODE", *step_mode
    if dataclasses.asdict(data) == dataclasses.asdict(Data(folder=data.folder)):
        yield "SUBMISSION_PLATFORM", f"1x{name}", "as the log names it"
        return
    yield "SUBMISSION_ORG", rules.NOT_A_RESULT, "not ImageNet"
    yield "SUBMISSION_STATUS", "research", "not ImageNet"
    yield "SUBMISSION_PLATFORM", f"{name} ({rules.NOT_A_RESULT})", "as the log names it"


def _data(source: Source) -> Iterator[Line]:
    """Yield the folder, and every value that is not ImageNet's."""
    data, whose = source.data, f"as {source.base.name}" if source.base else "packed by rn50 pack"
    yield "DATADIR", data.folder, whose
    for section, field, variable in variables():
        value = getattr(data, field, None) if section == "data" else None
        if value is not None and field != "folder" and value != variable.default:
            yield variable.name, variable.write(value), whose


def _inputs(by: str, machine: Machine, devices: Devices) -> Iterator[Line]:
    threads, tune = choices.threads(machine, devices), f"rn50 tune input {by}"
    yield "DALI_THREADS", threads.value, f"{threads.reason}; `{tune}` improves it"
    yield "DALI_PREFETCH_QUEUE", "2", f"the default; `{tune}` improves it"
    yield "DALI_ROI_DECODE", "1", "decode only the random crop"
    if devices.jpeg_engine:
        reason = "share of the JPEG engine; faster than 1.0 on an H200, else not measured"
        yield "DALI_HW_DECODER_LOAD", choices.ENGINE_LOAD, reason


def _borrowed(source: Source, draft: pathlib.Path, devices: Devices, behind: str) -> Borrowed:
    """Borrow into a draft with example hyperparameters, which is not written."""
    needed = [VARIABLES[key] for key in writing.GROUP if VARIABLES[key].default is dataclasses.MISSING]
    examples = {variable.name: variable.example for variable in needed} | {"BATCHSIZE": source.batch.value}
    lines = ((variable, value, "") for variable, value in examples.items())
    text = writing.section_text("hyperparameters", lines) + behind
    return borrow.borrow(source.origin, Document(draft, text), int(source.batch.value) * devices.ranks)


def _text(named: str, machine: str, devices: Devices, source: Source, borrowed: Borrowed, behind: str) -> str:
    total, its_total = borrowed.config.global_batch_size, borrowed.origin.global_batch_size
    data, beside = "ImageNet", ' DATADIR=/path/to/imagenet SUBMISSION_ORG="yours"'
    if source.base and not borrowed.config.is_imagenet:
        data, beside = f"the data of {source.base.name}", ""
    rows = [("command", f"{named}{beside} ./run_and_time.sh"), ("machine", machine)]
    rows += [*expected(borrowed, source, devices), *borrowed.header]
    h = borrowed.config.hyperparameters
    evaluated = ", ".join(str(h.eval_offset + 1 + number * h.eval_period) for number in range(3))
    notes = {"LR": f": for {its_total} in all", "EVAL_OFFSET": f": epochs {evaluated}, ..."}
    lines = []
    for change in borrowed.changes:
        reason = change.origin + notes.get(change.name, "")
        if change.name == "BATCHSIZE":
            reason = f"per {devices.unit}, {total} in all: {source.batch.reason}"
        if change.origin in ("borrowed", "assumed"):
            lines.append((change.name, change.after or "", reason))
    title = f"on {data}, global batch size {total}; {files.MARK}, `rn50 config new`."
    return writing.beginning(title, rows, lines) + behind


def expected(borrowed: Borrowed, source: Source, devices: Devices) -> list[tuple[str, str]]:
    """Return epochs and minutes in words as rows of a header, none of them measured."""
    total, its_total = borrowed.config.global_batch_size, borrowed.origin.global_batch_size
    if not borrowed.config.is_imagenet:
        text = "not known"
        if source.base and its_total == total:
            text = f"as {source.base.name} says; not measured on this machine"
        return [("expected", text)]
    epochs = str(borrowed.prediction or "epochs are not known")
    if is_far(borrowed.origin, total):
        epochs = f"epochs are not known: the recipe was chosen for a global batch size of {its_total}"
    plan = f"rn50 plan --accelerators {borrowed.config.ranks} --gbs {total} --images-per-second N"
    without = "" if devices.is_model_known else " without the model"
    minutes = f"minutes are not known{without}; {plan} tells, once measured"
    if source.plan and source.known:
        of_plan = source.plan.prediction
        span = f"{of_plan.minutes:.3g} minutes ({of_plan.minutes_low:.3g} to {of_plan.minutes_high:.3g})"
        minutes = f"{span} at the rate of others' code on {source.known}"
    return [("expected", epochs), ("", minutes), ("", "not measured with this code")]


def short(file: pathlib.Path) -> str:
    """Return the path of a file, from the working folder if it lies there."""
    path = os.path.relpath(file)
    return str(file) if path.startswith("..") else path


def argument(name: str, output: pathlib.Path, path: str = "") -> str:
    """Return how a command names the configuration: by ``name`` if it is one of configs/, else by ``path``,
    which is by default the absolute one."""
    path = path or str(output.resolve())
    return name if output.resolve() == document.file_of(name) else shlex.quote(path)
