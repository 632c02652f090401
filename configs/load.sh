# shellcheck shell=bash
# Sourced by the scripts after start.sh: exports what the configuration of DGXSYSTEM or CONFIG_FILE sets, and CONFIG_FILE itself;
# ends the script, with the names that there are, where there is no such configuration.
if [ -z "${CONFIG_FILE:-}" ]; then
  systems=$(find configs -name 'config_*.sh' | sed 's|.*/config_||; s|\.sh$||' | sort | paste -sd' ')
  if [ -z "${DGXSYSTEM:-}" ]; then
    echo "${0##*/}: DGXSYSTEM is not set; set it to one of: $systems" >&2
    exit 2
  fi
  CONFIG_FILE="$PWD/configs/config_${DGXSYSTEM}.sh"
  if [ ! -f "$CONFIG_FILE" ]; then
    echo "${0##*/}: DGXSYSTEM=$DGXSYSTEM: no configs/config_${DGXSYSTEM}.sh; there are: $systems" >&2
    exit 2
  fi
elif [ ! -f "$CONFIG_FILE" ]; then
  echo "${0##*/}: CONFIG_FILE=$CONFIG_FILE: no such file" >&2
  exit 2
fi
export CONFIG_FILE
not_sourced() {
  trap - EXIT
  echo "${0##*/}: CONFIG_FILE=$CONFIG_FILE: cannot be sourced ($1); keep plain \`export NAME=value\` lines" >&2
  exit 2
}
# A published file may read variables that nobody set, assign without exporting, and source what lies beside it.
root=$PWD
cd "$(dirname "$CONFIG_FILE")"
trap 'not_sourced "it ends the shell"' EXIT
set +eu -a
# shellcheck source=/dev/null
. "./$(basename "$CONFIG_FILE")" </dev/null || not_sourced "status $?"
set -eu +a
trap - EXIT
cd "$root"
