"""A campaign on ImageNet that never was, on one of the machines of tests/golden/machines."""

import functools
import pathlib
import shutil

import pytest

from rn50.machine import description
from rn50.results.validity import checkers
from rn50.submission import describe
from tests.support import machines


@pytest.fixture(scope="module")
def official_checkers():
    """One process that forks for every official checker of the tests of a file: it loads scipy once."""
    with checkers.started():
        yield


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    """A git checkout, its commit, and a change that came after it."""
    from tests.support.campaigns import (
        git,  # only here: it needs mlperf_logging, and every test loads this file
    )

    folder = tmp_path_factory.mktemp("checkout")
    belongs = ("run_and_time.sh", "rn50/train.py", "docs/data.md")
    others = (
        "tests/with a space.py", "benchmarks/rn50.py", "docs/images/a.png", "CHANGELOG.md", ".ci/run",
        ".gitignore")
    for name in (*belongs, *others):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name} as it ran\n")
    (folder / "run_and_time.sh").chmod(0o755)
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "what ran")):
        git(folder, *command)
    (folder / "rn50" / "train.py").write_text("changed since\n")
    return folder


@pytest.fixture(scope="session")
def machine():
    """What a node of 8 A100 tells of itself."""
    return description.read(machines.source("8xA100")._replace(environ={"NCCL_VERSION": "2.21"}))


@pytest.fixture(scope="session")
def campaign(tmp_path_factory, checkout, machine):
    """Five runs on ImageNet, and what is to be known of their machine."""
    from tests.support.campaigns import DETAILS, git, make

    folder = make(
        tmp_path_factory.mktemp("campaign") / "NF5688M6", git(checkout, "rev-parse", "HEAD"), machine)
    (folder / describe.DETAILS).write_text(
        "".join(f'{field}: "{value}"\n' for field, value in DETAILS.items()))
    return folder


@pytest.fixture
def results(tmp_path, campaign):
    """Such runs to spoil."""
    return pathlib.Path(shutil.copytree(str(campaign), str(tmp_path / "results" / "NF5688M6")))


@pytest.fixture
def points_read_once(monkeypatch):
    """For tests of many results: the official checker prepares the reference points of a ruleset once, not
    for every result."""
    from mlperf_logging.rcp_checker import rcp_checker  # loads scipy

    monkeypatch.setattr(
        rcp_checker, "RCP_Checker", functools.lru_cache(maxsize=None)(rcp_checker.RCP_Checker))
