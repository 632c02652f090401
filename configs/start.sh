# shellcheck shell=bash
# Sourced first by the scripts: paths that the caller gave relative to his folder become absolute, and the checkout becomes the
# working directory.
unset CDPATH # with it, cd may print a folder, or lead to another one
# absolute_paths: makes the variables that hold paths absolute, of one spelling whoever set them; they begin in the working folder.
absolute_paths() {
  local path_variable
  for path_variable in CONFIG_FILE DATADIR INITIAL_WEIGHTS LOGDIR RESULTS RESULT_FILE; do
    [ -z "${!path_variable:-}" ] || printf -v "$path_variable" %s "$(realpath -ms -- "${!path_variable}")"
  done
}
absolute_paths
# shellcheck disable=SC2034 # run_experiments.sh shows relative paths where it is the checkout
called_from=$PWD
cd "$(dirname "$(dirname "$(realpath "${BASH_SOURCE[0]}")")")" || exit

# plain WORDS...: prints them as one line, without characters that a terminal obeys.
plain() {
  printf '%s\n' "${*//[![:print:]]/?}"
}
# refuse WORDS...: ends the script, which says why.
refuse() {
  plain "${0##*/}: $*" >&2
  exit 2
}
# refuse_with_list WORDS...: the same with a long list, of which a terminal gets lines of whole words.
refuse_with_list() {
  [ -t 2 ] || refuse "$@"
  plain "${0##*/}: $*" | fmt -w 79 >&2
  exit 2
}

say_stopped() { echo "rn50: stopped by SIGINT; the same command again resumes" >&2; }
# end_on_ctrl_c: from here on Ctrl-C ends the script once the program that it waits for has ended, however that answers it.
end_on_ctrl_c() {
  # A program that ends with status 130 has said it. One that was just put in the background ignores Ctrl-C.
  trap '[ $? = 130 ] || say_stopped
    kill $(jobs -p) 2>/dev/null; exit 130' INT
}

# check_number NAME VALUE WHAT DEFAULT: ends the script where VALUE is not a number of WHAT.
check_number() {
  case $2 in
    '' | *[!0123456789]* | 0* | ??????*) refuse "$1=$2 is not a number of $3; set $1=$4" ;;
  esac
}

# find_configuration: CONFIG_FILE becomes that of DGXSYSTEM where it is not set; ends the script, with the names that there are,
# where there is no such file.
find_configuration() {
  if [ -z "${CONFIG_FILE:-}" ]; then
    local systems
    systems=$(find configs -name 'config_*.sh' | sed 's|.*/config_||; s|\.sh$||' | sort | paste -sd' ')
    [ -n "${DGXSYSTEM:-}" ] || refuse_with_list "DGXSYSTEM is not set; set it to one of: $systems"
    CONFIG_FILE="$PWD/configs/config_$DGXSYSTEM.sh"
    [ -f "$CONFIG_FILE" ] || refuse_with_list "DGXSYSTEM=$DGXSYSTEM: no configs/config_$DGXSYSTEM.sh; there are: $systems"
  else
    [ -f "$CONFIG_FILE" ] || refuse "CONFIG_FILE=$CONFIG_FILE: no such file"
  fi
}

# system_of FILE: prints the name of the system that a configuration file is of.
system_of() {
  local name
  name=$(basename "$1" .sh)
  echo "${name#config_}"
}

# stage: prints which stage of the Dockerfile the configuration that was sourced needs.
stage() {
  local stage=${FRAMEWORK:-mxnet}-${DEVICE:-gpu}
  echo "${stage,,}"
}
