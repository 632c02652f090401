"""A DALI operator, compiled by Numba when this module is imported or read from Numba's cache, that resizes,
mirrors and normalises crops on a CPU in one pass.

DALI's own operators give the same images (``tests/data/test_cpu_augment.py``) and take longer
(``benchmarks/cpu_input.py``).
"""

import functools
import math
from collections.abc import Callable
from typing import Any

from rn50.packages import hidden
from rn50.process import set_default

# Else an installed colorama, which Numba uses, writes an escape sequence to a terminal at exit. mpirun gives
# every rank a terminal.
set_default("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")

import numpy as np  # noqa: E402

with hidden("scipy"):  # for what is not used here, in a fifth of the time that Numba takes to load
    import numba.np.arraymath
from numba import types  # noqa: E402

from rn50.benchmark import rules  # noqa: E402

CHANNELS = 3
_MEAN, _SCALE = np.array(rules.MEAN, np.float32), (1 / np.array(rules.STD)).astype(np.float32)
_SHAPES = types.CPointer(types.CPointer(types.int64)), types.CPointer(types.int32), types.int32
"""C types that DALI passes for the shapes of tensors: pointers to shapes and numbers of dimensions, number of
tensors."""


def _tensors(dtype: Any) -> tuple[Any, ...]:
    """Return the C types that DALI passes for the tensors of a sample: pointers to their values, and
    ``_SHAPES``."""
    return types.CPointer(types.CPointer(dtype)), *_SHAPES


def _compiled(compiler: Callable[..., Any], *signature: Any) -> Callable[[Any], Any]:
    """Return a decorator that compiles a function, and caches the outcome if Numba finds a writable
    folder."""

    def decorate(function: Any) -> Any:
        try:
            return compiler(*signature, cache=True)(function)
        except (OSError, RuntimeError):  # a full disk; no such folder
            return compiler(*signature)(function)

    return decorate


@_compiled(numba.njit)
def _taps(length: int, count: int, pixel: int) -> Any:
    """Return the two neighbours, among ``length`` pixels, of pixel ``pixel`` of ``count``, and its distance
    from the first."""
    at = (pixel + 0.5) * length / count - 0.5
    low = int(math.floor(at))
    return min(max(low, 0), length - 1), min(max(low + 1, 0), length - 1), np.float32(at - low)


@_compiled(numba.cfunc, types.void(*_tensors(types.float32), *_tensors(types.uint8)))
def run(
    outs: Any, out_shapes: Any, out_dims: Any, n_outs: int, ins: Any, in_shapes: Any, in_dims: Any, n_ins: int
) -> None:
    """Resize, mirror and normalise one crop."""
    height, width, size = in_shapes[0][0], in_shapes[0][1], out_shapes[0][1]
    channel_step, pixel_step = (size * size, 1) if out_shapes[0][0] == CHANNELS else (1, CHANNELS)
    crop = numba.carray(ins[0], (height, width * CHANNELS))
    out = numba.carray(outs[0], CHANNELS * size * size)
    lefts, rights, along = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.float32)
    for x in range(size):
        column = size - 1 - x if ins[1][0] else x
        left, right, along[column] = _taps(width, size, x)
        lefts[column], rights[column] = left * CHANNELS, right * CHANNELS
    row = np.empty(width * CHANNELS, np.float32)
    for y in range(size):
        top, bottom, down = _taps(height, size, y)
        upper, lower = crop[top], crop[bottom]
        for i in range(width * CHANNELS):
            value = np.float32(upper[i])
            row[i] = value + down * (np.float32(lower[i]) - value)
        for x in range(size):
            left, right, share = lefts[x], rights[x], along[x]
            offset = (y * size + x) * pixel_step
            for channel in range(CHANNELS):
                value = row[left + channel] + share * (row[right + channel] - row[left + channel])
                out[offset + channel * channel_step] = (np.rint(value) - _MEAN[channel]) * _SCALE[channel]


@functools.cache
def setup(size: int, layout: str) -> Any:
    """Return the C function that tells DALI the shape of every sample of a batch."""
    first, second, third = (CHANNELS, size, size) if layout == "CHW" else (size, size, CHANNELS)

    @_compiled(numba.cfunc, types.void(*_SHAPES, *_SHAPES, types.int32))
    def setup_batch(
        outs: Any, out_dims: Any, n_outs: int, ins: Any, in_dims: Any, n_ins: int, samples: int
    ) -> None:
        for sample in range(samples):
            outs[sample][0], outs[sample][1], outs[sample][2] = first, second, third

    return setup_batch


def augment(crops: Any, mirror: Any, size: int, layout: str) -> Any:
    """Return ``crops`` resized to ``size``, mirrored where ``mirror`` is 1, and normalised.

    ``crops``, ``mirror`` and the result are data nodes of a DALI pipeline that is being defined. ``crops`` is
    uint8 (H, W, 3) of any size, ``mirror`` is uint8 (1,). The result is float32 of shape (3, S, S) for the
    layout "CHW", (S, S, 3) for "HWC". As in DALI's ``resize`` and ``crop_mirror_normalize``, interpolation is
    bilinear without an antialiasing filter, the crop's edge is repeated beyond it, and grey levels are
    rounded before they are normalised.
    """
    from nvidia.dali.types import FLOAT, UINT8

    shapes = {"out_types": [FLOAT], "in_types": [UINT8, UINT8], "outs_ndim": [3], "ins_ndim": [3, 1]}
    return _operator()(run, setup_fn=setup(size, layout), **shapes)(crops, mirror)


@functools.cache
def _operator() -> Any:
    """Return DALI's operator for Numba without its wrappers of Python functions, which take several seconds
    to compile."""
    from nvidia.dali.plugin.numba.experimental import NumbaFunction

    class CompiledFunction(NumbaFunction):
        def _get_run_fn_cpu(self, run_fn: Any, *_: object) -> Any:
            return run_fn.address

        def _get_setup_fn_cpu(self, setup_fn: Any) -> Any:
            return setup_fn.address

    return CompiledFunction
