#!/usr/bin/env bash
# Shows that MXNet finds every library but the driver's libcuda.so.1 and that Horovod was built with all it needs on GPUs; fails
# where it does not: requirements/check_gpu_stage.sh FOLDER_OF_A_STAND_IN_FOR_LIBCUDA
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

echo "$packages/mxnet/libmxnet.so needs"
libraries=$(ldd "$packages/mxnet/libmxnet.so")
echo "$libraries"
missing=$(awk '/not found/ {print $1}' <<<"$libraries")
[ "$missing" = libcuda.so.1 ] || { echo "only libcuda.so.1 may be missing, not: ${missing:-nothing}" >&2; exit 1; }

export LD_LIBRARY_PATH=$1 PYTHONPATH=$PWD/requirements/build_with_mxnet
.venv/bin/python -c 'import mxnet; print("mxnet", mxnet.__version__, "sees", mxnet.context.num_gpus(), "GPUs")'
built=$(.venv/bin/horovodrun --check-build)
echo "$built"
for part in MXNet NCCL MPI Gloo; do
  grep -qF "[X] $part" <<<"$built" || { echo "Horovod was built without $part" >&2; exit 1; }
done
