#!/usr/bin/env bash
# What the Dockerfile does for a STAGE (mxnet-cpu, mxnet-gpu, paddle-cpu, paddle-gpu, pytorch-cpu, pytorch-gpu):
#   requirements/image.sh system STAGE      installs what the image needs of the system
#   requirements/image.sh packages STAGE    makes .venv, with a compiler that stays behind, and /opt/stand-in
#   requirements/image.sh check STAGE       shows that .venv works without that compiler; fails where it does not
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

step=$1 stage=$2
stand_in=/opt/stand-in # libcuda.so.1 is the driver's: there is none where an image is built

install() {
  apt-get -qq update
  apt-get -qq install --yes --no-install-recommends "$@" >/dev/null
  rm -rf /var/lib/apt/lists/* /var/cache/apt/*
}

system() {
  case $stage in
    paddle-*) ;;
    mxnet-*) install openmpi-bin openssh-client ;;
    # PyTorch's compiler and Triton compile when a run starts.
    pytorch-*) install g++ python3-dev ;;
    *) echo "STAGE=$stage: there are mxnet-cpu, mxnet-gpu, paddle-cpu, paddle-gpu, pytorch-cpu and pytorch-gpu" >&2; exit 2 ;;
  esac
}

packages() {
  mkdir "$stand_in"
  case $stage in
    mxnet-cpu)
      requirements/install.sh mxnet-cpu horovod-build
      # A wheel that fits, which the checkout may have kept, needs no compiler.
      if ! requirements/install.sh horovod 2>/dev/null; then
        install g++ libopenmpi-dev make
        requirements/install.sh horovod
      fi
      without_what_built_it
      ;;
    mxnet-gpu)
      # nvcc is one of Debian's non-free packages, and takes no compiler newer than GCC 11.
      find /etc/apt '(' -name '*.list' -o -name '*.sources' ')' -exec \
        sed -i -E 's/^(deb .* main|Components: main)$/\1 contrib non-free/' {} +
      install g++ g++-11 libopenmpi-dev make nvidia-cuda-toolkit
      requirements/install.sh mxnet-cu112
      # MXNet is not imported without a driver: the toolkit has a stand-in to build against.
      cp "$(find /usr/lib -path '*/stubs/libcuda.so')" "$stand_in/libcuda.so.1"
      ls -d "$PWD"/.venv/lib/python3.*/site-packages/nvidia/*/lib >/etc/ld.so.conf.d/rn50.conf
      ldconfig
      export LD_LIBRARY_PATH=$stand_in CUDACXX=/usr/bin/nvcc CUDAHOSTCXX=g++-11 HOROVOD_CUDA_HOME=/usr
      requirements/install.sh horovod-build horovod-nccl
      without_what_built_it
      ;;
    paddle-* | pytorch-*) requirements/install.sh "$stage" ;;
  esac
}

without_what_built_it() {
  pip --quiet uninstall --yes cmake
  rm -rf .venv/horovod-build.log .venv/wheels
}

check() {
  case $stage in
    mxnet-cpu) horovod_has MXNet MPI Gloo ;;
    mxnet-gpu)
      local library missing
      library=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/mxnet/libmxnet.so
      echo "$library needs"
      ldd "$library"
      missing=$(ldd "$library" | awk '/not found/ {print $1}')
      [ "$missing" = libcuda.so.1 ] || { echo "only libcuda.so.1 may be missing, not: ${missing:-nothing}" >&2; exit 1; }
      export LD_LIBRARY_PATH=$stand_in
      PYTHONPATH=$PWD/requirements/build_with_mxnet horovod_has MXNet NCCL MPI Gloo
      ;;
    paddle-*)
      # Without a driver PaddlePaddle's build for GPUs loads none of CUDA's libraries.
      [ "$stage" = paddle-cpu ] || .venv/bin/python -c 'from ctypes import CDLL
for name in "cublas", "cublasLt", "cudnn", "cufft", "cupti", "curand", "cusolver", "cusparse", "nccl", "nvrtc", "nvToolsExt":
    CDLL(f"lib{name}.so")
    print(f"lib{name}.so is found")'
      .venv/bin/python -c 'import nvidia.dali.plugin.paddle, paddle
paddle.set_device("cpu")
print("paddle", paddle.__version__, "CUDA", paddle.version.cuda(), "DALI", nvidia.dali.__version__)
print("sum", paddle.ones([8]).sum().item())'
      ;;
    pytorch-*)
      .venv/bin/python -c 'import nvidia.dali, torch
print("torch", torch.__version__, "CUDA", torch.version.cuda, "DALI", nvidia.dali.__version__)
torch.compile(lambda x: (x * 2).sum())(torch.ones(8)).item()
print("torch.compile compiles")'
      ;;
  esac
}

horovod_has() {
  local built part
  .venv/bin/python -c 'import mxnet; print("mxnet", mxnet.__version__, "sees", mxnet.context.num_gpus(), "GPUs")'
  built=$(.venv/bin/horovodrun --check-build)
  echo "$built"
  for part; do
    grep -qF "[X] $part" <<<"$built" || { echo "Horovod was built without $part" >&2; exit 1; }
  done
}

"$step"
