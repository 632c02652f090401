"""The toy of tests/toy beside the implementations, and a configuration file of the tiny set, for the suites
of the contract."""

import shlex

import pytest

from rn50 import frameworks
from rn50.files import ROOT
from rn50.settings.writing import GROUP


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    """FRAMEWORK=toy is an implementation."""
    caches = (frameworks._folders, frameworks.names, frameworks.traits, frameworks.default)
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "toy"))
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.fixture
def base(tiny_environment, tmp_path):
    """A configuration of the tiny set in the form of our own."""
    group = [name for name in tiny_environment if name in GROUP]
    others = [name for name in tiny_environment if name not in (*GROUP, "SEED")]
    file = tmp_path / "config_TINY.sh"
    lines = [
        "# --- hyperparameters (tiny) ---", *(f"export {name}={tiny_environment[name]}" for name in group)]
    lines += ["", "# --- run ---"]
    lines += [f"export {name}={shlex.quote(tiny_environment[name])}" for name in others]
    file.write_text("\n".join([*lines, "export BENCHMARK_STEPS=1", ""]))
    return file
