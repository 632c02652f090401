"""The PaddlePaddle implementation. Import PaddlePaddle itself by ``from implementations.paddle import
paddle``."""

import contextlib
import io
import signal
import sys

from rn50.machine import hardware
from rn50.process import set_default

MKL_KERNELS = {256: "5", 512: "7"}
"""Bits of a processor's vectors -> the value of MKL_DEBUG_CPU_TYPE, which the MKL in the wheels still
reads."""

# For cuDNN. Without the first, channels-last batch norm transposes all that it reads and writes (Paddle,
# batch_norm_kernel.cu). The others let convolutions choose by trials, with 4,000 MiB to work in.
set_default("FLAGS_cudnn_batchnorm_spatial_persistent", "1")
set_default("FLAGS_cudnn_exhaustive_search", "1")
set_default("FLAGS_conv_workspace_size_limit", "4000")
set_default("GLOG_minloglevel", "1")  # else paddle.distributed prints how the ranks connect
# MKL takes its slowest kernels on a processor that Intel has not made, and convolutions are 88 % of a step.
if hardware.foreign_vectors():
    set_default("MKL_DEBUG_CPU_TYPE", MKL_KERNELS[hardware.foreign_vectors()])
# Paddle warns of every OMP_NUM_THREADS but 1, because of builds with OpenBLAS; the wheels have MKL.
with contextlib.redirect_stderr(io.StringIO()) as _said:
    import paddle
sys.stderr.write(
    "".join(line for line in _said.getvalue().splitlines(keepends=True) if "OMP_NUM_THREADS" not in line)
)

# Importing Paddle replaces signal handlers, SIGTERM's among them, by C functions that Python does not know
# of.
paddle.disable_signal_handler()
signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
