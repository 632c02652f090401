"""Find out what this machine can run, what it cannot and why, and the command that fixes it."""

import os
import pathlib
import shlex
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from rn50 import process
from rn50.doctor import gpus, host, packages, processor, results, submission
from rn50.doctor.finding import FAILURE, OK, WARNING, Finding
from rn50.machine import hardware
from rn50.machine import software as software_facts
from rn50.machine.hardware import Machine
from rn50.machine.software import Software
from rn50.settings import config as configuration
from rn50.settings import config_file
from rn50.settings.config import Config
from rn50.terminal import Terminal, print_json, say, styled

CAN, CANNOT = "can run here", "cannot run here"
SOFTWARE = ("Python", "packages", "libraries")
"""Subjects of the findings that a command can fix."""
STYLES = {OK: "green", WARNING: "yellow", FAILURE: "red"}


def examine(
    machine: Machine, software: Software, config: Config | None, environ: Mapping[str, str]
) -> list[Finding]:
    """Return all findings, for the run of ``config`` if it is given."""
    framework = config.run.framework if config else packages.framework(machine, software)
    return [
        *packages.findings(software, config, framework),
        *gpus.findings(machine, software, config, framework, environ),
        *processor.findings(machine, config),
        *host.findings(machine, software, config, environ),
        *(
            results.findings(pathlib.Path(config.run.result_file), config)
            if config and config.run.result_file
            else ()
        ),
    ]


def configured(environ: Mapping[str, str], name: str | None = None) -> Mapping[str, str] | None:
    """Return the environment of a run. ``name``, CONFIG_FILE or DGXSYSTEM names its configuration; None if
    none does.

    Raises UserError if there is no such file or it cannot be read.
    """
    if not (name or environ.get("CONFIG_FILE") or environ.get("DGXSYSTEM")):
        return None
    return config_file.sourced_environment(config_file.find(name, environ), environ)


def fitting(facts: Machine, software: Software, environ: Mapping[str, str]) -> dict[str, Finding]:
    """Return a finding for each system of configs/: can this machine run it, apart from the data? If not, it
    gives the gravest reason.

    A fault that no command can fix is graver than missing software, because nobody installs packages for a
    missing GPU.
    """
    fits = {}
    for system in config_file.systems():
        variables = config_file.sourced_environment(config_file.file_of(system), environ)
        config = configuration.from_environment(variables)
        failures = [
            finding
            for finding in examine(facts, software, config, variables)
            if finding.severity == FAILURE and finding.subject != "DATADIR"
        ]
        subject = f"DGXSYSTEM={system}"
        if not failures:
            fits[system] = Finding(OK, subject, CAN)
            continue
        worst = min(
            failures, key=lambda failure: (failure.subject in SOFTWARE, failure.subject != "processor")
        )
        reason = worst.found if worst.subject in ("GPU", "packages") else f"{worst.subject}: {worst.found}"
        fits[system] = Finding(
            WARNING,
            subject,
            f"{CANNOT}: {reason}",
            worst.remedy if worst.subject in (*SOFTWARE, "driver") else "",
        )
    return fits


def grouped(fits: Mapping[str, Finding]) -> list[Finding]:
    """Return one finding for all systems that can run here, and one for each reason why others cannot."""
    groups: dict[Finding, list[str]] = {}
    for system, finding in fits.items():
        groups.setdefault(finding._replace(subject=""), []).append(system)
    merged = []
    for finding, systems in sorted(groups.items(), key=lambda item: item[0].severity != OK):
        subject, _, reason = finding.found.partition(": ")
        names = ", ".join(systems)
        merged.append(
            Finding(
                finding.severity,
                subject,
                ": ".join(filter(None, (names, reason))),
                finding.remedy and f"for {names}: {finding.remedy}",
            )
        )
    return merged


def to_json(findings: list[Finding]) -> dict[str, Any]:
    """Return the findings as plain data; ``ok`` is false if one of them is a failure."""
    return {
        "ok": all(finding.severity != FAILURE for finding in findings),
        "findings": [finding._asdict() for finding in findings],
    }


def print_table(findings: list[Finding], console: Terminal) -> None:
    """Print a table row for each finding, then each remedy once, on its own line."""
    table = Table(box=None)
    for heading in ("", "subject", "found"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        table.add_row(styled(finding.severity, STYLES[finding.severity]), finding.subject, finding.found)
    console.print(table)
    remedies: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        if finding.remedy:
            remedies.setdefault((finding.remedy, finding.severity), []).append(finding.subject)
    for (remedy, severity), subjects in remedies.items():
        console.print(f"{', '.join(dict.fromkeys(subjects))}: {remedy}", style=STYLES[severity])


def print_brief(findings: list[Finding]) -> None:
    """Print a line on standard error for each warning and failure."""
    for finding in findings:
        if finding.severity != OK:
            message = "; ".join(filter(None, (f"{finding.subject}: {finding.found}", finding.remedy)))
            say(f"rn50: {message}" if finding.severity == FAILURE else f"warning: {message}", err=True)


def overridden(variables: Mapping[str, str], environ: Mapping[str, str]) -> list[Finding]:
    """Return a warning for each variable of the environment that the configuration replaces."""
    given, final = ({**values, **_absolute(values)} for values in (environ, variables))
    names = sorted(configuration.known_names() - {"DGXSYSTEM"})
    replaced = [name for name in names if given.get(name, "") not in ("", final.get(name))]
    return [
        Finding(
            WARNING,
            name,
            f"{environ[name]} of the environment has no effect: the configuration sets "
            f"{variables[name] or 'nothing'}",
            f"give --set {name}={shlex.quote(environ[name])}, or change it in a copy of the file",
        )
        for name in replaced
    ]


def misspelt(file: str) -> list[Finding]:
    """Return a warning for each name that a user's file sets and that is nearly a variable."""
    return [
        Finding(WARNING, name, f"no variable, so {file} sets it without effect", question)
        for name, question in config_file.misspelt(file, configuration.every_name()).items()
    ]


def _absolute(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: os.path.abspath(variables[name]) for name in config_file.PATHS if variables.get(name)}


def show(variables: Mapping[str, str] | None, as_json: bool, brief: bool) -> bool:
    """Print the findings about this machine, and return True if the configured system can run.

    ``variables`` are the system's, as ``configured`` returns them. Without them, all systems of configs/ are
    tried.

    Raises UserError for a configuration that cannot be read.
    """
    environ = process.environment()
    config = None if variables is None else configuration.from_environment(variables)
    facts, software = hardware.read(), software_facts.read()
    findings = examine(facts, software, config, variables or environ)
    findings += submission.findings(config, software_facts.commit())
    if variables:
        findings += [*overridden(variables, environ), *misspelt(variables["CONFIG_FILE"])]
    fits = fitting(facts, software, environ) if config is None else {}
    if as_json:
        print_json(to_json([*findings, *fits.values()]))
    elif brief:
        print_brief([*findings, *grouped(fits)])
    else:
        print_table([*findings, *grouped(fits)], Terminal())
        able = [system for system, finding in fits.items() if finding.severity == OK]
        if able:
            first = next((system for system in able if system.startswith("DEMO")), able[0])
            Terminal().print(f"next: rn50 run {first}    |    rn50 config new MINE")
    return all(finding.severity != FAILURE for finding in findings)
