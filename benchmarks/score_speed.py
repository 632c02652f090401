"""Time ``rn50 score`` on many result files.

    python benchmarks/score_speed.py [--files 1000] [--json]

Writes the files as runs of 35 epochs on ImageNet, five per system, with the records and as much other output
between them as real logs have (about 160 KB per file), and times the command including the start of Python.
"""

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from rn50.benchmark import rules, schedule
from rn50.results.parse import TOKEN

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOISE = "0:   [lines that a program prints between its records, as long as those of published logs]\n" * 3
EPOCHS, EPOCH_MS = 35, 46_000
HEAD = {
    "submission_benchmark": rules.BENCHMARK,
    "submission_org": "Somebody",
    "submission_division": "closed",
    "submission_status": "onprem",
    "submission_platform": "1xNF5688M6",
    "cache_clear": True,
    "init_start": None,
    "seed": 1,
    "global_batch_size": 3264,
    "gradient_accumulation_steps": 1,
    "model_bn_span": 408,
    "opt_name": "lars",
    "lars_epsilon": 0.0,
    "lars_opt_base_learning_rate": 10.5,
    "lars_opt_end_learning_rate": 1e-4,
    "lars_opt_learning_rate_decay_poly_power": 2,
    "lars_opt_learning_rate_decay_steps": 37,
    "lars_opt_learning_rate_warmup_epochs": 2,
    "lars_opt_momentum": 0.9,
    "lars_opt_weight_decay": 5e-5,
}
"""Records before those of the weights."""


def records() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield key, value and metadata of the records of a run."""
    yield from ((key, value, {}) for key, value in HEAD.items())
    yield from (
        ("weights_initialization", None, {"tensor": f"tensor_{number}"})
        for number in range(rules.TRAINABLE_TENSORS)
    )
    yield from (("init_stop", None, {}), ("run_start", None, {}))
    yield from (("train_samples", rules.TRAIN_SAMPLES, {}), ("eval_samples", rules.EVAL_SAMPLES, {}))
    first = 1
    for last in schedule.evaluation_epochs(EPOCHS, 2, rules.EVAL_PERIOD_EPOCHS):
        yield "block_start", None, {"first_epoch_num": first, "epoch_count": last - first + 1}
        for epoch in range(first, last + 1):
            yield "epoch_start", None, {"epoch_num": epoch}
            yield "tracked_stats", {"throughput": 27_000.0}, {"step": epoch}
            yield "epoch_stop", None, {"epoch_num": epoch}
        yield "eval_start", None, {"epoch_num": last}
        yield "eval_accuracy", 0.7608 if last == EPOCHS else 0.02 * last, {"epoch_num": last}
        yield "eval_stop", None, {"epoch_num": last}
        yield "block_stop", None, {"first_epoch_num": first}
        first = last + 1
    yield "run_stop", None, {"status": "success"}


def log() -> str:
    """Return the text of a result file."""
    lines, now = [], 1_700_000_000_000
    for number, (key, value, metadata) in enumerate(records(), 1):
        now += EPOCH_MS if key == "epoch_stop" else 1
        kind = {"start": "INTERVAL_START", "stop": "INTERVAL_END"}.get(
            key.rsplit("_", 1)[-1], "POINT_IN_TIME"
        )
        event = {"namespace": "", "time_ms": now, "event_type": kind, "key": key, "value": value}
        event["metadata"] = {"file": "train.py", "lineno": number, **metadata}
        lines.append(f"{TOKEN} {json.dumps(event)}\n")
    return "".join(line + NOISE for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = log()
        for number in range(args.files):
            system = folder / "results" / f"system_{number // rules.RUNS}" / rules.BENCHMARK
            system.mkdir(parents=True, exist_ok=True)
            (system / f"result_{number % rules.RUNS}.txt").write_text(text)
        began = time.monotonic()
        command = [sys.executable, "-m", "rn50", "score", str(folder / "results"), "--json"]
        systems = json.loads(
            subprocess.run(command, cwd=str(ROOT), check=True, stdout=subprocess.PIPE).stdout
        )["systems"]
        seconds = time.monotonic() - began
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
    scored = sum(system["olympic_minutes"] is not None for system in systems)
    cpu = used.ru_utime + used.ru_stime
    if args.json:
        figures = {"files": args.files, "bytes_per_file": len(text), "systems_scored": scored}
        print(json.dumps({**figures, "seconds": seconds, "cpu_seconds": cpu}))
    else:
        print(
            f"{args.files:,} files of {len(text):,} bytes, {scored} systems scored: {seconds:.1f} s "
            f"({cpu:.1f} s of one core)"
        )


if __name__ == "__main__":
    main()
