"""The MXNet 1.9.1 implementation. Import MXNet itself by ``from implementations.mxnet import mx``."""

import sys

import numpy

# mxnet 1.9.1 reads numpy.bool at import; NumPy 1.24 and later, which Python 3.12 needs, no longer have it.
if "bool" not in vars(numpy):
    vars(numpy)["bool"] = bool

# It loads scipy, for most of a second, for sparse arrays and calibration, and goes on where scipy is missing.
_scipy = sys.modules.get("scipy")
sys.modules["scipy"] = None  # type: ignore[assignment]
try:
    import mxnet as mx  # noqa: F401
finally:
    sys.modules.pop("scipy") if _scipy is None else sys.modules.update(scipy=_scipy)
