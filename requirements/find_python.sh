#!/usr/bin/env bash
# Prints the path of a CPython 3.10-3.12 that can make virtual environments: $PYTHON if set, else the first that fits on the PATH or
# among those of pyenv and uv, 3.11 before the others because the project's figures are measured on it. With none, one line says how
# to get one.
set -euo pipefail

# Says of a candidate "3.11 yes PATH" if it can make virtual environments, "3.11 no PATH" if not, and nothing if it is of no use.
fitness='
import sys
if sys.implementation.name == "cpython" and (3, 10) <= sys.version_info[:2] <= (3, 12) and sys.maxsize > 2**32:
    try:
        import ensurepip, venv
        able = "yes"
    except ImportError:
        able = "no"
    print("%d.%d" % sys.version_info[:2], able, sys.executable)
'

fail() {
  echo "setup: $*" >&2
  exit 1
}

[ "$(uname -sm)" = "Linux x86_64" ] || fail "MXNet and DALI are packaged for x86-64 Linux only; this is $(uname -sm)"

if [ -n "${PYTHON:-}" ]; then
  candidates=("$PYTHON")
else
  candidates=(python3.11 python3.12 python3.10 python3 python)
  for minor in 11 12 10; do
    candidates+=("${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$minor".*/bin/python "$HOME/.local/share/uv/python/cpython-3.$minor".*/bin/python)
  done
fi

without_venv=
for candidate in "${candidates[@]}"; do
  # A pyenv shim is on the PATH even where its Python is not chosen: only running it tells.
  read -r version able path < <("$candidate" -c "$fitness" 2>/dev/null) || continue
  if [ "$able" = yes ]; then
    echo "$path"
    exit 0
  fi
  without_venv=${without_venv:-$version}
done

[ -z "$without_venv" ] || fail "Python $without_venv lacks its venv module: sudo apt-get install python$without_venv-venv"
[ -z "${PYTHON:-}" ] || fail "PYTHON=$PYTHON is no 64-bit CPython 3.10-3.12"
fail "no Python 3.10-3.12 here ($(python3 --version 2>/dev/null || echo no python3 at all)); get one with 'uv python install 3.11'," \
  "'pyenv install 3.11', 'conda create -n rn50 python=3.11 && conda activate rn50'," \
  "or 'sudo apt-get install python3-venv' on Debian 12 and Ubuntu 22.04-24.04"
