#!/usr/bin/env bash
# Installs a pinned set into .venv, and does nothing where it is there already: requirements/install.sh SET, where SET is
# mxnet-cpu, mxnet-cu112, paddle-cpu, paddle-gpu, pytorch-cpu, pytorch-gpu, deploy (export, quantisation and inference), dev
# (tests and linters), docs (the documentation site), horovod-build (what the next two take), horovod (with Gloo, for CPUs) or
# horovod-nccl (with NCCL, MPI and Gloo).
# PYTHON names the Python to use; by default find_python.sh chooses one.
set -euo pipefail
trap 'exit 130' INT TERM

packages=${1:-}
# One installation at a time; a second one waits and then finds the work done.
exec 9<"${BASH_SOURCE[0]}"
flock 9
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=.venv/bin/python
# Says where and with what .venv was made. It is taken away for as long as packages are installed, so that a .venv in which
# somebody interrupted this, or that was moved, or whose Python was replaced, is made anew.
whole=.venv/whole
# Says what .venv holds of this set.
done_before=.venv/installed-$packages

if [ "$packages" = -h ] || [ "$packages" = --help ]; then
  sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit 0
fi

fail() {
  echo "setup: $*" >&2
  exit 1
}

[ -n "$packages" ] && [ -f "requirements/${packages%-nccl}.txt" ] ||
  fail "${packages:-no set named}: there are mxnet-cpu, mxnet-cu112, paddle-cpu, paddle-gpu, pytorch-cpu, pytorch-gpu, deploy, dev, docs, horovod-build, horovod, horovod-nccl"
[ -z "${PYTHON:-}" ] || command -v "$PYTHON" >/dev/null || fail "PYTHON=$PYTHON: no such program; name a Python 3.8 to 3.12, or unset it"

origin() { echo "$PWD, $("$1" --version 2>&1)"; }

pip_install() {
  rm -f "$whole"
  "$python" -m pip --disable-pip-version-check --quiet install "$@" || pip_status=$?
  origin "$python" >"$whole"
  return "${pip_status:-0}"
}

make_venv() {
  local base
  # --clear would empty the folder that a link leads to, perhaps that of another checkout.
  [ ! -L .venv ] || fail ".venv is a link to $(readlink .venv), made for another checkout; remove the link"
  base=$(requirements/find_python.sh)
  echo "setup: .venv with $("$base" --version) ($base)"
  "$base" -m venv --clear .venv || fail "'$base -m venv' failed; its reason is above"
  pip_install --require-hashes --only-binary :all: -r requirements/pip.txt || {
    rm -f "$whole"
    fail_to_install pip
  }
}

fail_to_install() {
  local remedy
  remedy="Check the network or proxy and the free disk space ($(df -h --output=avail . | tail -1 | tr -d ' ') here)"
  [ "$1" != pytorch-cpu ] || remedy="PyTorch's build for CPUs, pinned for Python 3.11 (PYTHON=python3.11), comes from an index of its own; name it in PIP_EXTRA_INDEX_URL"
  fail "requirements/$1.txt could not be installed; pip's reason is above. $remedy, then run the same command again"
}

install_wheels() {
  # All that the wheels take from the system beside its C library; a minimal system lacks the first two.
  "$python" -c 'from ctypes import CDLL; CDLL("libgomp.so.1"); CDLL("libquadmath.so.0"); CDLL("libstdc++.so.6")' 2>/dev/null ||
    fail "MXNet needs libgomp, libquadmath and libstdc++ from the system: sudo apt-get install libgomp1 libquadmath0 libstdc++6"
  echo "setup: installing requirements/$packages.txt${1:-}"
  pip_install --require-hashes --only-binary :all: -r "requirements/$packages.txt" || fail_to_install "$packages"
  # The commands and modules of this checkout itself, as .venv/bin/rn50.
  pip_install --no-index --no-deps --no-build-isolation --editable . || fail "this checkout could not be installed; pip's reason is above"
}

