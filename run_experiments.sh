#!/usr/bin/env bash
# One result: NEXP timed runs (5) of a configured system, each with a fresh
# seed, checked as they end, then scored.
#   DGXSYSTEM=DEMO_CPU ./run_experiments.sh
#   DGXSYSTEM=NF5688M6_PYTORCH DATADIR=/data NEXP=5 ./run_experiments.sh
# Results go to RESULTS (results/SYSTEM) as result_0.txt, result_1.txt, ... Runs
# that are there already are kept, so the same command again resumes; those of
# another configuration end it. A run that was interrupted starts from zero.
set -uo pipefail

if [ "${1:-}" = "-h" ] || [ "${1:-}" = "--help" ]; then
  sed -n '2,8s/^# \{0,1\}//p' "$0"
  exit 0
fi

. "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/configs/start.sh"
python=.venv/bin/python # without the root: in a container it is another one
[ -x "$python" ] || python=python3

runs=${NEXP:-5}
check_number NEXP "$runs" runs 5
find_configuration # CONFIG_FILE, whatever DGXSYSTEM says, as in run_and_time.sh
system=$(system_of "$CONFIG_FILE")
results=${RESULTS:-$PWD/results/$system}
# Relative where it can be, for people; in a container the working directory is another one.
[ -n "${RUN_ONE:-}" ] || [ "$called_from" != "$PWD" ] || results=${results#"$PWD"/}
user_error=2 target_missed=3 diverged=4 # Status in rn50/errors.py
[ -z "${SEED:-}" ] || plain "${0##*/}: SEED=$SEED is not used: every run draws its own; ./run_and_time.sh makes one run with it" >&2
unset SEED

# What run.sub and run_with_docker.sh put before the command of every rank, of one process, and of every machine.
read -ra ranks <<< "${RUN_RANKS:-}"
read -ra one <<< "${RUN_ONE:-}"
read -ra per_node <<< "${RUN_PER_NODE:-}"

# The rules want caches cleared before a run. Where this is not allowed, the log says that they were not.
drop_caches='sync; echo 3 > /proc/sys/vm/drop_caches'
clear_caches() {
  if "${per_node[@]}" sh -c "$drop_caches" 2> /dev/null || "${per_node[@]}" sudo -n sh -c "$drop_caches" 2> /dev/null; then
    echo 1
  else
    echo 0
  fi
}

# rn50 run --against makes one part of a campaign at a time: "examine", before the first run; the run of a number; "end".
part=${RN50_PART:-}

end_on_ctrl_c
files=() kept='' asked=''
while [ -e "$results/result_$runs.txt" ]; do runs=$((runs + 1)); done # more are there than are asked for: score them all
export RN50_RUNS=$runs # every run saves it, for rn50 watch, and leaves it to this script to say that it was stopped
for ((run = 0; run < runs; run++)); do
  files+=("$results/result_$run.txt")
  [ ! -e "${files[run]}" ] || kept=1
done
# Refuse kept runs of another configuration, or without what is asked of every run: weights, a power log or curves.
if [ "${part:-examine}" = examine ] && [ -n "$kept" ]; then
  "${one[@]}" "$python" -m rn50 summary "${files[@]}" --system "$system" --kept || exit
fi
for ((run = 0; run < runs; run++)); do
  [ "${part:-examine}" = examine ] || [ "$part" = "$run" ] || continue
  result="${files[run]}"
  if [ -e "$result" ]; then
    plain "run $((run + 1)) of $runs: kept, $result is there"
    continue
  fi
  # Before the first run only, and not where there is nothing left to run.
  if [ -z "${examined:-}" ] && [ "$part" != "$run" ]; then
    RESULT_FILE="$result" "${one[@]}" "$python" -m rn50 doctor --brief
    status=$?
    [ $status -eq 0 ] || exit $((status == 1 ? user_error : status)) # it has said what, and how
    plain "${part:+$system: }$((runs - run)) of $runs runs to make. Ctrl-C is safe: the same command resumes"
    "${one[@]}" "$python" -m rn50 summary "$result" --system "$system" --expected || exit
    examined=1
  fi
  [ "$part" != examine ] || exit 0
  plain "run $((run + 1)) of $runs -> $result"
  began=$SECONDS
  trap 'say_stopped; exit 130' INT # clearing caches can take seconds, and says nothing
  CACHE_CLEARED=$(clear_caches)
  export CACHE_CLEARED
  # In the background: bash would otherwise answer a signal only after the run, or die of it and leave the run behind.
  RESULT_FILE="$result" "${ranks[@]}" ./run_and_time.sh &
  child=$!
  for name in INT TERM HUP; do
    # shellcheck disable=SC2064 # the name of now
    trap "asked=$name; kill -TERM $child 2> /dev/null" "$name"
  done
  wait "$child"
  status=$?
  while kill -0 "$child" 2> /dev/null; do # a signal ends the waiting before the run has ended
    wait "$child"
    status=$?
  done
  [ -z "$asked" ] || status=$((128 + $(kill -l "$asked"))) # whatever the run made of it
  trap - TERM HUP
  end_on_ctrl_c
  if [ $status -ne 0 ] && [ $status -ne $target_missed ]; then
    if [ $status -ne $user_error ] && [ $status -ne $diverged ]; then # there the remedy has just been said
      how="with status $status"
      ((status <= 128)) || how="by SIG$(kill -l "$status")"
      echo "rn50: run $((run + 1)) stopped $how; the same command again resumes there" >&2
    fi
    exit $status
  fi
  # The report of the runs so far, where a run takes a minute or longer. What it fails on is no fault of the result.
  if ((run + 1 < runs && SECONDS - began >= 60)); then
    "${one[@]}" "$python" -m rn50 summary "${files[@]:0:run+1}" --system "$system" --so-far
    status=$?
    ((status <= 128)) || exit $status # but a signal to it ends all
  fi
done

if [ "${part:-end}" = end ]; then
  [ -z "$part" ] || plain "$system:"
  "${one[@]}" "$python" -m rn50 summary "${files[@]}" --system "$system"
fi
