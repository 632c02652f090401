"""Packed data sets: a small one to be certified or spoilt, and a tree of images with what packing makes of it."""

import shutil

import pytest

from rn50.data.layout import PACKED
from rn50.data.packing.pack import pack
from tests.support.image_tree import make


@pytest.fixture(scope="session")
def small_set(tmp_path_factory):
    """A packed set of 6 classes, of 24 + 12 images."""
    folder = tmp_path_factory.mktemp("certified")
    make(folder / "source", classes=6, train=4, val=2)
    pack(folder / "source", folder / "data")
    return folder / "data"


@pytest.fixture
def data(small_set, tmp_path):
    """A copy of it, to be spoilt."""
    return shutil.copytree(str(small_set), str(tmp_path / "data")) and tmp_path / "data"


@pytest.fixture
def bare(data):
    """The same as anybody's packer would have left it: without lists."""
    for name in PACKED:
        (data / name).unlink()
    return data
