"""Time training steps of PyTorch on a GPU: every STEP_MODE beside the first one, and beside a predicted rate.

    python benchmarks/gpu_steps.py DEMO_GPU_PYTORCH [--batches 256,400] [-o steps.jsonl]

The rates of the GPU are measured first: those of its memory by a copy of 1 GiB, and of its arithmetic by a
product of 8192 x 8192 matrices in float16. Then all modes are measured for each batch size and precision, on
a synthetic batch on the device and on the data set at DATADIR. They train in one process, so that cuDNN
chooses algorithms once for all. They take turns in every round; if the memory cannot hold all of them, some
are measured after the others. A batch that the memory cannot hold is replaced by the largest that it can.

The column "of it" is the ratio to the prediction of benchmarks/step_floor.py from the measured rates. "to
eager" is the median over the rounds of the ratio to the first mode. If the modes fail, a row has the reason,
and the exit status is 1.
"""

import argparse
import dataclasses
import gc
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from benchmarks import step_floor
from benchmarks.gpu_probe import device_rates
from rn50.errors import UserError
from rn50.launch import job, launchers
from rn50.machine import description, hardware
from rn50.new_config import choices
from rn50.printed import as_json
from rn50.rates import compare, of_rounds
from rn50.settings import config as configuration
from rn50.settings import named
from rn50.speed import worker
from rn50.terminal import say

ROOT = pathlib.Path(__file__).resolve().parent.parent
COUNTED_AS = {"eager": "separate", "graph": "separate", "compile": "compiled", "fused": step_floor.BUILT}
"""STEP_MODE -> version of ``step_floor.VERSIONS`` that predicts its rate."""
KINDS = ("synthetic", "real")
"""Kinds of data: one batch on the device, or the data set at DATADIR."""
WORTH = 1.08
"""Smallest ratio of fused to compile at which our batch-norm kernels are worth their lines of code."""
Rates = dict[str, dict[str, list[float]]]
"""Mode -> kind of data -> images/s of every round."""


def most_images(environ: Mapping[str, str] = os.environ) -> int:
    """Return the largest number of images of a step that the memory of a device holds."""
    config = configuration.from_environment(environ)
    devices = choices.devices(hardware.read())
    return choices.fitting(devices, config.run.precision, config.data) or sys.maxsize


def fitting(batches: str, environ: Mapping[str, str] = os.environ) -> list[int]:
    """Return the batch sizes of the text ``batches``, which separates them by commas. A size that the memory
    does not hold is replaced by the largest that it holds."""
    most = most_images(environ)
    return list(dict.fromkeys(min(int(batch), most) for batch in batches.split(",")))


