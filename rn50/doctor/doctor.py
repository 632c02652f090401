"""``rn50 doctor``: can this machine run a configuration, why not, and which commands fix that?

``examine`` gathers the diagnoses of the other files of this folder. ``fitting`` examines the machine for each
configuration of configs/. ``show`` prints everything. ``rn50 run`` prints the brief form before a run.
"""

import pathlib
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.table import Column, Table

from rn50 import frameworks, process
from rn50.doctor import gpus, host, packages, processor, results
from rn50.doctor.diagnosis import FAILURE, OK, WARNING, Diagnosis
from rn50.gathered import gathered
from rn50.machine import hardware
from rn50.machine import software as software_facts
from rn50.machine.hardware import Machine
from rn50.machine.software import Software
from rn50.printed import prints
from rn50.settings import document, named
from rn50.settings.config import Config
from rn50.settings.document import Document
from rn50.settings.fields import EVERY_NAME, KNOWN_NAMES, spelling
from rn50.terminal import Terminal, print_json, say, styled

CAN, CANNOT = "can run here", "cannot run here"
SOFTWARE = ("Python", "packages", "libraries", "compiler")
"""Subjects of the diagnoses whose faults an installation fixes."""
STYLES = {OK: "green", WARNING: "yellow", FAILURE: "red"}
"""Severity -> colour in which it is printed."""


def examine(machine: Machine, software: Software, config: Config | None) -> list[Diagnosis]:
    """Return the diagnoses of a machine and its software for the run of ``config``; None: for training in
    general."""
    framework = config.run.framework if config else packages.framework(machine, software)
    result_file = config.run.result_file if config else None
    return [
        *_with_other_framework(packages.diagnoses(software, config, framework), machine, config, framework),
        *gpus.diagnoses(machine, software, config, framework),
        *processor.diagnoses(machine, config),
        *host.diagnoses(machine, software, config),
        *(results.diagnoses(pathlib.Path(result_file), config) if config and result_file else ()),
    ]


def _with_other_framework(
    diagnoses: Iterable[Diagnosis], machine: Machine, config: Config | None, framework: str
) -> Iterator[Diagnosis]:
    """Yield ``diagnoses``, which are those of packages. If packages of ``framework`` are missing, their
    remedy is to install them. Replace it by another framework if this one has no code for the GPUs. If the
    compute capabilities of the GPUs are not known, and FRAMEWORK is not set, name both remedies."""
    capabilities = {gpu.capability for gpu in machine.gpus if gpu.capability}
    other = None  # (options of --set that choose another framework, command that installs it)
    if config and config.run.device == "gpu" and (capabilities or not config.environment.get("FRAMEWORK")):
        other = frameworks.instead(frameworks.traits(framework), capabilities)
    for diagnosis in diagnoses:
        if other and (diagnosis.severity, diagnosis.subject) == (FAILURE, "packages"):
            first = "" if capabilities else f"{diagnosis.remedy}; on a GPU newer than its code: "
            diagnosis = diagnosis._replace(remedy=first + " and ".join(other))
        yield diagnosis


def configured(name: str | None, values: Sequence[str] = ()) -> Config | None:
    """Return the configuration that ``name``, CONFIG_FILE or DGXSYSTEM names, with the ``values`` of
    ``--set``; None if nothing names one and there are no values.

    Raises UserError if there is no such file or it cannot be read.
    """
    return named.Choice(document.find(name), values).config if values or document.is_named(name) else None


def fitting(facts: Machine, software: Software) -> dict[str, Diagnosis]:
    """Return system of configs/ -> diagnosis that says whether this machine can run it, or else the gravest
    reason why it cannot. Missing data are no reason.

    A fault that no command can fix is graver than missing software, because nobody installs packages for a
    missing GPU.
    """
    fits = {}
    for system in document.systems():
        config = named.Choice(Document(document.file_of(system))).config
        faults = [fault for fault in examine(facts, software, config) if fault.severity == FAILURE]
        failures = [fault for fault in faults if fault.subject != "DATADIR"]
        subject = f"DGXSYSTEM={system}"
        if not failures:
            fits[system] = Diagnosis(OK, subject, CAN)
            continue
        # The gravest fault is one that no installation fixes, and among these a fault of the processor.
        gravest = min(failures, key=lambda fault: (fault.subject in SOFTWARE, fault.subject != "processor"))
        prefix = "" if gravest.subject in ("GPU", "packages") else f"{gravest.subject}: "
        remedy = gravest.remedy if gravest.subject in (*SOFTWARE, "driver") else ""
        fits[system] = Diagnosis(WARNING, subject, f"{CANNOT}: {prefix}{gravest.found}", remedy)
    return fits


