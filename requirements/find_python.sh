#!/usr/bin/env bash
# Prints the path of a CPython 3.8-3.12 that can make virtual environments: $PYTHON if set, else the first that fits on the PATH or
# under pyenv, 3.11 before the others because the project's figures are measured on it. With none, one line says how to get one.
set -euo pipefail

# What a candidate is: "3.11 yes" if it can make virtual environments, "3.11 no" if not, and nothing if it is of no use here.
fitness='
import platform, sys
if sys.implementation.name == "cpython" and (3, 8) <= sys.version_info[:2] <= (3, 12) and sys.maxsize > 2**32:
    try:
        import ensurepip, venv
        able = "yes"
    except ImportError:
        able = "no"
    print(platform.python_version().rpartition(".")[0], able)
'

fail() {
  echo "setup: $*" >&2
  exit 1
}

[ "$(uname -sm)" = "Linux x86_64" ] || fail "MXNet and DALI are packaged for x86-64 Linux only; this is $(uname -sm)"

if [ -n "${PYTHON:-}" ]; then
  candidates=("$PYTHON")
else
  candidates=(python3.11 python3.12 python3.10 python3.9 python3.8 python3 python)
  for minor in 11 12 10 9 8; do
    candidates+=("${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$minor".*/bin/python)
  done
fi

without_venv=
for candidate in "${candidates[@]}"; do
  # A pyenv shim is on the PATH even where its Python is not chosen: only running it tells.
  read -r version able < <("$candidate" -c "$fitness" 2>/dev/null) || continue
  if [ "$able" = yes ]; then
    command -v "$candidate"
    exit 0
  fi
  without_venv=${without_venv:-$version}
done

[ -z "$without_venv" ] || fail "Python $without_venv lacks its venv module: sudo apt-get install python$without_venv-venv"
fail "no Python 3.8-3.12${PYTHON:+ behind PYTHON=$PYTHON} (found: $(python3 --version 2>/dev/null || echo none)); get one with" \
  "'sudo apt-get install python3.11 python3.11-venv', 'pyenv install 3.11', 'uv python install 3.11' or 'conda create -n rn50 python=3.11'"
