"""A folder that looks like a data set."""

import pytest

from rn50.data import layout


@pytest.fixture
def data(tmp_path):
    """A folder with the four files; their content is never looked at."""
    for name in layout.FILES:
        (tmp_path / name).write_bytes(b"x")
    return tmp_path
