"""Two ranks on two cores against one rank on one core, in turn in one run.

    set -a; . configs/config_DEMO_CPU.sh; set +a; python bench/scaling.py [--steps 30] [--rounds 7] [--json]

The environment describes the configuration, as for a run; its data set must be there, and Horovod. Two ranks, each bound to a
core of its own, train --steps steps together; then rank 0 trains as many alone, without any sum over ranks, while rank 1 waits;
then both do so at once, each for itself, which shows what the cores take from each other without communication. The efficiency
is the rate of the two ranks over twice the rate of the one, the median over the rounds; the goal is 0.9.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from rn50 import config as configuration
from rn50.errors import UserError

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOAL = 0.9
HOROVODRUN = "import implementations.mxnet; from horovod.runner.launch import run_commandline as run; run()"


def start(argv) -> int:
    """Starts this file as both ranks."""
    environment = {**os.environ, "DGXNGPU": "2", "OMP_NUM_THREADS": "1", "HOROVOD_LOG_LEVEL": "fatal", "PYTHONPATH": str(ROOT)}
    ranks = [sys.executable, __file__, "--as-rank", *argv]
    process = subprocess.Popen(
        [sys.executable, "-c", HOROVODRUN, "--gloo", "-np", "2", *ranks],
        cwd=str(ROOT), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    for line in process.stdout:
        said, _, text = line.partition("<stdout>:")
        print(text if said == "[0]" else line, end="")
    return process.wait()


def measure(args) -> None:
    """One rank; rank 0 prints."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("bench/scaling.py: this process may use one core only; give it two")
    os.sched_setaffinity(0, {cores[int(os.environ["HOROVOD_LOCAL_RANK"])]})

    from implementations.mxnet import communicator, mx, train

    config = configuration.from_environment()
    config = dataclasses.replace(config, run=dataclasses.replace(config.run, benchmark_steps=args.steps))
    rank = train.create(config)
    rank.warm_up(1)
    rank.open_data()
    together, alone = rank.communicator, communicator.SingleProcess()
    first = together.rank == 0

    def seconds(takes_part: bool, ranks) -> float:
        together.barrier()
        rank.communicator = ranks
        begin = time.perf_counter()
        if takes_part:
            rank.train_epoch(1, lambda samples, loss: None)
        mx.nd.waitall()
        taken = time.perf_counter() - begin
        together.barrier()
        return taken

    images = args.steps * config.hyperparameters.batch_size
    rounds = []
    for number in range(-1, args.rounds):  # the first round warms up
        two, one, side_by_side = seconds(True, together), seconds(first, alone), seconds(True, alone)
        if number >= 0:
            rounds.append({"two": 2 * images / two, "one": images / one, "side_by_side": 2 * images / side_by_side})
    together.barrier()
    if first:
        report = {name: statistics.median(each[name] for each in rounds) for name in ("one", "two", "side_by_side")}
        efficiencies = [each["two"] / (2 * each["one"]) for each in rounds]
        report.update(efficiency=statistics.median(efficiencies), goal=GOAL, rounds=efficiencies, precision=rank.precision)
        if args.json:
            print(json.dumps(report, indent=1))
        else:
            one, two, side_by_side = (report[name] for name in ("one", "two", "side_by_side"))
            each = ", ".join(f"{ratio:.3f}" for ratio in efficiencies)
            print(f"one rank {one:.1f} img/s, two ranks {two:.1f} img/s: efficiency {report['efficiency']:.3f}, goal {GOAL} "
                  f"(rounds {each}); two ranks without sums {side_by_side:.1f} img/s, {side_by_side / one / 2:.3f} of twice one; "
                  f"{rank.precision}")
    rank.communicator = together
    rank.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.as_rank:
        measure(args)
    else:
        try:
            configuration.from_environment()
        except UserError as error:
            sys.exit(f"bench/scaling.py: {str(error).splitlines()[0]}")
        sys.exit(start(sys.argv[1:]))


if __name__ == "__main__":
    main()
