"""The MXNet 1.9.1 implementation. Import MXNet itself by ``from implementations.mxnet import mx``."""

import numpy

from rn50.packages import hidden

# mxnet 1.9.1 reads numpy.bool at import; NumPy 1.24 and later, which Python 3.12 needs, no longer have it.
if "bool" not in vars(numpy):
    vars(numpy)["bool"] = bool

# It loads these in a second for what we do not use of it: sparse arrays, calibration, ONNX files. It goes on
# where they are missing.
with hidden("onnx", "scipy"):
    import mxnet as mx  # noqa: F401
