"""The implementation in MXNet 1.9.1. This file imports MXNet in a way that works with newer NumPy and saves a
second.

Python runs this file before any other file of the package, so these may use ``import mxnet``. A file outside
the package uses ``from implementations.mxnet import mx``.
"""

import numpy

from rn50.packages import hidden

# MXNet 1.9.1 reads numpy.bool at import. NumPy 1.24 and later, which Python 3.12 needs, do not have it.
if "bool" not in vars(numpy):
    vars(numpy)["bool"] = bool

# MXNet spends a second on loading these two packages, for functions that we do not use: sparse arrays,
# calibration, ONNX files. It also works without them.
with hidden("onnx", "scipy"):
    import mxnet as mx  # noqa: F401
