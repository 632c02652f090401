"""Time a training step on the CPU, by turns: ours with MXNet and with PyTorch, and that of Gluon's model-zoo
ResNet-50.

    python benchmarks/training_step.py                              the demo's shape; 64x64 and 224x224 at
    full width python benchmarks/training_step.py --size 64 --batch 64 --precision bfloat16 --json

Each side and precision is a process of its own with the same OMP_NUM_THREADS, and all run by turns ROUNDS
times. The figure is the median of all steps after WARM_UP. All sides do the same work on synthetic data:
forward pass, backward pass and LARS update. So the model zoo's strides are moved to the 3x3 convolutions, as
`rn50 bench throughput --models` does not do; it has no network of the demo's width. The last column is the
update's share of our step with MXNet, with the update timed alone.

On a machine with other load OMP_NUM_THREADS=1 and --cpu-time give figures that compare: images per second of
CPU time.
"""

import argparse
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from rich.table import Table

from rn50.terminal import Terminal

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROUNDS, WARM_UP = 3, 2
CASES = ((48, 64), (64, 64), (224, 16))  # (size, batch)
PRECISIONS = ("float32", "bfloat16")
DEMO_SIZE = 48
"""Images of this size have the demo's network: a quarter of the width, 10 classes."""


def our_step(framework: str, size: int, batch: int, precision: str) -> dict[str, Callable[[], None]]:
    """Build our step, and its optimizer update alone."""
    from rn50 import frameworks
    from rn50.settings import config as configuration

    environment = {
        "OPTIMIZER": "lars",
        "BATCHSIZE": str(batch),
        "LR": "0.1",
        "WARMUP_EPOCHS": "1",
        "NUMEPOCHS": "2",
        "MOM": "0.9",
        "WD": "5e-5",
        "LARSETA": "0.001",
        "LABELSMOOTHING": "0.1",
        "EVAL_OFFSET": "0",
        "EVAL_PERIOD": "1",
        "DGXNGPU": "1",
        "DGXNNODES": "1",
        "DEVICE": "cpu",
        "PRECISION": precision,
        "IMAGE_SIZE": str(size),
        "EVAL_RESIZE": str(size),
        "FRAMEWORK": framework,
        **({"WIDTH": "0.25", "NUMCLASSES": "10"} if size == DEMO_SIZE else {}),
    }
    rank = frameworks.module(framework, "train").create(configuration.from_environment(environment))
    rank.warm_up(1)
    batch_ = next(rank._synthetic().epoch())

    def step() -> None:
        rank._train_step(batch_, 0.01)
        rank._wait()

    def update() -> None:
        rank.optimizer.step(0.01, batch)
        rank._wait()

    return {"step": step, "update": update}


def zoo_step(size: int, batch: int, precision: str) -> dict[str, Callable[[], None]]:
    """Build the step of Gluon's model zoo, as its documentation trains it, with a static graph like ours."""
    from implementations.mxnet import mx

    autograd, gluon = mx.autograd, mx.gluon
    if precision == "bfloat16":
        from mxnet.contrib import amp

        amp.init("bfloat16")
    network = gluon.model_zoo.vision.resnet50_v1(classes=1000)
    for stage in list(network.features)[5:8]:
        convolutions = stage[0].body
        convolutions[0]._kwargs["stride"], convolutions[3]._kwargs["stride"] = (1, 1), (2, 2)
    network.initialize(mx.init.MSRAPrelu(slope=0))
    network.hybridize(static_alloc=True, static_shape=True)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    loss.hybridize(static_alloc=True, static_shape=True)
    images, labels = mx.nd.random.normal(shape=(batch, 3, size, size)), mx.nd.zeros(batch)
    with autograd.record():
        network(images)
    trainer = gluon.Trainer(
        network.collect_params(), "lars", {"learning_rate": 0.01, "momentum": 0.9, "wd": 5e-5}
    )

    def step() -> None:
        with autograd.record():
            value = loss(network(images), labels)
        value.backward()
        trainer.step(batch)
        mx.nd.waitall()

    return {"step": step}


