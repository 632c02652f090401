"""Packed data sets: a small one to be certified or spoilt, and a tree of images with what packing makes of
it."""

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


@pytest.fixture(scope="session")
def tree(tmp_path_factory):
    """An image folder of 7 classes, of 63 + 28 images."""
    folder = tmp_path_factory.mktemp("tree")
    make(folder, classes=7, train=9, val=4)
    return folder


@pytest.fixture
def copy(tree, tmp_path):
    """A copy of the tree, to be spoiled."""
    return shutil.copytree(str(tree), str(tmp_path / "source")) and tmp_path / "source"


@pytest.fixture(scope="session")
def packed(tree, tmp_path_factory):
    """The tree, packed."""
    folder = tmp_path_factory.mktemp("packed") / "made" / "here"
    pack(tree, folder)
    return folder
