# shellcheck shell=bash
# Sourced by the scripts: exports what the configuration of DGXSYSTEM or CONFIG_FILE sets, and CONFIG_FILE itself; ends the script,
# with the names that there are, where there is no such configuration.
configs=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [ -z "${CONFIG_FILE:-}" ]; then
  systems=$(find "$configs" -name 'config_*.sh' | sed 's|.*/config_||; s|\.sh$||' | sort | paste -sd' ')
  if [ -z "${DGXSYSTEM:-}" ]; then
    echo "${0##*/}: DGXSYSTEM is not set; set it to one of: $systems" >&2
    exit 2
  fi
  CONFIG_FILE="$configs/config_${DGXSYSTEM}.sh"
  if [ ! -f "$CONFIG_FILE" ]; then
    echo "${0##*/}: DGXSYSTEM=$DGXSYSTEM: no configs/config_${DGXSYSTEM}.sh; there are: $systems" >&2
    exit 2
  fi
elif [ ! -f "$CONFIG_FILE" ]; then
  echo "${0##*/}: CONFIG_FILE=$CONFIG_FILE: no such file" >&2
  exit 2
fi
export CONFIG_FILE
# A published file may read variables that nobody set, and assign without exporting.
set +u -a
# shellcheck source=/dev/null
. "$CONFIG_FILE"
set -u +a
