"""The toy of tests/toy beside the implementations, for the suites of the contract."""

import pytest

from rn50 import frameworks
from rn50.files import ROOT


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
