#!/usr/bin/env bash
# What only a GPU can tell, part after part, with the packages that are there: `make bench-gpu`.
#   benchmarks/gpu.sh                 tables and logs go to results/bench_gpu
# A part that fails is reported at the end, and does not keep the next from running.
set -uo pipefail
# shellcheck source=configs/start.sh
. "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../configs/start.sh"
python=.venv/bin/python # as run_experiments.sh does
[ -x "$python" ] || python=python3

if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2> /dev/null; then
  echo "bench-gpu: PyTorch of $python sees no GPU; it needs an NVIDIA driver and requirements/install.sh pytorch-gpu" >&2
  exit 2
fi

export DGXSYSTEM=DEMO_GPU_PYTORCH
# shellcheck source=configs/load.sh
. configs/load.sh
folder=results/bench_gpu
mkdir -p "$folder" || exit
failed=()
part() { # NAME COMMAND...
  echo "--- $1: ${*:2}"
  "${@:2}" 2>&1 | tee "$folder/$1.log" || failed+=("$1")
}

part data "$python" -m rn50 demo-data --scale 4 "$DATADIR"
part steps "$python" benchmarks/gpu_steps.py
part throughput "$python" -m rn50 bench throughput --precisions float16,bfloat16 --batch-sizes 256,400 --published -o "$folder/throughput"
part input env BATCHSIZE=256 "$python" -m rn50 bench input
part five_seeds env NEXP=5 RESULTS="$folder/five_seeds" ./run_experiments.sh

if [ ${#failed[@]} -gt 0 ]; then
  echo "bench-gpu: failed: ${failed[*]}; $folder/NAME.log has why" >&2
  exit 1
fi
