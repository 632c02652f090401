"""The implementation in PaddlePaddle. This file sets what PaddlePaddle reads when it is imported, imports it,
and undoes what the import does to warnings and signals.

Import PaddlePaddle by ``from implementations.paddle import paddle``, never before this file has run.
"""

import contextlib
import io
import signal
import sys

from rn50.machine import hardware
from rn50.process import set_default

MKL_KERNELS = {256: "5", 512: "7"}
"""Width of a processor's vectors in bits -> value of MKL_DEBUG_CPU_TYPE that lets MKL use them. Newer
versions of MKL ignore this variable; the MKL in PaddlePaddle's wheels reads it."""

# For GPUs. Without this, channels-last batch norm transposes its inputs and outputs (Paddle,
# batch_norm_kernel.cu).
set_default("FLAGS_cudnn_batchnorm_spatial_persistent", "1")
# Let cuDNN time its algorithms for convolutions, with up to 4,000 MiB of memory, and use the fastest.
set_default("FLAGS_cudnn_exhaustive_search", "1")
set_default("FLAGS_conv_workspace_size_limit", "4000")
set_default("GLOG_minloglevel", "1")  # without this, paddle.distributed prints how the ranks connect
# On a processor of another maker than Intel, MKL would use its slowest kernels. Convolutions, which use MKL,
# are 88 % of a step. ``foreign_vectors`` returns the width of such a processor's vectors, else 0.
if hardware.foreign_vectors():
    set_default("MKL_DEBUG_CPU_TYPE", MKL_KERNELS[hardware.foreign_vectors()])
# Paddle warns if OMP_NUM_THREADS is not 1, because of its builds with OpenBLAS. The wheels have MKL, so this
# warning is left out; all others are printed.
with contextlib.redirect_stderr(io.StringIO()) as _stderr:
    import paddle
_lines = _stderr.getvalue().splitlines(keepends=True)
sys.stderr.write("".join(line for line in _lines if "OMP_NUM_THREADS" not in line))

# The import has replaced handlers of signals, that of SIGTERM among them, by C functions that Python does not
# know of. Set Python's handlers again.
paddle.disable_signal_handler()
signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
