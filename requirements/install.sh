#!/usr/bin/env bash
# Installs pinned sets into .venv, and does nothing where they are there
# already: requirements/install.sh SET..., where SET is mxnet-cpu, mxnet-cu112,
# paddle-cpu, paddle-gpu, pytorch-cpu, pytorch-gpu, deploy (export, quantisation
# and inference), test, lint, docs (the documentation site), horovod-build (what
# the next two take), horovod (with Gloo, for CPUs) or horovod-nccl (with NCCL,
# MPI and Gloo).
# PYTHON names the Python to use; by default find_python.sh chooses one.
set -euo pipefail
trap 'exit 130' INT TERM

if [ "${1:-}" = -h ] || [ "${1:-}" = --help ]; then
  sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit 0
fi

fail() {
  echo "setup: $*" >&2
  exit 1
}
# fail_with_list WORDS...: the same with a long list, of which a terminal gets lines of whole words.
fail_with_list() {
  [ -t 2 ] || fail "$@"
  echo "setup: $*" | fmt -w 79 >&2
  exit 1
}

# One installation at a time; a second one waits and then finds the work done.
exec 9<"${BASH_SOURCE[0]}"
flock 9
unset CDPATH # with it, cd may print a folder, or lead to another one
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=.venv/bin/python
# Says where and with what .venv was made. It is taken away for as long as packages are installed, so that a .venv in which
# somebody interrupted this, or that was moved, or whose Python was replaced, is made anew.
whole=.venv/whole

sets=$*
[ $# -gt 0 ] || set -- ''
for packages; do
  case $packages in
    mxnet-cpu | mxnet-cu112 | paddle-cpu | paddle-gpu | pytorch-cpu | pytorch-gpu) ;;
    deploy | test | lint | docs | horovod-build | horovod | horovod-nccl) ;;
    *) fail_with_list "${packages:-no set named}: there are mxnet-cpu, mxnet-cu112, paddle-cpu, paddle-gpu, pytorch-cpu, pytorch-gpu, deploy, test, lint, docs, horovod-build, horovod, horovod-nccl" ;;
  esac
done
[ -z "${PYTHON:-}" ] || command -v "$PYTHON" >/dev/null || fail "PYTHON=$PYTHON: no such program; name a Python 3.10 to 3.12, or unset it"

origin() { echo "$PWD, $("$1" --version 2>&1)"; }

# Where there is somebody to see it: a line that says what is being downloaded, made of what pip prints for programs.
show_progress() {
  local word rest file='' now=0 before=0 total
  while read -r word rest; do
    case $word in
      Downloading) file=${rest%% *} before=$((before + now)) now=0 file=${file##*/} file=${file%%-py[23]*} ;;
      Progress)
        now=${rest%% *} total=${rest##* }
        printf '\r\033[Ksetup: %.40s, %d of %d MB; %d MB in all' \
          "${file%%-cp3*}" $((now / 1000000)) $(((total + 999999) / 1000000)) $(((before + now) / 1000000)) >&2
        ;;
      Installing) printf '\r\033[Ksetup: unpacking, after %d MB of downloads' $(((before + now) / 1000000)) >&2 ;;
    esac
  done
  printf '\r\033[K' >&2
}

pip_install() {
  local pip=("$python" -m pip --disable-pip-version-check)
  rm -f "$whole"
  # An older pip, which this one replaces, has no progress for programs.
  if [ -t 2 ] && "${pip[@]}" install --progress-bar raw --help >/dev/null 2>&1; then
    PYTHONUNBUFFERED=1 "${pip[@]}" install --progress-bar raw "$@" | show_progress || pip_status=$?
  else
    "${pip[@]}" --quiet install "$@" || pip_status=$?
  fi
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
  fail "requirements/$1.txt could not be installed; pip's reason is above. Check the network or proxy and the free disk space" \
    "($(df -h --output=avail . | tail -1 | tr -d ' ') here), then run the same command again"
}

# install_wheels SIZE [FILE...]: of the set, or of other files for it.
install_wheels() {
  # All that the wheels take from the system beside its C library; a minimal system lacks the first two.
  "$python" -c 'from ctypes import CDLL; CDLL("libgomp.so.1"); CDLL("libquadmath.so.0"); CDLL("libstdc++.so.6")' 2>/dev/null ||
    fail "MXNet needs libgomp, libquadmath and libstdc++ from the system: sudo apt-get install libgomp1 libquadmath0 libstdc++6"
  local size=$1 name files=()
  shift
  for name in "${@:-$packages}"; do files+=(-r "requirements/$name.txt"); done
  echo "setup: installing $packages (up to $size to download)"
  pip_install --require-hashes --only-binary :all: "${files[@]}" || fail_to_install "$packages"
}

