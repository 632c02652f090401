"""One cell of a throughput matrix: training steps of a network in a framework at a precision, batch size and
number of ranks."""

import pathlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rn50 import frameworks
from rn50.deploy.rates import Rates, of_rounds
from rn50.run import precision
from rn50.settings.config import Config
from rn50.speed import worker
from rn50.speed.measurable import Measurable
from rn50.speed.meter import Meter
from rn50.speed.networks import OURS

SYNTHETIC, REAL = "synthetic", "real"


class Cell(NamedTuple):
    """Combination to measure; ``batch_size`` is per rank."""

    framework: str
    model: str
    image_size: int | None
    """Framework, model and image size are as in a ``Network``."""
    precision: str
    batch_size: int
    ranks: int

    @property
    def name(self) -> str:
        """Return the name of its log."""
        return f"{self.framework}_{self.model}_{self.precision}_{self.batch_size}_{self.ranks}"

    @property
    def variables(self) -> dict[str, str]:
        """Return this cell's variables."""
        size = (
            {}
            if self.image_size is None
            else dict.fromkeys(("IMAGE_SIZE", "EVAL_RESIZE"), str(self.image_size))
        )
        return {
            "FRAMEWORK": self.framework,
            "PRECISION": self.precision,
            "BATCHSIZE": str(self.batch_size),
            "DGXNGPU": str(self.ranks),
            **size,
        }

    def lacking(self, device: str) -> str:
        """Return a few words if its framework lacks its precision on a device, else an empty string."""
        possible = frameworks.traits(self.framework).precisions.get(device)
        return (
            f"not on a {device.upper()}"
            if possible is None or self.precision not in ("auto", *possible)
            else ""
        )

    def kinds(self, asked: tuple[str, ...]) -> tuple[str, ...]:
        """Return the kinds of data that it trains on. Zoo models train on synthetic data alone, of the size
        they need."""
        return tuple(kind for kind in asked if self.model == OURS or kind == SYNTHETIC)


class Result(NamedTuple):
    """Images/s of all ranks together by kind of data, or the reason why there are none."""

    cell: Cell
    """Cell with the precision that warm-up chose for "auto"."""
    rates: dict[str, Rates]
    failure: str
    """Failure of the job (``worker.Outcome``), or the words of ``Cell.lacking``."""
    log: str
    """Name of its file; empty if its framework lacks the precision, so that no job ran."""


def verb(model: str, kinds: tuple[str, ...], seconds: float, rounds: int) -> list[str]:
    """Return the arguments for ``rn50`` to measure a cell."""
    return [
        "bench",
        "throughput",
        f"--models={model}",
        f"--data={','.join(kinds)}",
        f"--seconds={seconds}",
        f"--rounds={rounds}",
    ]


def as_rank(
    config: Config,
    create: Callable[[Config], Measurable],
    kinds: tuple[str, ...],
    seconds: float,
    rounds: int,
) -> None:
    """Measure as one rank: every kind of data in turn, ``rounds`` times after a discarded first time. Rank 0
    prints."""
    implementation = create(config)
    try:
        meter = Meter(config, implementation)
        inputs = {
            kind: implementation.open_input(None if kind == SYNTHETIC else config.input_pipeline)
            for kind in kinds
        }
        depths = {SYNTHETIC: 0, REAL: config.input_pipeline.prefetch_queue_depth}
        slot = seconds / (rounds + 1) / len(kinds)
        steps = {kind: meter.steps(batches, depths[kind], slot) for kind, batches in inputs.items()}
        measured: dict[str, list[float]] = {kind: [] for kind in kinds}
        for round_ in range(rounds + 1):
            for kind, batches in inputs.items():
                result = meter.train(batches, depths[kind], steps[kind])
                if round_:
                    measured[kind].append(result.samples / result.seconds)
        if implementation.communicator.rank == 0:
            worker.report(
                {
                    "precision": precision.shown(config, implementation.precision),
                    "images_per_second": measured,
                }
            )
        implementation.communicator.barrier()
    finally:
        implementation.close()


def run(
    cell: Cell,
    environ: Mapping[str, str],
    kinds: tuple[str, ...],
    seconds: float,
    rounds: int,
    log: pathlib.Path,
) -> Result:
    """Measure a cell in a job of its own. Raises UserError if ``log`` cannot be written."""
    reported, failure = worker.run(
        verb(cell.model, cell.kinds(kinds), seconds, rounds), {**environ, **cell.variables}, log
    )
    if failure:
        return Result(cell, {}, failure, log.name)
    rates = {kind: of_rounds(values) for kind, values in reported["images_per_second"].items()}
    return Result(cell._replace(precision=reported["precision"]), rates, failure, log.name)
