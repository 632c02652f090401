"""The JPEG engine of a GPU. Without one nvJPEG decodes on the GPU's cores, and torchvision hands it one image
after the other (read in torchvision 0.26 to 0.28: decode_jpegs_cuda.cpp), which is slow."""

import ctypes
import pathlib

import torchvision

HARDWARE_BACKEND = 3
"""NVJPEG_BACKEND_HARDWARE of nvjpeg.h."""


def refusal() -> str:
    """Return why the nvJPEG that torchvision brings cannot use a JPEG engine of this GPU; empty if it can."""
    bundled = pathlib.Path(torchvision.__file__).parent.parent / "torchvision.libs"
    for path in bundled.glob("libnvjpeg*"):
        handle = ctypes.c_void_p()
        try:
            library = ctypes.CDLL(str(path))
            status = library.nvjpegCreateEx(HARDWARE_BACKEND, None, None, 0, ctypes.byref(handle))
        except (AttributeError, OSError) as error:
            return str(error)
        if status:
            return f"nvJPEG opens no JPEG engine of this GPU (status {status})"
        library.nvjpegDestroy(handle)
        return ""
    return "torchvision brings no nvJPEG"
