#!/usr/bin/env bash
# Resolves every requirements/*.in for all Pythons from 3.8 on into a pinned, hashed *.txt. Pins that are there stay unless they
# no longer fit; requirements/compile.sh --upgrade takes the newest.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
resolve() {
  echo "$1.in"
  uv pip compile "${@:2}" "$1.in" --output-file "$1.txt" --universal --python-version 3.8 --generate-hashes --quiet \
    --custom-compile-command "make requirements" >/dev/null
}

resolve pip "$@" --only-binary :all:
for packages in core mxnet-cpu mxnet-cu112 horovod-build; do
  resolve "$packages" "$@" --only-binary :all:
done
resolve paddle-cpu "$@" --only-binary :all: --constraint mxnet-cpu.txt
resolve paddle-gpu "$@" --only-binary :all: --constraint paddle-cpu.txt
resolve deploy "$@" --only-binary :all: --constraint paddle-cpu.txt
resolve dev "$@" --only-binary :all: --constraint deploy.txt
resolve docs "$@" --only-binary :all: --constraint dev.txt
# For the one Python that there is a wheel for. It lies in PyTorch's index of builds for CPUs: UV_FIND_LINKS or UV_INDEX says where.
uv pip compile "$@" --only-binary :all: pytorch-cpu.in --constraint mxnet-cpu.txt --output-file pytorch-cpu.txt --python-version 3.11 \
  --generate-hashes --quiet --custom-compile-command "make requirements" >/dev/null
# PyTorch 2.13 is for Python 3.10 and later ones.
uv pip compile "$@" --only-binary :all: pytorch-gpu.in --constraint core.txt --output-file pytorch-gpu.txt --universal \
  --python-version 3.10 --generate-hashes --quiet --custom-compile-command "make requirements" >/dev/null
# A source distribution, and its dependencies are in horovod-build.in.
resolve horovod "$@" --no-deps
