"""Only the rates of docs/evidence are known: results of the checkout would change the new configurations."""

import pytest

from rn50.files import ROOT
from rn50.hyperparameters.plan import own_rates


@pytest.fixture(autouse=True)
def evidence_alone(monkeypatch):
    monkeypatch.setattr(own_rates, "FOLDERS", (ROOT / "docs" / "evidence",))
