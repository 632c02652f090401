"""The tiny configuration for PyTorch, and what makes two runs of a network on a GPU comparable."""

import pytest

from tests.conftest import with_changes


@pytest.fixture
def tiny_config(tiny_config):
    """INPUT_LIBRARY=auto depends on the framework: a machine with a GPU may have PyTorch and no DALI."""
    return with_changes(tiny_config, run={"framework": "pytorch"})


@pytest.fixture
def comparable_convolutions(monkeypatch):
    """Convolutions whose results differ by the rounding of float32 only.

    TF32 keeps 10 of its 23 bits. A deterministic algorithm adds in the same order every time, and is chosen
    once for a shape.
    """
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
