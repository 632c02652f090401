"""Time ``rn50 score`` on many result files.

    python benchmarks/score_speed.py [--files 1000] [--json]

Writes the files as runs of 35 epochs on ImageNet, five per system, with as much other output between the records as real logs
have (about 160 KB per file), and times the command including the start of Python.
"""

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from rn50.benchmark import rules
from tests.support import imagenet_run

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOISE = "0:   [lines that a program prints between its records, as long as those of published logs]\n" * 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        lines = imagenet_run.write(folder / "a.log").read_text().splitlines(keepends=True)
        text = "".join(line + NOISE for line in lines)
        for number in range(args.files):
            system = folder / "results" / f"system_{number // rules.RUNS}" / rules.BENCHMARK
            system.mkdir(parents=True, exist_ok=True)
            (system / f"result_{number % rules.RUNS}.txt").write_text(text)
        began = time.monotonic()
        command = [sys.executable, "-m", "rn50", "score", str(folder / "results"), "--json"]
        systems = json.loads(subprocess.run(command, cwd=str(ROOT), check=True, stdout=subprocess.PIPE).stdout)["systems"]
        seconds = time.monotonic() - began
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
    scored = sum(system["olympic_minutes"] is not None for system in systems)
    cpu = used.ru_utime + used.ru_stime
    if args.json:
        figures = {"files": args.files, "bytes_per_file": len(text), "systems_scored": scored}
        print(json.dumps({**figures, "seconds": seconds, "cpu_seconds": cpu}))
    else:
        print(f"{args.files:,} files of {len(text):,} bytes, {scored} systems scored: {seconds:.1f} s ({cpu:.1f} s of one core)")


if __name__ == "__main__":
    main()