has_pytorch_for_cpus() {
  "$python" -m pip --disable-pip-version-check --quiet install --dry-run --no-deps --require-hashes --only-binary :all: \
    -r <(sed '/^-r/d' requirements/pytorch-cpu.txt) >/dev/null 2>&1
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

# The wheel of Horovod for CPUs is kept for every .venv that it fits, such as an image's: of the same pins, MXNet and Python, on the
# same system. pip checked the hash of the source that it was built from here; the wheel itself is not checked again.
wheels_of_horovod() {
  local system python_tag pins
  # shellcheck source=/dev/null
  system=$(. /etc/os-release && echo "$ID-${VERSION_ID:-}")
  python_tag=$("$python" -c 'import sys; print(sys.implementation.cache_tag)')
  pins=$({ cat "${files[@]}" requirements/{mxnet-cpu,horovod-build}.txt requirements/build_with_mxnet/*.py requirements/install.sh; echo "$mpi" .venv/installed-mxnet-*; } | sha256sum)
  echo "requirements/wheels/$system-$python_tag-${pins:0:16}"
}

build_horovod() {
  local log=.venv/horovod-build.log wheels=.venv/wheels nccl
  rm -rf "$wheels"
  [ "$packages" = horovod-nccl ] || wheels=$(wheels_of_horovod)
  if [ -d "$wheels" ]; then
    echo "setup: installing $packages, built before ($wheels)"
  else
    compile_horovod
  fi
  # pip would leave one that is installed as it is.
  pip_install --force-reinstall --no-index --no-deps "$wheels"/*.whl || fail "the wheel of Horovod could not be installed; pip's reason is above"
}

compile_horovod() {
  { command -v g++ && command -v make; } >/dev/null || fail "Horovod is built from source, which needs a compiler: sudo apt-get install g++ make"
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
  # against something else. -gtoggle takes back the -g of its build: a third of the time goes into what only a debugger reads.
  rm -rf requirements/wheels
  PATH="$PWD/.venv/bin:$PATH" PYTHONPATH="$PWD/requirements/build_with_mxnet" CXXFLAGS="-gtoggle ${CXXFLAGS:-}" \
    HOROVOD_WITH_MXNET=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 \
    "$python" -m pip --disable-pip-version-check wheel --no-cache-dir --no-deps --no-build-isolation --require-hashes \
    --wheel-dir .venv/wheels -r requirements/horovod.txt >"$log" 2>&1 || {
    tail -n 25 "$log" >&2
    fail "Horovod could not be built; the end of $log is above"
  }
  [ "$packages" = horovod-nccl ] || { mkdir requirements/wheels && mv .venv/wheels "$wheels"; }
}

# Sets that are not for one .venv: files of theirs have the same names.
refuse_beside() {
  local other
  for other; do
    [ ! -e ".venv/installed-$other" ] ||
      fail "$packages has files of the same names as $other in .venv; to have it instead: rm -rf .venv && requirements/install.sh $sets"
  done
}

# Every file that a set is made of.
files_of() {
  echo "requirements/$1.txt"
  local base
  while read -r base; do files_of "$base"; done < <(sed -n 's/^-r \(.*\)\.txt$/\1/p' "requirements/$1.txt")
}

install_set() {
  local mpi='' installed=.venv/installed-$packages files wanted
  mapfile -t files < <(files_of "${packages%-nccl}")
  # Horovod has MPI where there is one to build with, or to run a kept wheel with, and is built again where one has come since.
  case $packages in
    horovod-nccl) mpi=WITH_MPI ;;
    horovod)
      if command -v mpicxx || { command -v mpirun && [ -d "$(mpi=WITH_MPI wheels_of_horovod)" ]; }; then mpi=WITH_MPI; fi >/dev/null
      ;;
  esac
  wanted=$(sha256sum "${files[@]}" requirements/install.sh && echo "$mpi")
  [ "$(cat "$installed" 2>/dev/null)" != "$wanted" ] || return 0
  case $packages in
    mxnet-cpu) refuse_beside mxnet-cu112 pytorch-gpu ;;
    mxnet-cu112) refuse_beside mxnet-cpu pytorch-gpu ;;
    paddle-cpu) refuse_beside paddle-gpu pytorch-gpu ;;
    paddle-gpu) refuse_beside paddle-cpu pytorch-gpu ;;
    pytorch-cpu) refuse_beside pytorch-gpu ;;
    pytorch-gpu) refuse_beside mxnet-cpu mxnet-cu112 paddle-cpu paddle-gpu pytorch-cpu ;;
  esac
  case $packages in
    mxnet-cpu) install_wheels "700 MB" ;;
    mxnet-cu112 | paddle-gpu | pytorch-gpu) install_wheels "3 GB" ;;
    paddle-cpu) install_wheels "600 MB" ;;
    pytorch-cpu)
      if has_pytorch_for_cpus; then
        install_wheels "700 MB"
      else
        echo "setup: no build of PyTorch for CPUs and $("$python" --version) in pip's indexes (PIP_EXTRA_INDEX_URL may name PyTorch's own); the ordinary one runs on CPUs too"
        install_wheels "3 GB" dali pytorch-common
      fi
      ;;
    deploy | test | lint | docs | horovod-build) install_wheels "150 MB" ;;
    horovod | horovod-nccl) build_horovod ;;
  esac
  [ "$packages" != paddle-gpu ] || link_cuda
  echo "$wanted" >"$installed"
}

if [ "$(cat "$whole" 2>/dev/null)" != "$(origin "$python" 2>/dev/null)" ]; then
  if [ -s "$whole" ]; then
    echo "setup: .venv was made for $(cat "$whole"), and here is $(origin "$python"); it is made anew"
  elif [ -e .venv ]; then
    echo "setup: .venv is not whole, as after an interrupted installation; it is made anew"
  fi
  make_venv
elif [ -n "${PYTHON:-}" ] && [ "$("$PYTHON" --version)" != "$("$python" --version)" ]; then
  echo "setup: .venv holds $("$python" --version), and PYTHON=$PYTHON is another one"
  make_venv
fi

for packages; do install_set; done

# The commands and modules of this checkout itself, as .venv/bin/rn50.
wanted=$(sha256sum pyproject.toml requirements/rn50.in rn50/__init__.py)
[ "$(cat .venv/installed-rn50 2>/dev/null)" != "$wanted" ] || exit 0
pip_install --no-index --no-deps --no-build-isolation --editable . || fail "this checkout could not be installed; pip's reason is above"
echo "$wanted" >.venv/installed-rn50
