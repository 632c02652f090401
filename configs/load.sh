# shellcheck shell=bash
# Sourced by the scripts after start.sh: exports what the configuration of DGXSYSTEM or CONFIG_FILE sets, and CONFIG_FILE itself;
# ends the script, with the names that there are, where there is no such configuration.
find_configuration
export CONFIG_FILE
not_sourced() {
  trap - EXIT
  refuse "CONFIG_FILE=$CONFIG_FILE: cannot be sourced ($1); keep plain \`export NAME=value\` lines"
}
# A published file may read variables that nobody set, assign without exporting, and source what lies beside it.
root=$PWD
cd "$(dirname "$CONFIG_FILE")"
trap 'not_sourced "it ends the shell"' EXIT
trap 'trap - EXIT; exit 130' INT # which is not the file's fault
trap 'trap - EXIT; exit 143' TERM
set +eu -a
# shellcheck source=/dev/null
. "./$(basename "$CONFIG_FILE")" </dev/null || not_sourced "status $?"
set -eu +a
trap - EXIT INT TERM
cd "$root"
absolute_paths # those of the file too: they begin in the checkout
