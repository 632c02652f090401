"""The MXNet 1.9.1 implementation. Import MXNet itself by ``from implementations.mxnet import mx``."""

import functools
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy

from rn50.packages import hidden

# mxnet 1.9.1 reads numpy.bool at import; NumPy 1.24 and later, which Python 3.12 needs, no longer have it.
if "bool" not in vars(numpy):
    vars(numpy)["bool"] = bool


def _lazy(make: Callable[..., Any], *names: Any) -> Callable[..., Any]:
    """Return the function of an operator that MXNet makes, when it is called, by ``make(*names)``.

    To write and compile all 1,200 of graphs takes a third of MXNet's import.
    """
    made = functools.cache(functools.partial(make, *names))

    def operator(*arguments: Any, **options: Any) -> Any:
        return made()(*arguments, **options)

    operator.__name__, operator.__doc__ = names[-1], ""
    return operator


def _load(spec: Any) -> None:
    """Load MXNet with lazy operators of graphs; those of arrays run in every step, and are its own."""
    module = sys.modules["mxnet"] = importlib.util.module_from_spec(spec)
    try:
        base: Any = importlib.import_module("mxnet.base")
        init = base._init_op_module
        base._init_op_module = lambda package, kind, make: init(
            package, kind, functools.partial(_lazy, make) if kind == "symbol" else make
        )
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules["mxnet"]
        raise


# It loads these for what we do not use of it: pictures, calibration, ONNX files, downloads. It goes on where
# they are missing, but for requests.
_spec = importlib.util.find_spec("mxnet")
with hidden("cv2", "onnx", "requests", "scipy"):
    sys.modules["requests"] = types.ModuleType("requests")
    if _spec and "mxnet" not in sys.modules:
        _load(_spec)
    import mxnet as mx  # noqa: F401
