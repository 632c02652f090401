"""Compare LARS and SGD at a small and at a large batch, on the demo data set, by epochs to the target.

    python benchmarks/lars_against_sgd.py [--to lars_against_sgd] [--tune data/tune] [--data data/demo]
    [--json]

At each of the two batch sizes both optimizers have the same schedule, and each has the best of a few learning
rates. One run per learning rate on TUNE chooses it; TUNE is a data set that the other runs do not use (`rn50
demo-data --tune data/tune`). With that learning rate each optimizer trains with five other seeds on DATA. All
runs are normal ones with their logs in TO, evaluated after every epoch, one per core at a time. A run whose
log exists is not repeated, so the same command continues where it was stopped.

The expected effect: at a small batch SGD needs about as many epochs as LARS; at a large batch LARS still
trains where SGD does not (You, Gitman and Ginsburg, arXiv:1708.03888, section 3).
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import Any, NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from rn50.benchmark import rules
from rn50.progress import counting
from rn50.results.parse import read_log
from rn50.settings import config_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCAN_SEED = 100
SEEDS = (1, 2, 3, 4, 5)


class Side(NamedTuple):
    """One optimizer at one batch size, and the learning rates that it may choose from."""

    optimizer: str
    batch_size: int
    epochs: int
    learning_rates: tuple[float, ...]


SIDES = (
    Side("lars", 64, 16, (2, 4, 8)),
    Side("sgd", 64, 16, (0.125, 0.25, 0.5)),
    Side("lars", 1024, 24, (8, 16, 32)),
    Side("sgd", 1024, 24, (0.0625, 0.125, 0.25, 0.5, 1, 2, 4)),
)
WARMUP_EPOCHS = 2


class Run(NamedTuple):
    """A run, and the path of its log."""

    side: Side
    learning_rate: float
    seed: int
    data: pathlib.Path
    log: pathlib.Path


class Outcome(NamedTuple):
    """The epoch at which a run reached the target, None if it did not, and its last accuracy."""

    epoch: float | None
    accuracy: float


def made(run: Run, cpu: int) -> Outcome:
    """Make the run on one core if its log does not exist, and return its outcome."""
    if not run.log.exists():
        run.log.parent.mkdir(parents=True, exist_ok=True)
        environ = {
            **os.environ,
            **config_file.source(str(config_file.CONFIGS / "config_DEMO_CPU.sh")),
            "CONFIG_FILE": "",
            "OPTIMIZER": run.side.optimizer,
            "BATCHSIZE": str(run.side.batch_size),
            "NUMEPOCHS": str(run.side.epochs),
            "LR": str(run.learning_rate),
            "WARMUP_EPOCHS": str(WARMUP_EPOCHS),
            "EVAL_OFFSET": "0",
            "EVAL_PERIOD": "1",
            "SEED": str(run.seed),
            "DATADIR": str(run.data.resolve()),
            "RESULT_FILE": str(run.log.resolve()),
        }
        done = subprocess.run(
            [sys.executable, "-m", "rn50", "launch"],
            cwd=ROOT,
            env=environ,
            capture_output=True,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {cpu}),
        )
        if not run.log.exists():
            diverged = "the training loss is" in done.stderr + done.stdout
            if not diverged:
                sys.exit(
                    f"{run.log}: exit status {done.returncode}: "
                    f"{(done.stderr or done.stdout).strip().splitlines()[-1:]}"
                )
            return Outcome(None, 0.0)
    log = read_log(run.log)
    evaluations = log.evaluations
    epoch = next((each.epoch for each in evaluations if each.accuracy >= rules.TARGET_ACCURACY), None)
    return Outcome(epoch, evaluations[-1].accuracy)


def every(runs: list[Run], what: str) -> list[Outcome]:
    """Make all runs, one per core at a time."""
    cpus: Queue[int] = Queue()
    for cpu in os.sched_getaffinity(0):
        cpus.put(cpu)

    def one(run: Run) -> Outcome:
        cpu = cpus.get()
        try:
            return made(run, cpu)
        finally:
            cpus.put(cpu)

    found = []
    with counting(what) as progress, ThreadPoolExecutor(cpus.qsize()) as executor:
        for outcome in executor.map(one, runs):
            found.append(outcome)
            progress(len(found), len(runs))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=pathlib.Path, default=pathlib.Path("lars_against_sgd"))
    parser.add_argument("--tune", type=pathlib.Path, default=pathlib.Path("data/tune"))
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("data/demo"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    def run(side: Side, rate: float, seed: int, data: pathlib.Path, name: str) -> Run:
        return Run(side, rate, seed, data, args.to / f"{side.optimizer}_{side.batch_size}" / f"{name}.txt")

    tried = [
        run(side, rate, SCAN_SEED, args.tune, f"LR_{rate:g}")
        for side in SIDES
        for rate in side.learning_rates
    ]
    scanned = dict(zip(tried, every(tried, "choosing learning rates"), strict=False))
    chosen: dict[Side, Run] = {}
    for side in SIDES:
        # The first to reach the target, else the most accurate.
        mine = [each for each in tried if each.side == side]
        chosen[side] = min(
            mine, key=lambda each: (scanned[each].epoch or float("inf"), -scanned[each].accuracy)
        )
    runs = [
        run(side, chosen[side].learning_rate, seed, args.data, f"result_{seed}")
        for seed in SEEDS
        for side in SIDES
    ]
    outcomes = dict(zip(runs, every(runs, "five seeds each"), strict=False))
    report: list[dict[str, Any]] = []
    for side in SIDES:
        mine = [outcomes[each] for each in runs if each.side == side]
        reached = [each.epoch for each in mine if each.epoch is not None]
        report.append(
            {
                **side._asdict(),
                "learning_rate": chosen[side].learning_rate,
                "scan": {each.learning_rate: scanned[each]._asdict() for each in tried if each.side == side},
                "epochs_to_target": [each.epoch for each in mine],
                "accuracies": [each.accuracy for each in mine],
                "mean_epochs": statistics.mean(reached) if reached else None,
                "missed": len(mine) - len(reached),
            }
        )
    if args.json:
        print(json.dumps(report, indent=1))
        return
    print(f"{rules.NOT_A_RESULT}; target {rules.TARGET_ACCURACY}")
    for each in report:
        scan = (
            f"{rate:g}: {found['epoch'] or 'missed'} ({found['accuracy']:.3f})"
            for rate, found in each["scan"].items()
        )
        epochs = " ".join(f"{epoch:g}" if epoch else "missed" for epoch in each["epochs_to_target"])
        mean = f"mean {each['mean_epochs']:.1f}" if each["mean_epochs"] else "no mean"
        accuracies = " ".join(f"{accuracy:.3f}" for accuracy in each["accuracies"])
        print(
            f"{each['optimizer']:4} batch {each['batch_size']:4}, {each['epochs']} epochs, LR "
            f"{each['learning_rate']:g}: {epochs} ({mean}, {each['missed']} missed; accuracies {accuracies})"
        )
        print(f"     learning rates tried: {', '.join(scan)}")


if __name__ == "__main__":
    main()
