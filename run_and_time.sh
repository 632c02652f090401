#!/usr/bin/env bash
# ONE timed run of a configured system: config -> launcher -> rn50 train.
#   DGXSYSTEM=DEMO_CPU ./run_and_time.sh          configs/config_DEMO_CPU.sh
#   CONFIG_FILE=/path/to/anybodys/config.sh ./run_and_time.sh
# RESULT_FILE names the log (default: standard output); SEED the seed (default: from the operating system).
set -euo pipefail

if [ "${1:-}" = "-h" ] || [ "${1:-}" = "--help" ]; then
  sed -n '2,5s/^# \{0,1\}//p' "$0"
  exit 0
fi

root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$root"

if [ -z "${CONFIG_FILE:-}" ]; then
  systems=$(find configs -name 'config_*.sh' | sed 's|.*/config_||; s|\.sh$||' | sort | paste -sd' ')
  if [ -z "${DGXSYSTEM:-}" ]; then
    echo "run_and_time.sh: DGXSYSTEM is not set; set it to one of: $systems" >&2
    exit 2
  fi
  CONFIG_FILE="$root/configs/config_${DGXSYSTEM}.sh"
  if [ ! -f "$CONFIG_FILE" ]; then
    echo "run_and_time.sh: DGXSYSTEM=$DGXSYSTEM: no configs/config_${DGXSYSTEM}.sh; there are: $systems" >&2
    exit 2
  fi
elif [ ! -f "$CONFIG_FILE" ]; then
  echo "run_and_time.sh: CONFIG_FILE=$CONFIG_FILE: no such file" >&2
  exit 2
fi
export CONFIG_FILE
# A published file may read variables that nobody set, and assign without exporting.
set +u -a
# shellcheck source=/dev/null
. "$CONFIG_FILE"
set -u +a

python="$root/.venv/bin/python"
[ -x "$python" ] || python=$(command -v python3)
exec "$python" -m rn50 launch