def grouped(fits: Mapping[str, Diagnosis]) -> list[Diagnosis]:
    """Return one diagnosis for all systems that this machine can run, and one for each reason why it cannot
    run others. ``fits`` is the result of ``fitting``."""
    # Without its subject, the system, the diagnosis of every system that can run is the same.
    groups = gathered((diagnosis._replace(subject=""), system) for system, diagnosis in fits.items())
    merged = []
    # Systems that can run come first.
    for diagnosis, systems in sorted(groups.items(), key=lambda item: item[0].severity != OK):
        subject, _, reason = diagnosis.found.partition(": ")  # CAN, or CANNOT and the reason
        names = ", ".join(systems)
        text = f"{names}: {reason}" if reason else names
        remedy = f"for {names}: {diagnosis.remedy}" if diagnosis.remedy else ""
        merged.append(Diagnosis(diagnosis.severity, subject, text, remedy))
    return merged


class Examination(NamedTuple):
    """The diagnoses that ``rn50 doctor --json`` prints."""

    findings: list[Diagnosis]

    @property
    def ok(self) -> bool:
        """True if no finding is a failure."""
        return all(diagnosis.severity != FAILURE for diagnosis in self.findings)


# What ``--json`` prints of an examination.
prints(Examination, lambda r: (r.ok, r.findings))


def show_table(diagnoses: list[Diagnosis], console: Terminal) -> None:
    """Print a table row for each diagnosis, then each remedy once, on its own line."""
    table = Table(*(Column(heading, overflow="fold") for heading in ("", "subject", "found")), box=None)
    for diagnosis in diagnoses:
        state = styled(diagnosis.severity, STYLES[diagnosis.severity])
        table.add_row(state, diagnosis.subject, diagnosis.found)
    console.print(table)
    with_remedy = (diagnosis for diagnosis in diagnoses if diagnosis.remedy)
    remedies = gathered(((row.remedy, row.severity), row.subject) for row in with_remedy)
    for (remedy, severity), subjects in remedies.items():
        console.print(f"{', '.join(dict.fromkeys(subjects))}: {remedy}", style=STYLES[severity])


def show_brief(diagnoses: list[Diagnosis]) -> None:
    """Print a line on standard error for each warning and failure."""
    for diagnosis in diagnoses:
        if diagnosis.severity != OK:
            message = "; ".join(filter(None, (f"{diagnosis.subject}: {diagnosis.found}", diagnosis.remedy)))
            say(f"rn50: {message}" if diagnosis.severity == FAILURE else f"warning: {message}", err=True)


def overridden(config: Config) -> list[Diagnosis]:
    """Return a warning for each environment variable of this process to which the configuration gives another
    value."""
    environ, variables = process.environment(), config.environment
    # Paths are made absolute, so that a relative and an absolute path of the same file are equal.
    before = {**environ, **document.absolute_paths(environ)}
    after = {**variables, **document.absolute_paths(variables)}
    warnings = []
    for name in sorted(KNOWN_NAMES - {"DGXSYSTEM"}):
        if before.get(name, "") not in ("", after.get(name)):
            text = f"{environ[name]} of the environment has no effect: the configuration sets "
            text += variables[name] or "nothing"
            remedy = f"give --set {name}={shlex.quote(environ[name])}, or change it in a copy of the file"
            warnings.append(Diagnosis(WARNING, name, text, remedy))
    return warnings


def unchosen(config: Config) -> list[Diagnosis]:
    """Return a warning for each value that does not fit one that ``--set`` changes (``named.unchosen``)."""
    # Each text of ``named.unchosen`` is "finding; remedy".
    return [Diagnosis(WARNING, name, *text.split("; ")) for name, text in named.unchosen(config)]


def misspelt(file: Document) -> list[Diagnosis]:
    """Return a warning for each name that a user's file sets and that resembles the name of a variable."""
    text = f"no variable, so {file.path.resolve()} sets it without effect"
    questions = ((name, spelling(name)) for name in file.unknown(EVERY_NAME))
    return [Diagnosis(WARNING, name, text, question) for name, question in questions if question]


def show(config: Config | None, as_json: bool, brief: bool) -> bool:
    """Print the diagnoses of this machine for the run of ``config``, and return whether it can run. If
    ``config`` is None, also print which systems of configs/ this machine can run.

    Raises UserError if a configuration of configs/ cannot be read.
    """
    facts, software = hardware.read(), software_facts.read()
    diagnoses = examine(facts, software, config)
    diagnoses += results.of_submission(config, software_facts.commit())
    if config and config.document:
        diagnoses += [*overridden(config), *unchosen(config), *misspelt(config.document)]
    fits = fitting(facts, software) if config is None else {}
    if as_json:
        print_json(Examination([*diagnoses, *fits.values()]))
    elif brief:
        show_brief([*diagnoses, *grouped(fits)])
    else:
        show_table([*diagnoses, *grouped(fits)], Terminal())
        if systems := [system for system, diagnosis in fits.items() if diagnosis.severity == OK]:
            # Prefer a demo.
            first = next((system for system in systems if system.startswith("DEMO")), systems[0])
            Terminal().print(f"next: rn50 run {first}    |    rn50 config new MINE")
    return Examination(diagnoses).ok
