#!/usr/bin/env bash
# Test and measure what needs a GPU, in parts with a time limit each, 15
# minutes at most in all. `make bench-gpu` runs it, with PARTS=... for --parts.
#   benchmarks/gpu.sh                                     all but (by name)
#   benchmarks/gpu.sh --parts probe,tests,data,steps      these, in this order
#   STEP_MODE=graph benchmarks/gpu.sh --parts data,seeds  seeds train with it
# STEP_MODE holds for input, throughput and seeds. The folder of --output
# (results/bench_gpu) gets log.txt and steps.jsonl, written line by line, and
# an archive each of the report and of the five runs. If a part fails or
# reaches its limit, the next part runs nevertheless. Ctrl-C ends all parts.
# PYTHON is the Python that is used: by default that of .venv if there is one,
# else python3.
set -uo pipefail

# The limits are for one H200 and 16 cores. There a process needs 10 s for imports, and 6 s (fused) to 16 s (graph) for choosing
# algorithms; torch.compile needs 70 s more; and a run of DEMO_GPU_PYTORCH takes 40 s in all.
total=900
parts=( # name, most seconds, meaning
  "probe 40 what the machine is, its memory bandwidth and matrix rate"
  "norms 40 kernels of batch norm beside a copy"
  "tests 60 the tests that need a GPU"
  "long_tests 90 those of them that compile the network or start processes"
  "data 45 generated images of 224x224 for DATADIR, if there are none"
  "steps 110 STEP_MODE=eager, graph, fused; float16, batch 400 or less"
  "compile 150 fused beside compile, and whether our kernels stay"
  "input 90 input pipeline and training with DALI"
  "bfloat16 110 fused beside eager in bfloat16 (by name)"
  "batch256 110 the same with batches of 256 in float16 (by name)"
  "throughput 240 report of batches of 256 and 400, or what fits (by name)"
  "seeds 275 five timed runs with their energy, or as many as fit"
)
names=() chosen=() text=''
declare -A limits
for part in "${parts[@]}"; do
  read -r name limit meaning <<< "$part"
  names+=("$name")
  [[ $meaning = *"(by name)" ]] || chosen+=("$name")
  limits[$name]=$limit
  printf -v text '%s  %-12s %4d  %s\n' "$text" "$name" "$limit" "$meaning"
done

fail() {
  echo "bench-gpu: $*" >&2
  exit 2
}