def measure(modes: Sequence[str], seconds: float, rounds: int) -> Rates:
    """Measure modes in this process, in groups of as many modes as the memory holds at once."""
    config = configuration.from_environment()
    print(launchers.bind(config), file=sys.stderr)  # before PyTorch starts threads

    import torch

    group_size = max(1, most_images() // config.hyperparameters.batch_size)
    results: Rates = {}
    for first in range(0, len(modes), group_size):
        results.update(measure_by_turns(config, modes[first : first + group_size], seconds, rounds))
        gc.collect()  # the objects of a network refer to each other, so only the collector frees them
        torch.cuda.empty_cache()
    return results


def measure_by_turns(
    config: configuration.Config, modes: Sequence[str], seconds: float, rounds: int
) -> Rates:
    """Measure modes, which take turns in every round, each for about ``seconds`` over all rounds."""
    from rn50.run.loop import Rank
    from rn50.speed.meter import Meter

    ranks, sides = [], []
    for mode in modes:
        changed = dataclasses.replace(config, run=dataclasses.replace(config.run, step_mode=mode))
        rank = Rank(changed)
        ranks.append(rank)
        meter = Meter(changed, rank)
        for kind in KINDS:
            source = meter.open(config.input_pipeline if kind == "real" else None)
            steps = meter.steps(source, seconds / (rounds + 1) / len(KINDS))
            sides.append((mode, kind, meter, source, steps))
    results: Rates = {mode: {kind: [] for kind in KINDS} for mode in modes}
    for round_ in range(rounds + 1):  # the results of round 0 are discarded
        for mode, kind, meter, source, steps in sides:
            rate = meter.rate(source, steps)
            if round_:
                results[mode][kind].append(rate)
    for rank in ranks:
        rank.close()
    return results


def run_worker(options: list[str], variables: dict[str, str]) -> Any:
    """Run this script with ``options`` and environment ``variables`` in a process of its own, and return the
    JSON that it prints. If it fails, return the reason, a str."""
    environ = job.rank_environment(configuration.from_environment({**os.environ, **variables}))
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
    modes: Sequence[str], batch: int, precision: str, results: Any, rates: dict[str, float]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each mode and kind of data, as plain data. ``results`` are those of ``measure`` for
    ``modes``, or the reason why it failed, which becomes the only row. ``rates`` are those of the GPU."""
    accelerator = description.read().get("accelerator_model_name")
    shape = {"accelerator": accelerator, "batch": batch, "precision": precision}
    if isinstance(results, str):
        yield {**shape, "mode": ",".join(modes), "failure": results}
        return
    data = configuration.from_environment().data
    for mode in modes:
        counted = step_floor.kernels(
            COUNTED_AS[mode], batch, precision, data.image_size, data.classes, data.width
        )
        predicted = batch / step_floor.seconds(counted, rates["bytes"], rates["operations"])
        for kind, values in results[mode].items():
            measured = of_rounds(values)
            yield {
                **shape,
                "mode": mode,
                "data": kind,
                "images_per_second": measured._asdict(),
                "predicted": predicted,
                "of_predicted": measured.median / predicted,
                "first": modes[0],
                "to_first": as_json(compare(values, results[modes[0]][kind])),
            }


def verdict(results: Any) -> Iterator[str]:
    """Yield a line on whether our kernels are worth their code, if fused and compile were measured."""
    if not isinstance(results, str) and {"fused", "compile"} <= set(results):
        ratio = compare(results["fused"]["synthetic"], results["compile"]["synthetic"]).median
        what = "the batch-norm kernels go" if ratio < WORTH else "STEP_MODE=fused becomes the default"
        yield f"fused is {ratio:.3f} times compile (rule: {WORTH}): {what}"


def line(*cells: str) -> str:
    """Return a line of the table with these cells in columns."""
    return " ".join([f"{cells[0]:9}", f"{cells[1]:9}", *(f"{cell:>9}" for cell in cells[2:])]).rstrip()


def told(row: dict[str, Any]) -> str:
    """Return the line of the table for a row of ``rows_of``."""
    if "failure" in row:
        return f"{row['mode']:9} {row['failure']}"
    rates = (f"{row['images_per_second'][name]:,.0f}" for name in ("median", "lowest", "highest"))
    ratios = f"{row['of_predicted']:.2f}", f"{row['to_first']['median']:.3f}"
    return line(row["mode"], row["data"], *rates, f"{row['predicted']:,.0f}", *ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "config", nargs="?", help="a system of configs/, or a file (CONFIG_FILE or DGXSYSTEM)"
    )
    parser.add_argument("--batches", default="256,400", help="sizes, with commas (256,400)")
    parser.add_argument("--precisions", default="float16,bfloat16", help="with commas (float16,bfloat16)")
    every = ",".join(COUNTED_AS)
    parser.add_argument("--modes", default=every, help=f"with commas ({every})")
    parser.add_argument("--seconds", type=float, default=15, help="about how long a mode trains (15)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "-o", "--output", type=pathlib.Path, help="file that every row is appended to, a line of JSON each"
    )
    parser.add_argument("--worker", choices=("rates", "steps"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    modes = args.modes.split(",")
    if not set(modes) <= set(COUNTED_AS):
        parser.error(f"--modes {args.modes}: there are {', '.join(COUNTED_AS)}")
    if args.worker:
        rates = args.worker == "rates"
        print(json.dumps(device_rates() if rates else measure(modes, args.seconds, args.rounds)))
        return
    os.environ.update(named.read(args.config).environ())
    run = {"DEVICE": "gpu", "FRAMEWORK": "pytorch", "DGXNGPU": "1", "DGXNNODES": "1"}
    rates = run_worker(["--worker=rates"], run)
    if isinstance(rates, str):
        raise SystemExit(2)  # the worker has printed the reason
    say(f"{rates['bytes'] / 1e12:.2f} TB/s, {rates['operations'] / 1e12:.0f} TFLOP/s measured")
    failed = False
    headings = "STEP_MODE", "data", "images/s", "lowest", "highest", "predicted", "of it", f"to {modes[0]}"
    options = ["--worker=steps", *(f"--{name}={vars(args)[name]}" for name in ("modes", "seconds", "rounds"))]
    for precision in args.precisions.split(","):
        for batch in fitting(args.batches, {**os.environ, **run, "PRECISION": precision}):
            say(f"{precision}, batch {batch}")
            say(line(*headings))
            results = run_worker(options, {**run, "BATCHSIZE": str(batch), "PRECISION": precision})
            rows = list(rows_of(modes, batch, precision, results, rates))
            for text in (*map(told, rows), *verdict(results)):
                say(text)
            failed |= isinstance(results, str)
            if args.output:
                with open(args.output, "a", encoding="utf-8") as file:
                    file.writelines(json.dumps({**row, "per_second": rates}) + "\n" for row in rows)
    sys.exit(failed)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"rn50: {error}") from None
