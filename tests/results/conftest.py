"""Asks ``score``, ``check`` and ``package`` what the rules of a result say of a folder."""

import pytest

from rn50.results import score
from rn50.results.validity.findings import ERROR
from rn50.submission import check, own_results


@pytest.fixture
def judged(monkeypatch):
    """What the three say of a folder: the reasons of the score, the errors of the check and the lines of the
    packaging. Of the check the rules alone are asked: no official checker runs."""
    monkeypatch.setattr(check.compliance, "check", lambda files, rulesets, count: [])

    def say(folder):
        [system] = score.score([folder])
        report = check.check([folder])
        [result] = own_results.read([folder])
        assert system.valid == (not system.reasons)
        errors = [finding.message for finding in report.findings if finding.severity == ERROR]
        assert report.ok == (not errors)
        return list(system.reasons), errors, list(own_results.problems(result))

    return say


@pytest.fixture
def refused(judged):
    """Assert that all three refuse a folder once it is spoilt, and that one line of each says why."""

    def spoil_and_ask(folder, spoil, says):
        spoil(folder)
        for said in judged(folder):
            assert said and (says is None or any(says in message for message in said)), said

    return spoil_and_ask