SIDES = {
    "MXNet": functools.partial(our_step, "mxnet"),
    "PyTorch": functools.partial(our_step, "pytorch"),
    "model zoo": zoo_step,
}


def measure(
    side: str, size: int, batch: int, precision: str, steps: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Return the seconds of every step, measured in this process."""
    seconds = {}
    for name, action in SIDES[side](size, batch, precision).items():
        for _ in range(WARM_UP):
            action()
        times = []
        for _ in range(steps):
            begin = clock()
            action()
            times.append(clock() - begin)
        seconds[name] = times
    return seconds


def measure_apart(
    side: str, size: int, batch: int, precision: str, steps: int, cpu_time: bool
) -> dict[str, list[float]]:
    """Return the same, measured in a process of its own."""
    argv = [
        sys.executable,
        __file__,
        "--worker",
        side,
        "--size",
        str(size),
        "--batch",
        str(batch),
        "--steps",
        str(steps),
    ]
    argv += ["--precision", precision, *(["--cpu-time"] if cpu_time else [])]
    done = subprocess.run(argv, stdout=subprocess.PIPE, cwd=str(ROOT), check=False)
    if done.returncode:
        raise SystemExit(f"{side}: the measurement failed; its reason is above")
    seconds: dict[str, list[float]] = json.loads(done.stdout)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, help="image size; default: 48, 64 and 224")
    parser.add_argument(
        "--batch", type=int, help="images a step; default: 64 at 48x48 and 64x64, 16 at 224x224"
    )
    parser.add_argument("--precision", choices=PRECISIONS, help="default: both")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument(
        "--cpu-time", action="store_true", help="count the CPU time of a step in place of its duration"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", choices=sorted(SIDES), help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
    if args.worker:
        clock = time.process_time if args.cpu_time else time.perf_counter
        json.dump(measure(args.worker, args.size, args.batch, args.precision, args.steps, clock), sys.stdout)
        return
    rows = []
    cases = [(size, args.batch or batch) for size, batch in CASES if args.size in (None, size)] or [
        (args.size, args.batch or 16)
    ]
    for size, batch in cases:
        sides = [side for side in SIDES if size != DEMO_SIZE or side != "model zoo"]
        turns = [
            (precision, side)
            for precision in ([args.precision] if args.precision else PRECISIONS)
            for side in sides
        ]
        seconds: dict[tuple[str, str], dict[str, list[float]]] = {turn: {} for turn in turns}
        for precision, side in turns * ROUNDS:
            for name, times in measure_apart(side, size, batch, precision, args.steps, args.cpu_time).items():
                seconds[precision, side].setdefault(name, []).extend(times)
        median = {turn: statistics.median(times["step"]) for turn, times in seconds.items()}
        for precision in dict.fromkeys(precision for precision, _ in turns):
            row: dict[str, Any] = {"size": size, "batch": batch, "precision": precision}
            row["images_per_second"] = {side: batch / median[precision, side] for side in sides}
            row["optimizer_share"] = (
                statistics.median(seconds[precision, "MXNet"]["update"]) / median[precision, "MXNet"]
            )
            rows.append(row)
    report = {"omp_num_threads": int(os.environ["OMP_NUM_THREADS"]), "cpu_time": args.cpu_time, "rows": rows}
    if args.json:
        print(json.dumps(report, indent=1))
        return
    table = Table("size", "batch", "precision", *(f"{side} img/s" for side in SIDES), "update share of MXNet")
    for row in rows:
        rates = [
            f"{row['images_per_second'][side]:.3g}" if side in row["images_per_second"] else ""
            for side in SIDES
        ]
        table.add_row(
            str(row["size"]), str(row["batch"]), row["precision"], *rates, f"{row['optimizer_share']:.1%}"
        )
    console = Terminal()
    console.print(table)
    clock = ", per second of CPU time" if args.cpu_time else ""
    console.print(
        f"OMP_NUM_THREADS={report['omp_num_threads']}, median of {ROUNDS} x {args.steps} steps{clock}"
    )


if __name__ == "__main__":
    main()
