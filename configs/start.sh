# shellcheck shell=bash
# Sourced first by the scripts: paths that the caller gave relative to his folder become absolute, and the checkout becomes the
# working directory.
unset CDPATH # with it, cd may print a folder, or lead to another one
for path_variable in CONFIG_FILE DATADIR LOGDIR RESULTS RESULT_FILE; do
  case ${!path_variable:-/} in
    /*) ;;
    *) printf -v "$path_variable" '%s/%s' "$PWD" "${!path_variable}" ;;
  esac
done
unset path_variable
cd "$(dirname "$(dirname "$(realpath "${BASH_SOURCE[0]}")")")" || exit

# check_number NAME VALUE WHAT DEFAULT: ends the script where VALUE is no number of WHAT.
check_number() {
  case $2 in
    '' | *[!0123456789]* | 0* | ??????*) echo "${0##*/}: $1=$2 is not a number of $3; set $1=$4" >&2; exit 2 ;;
  esac
}
