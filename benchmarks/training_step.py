"""Time a training step of MXNet on the CPU, by turns: ours, and that of Gluon's model-zoo ResNet-50.

    python benchmarks/training_step.py                              64x64 and 224x224, full width, 1000 classes
    python benchmarks/training_step.py --size 64 --batch 64 --precision bfloat16 --json

Each side is a process of its own with the same OMP_NUM_THREADS, and all run by turns ROUNDS times. The figure is the median of
all steps after WARM_UP. Both sides do the same work on synthetic data: forward pass, backward pass and LARS update. So the
model zoo's strides are moved to the 3x3 convolutions, as `rn50 bench throughput --models` does not do. The last column is the
update's share of our step, with the update timed alone.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from rich.table import Table

from rn50.terminal import Terminal

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROUNDS, WARM_UP = 3, 2
CASES = ((64, 64), (224, 16))  # (size, batch)


def our_step(size: int, batch: int, precision: str) -> Dict[str, Callable[[], None]]:
    """Build our step, and its optimizer update alone."""
    from implementations.mxnet import input_pipeline, mx, train
    from rn50.settings import config as configuration

    environment = {
        "OPTIMIZER": "lars", "BATCHSIZE": str(batch), "LR": "0.1", "WARMUP_EPOCHS": "1", "NUMEPOCHS": "2", "MOM": "0.9",
        "WD": "5e-5", "LARSETA": "0.001",
        "LABELSMOOTHING": "0.1", "EVAL_OFFSET": "0", "EVAL_PERIOD": "1", "DGXNGPU": "1", "DGXNNODES": "1",
        "DEVICE": "cpu", "PRECISION": precision, "IMAGE_SIZE": str(size), "EVAL_RESIZE": str(size),
    }
    rank = train.create(configuration.from_environment(environment))
    rank.warm_up(1)
    batch_ = next(input_pipeline.synthetic(rank.config, 1, rank.batch_format).epoch())

    def step() -> None:
        rank._train_step(batch_, 0.01)
        mx.nd.waitall()

    def update() -> None:
        rank.optimizer.step(0.01, batch)
        mx.nd.waitall()

    return {"step": step, "update": update}


def zoo_step(size: int, batch: int, precision: str) -> Dict[str, Callable[[], None]]:
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
    trainer = gluon.Trainer(network.collect_params(), "lars", {"learning_rate": 0.01, "momentum": 0.9, "wd": 5e-5})

    def step() -> None:
        with autograd.record():
            value = loss(network(images), labels)
        value.backward()
        trainer.step(batch)
        mx.nd.waitall()

    return {"step": step}


SIDES = {"ours": our_step, "model zoo": zoo_step}


def measure(side: str, size: int, batch: int, precision: str, steps: int) -> Dict[str, List[float]]:
    """Return the seconds of every step, measured in this process."""
    seconds = {}
    for name, action in SIDES[side](size, batch, precision).items():
        for _ in range(WARM_UP):
            action()
        times = []
        for _ in range(steps):
            begin = time.perf_counter()
            action()
            times.append(time.perf_counter() - begin)
        seconds[name] = times
    return seconds


def measure_apart(side: str, size: int, batch: int, precision: str, steps: int) -> Dict[str, List[float]]:
    """Return the same, measured in a process of its own."""
    argv = [sys.executable, __file__, "--worker", side, "--size", str(size), "--batch", str(batch), "--steps", str(steps)]
    done = subprocess.run(argv + ["--precision", precision], stdout=subprocess.PIPE, cwd=str(ROOT), check=False)
    if done.returncode:
        raise SystemExit(f"{side}: the measurement failed; its reason is above")
    seconds: Dict[str, List[float]] = json.loads(done.stdout)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, help="image size; default: 64 and 224")
    parser.add_argument("--batch", type=int, help="images a step; default: 64 at 64x64, 16 at 224x224")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), help="default: both")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", choices=sorted(SIDES), help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
    if args.worker:
        json.dump(measure(args.worker, args.size, args.batch, args.precision, args.steps), sys.stdout)
        return
    rows = []
    cases = [(size, args.batch or batch) for size, batch in CASES if args.size in (None, size)] or [(args.size, args.batch or 16)]
    for size, batch in cases:
        for precision in [args.precision] if args.precision else ["float32", "bfloat16"]:
            seconds: Dict[str, Dict[str, List[float]]] = {side: {} for side in SIDES}
            for _ in range(ROUNDS):
                for side in SIDES:
                    for name, times in measure_apart(side, size, batch, precision, args.steps).items():
                        seconds[side].setdefault(name, []).extend(times)
            median = {side: statistics.median(times["step"]) for side, times in seconds.items()}
            row: Dict[str, Any] = {"size": size, "batch": batch, "precision": precision}
            row["images_per_second"] = {side: batch / value for side, value in median.items()}
            row["optimizer_share"] = statistics.median(seconds["ours"]["update"]) / median["ours"]
            rows.append(row)
    report = {"omp_num_threads": int(os.environ["OMP_NUM_THREADS"]), "rows": rows}
    if args.json:
        print(json.dumps(report, indent=1))
        return
    table = Table("size", "batch", "precision", *(f"{side} img/s" for side in SIDES), "update share of ours")
    for row in rows:
        rates = [f"{rate:.3g}" for rate in row["images_per_second"].values()]
        table.add_row(str(row["size"]), str(row["batch"]), row["precision"], *rates, f"{row['optimizer_share']:.1%}")
    console = Terminal()
    console.print(table)
    console.print(f"OMP_NUM_THREADS={report['omp_num_threads']}, median of {ROUNDS} x {args.steps} steps")


if __name__ == "__main__":
    main()
