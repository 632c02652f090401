"""A DALI operator that resizes, mirrors and normalises crops on a CPU in one pass: ``augment``, which
``dali.py`` puts into the training graph.

Numba compiles ``run`` to machine code when this module is imported, or reads the code from Numba's cache.
DALI's own operators give the same images (``tests/data/test_cpu_augment.py``) and take longer
(``benchmarks/cpu_input.py``).
"""

import functools
import math
from collections.abc import Callable
from typing import Any

from rn50.packages import hidden
from rn50.process import set_default

# Without this variable Numba uses colorama, if it is installed, which writes an escape sequence to a terminal
# at exit. Each rank has a terminal under mpirun.
set_default("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")

import numpy as np  # noqa: E402

with hidden("scipy"):  # which Numba would load for functions not used here: a fifth of its loading time
    import numba.np.arraymath
from numba import types  # noqa: E402

from rn50.benchmark import rules  # noqa: E402

CHANNELS = 3
_MEAN, _SCALE = np.array(rules.MEAN, np.float32), (1 / np.array(rules.STD)).astype(np.float32)
_SHAPES = types.CPointer(types.CPointer(types.int64)), types.CPointer(types.int32), types.int32
"""C types of the three arguments with which DALI passes the shapes of tensors: a pointer to the shapes, a
pointer to the numbers of dimensions, and the number of tensors."""


def _tensors(dtype: Any) -> tuple[Any, ...]:
    """Return the C types of the four arguments with which DALI passes the tensors of a sample: a pointer to
    the tensors, whose values have the type ``dtype``, and ``_SHAPES``."""
    return types.CPointer(types.CPointer(dtype)), *_SHAPES


def _compiled(compiler: Callable[..., Any], *signature: Any) -> Callable[[Any], Any]:
    """Return a decorator that compiles a function with a ``compiler`` of Numba, and caches the machine code
    if Numba finds a folder that it can write to."""

    def decorate(function: Any) -> Any:
        try:
            return compiler(*signature, cache=True)(function)
        except (OSError, RuntimeError):  # OSError: a full disk; RuntimeError: no folder to write to
            return compiler(*signature)(function)

    return decorate


@_compiled(numba.njit)
def _neighbours(length: int, count: int, pixel: int) -> Any:
    """Return the two input pixels between which output pixel ``pixel`` lies, and its distance from the first,
    when ``length`` input pixels are resized to ``count`` output pixels."""
    position = (pixel + 0.5) * length / count - 0.5
    first = int(math.floor(position))
    return min(max(first, 0), length - 1), min(max(first + 1, 0), length - 1), np.float32(position - first)


@_compiled(numba.cfunc, types.void(*_tensors(types.float32), *_tensors(types.uint8)))
def run(
    outs: Any, out_shapes: Any, out_dims: Any, n_outs: int, ins: Any, in_shapes: Any, in_dims: Any, n_ins: int
) -> None:
    """Resize, mirror and normalise one crop: the function that DALI calls for each sample.

    ``ins`` has pointers to the first values of the crop (H, W, 3) and of its mirror flag (1,), ``outs`` a
    pointer to the first value of the result, (3, S, S) or (S, S, 3). The other arguments are ``_SHAPES`` of
    both.
    """
    # S is the second number of the result's shape, in both layouts.
    height, width, size = in_shapes[0][0], in_shapes[0][1], out_shapes[0][1]
    # Distances in ``out`` from a value to that of the next channel, and to that of the next pixel: for CHW,
    # else for HWC.
    channel_step, pixel_step = (size * size, 1) if out_shapes[0][0] == CHANNELS else (1, CHANNELS)
    crop = numba.carray(ins[0], (height, width * CHANNELS))
    out = numba.carray(outs[0], CHANNELS * size * size)
    # For each column of the result: the positions in a row of its two neighbours, and the weight of the
    # right one.
    lefts, rights, weights = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.float32)
    for x in range(size):
        column = size - 1 - x if ins[1][0] else x
        left, right, weights[column] = _neighbours(width, size, x)
        lefts[column], rights[column] = left * CHANNELS, right * CHANNELS
    row = np.empty(width * CHANNELS, np.float32)
    for y in range(size):
        # First interpolate between two rows of the crop, then between the columns of that row.
        top, bottom, lower_weight = _neighbours(height, size, y)
        upper, lower = crop[top], crop[bottom]
        for i in range(width * CHANNELS):
            value = np.float32(upper[i])
            row[i] = value + lower_weight * (np.float32(lower[i]) - value)
        for x in range(size):
            left, right, weight = lefts[x], rights[x], weights[x]
            offset = (y * size + x) * pixel_step
            for channel in range(CHANNELS):
                value = row[left + channel] + weight * (row[right + channel] - row[left + channel])
                out[offset + channel * channel_step] = (np.rint(value) - _MEAN[channel]) * _SCALE[channel]


