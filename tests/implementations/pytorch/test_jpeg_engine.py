"""nvJPEG is asked whether it opens the JPEG engine of a GPU. Both are stand-ins: no GPU is needed."""

import ctypes
import runpy
import sys
import types

import pytest


@pytest.mark.parametrize(
    "status, says",
    [
        (0, ""),
        (2, "nvJPEG opens no JPEG engine of this GPU (status 2)"),
        (9, "nvJPEG opens no JPEG engine of this GPU (status 9)"),
        (OSError("libcuda.so.1: cannot open"), "libcuda.so.1: cannot open"),
        (AttributeError("nvjpegCreateEx"), "nvjpegCreateEx"),
        (None, "torchvision brings no nvJPEG"),
    ],
)
def test_a_refusal_says_why(monkeypatch, tmp_path, status, says):
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision.libs").mkdir()
    if status is not None:
        (tmp_path / "torchvision.libs" / "libnvjpeg.1234.so").touch()
    asked = []

    class NvJpeg:
        def __init__(self, path):
            if isinstance(status, Exception):
                raise status

        def nvjpegCreateEx(self, backend, *_):
            asked.append(backend)
            return status

        def nvjpegDestroy(self, handle):
            asked.append("destroyed")

    torchvision = types.SimpleNamespace(__file__=str(tmp_path / "torchvision" / "__init__.py"))
    monkeypatch.setitem(sys.modules, "torchvision", torchvision)
    monkeypatch.setattr(ctypes, "CDLL", NvJpeg)
    refusal = runpy.run_module("implementations.pytorch.jpeg_engine")["refusal"]()
    assert refusal == says
    assert asked == {0: [3, "destroyed"], 2: [3], 9: [3]}.get(status if isinstance(status, int) else None, [])
