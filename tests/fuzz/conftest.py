"""Budgets: a few examples of each property in make test-all, hours of them in make fuzz."""

from typing import Any

import pytest

pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, Phase, settings

_COMMON: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}
settings.register_profile(
    "quick", max_examples=12, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate],
    **_COMMON)
settings.register_profile("fuzz", max_examples=2000, **_COMMON)


def pytest_configure(config):
    """Load the small budget where no other is asked for; a fixed seed, so that make test-all is the same for
    everybody."""
    if not config.getoption("--hypothesis-profile", None):
        settings.load_profile("quick")