folder=''
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help)
      sed -n '2,12s/^# \{0,1\}//p' "$0"
      printf 'Parts, with most seconds:\n%s' "$text"
      exit
      ;;
    --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}"; continue ;;
    --parts) IFS=, read -ra chosen <<< "${2:-}" ;;
    -o | --output)
      [ -n "${2:-}" ] || fail "$1 needs a folder"
      folder=$(realpath -m "$2")
      ;;
    *) fail "what is $1? --help says what there is" ;;
  esac
  shift $(($# > 1 ? 2 : 1))
done
[ ${#chosen[@]} -gt 0 ] || fail "--parts needs names, with commas: ${names[*]}"
for name in "${chosen[@]}"; do
  [ -n "${limits[${name:-none}]:-}" ] || fail "there is no part ${name:-without a name}; there are ${names[*]}"
done

# shellcheck source=configs/start.sh
. "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../configs/start.sh"
python=${PYTHON:-.venv/bin/python} # as run_experiments.sh does
[ -n "${PYTHON:-}" ] || [ -x "$python" ] || python=python3
trap 'echo "bench-gpu: stopped" >&2; exit 130' INT TERM HUP # the first import of PyTorch takes seconds
"$python" -c 'import torch; raise SystemExit(0 if torch.cuda.is_available() else 3)' 2> /dev/null
status=$? needs='it needs an NVIDIA GPU with its driver, and requirements/install.sh pytorch-gpu'
[ $status -ne 3 ] || fail "PyTorch of $python sees no GPU; $needs"
[ $status -eq 0 ] || fail "$python cannot import PyTorch; $needs"

export PYTHONUNBUFFERED=1 DGXSYSTEM=DEMO_GPU_PYTORCH
# shellcheck source=configs/load.sh
. configs/load.sh
set +e
folder=${folder:-results/bench_gpu} child='' failed=()
mkdir -p "$folder" || exit
trap '' INT TERM HUP # tee inherits this: it survives a signal to the whole process group, and the log is complete
exec 3>&1 > >(exec tee --append "$folder/log.txt") 2>&1
log=$!

# end STATUS LINE: prints LINE, waits until the log has everything, and exits.
end() {
  echo "=== $2, $SECONDS s in all"
  exec >&3 2>&1 3>&-
  wait "$log"
  exit "$1"
}

trap 'trap "" INT TERM HUP
  [ -z "$child" ] || { kill -TERM "$child" && wait "$child"; } 2> /dev/null
  rm -f "$folder"/.*.tgz
  end 130 "stopped in part $name"' INT TERM HUP

# limited COMMAND...: runs a command until the limit of its part. It runs in the background, because bash handles a signal only when the
# command in the foreground has ended.
limited() {
  local left=$((limits[$name] - SECONDS + begin))
  [ "$left" -gt 0 ] || { echo "bench-gpu: no time is left for $name" && return 1; }
  echo "=== $name, at most $left s: $*"
  timeout --kill-after=15 "$left" "$@" < /dev/null &
  child=$!
  wait "$child"
  local status=$?
  child=''
  [ $status -ne 124 ] || echo "bench-gpu: $name has reached its limit"
  return $status
}

steps() { # MODES BATCHSIZE PRECISION
  limited "$python" benchmarks/gpu_steps.py --modes "$1" --batches "$2" --precisions "$3" --seconds 10 -o "$folder/steps.jsonl"
}

tests() { # MARKS
  local files workers=() # only the files with tests for a GPU: to collect all would take half of the time
  mapfile -t files < <(grep -rl --include='test_*.py' ON_GPU tests)
  ! "$python" -c 'import xdist' 2> /dev/null || workers=(-n $(($(nproc) < 8 ? $(nproc) : 8)))
  limited "$python" -m pytest -q -m "$1" "${workers[@]}" -p no:cacheprovider --continue-on-collection-errors --durations=5 "${files[@]}"
}

# keep FOLDER: writes an archive of a folder of results/, complete or not at all.
keep() {
  [ ! -d "results/$1" ] || { tar -czf "$folder/.$1.tgz" -C results "$1" && mv "$folder/.$1.tgz" "$folder/$1.tgz"; }
}

run() { # NAME
  local status
  case $1 in
    probe) limited "$python" benchmarks/gpu_probe.py ;;
    norms) limited "$python" benchmarks/gpu_norms.py ;;
    tests) tests 'gpu and not minute_on_gpu' ;;
    long_tests) tests 'gpu and minute_on_gpu' ;;
    data) limited "$python" -m rn50 demo-data --scale 4 "$DATADIR" ;;
    steps) steps eager,graph,fused 400 float16 ;;
    compile) steps compile,fused 400 float16 ;;
    bfloat16) steps eager,fused 400 bfloat16 ;;
    batch256) steps eager,fused 256 float16 ;;
    input) limited env INPUT_LIBRARY=dali "$python" -m rn50 bench input --seconds 40 ;;
    throughput)
      sizes=$("$python" -c 'from benchmarks import gpu_steps; print(*gpu_steps.fitting("256,400"), sep=",")')
      limited "$python" -m rn50 bench throughput --batch-sizes "$sizes" -o results/throughput_gpu
      status=$?
      keep throughput_gpu && return $status
      ;;
    seeds)
      runs=(env RESULTS="results/${DGXSYSTEM}_$STEP_MODE" POWER="${POWER:-auto}" ./run_experiments.sh)
      NEXP=1 limited "${runs[@]}" && fit=$((limits[seeds] / (SECONDS - begin + 1))) &&
        { [ "$fit" -lt 2 ] || NEXP=$((fit < 5 ? fit : 5)) limited "${runs[@]}"; }
      status=$?
      keep "${DGXSYSTEM}_$STEP_MODE" && return $status
      ;;
  esac
}

for name in "${chosen[@]}"; do
  begin=$SECONDS left=$((total - SECONDS))
  [ "$name" != seeds ] && [ "${limits[$name]}" -le $left ] || limits[$name]=$left
  run "$name" || failed+=("$name")
  echo "=== $name: $((SECONDS - begin)) s"
done
[ ${#failed[@]} -eq 0 ] || end 1 "failed: ${failed[*]}; $folder/log.txt has why"
end 0 "done: $folder"