@functools.cache
def setup(size: int | None, layout: str) -> Any:
    """Return the C function with which DALI asks for the shapes of the results of a batch. It writes the
    three numbers of each sample's shape to ``outs``, a pointer for each sample. If ``size`` is None, the side
    of the results is the length of the last input of ``augment``."""
    fixed_size, is_channels_first = size or 0, layout == "CHW"

    @_compiled(numba.cfunc, types.void(*_SHAPES, *_SHAPES, types.int32))
    def setup_batch(
        outs: Any, out_dims: Any, n_outs: int, ins: Any, in_dims: Any, n_ins: int, samples: int
    ) -> None:
        for sample in range(samples):
            # The shapes of an input follow those of the input before it, one for each sample.
            side = fixed_size or ins[(n_ins - 1) * samples + sample][0]
            outs[sample][1] = side
            outs[sample][0] = CHANNELS if is_channels_first else side
            outs[sample][2] = side if is_channels_first else CHANNELS

    return setup_batch


def augment(crops: Any, mirror: Any, size: int, layout: str, row: Any = None) -> Any:
    """Return ``crops`` resized to ``size`` x ``size``, mirrored if ``mirror`` is 1, and normalised. Unless
    ``row`` is None, the length of its samples, uint8 (S,), is the side of the results in place of ``size``.

    ``crops``, ``mirror`` and the result are data nodes of a DALI pipeline that is being defined. A sample of
    ``crops`` is uint8 (H, W, 3) of any size, and a sample of ``mirror`` is uint8 (1,). A sample of the result
    is float32, (3, S, S) for the layout "CHW" and (S, S, 3) for "HWC". As in DALI's ``resize`` and
    ``crop_mirror_normalize``, interpolation is bilinear without an antialiasing filter, the edge pixels of a
    crop are repeated beyond it, and grey levels are rounded before they are normalised.
    """
    from nvidia.dali.types import FLOAT, UINT8

    inputs, dimensions = [crops, mirror], [3, 1]
    if row is not None:
        inputs.append(row)
        dimensions.append(1)
    types_ = {"out_types": [FLOAT], "in_types": [UINT8] * len(inputs)}
    setup_fn = setup(size if row is None else None, layout)
    return _operator()(run, setup_fn=setup_fn, outs_ndim=[3], ins_ndim=dimensions, **types_)(*inputs)


@functools.cache
def _operator() -> Any:
    """Return a class of DALI operators for functions that Numba has compiled already. DALI's own
    ``NumbaFunction`` wraps a Python function and compiles the wrapper, which takes several seconds."""
    from nvidia.dali.plugin.numba.experimental import NumbaFunction

    class CompiledFunction(NumbaFunction):
        """An operator whose C functions are given by their addresses."""

        def _get_run_fn_cpu(self, run_fn: Any, *_: object) -> Any:
            return run_fn.address

        def _get_setup_fn_cpu(self, setup_fn: Any) -> Any:
            return setup_fn.address

    return CompiledFunction
