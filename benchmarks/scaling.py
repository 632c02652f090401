"""Compare two ranks on two cores with one rank on one core, by turns in one run.

    python benchmarks/scaling.py DEMO_CPU [--steps 30] [--rounds 7] [--json]

The configuration is a system of configs/, or a file. Its data set must exist, and Horovod if LAUNCHER needs
it. First a single process trains --steps steps, by turns on the first and on the second core. Then two ranks,
started by LAUNCHER and each on a core of its own, train as many together. Then each of them trains alone at
the same time, which shows how much the cores slow each other down without communication. Processes that wait
for their turn are stopped (SIGSTOP) and take no time from the others. The efficiency is the rate of the two
ranks over twice the rate of the single process, the median over the rounds; the goal is 0.9.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Client, Listener

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from rn50.errors import UserError
from rn50.launch import launchers
from rn50.settings import config as configuration

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOAL = 0.9


def train(address: str, key: str, steps: int) -> None:
    """Train ``steps`` steps on each request, and answer with the seconds they took."""
    config = configuration.from_environment()
    place, ranks_here = launchers.sharing(config, os.environ)
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[place]})

    from implementations.mxnet import communicator, mx
    from implementations.mxnet.train import create

    config = dataclasses.replace(config, run=dataclasses.replace(config.run, benchmark_steps=steps))
    implementation = create(config)
    implementation.warm_up(1)
    implementation.open_data()
    ranks = {"together": implementation.communicator, "apart": communicator.SingleProcess()}
    with Client(address, authkey=bytes.fromhex(key)) as turns:
        turns.send(
            (ranks_here > 1, os.getpid(), implementation.precision.name, implementation.communicator.library)
        )
        while True:
            turn = turns.recv()
            if turn is None:
                break
            implementation.communicator = ranks[turn]
            begin = time.perf_counter()
            implementation.train_epoch(1, lambda samples, loss: None)
            mx.nd.waitall()
            turns.send(time.perf_counter() - begin)
    implementation.communicator = ranks["together"]
    implementation.close()


class Processes:
    """The single process and the two ranks; all are stopped except those whose turn it is."""

    def __init__(self, config: configuration.Config, steps: int):
        folder = tempfile.mkdtemp(prefix="rn50-scaling-")
        key = secrets.token_bytes(16)
        with Listener(f"{folder}/turns", authkey=key) as listener:
            argv = [__file__, "--as-rank", f"{folder}/turns", "--key", key.hex(), "--steps", str(steps)]
            environment = {
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "HOROVOD_LOG_LEVEL": "fatal",
                "PYTHONPATH": str(ROOT),
            }
            self._started = []
            for ranks in (1, 2):
                run = dataclasses.replace(config.run, nodes=1, ranks_per_node=ranks)
                environ = {**environment, "DGXNGPU": str(ranks)}
                start = launchers.start(dataclasses.replace(config, run=run), environ, argv)
                self._started.append(
                    subprocess.Popen(
                        start.argv, cwd=str(ROOT), env={**start.environ, **environ}, stdout=sys.stderr
                    )
                )
            signal.signal(signal.SIGALRM, self._look)
            signal.setitimer(signal.ITIMER_REAL, 1, 1)
            accepted = [listener.accept() for _ in range(3)]
            signal.setitimer(signal.ITIMER_REAL, 0)
        said = [(connection, *connection.recv()) for connection in accepted]
        precisions = {each[3] for each in said}
        if len(precisions) > 1:
            self.close()
            sys.exit(
                "benchmarks/scaling.py: one rank and two took different precisions; set PRECISION in the "
                "configuration"
            )
        (self.precision,) = precisions
        self.library = next(library for *_, library in said if library)
        self._single = [(connection, pid) for connection, ranked, pid, *_ in said if not ranked]
        self._ranks = [(connection, pid) for connection, ranked, pid, *_ in said if ranked]

    def _look(self, *_) -> None:
        if any(process.poll() for process in self._started):
            self.close()
            sys.exit("benchmarks/scaling.py: a process ended before it could train; its reason is above")

    def move(self, core: int) -> None:
        """Move the single process, with all its threads, to the first core (0) or the second (1)."""
        for _, pid in self._single:
            for thread in os.listdir(f"/proc/{pid}/task"):
                os.sched_setaffinity(int(thread), {sorted(os.sched_getaffinity(0))[core]})

    def seconds(self, ranks: bool, turn: str) -> float:
        """Return the seconds of a turn of the two ranks, or of the single process."""
        active, others = (self._ranks, self._single) if ranks else (self._single, self._ranks)
        for _, pid in others:
            os.kill(pid, signal.SIGSTOP)
        for connection, pid in active:
            os.kill(pid, signal.SIGCONT)
            connection.send(turn)
        return max(connection.recv() for connection, _ in active)

    def end(self) -> None:
        for connection, pid in self._single + self._ranks:
            os.kill(pid, signal.SIGCONT)
            connection.send(None)
        for process in self._started:
            process.wait()

    def close(self) -> None:
        for process in self._started:
            process.terminate()


def measure(config: configuration.Config, steps: int, rounds: int) -> dict:
    """Return the median images per second of each kind over the rounds, and the efficiency of every round."""
    images = steps * config.hyperparameters.batch_size
    processes = Processes(config, steps)
    try:
        taken = []
        for number in range(-1, rounds):  # the first round warms up
            processes.move(number % 2)
            one = images / processes.seconds(ranks=False, turn="apart")
            two, apart = (
                2 * images / processes.seconds(ranks=True, turn=turn) for turn in ("together", "apart")
            )
            if number >= 0:
                taken.append({"one": one, "two": two, "two_apart": apart})
        processes.end()
    finally:
        processes.close()
    efficiencies = [each["two"] / (2 * each["one"]) for each in taken]
    report = {kind: statistics.median(each[kind] for each in taken) for kind in ("one", "two", "two_apart")}
    return {
        **report,
        "efficiency": statistics.median(efficiencies),
        "goal": GOAL,
        "rounds": efficiencies,
        "precision": processes.precision,
        "library": processes.library,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "config", nargs="?", help="a system of configs/, or a file (CONFIG_FILE or DGXSYSTEM)"
    )
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--as-rank", help=argparse.SUPPRESS)
    parser.add_argument("--key", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.as_rank:
        train(args.as_rank, args.key, args.steps)
        return
    try:
        os.environ.update(configuration.environment_of(args.config, os.environ))
        config = configuration.from_environment()
    except UserError as error:
        sys.exit(f"benchmarks/scaling.py: {str(error).splitlines()[0]}")
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("benchmarks/scaling.py: this process may use one core only; give it two")
    report = measure(config, args.steps, args.rounds)
    if args.json:
        print(json.dumps(report, indent=1))
        return
    one, two, apart = (report[kind] for kind in ("one", "two", "two_apart"))
    each = ", ".join(f"{ratio:.3f}" for ratio in report["rounds"])
    print(
        f"one rank {one:.1f} img/s, two ranks {two:.1f} img/s: efficiency {report['efficiency']:.3f}, goal "
        f"{GOAL} (rounds {each}); two ranks without sums {apart:.1f} img/s, {apart / one / 2:.3f} of twice "
        f"one; {report['precision']}, {report['library']}"
    )


if __name__ == "__main__":
    main()
