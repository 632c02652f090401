#!/usr/bin/env bash
# What run_experiments.sh does, in containers of docker or podman: NEXP timed
# runs (5), checked and scored.
#   DGXSYSTEM=DEMO_CPU ./run_with_docker.sh
#   DGXSYSTEM=DGXH100 DATADIR=/path/to/imagenet ./run_with_docker.sh
# CONT is an image of `make image` (auto: that of the configuration's FRAMEWORK
# and DEVICE, as rn50:pytorch-gpu), ENGINE docker or podman (the first that
# answers). The configuration is that of this checkout, or CONFIG_FILE. Results
# go to LOGDIR (results/SYSTEM) and are yours; the same command again resumes.
# Variables that `rn50 config show` calls used or passed through are passed on,
# but LD_*, which names files of this machine.
set -uo pipefail

if [ "${1:-}" = "-h" ] || [ "${1:-}" = "--help" ]; then
  sed -n '2,11s/^# \{0,1\}//p' "$0"
  exit 0
fi
. "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/configs/start.sh"
root=$PWD

check_number NEXP "${NEXP:-5}" runs 5 # run_experiments.sh does so too, but only when all else is right
# SYS_NICE: memory is bound to a socket. label=disable: SELinux would keep the container from the caller's files.
options=(--rm --network=host --ipc=host --cap-add SYS_NICE --security-opt label=disable)
[ ! -d /dev/infiniband ] || options+=(--device /dev/infiniband --ulimit memlock=-1)
mount() {
  [[ $1$2 != *[,\"]* ]] || refuse "$1: a path with a comma or a quotation mark cannot be mounted; use another"
  options+=(--mount "type=bind,source=$1,target=$2${3:-}")
}

# The configuration. Ours lies over that of the image, so that an edited file needs no new image.
chosen=${CONFIG_FILE:-}
find_configuration
config=$CONFIG_FILE
if [ -n "$chosen" ]; then
  config=$(realpath "$chosen")
  mount "$(dirname "$config")" "$(dirname "$config")" ,readonly
  options+=(--env "CONFIG_FILE=$config")
else
  unset CONFIG_FILE # DGXSYSTEM says it, in the container too
  mount "$root/configs" /opt/rn50/configs ,readonly
  options+=(--env DGXSYSTEM)
fi
system=$(system_of "$config")
mapfile -t said < <(
  set +u
  cd "$(dirname "$config")" || exit
  # shellcheck source=/dev/null
  . "./$(basename "$config")" </dev/null >/dev/null && printf '%s\n' "${DGXNGPU:-1}" "${DATADIR:-/data}" "$(stage)" "${POWER:-off}"
)
[ ${#said[@]} = 4 ] || refuse "CONFIG_FILE=$config: cannot be sourced; keep plain \`export NAME=value\` lines"
ranks=${said[0]} data=$(realpath -m "${said[1]}") stage=${said[2]}

# The engine, the image, and what the engine has to hand over.
engine='' trouble="no ${ENGINE:-docker or podman} here; sudo apt-get install ${ENGINE:-docker.io, or podman}"
for candidate in ${ENGINE:-podman docker}; do # a later one's trouble replaces an earlier one's
  command -v "$candidate" >/dev/null || continue
  if answer=$("$candidate" ps 2>&1 >/dev/null); then
    engine=$candidate
  elif [[ $answer = *[Pp]"ermission denied"* ]]; then
    trouble="$candidate: no permission to use it; sudo usermod -aG docker $(id -un), then log in again"
  else
    trouble="$candidate does not answer: $(tail -n 1 <<<"$answer"); start it with sudo systemctl start $candidate"
  fi
done
[ -n "$engine" ] || refuse "$trouble"
about=$("$engine" info 2>/dev/null)
if [[ $about = *buildahVersion* ]]; then # podman asks for higher limits than its caller may have
  options+=(--ulimit "nofile=$(ulimit -Hn)")
  options+=(--ulimit "nproc=$({ ulimit -Hu; cat /proc/sys/kernel/pid_max; } | sort -n | grep -m 1 '^[0-9]')")
fi
shared=$(df --output=avail --block-size=1M /dev/shm | tail -n 1) # the ranks of a machine meet there
[ "$ranks" = 1 ] || [ "$shared" -ge 1024 ] ||
  refuse "/dev/shm has $((shared)) MiB free, and $ranks ranks want 1024; sudo mount -o remount,size=2g /dev/shm"
if [[ $stage = *-gpu ]]; then
  if [[ $about =~ Runtimes:[^$'\n']*nvidia ]]; then
    options+=(--gpus all)
  elif compgen -G '/etc/cdi/nvidia*' >/dev/null || compgen -G '/var/run/cdi/nvidia*' >/dev/null; then
    options+=(--device nvidia.com/gpu=all)
  else
    refuse "DEVICE=gpu: $engine has no GPU to hand over; install NVIDIA's container toolkit, then" \
      "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
  fi
fi
image=${CONT:-auto}
[ "$image" != auto ] || image=rn50:$stage
"$engine" image inspect "$image" >/dev/null 2>&1 ||
  refuse "CONT=$image: $engine has no such image; make image ENGINE=$engine STAGE=$stage builds rn50:$stage"
# The image knows which variables mean something to it.
patterns=$("$engine" run --rm "${options[@]}" "$image" python -c \
  'from rn50.settings import fields; print(*fields.patterns_of_names())') || 
  refuse "CONT=$image: cannot be run, or is of another version; make image ENGINE=$engine STAGE=$stage builds rn50:$stage"
read -ra patterns <<<"$patterns NO_COLOR"
while read -r name; do
  for pattern in "${patterns[@]}"; do
    # shellcheck disable=SC2053 # it is a pattern
    [[ $name != $pattern ]] || options+=(--env "$name")
  done
done < <(compgen -e)
# Files are to be the caller's; a rootless engine makes its root the caller.
user=$(id -u):$(id -g)
! grep -Eq '^ *rootless(: true)?$' <<<"$about" || user=0:0
options+=(--user "$user")
! { [ -t 0 ] && [ -t 1 ]; } || options+=(--interactive --tty)
name=rn50-$(date +%s)-$$
trap '"$engine" rm --force "$name" >/dev/null 2>&1' EXIT

# contained COMMAND...: in the background, since bash answers no signal while it waits for a program, and stopped by way of the
# engine, since its client passes no signal on where there is a terminal.
exec 3<&0 # what bash itself puts in the background loses its standard input
contained() {
  "$engine" run --name "$name" "${options[@]}" "$image" "$@" <&3 &
  local client=$! status stopped=''
  trap 'stopped=1' INT TERM HUP
  while wait "$client"; status=$?; kill -0 "$client" 2>/dev/null; do
    until [ -z "$stopped" ] || "$engine" stop --time 30 "$name" || ! kill -0 "$client"; do
      sleep 0.2 # it is still being made
    done >/dev/null 2>&1
  done
  trap - TERM HUP
  end_on_ctrl_c
  [ -z "$stopped" ] || [ "$status" -gt 128 ] || status=130 # whatever the program made of it
  return "$status"
}
# contained_run COMMAND...: where the container was killed, so that nobody inside ended the log, it is ended.
end_log='import pathlib, sys; from rn50.run import log_file; log_file.stop_abandoned(pathlib.Path(sys.argv[1]))'
# shellcheck disable=SC2329 # run_experiments.sh calls it
contained_run() {
  contained "$@"
  local status=$?
  [ "$status" != 137 ] || contained python -c "$end_log" "$RESULT_FILE"
  return "$status"
}

# Data and results, under the names that they have here, so that what is said inside is right outside.
files=(train.rec train.idx val.rec val.idx)
for file in "${files[@]}"; do
  [ ! -e "$data/$file" ] || continue
  [ "$system" = DEMO_CPU ] || refuse "DATADIR=$data: no $file there; set DATADIR to the folder of ${files[*]}"
  mkdir -p "$data" || refuse "DATADIR=$data: cannot be made; set another DATADIR"
  without_data=("${options[@]}")
  mount "$data" "$data"
  contained rn50 demo-data "$data" || exit
  options=("${without_data[@]}")
done
[ ! -e "$data/certificate.json" ] || files+=(certificate.json)
for file in "${files[@]}"; do # a file may be a link to somewhere else
  mount "$(realpath "$data/$file")" "$data/$file" ,readonly
done
if [ -n "${INITIAL_WEIGHTS:-}" ]; then
  [ -f "$INITIAL_WEIGHTS" ] || refuse "INITIAL_WEIGHTS=$INITIAL_WEIGHTS: no such file; give one that SAVE_WEIGHTS=1 wrote"
  mount "$(realpath "$INITIAL_WEIGHTS")" "$INITIAL_WEIGHTS" ,readonly
fi
if [[ ${said[3]} = file:* ]]; then # a meter's file; seconds after a comma are its clock's
  meter=${said[3]#file:}
  [ -e "$meter" ] || meter=${meter%,*}
  [[ $meter = /* && -f $meter ]] || refuse "POWER=${said[3]}: no such file; give the whole path of the file that the meter writes"
  mount "$(realpath "$meter")" "$meter" ,readonly
fi
results=$(realpath -m "${LOGDIR:-results/$system}")
{ mkdir -p "$results" && [ -w "$results" ]; } || refuse "LOGDIR=$results: cannot be written; set another LOGDIR"
mount "$results" "$results"
# By name alone: what run_experiments.sh sets anew for every run.
options+=(--env "DATADIR=$data" --env RESULT_FILE --env CACHE_CLEARED)
export RESULTS=$results RUN_RANKS=contained_run RUN_ONE=contained
# shellcheck source=/dev/null
. ./run_experiments.sh
