"""Crops resized, mirrored and normalised on a CPU in one pass: an operator of DALI's graph, compiled by Numba.

DALI's own operators give the same images (``tests/core/test_cpu_augment.py``) and take longer (``benchmarks/cpu_input.py``).
"""

import functools
import math
from typing import Any, Tuple

import numpy as np

from rn50.benchmark import rules

CHANNELS = 3


def augment(crops: Any, mirror: Any, size: int, layout: str) -> Any:
    """``crops`` (H, W, 3) uint8 of any size, resized to ``size``, mirrored where ``mirror`` (uint8, shape (1,)) is 1, normalised.

    Data nodes of a DALI pipeline that is being defined. The result is float32 of shape (3, S, S) for the layout "CHW", (S, S, 3)
    for "HWC". Interpolation is bilinear without a filter against aliasing, pixels beyond the edge of the crop are those of the
    edge, and grey levels are rounded before they are normalised, as by DALI's ``resize`` and ``crop_mirror_normalize``.
    """
    from nvidia.dali import types

    run, setup = compiled(size, layout)
    operator = _operator()(
        run_fn=run, setup_fn=setup, out_types=[types.FLOAT], in_types=[types.UINT8, types.UINT8], outs_ndim=[3], ins_ndim=[3, 1]
    )
    return operator(crops, mirror)


@functools.lru_cache(maxsize=None)
def compiled(size: int, layout: str) -> Tuple[Any, Any]:
    """The C functions that DALI calls for every sample (run) and every batch (setup); the first call compiles for a second."""
    return _run(), _setup((CHANNELS, size, size) if layout == "CHW" else (size, size, CHANNELS))


@functools.lru_cache(maxsize=None)
def _operator() -> Any:
    """DALI's operator for Numba, without its own wrappers around Python functions, which take several seconds to compile."""
    from nvidia.dali.plugin.numba.experimental import NumbaFunction

    class CompiledFunction(NumbaFunction):
        def _get_run_fn_cpu(self, run_fn: Any, *_: object) -> Any:
            return run_fn.address

        def _get_setup_fn_cpu(self, setup_fn: Any) -> Any:
            return setup_fn.address

    return CompiledFunction


def _tensors(numba: Any, dtype: str) -> Tuple[Any, ...]:
    """What DALI passes for the tensors of a sample: pointers to their values, to their shapes, to their ranks, and how many."""
    c = numba.types
    return c.CPointer(c.CPointer(getattr(c, dtype))), *_shapes(numba)


def _shapes(numba: Any) -> Tuple[Any, ...]:
    c = numba.types
    return c.CPointer(c.CPointer(c.int64)), c.CPointer(c.int32), c.int32


@functools.lru_cache(maxsize=None)
def _run() -> Any:
    import numba

    mean, scale = np.array(rules.MEAN, np.float32), (1 / np.array(rules.STD)).astype(np.float32)

    @numba.njit
    def taps(length: int, count: int, pixel: int) -> Any:
        """The two of ``length`` pixels between which pixel ``pixel`` of ``count`` lies, and how far it is from the first."""
        at = (pixel + 0.5) * length / count - 0.5
        low = int(math.floor(at))
        return min(max(low, 0), length - 1), min(max(low + 1, 0), length - 1), np.float32(at - low)

    @numba.cfunc(numba.void(*_tensors(numba, "float32"), *_tensors(numba, "uint8")))
    def run(
        outs: Any, out_shapes: Any, out_ranks: Any, n_outs: int, ins: Any, in_shapes: Any, in_ranks: Any, n_ins: int
    ) -> None:
        height, width, size = in_shapes[0][0], in_shapes[0][1], out_shapes[0][1]
        planar = out_shapes[0][0] == CHANNELS
        channel_step, pixel_step = (size * size, 1) if planar else (1, CHANNELS)
        crop, out = numba.carray(ins[0], (height, width * CHANNELS)), numba.carray(outs[0], CHANNELS * size * size)
        lefts, rights, along = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.float32)
        for x in range(size):
            to = size - 1 - x if ins[1][0] else x
            left, right, along[to] = taps(width, size, x)
            lefts[to], rights[to] = left * CHANNELS, right * CHANNELS
        row = np.empty(width * CHANNELS, np.float32)
        for y in range(size):
            top, bottom, down = taps(height, size, y)
            upper, lower = crop[top], crop[bottom]
            for i in range(width * CHANNELS):
                value = np.float32(upper[i])
                row[i] = value + down * (np.float32(lower[i]) - value)
            for x in range(size):
                left, right, share = lefts[x], rights[x], along[x]
                to = (y * size + x) * pixel_step
                for channel in range(CHANNELS):
                    value = row[left + channel] + share * (row[right + channel] - row[left + channel])
                    out[to + channel * channel_step] = (np.rint(value) - mean[channel]) * scale[channel]

    return run


def _setup(shape: Tuple[int, int, int]) -> Any:
    import numba

    first, second, third = shape

    @numba.cfunc(numba.void(*_shapes(numba), *_shapes(numba), numba.int32))
    def setup(
        outs: Any, out_ranks: Any, n_outs: int, ins: Any, in_ranks: Any, n_ins: int, samples: int
    ) -> None:
        for sample in range(samples):
            outs[sample][0], outs[sample][1], outs[sample][2] = first, second, third

    return setup
