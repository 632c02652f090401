"""A folder that looks like a data set."""

import os

import pytest

from rn50.data import layout, preflight


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with the four files, large enough; their content is not looked at."""
    for name in layout.FILES:
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, 6 << 20)
    monkeypatch.setattr(preflight, "check_record_set", lambda *_: None)
    return tmp_path
