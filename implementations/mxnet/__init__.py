"""The MXNet 1.9.1 implementation. Import MXNet itself by ``from implementations.mxnet import mx``."""

import sys

import numpy

# mxnet 1.9.1 reads numpy.bool at import; NumPy 1.24 and later, which Python 3.12 needs, no longer have it.
if "bool" not in vars(numpy):
    vars(numpy)["bool"] = bool

# It loads these in a second for what we do not use of it: sparse arrays, calibration, ONNX files. It goes on
# where they are missing.
_hidden = {name: sys.modules.get(name) for name in ("onnx", "scipy")}
sys.modules.update(dict.fromkeys(_hidden))  # type: ignore[arg-type]
try:
    import mxnet as mx  # noqa: F401
finally:
    for _name, _module in _hidden.items():
        sys.modules.pop(_name) if _module is None else sys.modules.update({_name: _module})