link_cuda() {
  # PaddlePaddle loads CUDA's libraries by names without a version, which the wheels lack, and not from the wheels' folders.
  local library folders
  for library in .venv/lib/python3.*/site-packages/nvidia/*/lib/lib*.so.[0-9]*; do
    ln -sf "$(basename "$library")" "${library%%.so.*}.so"
  done
  folders=$(printf '%s:' "$PWD"/.venv/lib/python3.*/site-packages/nvidia/*/lib)
  echo "setup: outside an image PaddlePaddle finds CUDA's libraries with export LD_LIBRARY_PATH=${folders%:}"
}

build_horovod() {
  { command -v g++ && command -v make; } >/dev/null || fail "Horovod is built from source, which needs a compiler: sudo apt-get install g++ make"
  local log=.venv/horovod-build.log nccl
  echo "setup: building $packages from source against MXNet${mpi:+, with MPI} (about 2 minutes; $log)"
  if [ "$packages" = horovod-nccl ]; then
    # NCCL is that of its wheel, which lacks the one name that a linker asks for. The architectures are those of mxnet-cu112.
    nccl=$("$python" -c 'import nvidia.nccl; print(*nvidia.nccl.__path__)')
    ln -sf libnccl.so.2 "$nccl/lib/libnccl.so"
    export HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_BUILD_CUDA_CC_LIST=50,60,70,80,86 \
      HOROVOD_NCCL_INCLUDE="$nccl/include" HOROVOD_NCCL_LIB="$nccl/lib" HOROVOD_NCCL_LINK=SHARED
  fi
  export "HOROVOD_${mpi:-WITHOUT_MPI}=1" MAKEFLAGS="${MAKEFLAGS:--j$(nproc)}" # else eight compilers at once, on any machine
  # Its build imports MXNet, hence build_with_mxnet, and calls cmake by name. A wheel from pip's cache could be one that was built
  # against something else.
  PATH="$PWD/.venv/bin:$PATH" PYTHONPATH="$PWD/requirements/build_with_mxnet" \
    HOROVOD_WITH_MXNET=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 \
    pip_install --no-cache-dir --no-deps --no-build-isolation --require-hashes -r requirements/horovod.txt >"$log" 2>&1 || {
    tail -n 25 "$log" >&2
    fail "Horovod could not be built; the end of $log is above"
  }
}

if [ "$(cat "$whole" 2>/dev/null)" != "$(origin "$python" 2>/dev/null)" ]; then
  make_venv
elif [ -n "${PYTHON:-}" ] && [ "$("$PYTHON" --version)" != "$("$python" --version)" ]; then
  echo "setup: .venv holds $("$python" --version), and PYTHON=$PYTHON is another one"
  make_venv
fi

# Horovod is built with MPI where there is one to build with, and built again where one has come since.
mpi=''
case $packages in
  horovod-nccl) mpi=WITH_MPI ;;
  horovod) ! command -v mpicxx >/dev/null || mpi=WITH_MPI ;;
esac
wanted=$(sha256sum "requirements/${packages%-nccl}.txt" requirements/install.sh pyproject.toml && echo "$mpi")
[ "$(cat "$done_before" 2>/dev/null)" != "$wanted" ] || exit 0
case $packages in
  mxnet-cpu) install_wheels " (some 700 MB to download)" ;;
  mxnet-cu112) install_wheels " (some 3 GB to download)" ;;
  paddle-cpu) install_wheels " (some 500 MB to download)" ;;
  paddle-gpu)
    [ ! -e .venv/installed-paddle-cpu ] && [ ! -e .venv/installed-dev ] ||
      fail "paddle-gpu would overwrite files of PaddlePaddle's build for CPUs in .venv; delete .venv, or use another checkout"
    install_wheels " (some 3 GB to download)"
    link_cuda
    ;;
  pytorch-cpu) install_wheels " (some 700 MB to download)" ;;
  pytorch-gpu)
    [ -z "$(find .venv -maxdepth 1 -name 'installed-mxnet-*')" ] ||
      fail "pytorch-gpu brings another DALI than the set of MXNet in .venv; delete .venv, or use another checkout"
    install_wheels " (some 3 GB to download)"
    ;;
  dev) install_wheels " (some 200 MB more)" ;;
  deploy | docs | horovod-build) install_wheels ;;
  horovod | horovod-nccl) build_horovod ;;
esac
echo "$wanted" >"$done_before"
