"""What makes two runs of a network on a GPU comparable."""

import pytest


@pytest.fixture
def comparable_convolutions(monkeypatch):
    """Convolutions whose results differ by the rounding of float32 only.

    TF32 keeps 10 of its 23 bits. A deterministic algorithm adds in the same order every time, and is chosen once for a shape.
    """
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
