"""One cell of a throughput matrix: training steps of one framework at one precision, batch size and number of ranks.

Each is a job of its own, started as a run is: what one cell leaves behind or runs out of is no matter to the next.
"""

import json
import pathlib
import re
import signal
import subprocess
import sys
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from rn50.config import Config
from rn50.errors import UserError
from rn50.implementation import Implementation
from rn50.input.gauge import Gauge
from rn50.input.rates import Rates, of_rounds

SYNTHETIC, REAL = "synthetic", "real"
OUT_OF_MEMORY = "out of memory"
_MARK = "rn50 throughput "
_NO_MEMORY = re.compile(r"out of memory|OutOfMemory|bad_alloc|(cannot|failed to) allocate|MemoryError", re.IGNORECASE)


class Cell(NamedTuple):
    """What is measured; ``batch_size`` is that of a rank."""

    framework: str
    precision: str
    batch_size: int
    ranks: int

    @property
    def name(self) -> str:
        """Of its log."""
        return f"{self.framework}_{self.precision}_{self.batch_size}_{self.ranks}"

    @property
    def variables(self) -> Dict[str, str]:
        """What makes a configuration that of this cell."""
        return {"FRAMEWORK": self.framework, "PRECISION": self.precision, "BATCHSIZE": str(self.batch_size),
                "DGXNGPU": str(self.ranks)}


class Result(NamedTuple):
    """Images/s of all ranks together by kind of data; or why there are none."""

    cell: Cell
    rates: Dict[str, Rates]
    failure: str
    """Empty, ``OUT_OF_MEMORY``, or what went wrong in a line."""
    log: str


def verb(kinds: Tuple[str, ...], seconds: float, rounds: int) -> List[str]:
    """What ``rn50`` is to be called with as one rank of a cell."""
    return ["bench", "throughput", "--as-rank", f"--data={','.join(kinds)}", f"--seconds={seconds}", f"--rounds={rounds}"]


def as_rank(
    config: Config, create: Callable[[Config], Implementation], kinds: Tuple[str, ...], seconds: float, rounds: int
) -> None:
    """Measures as one rank: every kind of data in turn, ``rounds`` times after a first that does not count. Rank 0 prints."""
    implementation = create(config)
    try:
        gauge = Gauge(config, implementation)
        inputs = {kind: implementation.open_input(None if kind == SYNTHETIC else config.input_pipeline) for kind in kinds}
        depths = {SYNTHETIC: 0, REAL: config.input_pipeline.prefetch_queue_depth}
        slot = seconds / (rounds + 1) / len(kinds)
        steps = {kind: gauge.steps(batches, depths[kind], slot) for kind, batches in inputs.items()}
        measured: Dict[str, List[float]] = {kind: [] for kind in kinds}
        for round_ in range(rounds + 1):
            for kind, batches in inputs.items():
                result = gauge.train(batches, depths[kind], steps[kind])
                if round_:
                    measured[kind].append(result.samples / result.seconds)
        if implementation.communicator.rank == 0:
            print(_MARK + json.dumps(measured), flush=True)
        implementation.communicator.barrier()
    finally:
        implementation.close()


def run(cell: Cell, environ: Mapping[str, str], kinds: Tuple[str, ...], seconds: float, rounds: int, log: pathlib.Path) -> Result:
    """Measures a cell in a job of its own, whose output becomes ``log``. Raises UserError where ``log`` cannot be written."""
    command = [sys.executable, "-m", "rn50", *verb(kinds, seconds, rounds), "--start-ranks"]
    begun = log.with_name(log.name + ".partial")
    try:
        with begun.open("w", encoding="utf-8") as stream:
            job = subprocess.run(command, env={**environ, **cell.variables}, stdout=stream, stderr=subprocess.STDOUT)
        begun.replace(log)
    except OSError as error:
        raise UserError(f"{log}: cannot be written ({error.strerror}); give another folder with --to") from None
    text = log.read_text(encoding="utf-8", errors="replace")
    measured = re.search(rf"^{_MARK}(.*)$", text, re.MULTILINE)
    if job.returncode == 0 and measured:
        found = {kind: of_rounds(values) for kind, values in json.loads(measured[1]).items()}
        return Result(cell, found, "", log.name)
    return Result(cell, {}, _failure(job.returncode, text), log.name)


def _failure(status: int, text: str) -> str:
    if _NO_MEMORY.search(text):
        return OUT_OF_MEMORY
    said: Optional[str] = next((line[len("rn50: "):] for line in text.splitlines() if line.startswith("rn50: ")), None)
    if said is None and status - 128 in set(signal.Signals):
        said = f"killed by {signal.Signals(status - 128).name}"
    return said or f"exit status {status}"
