#!/usr/bin/env bash
# ONE timed run of a configured system: config -> launcher -> rn50 train.
#   DGXSYSTEM=DEMO_CPU ./run_and_time.sh          configs/config_DEMO_CPU.sh
#   CONFIG_FILE=/path/to/anybodys/config.sh ./run_and_time.sh
#   DGXSYSTEM=MINE HOSTS=host1:8,host2:8 ./run_and_time.sh   several machines
# The last is for MXNet, with DGXNNODES machines; with Slurm, see run.sub.
# RESULT_FILE names the log (default: standard output); SEED the seed (default:
# from the operating system); LAUNCHER what starts the ranks: python,
# horovodrun, mpirun or srun (default: what fits).
set -euo pipefail

if [ "${1:-}" = "-h" ] || [ "${1:-}" = "--help" ]; then
  sed -n '2,9s/^# \{0,1\}//p' "$0"
  exit 0
fi

. "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/configs/start.sh"
. configs/load.sh

python="$PWD/.venv/bin/python"
[ -x "$python" ] || python=$(command -v python3)
exec "$python" -m rn50 launch
