"""Compare float32, bfloat16 and int8 of a network on a CPU by engine, and our harness with a plain loop, each
by turns.

    python benchmarks/inference.py [--image-size 224] [--width 1] [--engines onnxruntime,paddle-onednn]
                                   [--batch-sizes 1,64] [--seconds 15] [--rounds 5]

By default it is the network of the benchmark. Its weights are random, and random images calibrate int8, so
these are rates and say nothing of accuracy; `rn50 quantize` evaluates. A ratio is that of the medians, to
float32 on the same engine.

The harness is that of `rn50 bench inference`, one request after the other; the plain loop calls ONNX Runtime
on the same session.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np
from rich.table import Table

from rn50.benchmark import network
from rn50.deploy import export, model_file, quantization
from rn50.results import weights
from rn50.speed import inference, inference_engines, inference_process
from rn50.terminal import Terminal

CLASSES, CALIBRATING = 1000, 8
HARNESS_SECONDS, HARNESS_ROUNDS = 1.0, 12


def random_weights(width, image_size):
    """Return weights whose activations neither vanish nor overflow."""
    random, arrays = np.random.default_rng(0), {}
    for name, shape in network.shapes(CLASSES, width).items():
        fixed = {"gamma": 0.5, "running_var": 1.0, "beta": 0.0, "running_mean": 0.0, "bias": 0.0}
        value = next((value for end, value in fixed.items() if name.endswith(end)), None)
        drawn = (
            random.standard_normal(shape) * (2 / np.prod(shape[1:])) ** 0.5
            if value is None
            else np.full(shape, value)
        )
        arrays[name] = drawn.astype(np.float32)
    facts = {"classes": CLASSES, "width": width, "image_size": image_size, "eval_resize": image_size}
    return weights.Weights(arrays, {name: str(value) for name, value in facts.items()})


def files(folder, width, image_size):
    """Write random weights and an int8 model of them; return both files."""
    floats, int8 = folder / "random.safetensors", folder / "int8.onnx"
    weights.write(floats, random_weights(width, image_size))
    images = (
        np.random.default_rng(1)
        .standard_normal((CALIBRATING, 1, 3, image_size, image_size))
        .astype(np.float32)
    )
    way = quantization.Way("static", "minmax")
    int8.write_bytes(quantization.quantized(export.convert(floats, "random"), way, list(images)).content)
    return floats, int8


def show_rates(measured, console):
    """Print images/s of every engine, precision and batch size."""
    rates = {
        (each.subject.engine, each.subject.precision, each.batch_size): each.images_per_second
        for each in measured.results
    }
    table = Table("engine", "precision", "batch", "images/s", "lowest to highest", "to float32")
    for (engine, precision, size), rate in sorted(
        rates.items(), key=lambda item: (item[0][2], item[0][0], item[1].median)
    ):
        float32, span = rates.get((engine, "float32", size)), f"{rate.lowest:,.1f} to {rate.highest:,.1f}"
        ratio = f"{rate.median / float32.median:.2f}" if float32 else ""
        table.add_row(engine, precision, str(size), f"{rate.median:,.1f}", span, ratio)
    console.print(table)
    for subject, error in measured.failures.items():
        console.print(f"{subject.name}: {error}")


def harness(file, threads, batch_size, rounds):
    """Return the ratio of the median latencies, ours to the plain loop's, for every round; every other begins
    with ours."""
    run, make = inference_engines.create(inference_engines.Subject(file, "onnxruntime", "float32"), threads)
    session, images = model_file.session(export.convert(file, "random"), threads), make(batch_size)
    name = session.get_inputs()[0].name

    def plain():
        latencies = []
        while sum(latencies) < HARNESS_SECONDS:
            begin = time.perf_counter()
            session.run(None, {name: images})
            latencies.append(time.perf_counter() - begin)
        return latencies

    def ours():
        return inference_process.closed_loop(run, images, HARNESS_SECONDS).latencies

    ratios = []
    for round_ in range(rounds + 1):
        taken = {each: statistics.median(each()) for each in ((plain, ours) if round_ % 2 else (ours, plain))}
        ratios.append(taken[ours] / taken[plain])
    return ratios[1:]


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--engines", default="onnxruntime,paddle-onednn")
    parser.add_argument("--batch-sizes", default="1,64")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--rounds", type=int, default=5)
    asked, console = parser.parse_args(), Terminal()
    line, threads = inference.bind(None)
    sizes, engines = [int(size) for size in asked.batch_sizes.split(",")], asked.engines.split(",")
    with tempfile.TemporaryDirectory() as folder:
        floats, int8 = files(pathlib.Path(folder), asked.width, asked.image_size)
        asked_of = {engine: inference_engines.precisions(engine) for engine in engines}
        subjects = [
            each
            for engine in engines
            for each in inference_engines.subjects([floats], [engine], asked_of[engine])
        ]
        if "onnxruntime" in engines:
            subjects += inference_engines.subjects([int8], ["onnxruntime"], ["float32"])
        console.print(f"{inference.machine_of(threads)}, {line}")
        console.print(f"width {asked.width:g}, {asked.image_size}x{asked.image_size}, random weights")
        show_rates(inference.measure(subjects, sizes, asked.seconds, asked.rounds, None, threads), console)
        for size in sizes:
            ratios = harness(floats, threads, size, HARNESS_ROUNDS)
            console.print(
                f"harness to plain loop, batch {size}: latency {statistics.median(ratios):.4f} "
                f"({min(ratios):.4f} to {max(ratios):.4f})"
            )


if __name__ == "__main__":
    main()
