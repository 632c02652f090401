"""A DALI operator, compiled by Numba, that resizes, mirrors and normalises crops on a CPU in one pass.

DALI's own operators give the same images (``tests/data/test_cpu_augment.py``) and take longer
(``benchmarks/cpu_input.py``).
"""

import functools
from typing import Any


def augment(crops: Any, mirror: Any, size: int, layout: str) -> Any:
    """Return ``crops`` resized to ``size``, mirrored where ``mirror`` is 1, and normalised.

    ``crops``, ``mirror`` and the result are data nodes of a DALI pipeline that is being defined. ``crops`` is
    uint8 (H, W, 3) of any size, ``mirror`` is uint8 (1,). The result is float32 of shape (3, S, S) for the
    layout "CHW", (S, S, 3) for "HWC". As in DALI's ``resize`` and ``crop_mirror_normalize``, interpolation is
    bilinear without an antialiasing filter, the crop's edge is repeated beyond it, and grey levels are
    rounded before they are normalised.
    """
    from nvidia.dali import types

    run, setup = compiled(size, layout)
    operator = _operator()(
        run_fn=run,
        setup_fn=setup,
        out_types=[types.FLOAT],
        in_types=[types.UINT8, types.UINT8],
        outs_ndim=[3],
        ins_ndim=[3, 1],
    )
    return operator(crops, mirror)


@functools.cache
def compiled(size: int, layout: str) -> tuple[Any, Any]:
    """Return the C functions that DALI calls for every sample (run) and every batch (setup).

    The first process of a checkout compiles them in about a second and, where it may write, caches them on
    disk for the others.
    """
    from rn50.data.pipeline import cpu_kernel

    channels = cpu_kernel.CHANNELS
    shape = (channels, size, size) if layout == "CHW" else (size, size, channels)
    return cpu_kernel.run, cpu_kernel.setup(shape)


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
