"""Find out what this machine can run, what it cannot and why, and the command that fixes it."""

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
"""Subjects of the diagnoses that a command can fix."""
STYLES = {OK: "green", WARNING: "yellow", FAILURE: "red"}


def examine(machine: Machine, software: Software, config: Config | None) -> list[Diagnosis]:
    """Return all diagnoses, for the run of ``config`` if it is given."""
    framework = config.run.framework if config else packages.framework(machine, software)
    result_file = config.run.result_file if config else None
    return [
        *_suited(packages.diagnoses(software, config, framework), machine, config, framework),
        *gpus.diagnoses(machine, software, config, framework),
        *processor.diagnoses(machine, config),
        *host.diagnoses(machine, software, config),
        *(results.diagnoses(pathlib.Path(result_file), config) if config and result_file else ()),
    ]


def _suited(
    diagnoses: Iterable[Diagnosis], machine: Machine, config: Config | None, framework: str
) -> Iterator[Diagnosis]:
    """Yield diagnoses of packages. To missing ones of a framework without code for the GPUs, or for newer
    ones where neither is known, the remedy is another framework."""
    capabilities = {gpu.capability for gpu in machine.gpus if gpu.capability}
    on_gpus = (
        config and config.run.device == "gpu" and (capabilities or not config.environment.get("FRAMEWORK"))
    )
    other = frameworks.instead(frameworks.traits(framework), capabilities) if on_gpus else None
    for diagnosis in diagnoses:
        if other and diagnosis[:2] == (FAILURE, "packages"):
            first = "" if capabilities else f"{diagnosis.remedy}; on a GPU newer than its code: "
            diagnosis = diagnosis._replace(remedy=first + " and ".join(other))
        yield diagnosis


def configured(name: str | None, values: Sequence[str] = ()) -> Config | None:
    """Return the configuration that ``name``, CONFIG_FILE or DGXSYSTEM names, with the values of ``--set``;
    None if none does.

    Raises UserError if there is no such file or it cannot be read.
    """
    is_named = values or document.is_named(name)
    return named.Choice(document.find(name), values).config if is_named else None


def fitting(facts: Machine, software: Software) -> dict[str, Diagnosis]:
    """Return a diagnosis of each system of configs/: can this machine run it, apart from the data? If not, it
    gives the gravest reason.

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
        worst = min(failures, key=lambda fault: (fault.subject in SOFTWARE, fault.subject != "processor"))
        reason = worst.found if worst.subject in ("GPU", "packages") else f"{worst.subject}: {worst.found}"
        remedy = worst.remedy if worst.subject in (*SOFTWARE, "driver") else ""
        fits[system] = Diagnosis(WARNING, subject, f"{CANNOT}: {reason}", remedy)
    return fits


def grouped(fits: Mapping[str, Diagnosis]) -> list[Diagnosis]:
    """Return one diagnosis for all systems that can run here, and one for each reason why others cannot."""
    groups = gathered((diagnosis._replace(subject=""), system) for system, diagnosis in fits.items())
    merged = []
    for diagnosis, systems in sorted(groups.items(), key=lambda item: item[0].severity != OK):
        subject, _, reason = diagnosis.found.partition(": ")
        names = ", ".join(systems)
        text, remedy = f"{names}: {reason}" if reason else names, f"for {names}: {diagnosis.remedy}"
        merged.append(Diagnosis(diagnosis.severity, subject, text, diagnosis.remedy and remedy))
    return merged


class Examination(NamedTuple):
    """The diagnoses of a machine and of a configuration on it."""

    findings: list[Diagnosis]

    @property
    def ok(self) -> bool:
        """True if no finding is a failure."""
        return all(diagnosis.severity != FAILURE for diagnosis in self.findings)


prints(Examination, lambda r: (r.ok, r.findings))


def show_table(diagnoses: list[Diagnosis], console: Terminal) -> None:
    """Print a table row for each diagnosis, then each remedy once, on its own line."""
    table = Table(*(Column(heading, overflow="fold") for heading in ("", "subject", "found")), box=None)
    for diagnosis in diagnoses:
        state = styled(diagnosis.severity, STYLES[diagnosis.severity])
        table.add_row(state, diagnosis.subject, diagnosis.found)
    console.print(table)
    mended = (diagnosis for diagnosis in diagnoses if diagnosis.remedy)
    remedies = gathered(((row.remedy, row.severity), row.subject) for row in mended)
    for (remedy, severity), subjects in remedies.items():
        console.print(f"{', '.join(dict.fromkeys(subjects))}: {remedy}", style=STYLES[severity])


def show_brief(diagnoses: list[Diagnosis]) -> None:
    """Print a line on standard error for each warning and failure."""
    for diagnosis in diagnoses:
        if diagnosis.severity != OK:
            message = "; ".join(filter(None, (f"{diagnosis.subject}: {diagnosis.found}", diagnosis.remedy)))
            say(f"rn50: {message}" if diagnosis.severity == FAILURE else f"warning: {message}", err=True)


def overridden(config: Config) -> list[Diagnosis]:
    """Return a warning for each variable of this process's environment that the configuration replaces."""
    environ, variables = process.environment(), config.environment
    before, final = ({**values, **document.absolute_paths(values)} for values in (environ, variables))
    warnings = []
    for name in sorted(KNOWN_NAMES - {"DGXSYSTEM"}):
        if before.get(name, "") not in ("", final.get(name)):
            text = f"{environ[name]} of the environment has no effect: the configuration sets "
            text += variables[name] or "nothing"
            remedy = f"give --set {name}={shlex.quote(environ[name])}, or change it in a copy of the file"
            warnings.append(Diagnosis(WARNING, name, text, remedy))
    return warnings


def unchosen(config: Config) -> list[Diagnosis]:
    """Return a warning if --set makes a global batch size for which the file's learning rate was not
    chosen."""
    return [Diagnosis(WARNING, "LR", *text.split("; ")) for text in named.unchosen(config)]


def misspelt(file: Document) -> list[Diagnosis]:
    """Return a warning for each name that a user's file sets and that is nearly a variable."""
    text = f"no variable, so {file.path.resolve()} sets it without effect"
    meant = ((name, spelling(name)) for name in file.unknown(EVERY_NAME))
    return [Diagnosis(WARNING, name, text, question) for name, question in meant if question]


def show(config: Config | None, as_json: bool, brief: bool) -> bool:
    """Print the diagnoses about this machine, and return True if the configured system can run. Without a
    configuration, all systems of configs/ are tried.

    Raises UserError for one of those that cannot be read.
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
        able = [system for system, diagnosis in fits.items() if diagnosis.severity == OK]
        if able:
            first = next((system for system in able if system.startswith("DEMO")), able[0])
            Terminal().print(f"next: rn50 run {first}    |    rn50 config new MINE")
    return Examination(diagnoses).ok
