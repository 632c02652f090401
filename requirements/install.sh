#!/usr/bin/env bash
# Installs pinned packages into .venv, and does nothing where they are installed: requirements/install.sh mxnet-cpu|dev|horovod
set -euo pipefail
trap 'exit 130' INT TERM

set_name=$1
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=.venv/bin/python
# Written last and taken away during every change: without it, .venv is half made and starts anew.
whole=.venv/whole
installed=.venv/installed-$set_name

say() { echo "setup: $*"; }
fail() {
  say "$*" >&2
  exit 1
}

# One installation at a time; a second one waits and then finds its work done.
exec 9<"${BASH_SOURCE[0]##*/../}"
