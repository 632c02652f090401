"""Time training steps of PyTorch on a GPU: every STEP_MODE against eager in turn, and against a predicted
rate.

    python benchmarks/gpu_steps.py DEMO_GPU_PYTORCH [--batches 256,400] [-o steps.jsonl]

Bandwidth and arithmetic rate of the GPU are measured first (a copy of 1 GiB, a product of 8192 x 8192
matrices in float16). Then, for each batch size and precision, eager and one other mode train in one process,
by turns in every round, on a batch held on the device and on the data set at DATADIR. A row is printed as
soon as it is known. "of it" is the ratio to the prediction of benchmarks/step_floor.py from the measured
rates. "to eager" is the median of the ratios within the rounds. A mode that fails gets a row with the reason,
and the exit status is 1.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from benchmarks import step_floor
from benchmarks.gpu_probe import device_rates
from rn50.errors import UserError
from rn50.launch import job, launchers
from rn50.settings import config as configuration
from rn50.speed import worker
from rn50.speed.rates import compare, of_rounds
from rn50.terminal import say

ROOT = pathlib.Path(__file__).resolve().parent.parent
COUNTED_AS = {"eager": "separate", "graph": "separate", "compile": "compiled", "fused": step_floor.BUILT}
"""STEP_MODE -> its version in ``step_floor``."""
KINDS = ("synthetic", "real")


def measure(mode: str, seconds: float, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Measure in this process; return mode (eager and ``mode``) -> kind of data -> images/s of every
    round."""
    config = configuration.from_environment()
    print(launchers.bind(config, os.environ), file=sys.stderr)  # before PyTorch starts threads

    from implementations.pytorch.measure import create
    from rn50.speed.meter import Meter

    ranks, sides = [], []
    for each in dict.fromkeys(("eager", mode)):
        changed = dataclasses.replace(config, run=dataclasses.replace(config.run, step_mode=each))
        rank = create(changed)
        ranks.append(rank)
        meter = Meter(changed, rank)
        for kind in KINDS:
            depth = config.input_pipeline.prefetch_queue_depth if kind == "real" else 0
            batches = rank.open_input(config.input_pipeline if kind == "real" else None)
            steps = meter.steps(batches, depth, seconds / (rounds + 1) / len(KINDS) / 2)
            sides.append((each, kind, meter, batches, depth, steps))
    found: dict[str, dict[str, list[float]]] = {each: {kind: [] for kind in KINDS} for each, *_ in sides}
    for round_ in range(rounds + 1):  # the first does not count
        for each, kind, meter, batches, depth, steps in sides:
            result = meter.train(batches, depth, steps)
            if round_:
                found[each][kind].append(result.samples / result.seconds)
    for rank in ranks:
        rank.close()
    return found


def apart(options: list[str], variables: dict[str, str]) -> Any:
    """Run this script with ``options`` in a process of its own and return the JSON it prints; on failure the
    reason, a str."""
    environ = {**os.environ, **variables}
    environ.update(job.rank_environment(configuration.from_environment(environ), environ))
    done = subprocess.run(
        [sys.executable, __file__, *options], cwd=str(ROOT), env=environ, capture_output=True, text=True
    )
    sys.stderr.write(done.stderr)
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    last = done.stderr.strip().splitlines()[-1:] or [""]
    reason = worker.failure(done.returncode, done.stderr)
    return f"{reason}: {last[0]}" if reason.startswith("exit status") else reason


def rows_of(
    mode: str, batch: int, precision: str, found: Any, rates: dict[str, float]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a mode that was measured beside eager, or failed, as plain data."""
    row = {"batch": batch, "precision": precision, "mode": mode}
    if isinstance(found, str):
        yield {**row, "failure": found}
        return
    config = configuration.from_environment()
    counted = step_floor.kernels(
        COUNTED_AS[mode], batch, precision, config.data.image_size, config.data.classes, config.data.width
    )
    predicted = batch / step_floor.seconds(counted, rates["bytes"], rates["operations"])
    for kind, values in found[mode].items():
        measured = of_rounds(values)
        beside = {} if mode == "eager" else {"to_eager": compare(values, found["eager"][kind]).to_json()}
        yield {
            **row,
            "data": kind,
            "images_per_second": measured.to_json(),
            "predicted": predicted,
            "of_predicted": measured.median / predicted,
            **beside,
        }


def line(*cells: str) -> str:
    """Return a line of the table."""
    return " ".join([f"{cells[0]:9}", f"{cells[1]:9}", *(f"{cell:>9}" for cell in cells[2:])]).rstrip()


def told(row: dict[str, Any]) -> str:
    """Return the line of a row."""
    if "failure" in row:
        return f"{row['mode']:9} {row['failure']}"
    rates = (f"{row['images_per_second'][each]:,.0f}" for each in ("median", "lowest", "highest"))
    beside = f"{row['to_eager']['median']:.3f}" if "to_eager" in row else ""
    return line(
        row["mode"], row["data"], *rates, f"{row['predicted']:,.0f}", f"{row['of_predicted']:.2f}", beside
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "config", nargs="?", help="a system of configs/, or a file (CONFIG_FILE or DGXSYSTEM)"
    )
    parser.add_argument("--batches", default="256,400", help="sizes, with commas (256,400)")
    parser.add_argument("--precisions", default="float16,bfloat16", help="with commas (float16,bfloat16)")
    parser.add_argument(
        "--modes", default="graph,compile,fused", help="beside eager, with commas (graph,compile,fused)"
    )
    parser.add_argument(
        "--seconds", type=float, default=30, help="about how long a pair of modes trains (30)"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "-o", "--output", type=pathlib.Path, help="file that every row is appended to, a line of JSON each"
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    modes = args.modes.split(",")
    if not set(modes) <= set(COUNTED_AS):
        parser.error(f"--modes {args.modes}: there are {', '.join(COUNTED_AS)}")
    if args.worker:
        rates = args.worker == "rates"
        print(json.dumps(device_rates() if rates else measure(args.worker, args.seconds, args.rounds)))
        return
    os.environ.update(configuration.environment_of(args.config, os.environ))
    run = {"DEVICE": "gpu", "FRAMEWORK": "pytorch", "DGXNGPU": "1", "DGXNNODES": "1"}
    rates = apart(["--worker=rates"], run)
    if isinstance(rates, str):
        raise SystemExit(2)  # the worker has printed the reason
    say(f"{rates['bytes'] / 1e12:.2f} TB/s, {rates['operations'] / 1e12:.0f} TFLOP/s measured")
    failed = False
    for batch in map(int, args.batches.split(",")):
        for precision in args.precisions.split(","):
            say(f"{precision}, batch {batch}")
            say(line("STEP_MODE", "data", "images/s", "lowest", "highest", "predicted", "of it", "to eager"))
            for place, mode in enumerate(modes):
                variables = {**run, "BATCHSIZE": str(batch), "PRECISION": precision}
                found = apart(
                    [f"--worker={mode}", f"--seconds={args.seconds}", f"--rounds={args.rounds}"], variables
                )
                rows = list(rows_of(mode, batch, precision, found, rates))
                if place == 0 and not isinstance(found, str):
                    rows = [*rows_of("eager", batch, precision, found, rates), *rows]
                for row in rows:
                    say(told(row))
                    failed |= "failure" in row
                if args.output:
                    with open(args.output, "a", encoding="utf-8") as file:
                        file.writelines(json.dumps({**row, "per_second": rates}) + "\n" for row in rows)
    sys.exit(failed)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"rn50: {error}") from None
