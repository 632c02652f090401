"""Check that Python and the packages are those that a run needs."""

import re
from typing import Iterator, Optional

from rn50 import frameworks
from rn50.doctor.finding import FAILURE, OK, Finding
from rn50.machine.software import Software
from rn50.settings.config import Config

OLDEST_PYTHON, NEWEST_PYTHON = (3, 8), (3, 12)
"""DALI 1.34 has wheels for these versions only."""


def findings(software: Software, config: Optional[Config]) -> Iterator[Finding]:
    """Yield findings on software: that of the configured framework, or of the default one where nothing is configured."""
    framework = config.run.framework if config is not None else frameworks.default()
    yield _python(software, frameworks.traits(framework))
    own = frameworks.unimported(framework, "doctor")
    if own is not None:
        yield from own.packages(software, config)
    else:
        yield _packages(software, frameworks.traits(framework), config.run.device if config is not None else "cpu")


def _python(software: Software, traits: frameworks.Traits) -> Finding:
    version = tuple(map(int, software.python.split(".")[:2]))
    if not OLDEST_PYTHON <= version <= NEWEST_PYTHON:
        packages = next(iter(traits.requirements.get("cpu", ())), "dev")
        return Finding(FAILURE, "Python", f"{software.python}; {traits.name} and DALI 1.34 run on 3.8 to 3.12",
                       f"sudo apt-get install python3.11 python3.11-venv; PYTHON=python3.11 requirements/install.sh {packages}")
    return Finding(OK, "Python", software.python)


def _packages(software: Software, traits: frameworks.Traits, device: str) -> Finding:
    have = software.packages
    shown = ", ".join(f"{name} {have[name]}" for name in sorted(have) if re.fullmatch(traits.packages, name))
    if any(re.fullmatch(traits.package, name) for name in have):
        return Finding(OK, "packages", shown)
    install = "; ".join(f"requirements/install.sh {each}" for each in traits.requirements.get(device, ()))
    return Finding(FAILURE, "packages", f"no {traits.name} beside {shown or 'this Python'}", install)
