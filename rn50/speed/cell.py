"""One cell of a throughput matrix: training steps of a network in a framework at a precision, batch size and
number of ranks."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from rn50 import frameworks
from rn50.errors import UserError, excerpt
from rn50.machine import power
from rn50.printed import Inline
from rn50.rates import Rates, of_rounds
from rn50.run import all_reduce, precision
from rn50.run.loop import Rank, opened
from rn50.settings.config import Config
from rn50.speed import measured_steps, worker
from rn50.speed.meter import Meter
from rn50.speed.networks import OURS

SYNTHETIC, REAL = "synthetic", "real"
LOSS_STEPS = 20


class Cell(NamedTuple):
    """Combination to measure."""

    framework: str
    """FRAMEWORK."""
    model: str
    """ours, or a model of its zoo."""
    image_size: int | None
    """Pixels a side; None: the configuration's."""
    precision: str
    """Precision; what warm-up took for PRECISION=auto is marked `(auto)`."""
    batch_size: int
    """Images of a rank and step."""
    ranks: int
    """Ranks of a machine."""
    nodes: int = 1
    """Number of machines."""
    hosts: str | None = None
    """Names of several machines, with commas."""

    @property
    def name(self) -> str:
        """Return the name of its log."""
        return f"{self.framework}_{self.model}_{self.precision}_{self.batch_size}_{self.placed}"

    @property
    def placed(self) -> str:
        """Return the number of ranks, of several machines as 2x8."""
        return f"{self.nodes}x{self.ranks}" if self.nodes > 1 else str(self.ranks)

    @property
    def trained(self) -> str:
        """Return its framework, and its model if that is not ours."""
        return self.framework if self.model == OURS else f"{self.framework} {self.model}"

    @property
    def names(self) -> tuple[str, str, str, str]:
        """Return the beginning of its row in a table: framework, precision, batch and ranks."""
        return self.trained, self.precision, str(self.batch_size), self.placed

    @property
    def heading(self) -> tuple[str, ...]:
        """Return the parts of the heading of its column in the overview."""
        ranks = "1 rank" if self.placed == "1" else f"{self.placed} ranks"
        return self.precision, ranks, f"batch {self.batch_size}"

    @property
    def variables(self) -> dict[str, Any]:
        """Return this cell's variables."""
        values: dict[str, Any] = {
            "FRAMEWORK": self.framework,
            "PRECISION": self.precision,
            "BATCHSIZE": self.batch_size,
            "DGXNGPU": self.ranks,
            "DGXNNODES": self.nodes,
            "HOSTS": self.hosts,
            "IMAGE_SIZE": self.image_size,
            "EVAL_RESIZE": self.image_size,
        }
        return {name: value for name, value in values.items() if value is not None}

    def lacking(self, device: str) -> str:
        """Return a few words if its framework lacks its precision on a device, else an empty string."""
        possible = frameworks.traits(self.framework).precisions.get(device)
        is_there = possible is not None and self.precision in ("auto", *possible)
        return "" if is_there else f"not on a {device.upper()}"

    def kinds(self, asked: tuple[str, ...]) -> tuple[str, ...]:
        """Return the kinds of data that it trains on. Zoo models train on synthetic data alone, of the size
        they need."""
        return tuple(kind for kind in asked if self.model == OURS or kind == SYNTHETIC)


class Step(NamedTuple):
    """Breakdown of a step, and its loss."""

    seconds: float
    """Seconds a step."""
    forward_images_per_second: float
    """images/s of the forward pass alone, all ranks together."""
    communication: float | None
    """All-reduce of the gradients alone, as a share of the step; it may run beside the backward pass. null: a
    model of a zoo."""
    loss: float
    """Training loss after 20 steps of the configuration's own schedule on the synthetic batch, from the same
    weights in every precision."""
    images_per_joule: float | None
    """images/s a watt of what the counters of POWER measure on all machines. null: there is none."""


class Result(NamedTuple):
    """Images/s of a cell, or the reason why there are none."""

    cell: Inline[Cell]
    """Cell with the precision that warm-up chose for "auto"."""
    rates: dict[Annotated[str, "data"], Rates]
    """On synthetic or real data, all ranks together."""
    failure: str
    """Why there is no figure, or empty."""
    log: str
    """Log of the cell; empty where its framework lacks the precision, so that no job ran."""
    step: Step | None = None
    """null: there is no figure."""


def as_rank(config: Config, model: str, kinds: Sequence[str], seconds: float, rounds: int) -> None:
    """Measure as one rank: every kind of data in turn, ``rounds`` times after a discarded first time. Rank 0
    reports."""
    is_ours = model == OURS
    if not set(kinds) <= {SYNTHETIC, REAL}:
        raise UserError(f"kinds {excerpt(str(kinds))}", "no kinds of data", f"give {SYNTHETIC} or {REAL}")
    with opened(config, None if is_ours else model) as rank:
        meter, ranks = Meter(config, rank), rank.communicator
        counters = [] if ranks.local_rank else power.counters(config.run.power)[0]
        energy = power.PowerMeter([counter for counter in counters if not counter.is_power])
        inputs = {kind: meter.open(None if kind == SYNTHETIC else config.input_pipeline) for kind in kinds}
        slot = seconds / (rounds + 1) / len(kinds)
        steps = {kind: meter.steps(source, slot) for kind, source in inputs.items()}
        meter.tell(rounds + 1, LOSS_STEPS * meter.step_seconds)
        measured: dict[str, list[float]] = {kind: [] for kind in kinds}
        watts = []
        for _ in range(rounds + 1):
            for kind, source in inputs.items():
                energy.watts()
                measured[kind].append(meter.rate(source, steps[kind]))
                watts += [energy.watts()] if kind == kinds[0] else []
        counted = {kind: rates[1:] for kind, rates in measured.items()}
        rate, mean_watts = statistics.median(counted[kinds[0]]), meter.over_ranks(statistics.mean(watts[1:]))
        step = _step(config, rank, meter, rate, mean_watts, is_ours)
        if ranks.rank == 0:
            taken = precision.shown(config, rank.precision)
            worker.report({"precision": taken, "images_per_second": counted, "step": step})


def _step(config: Config, rank: Rank, meter: Meter, rate: float, watts: float, is_ours: bool) -> Step:
    """Measure the breakdown of a step as one rank, from its images per second and what they took, 0 watts
    where that is not measured."""
    batch, ranks = config.hyperparameters.batch_size, rank.communicator
    seconds = batch * ranks.size / rate
    forward = meter.over_ranks(batch / rank.forward_seconds)
    sums = 0.0
    if is_ours and ranks.size > 1:
        sums = meter.over_ranks(all_reduce.time_gradients(config, ranks).seconds) / ranks.size
    loss = measured_steps.loss_after(rank, meter.open(None).batches, LOSS_STEPS)
    mean, communication = meter.over_ranks(loss) / ranks.size, sums / seconds if is_ours else None
    return Step(seconds, forward, communication, mean, rate / watts if watts else None)


def run(cell: Cell, config: Config, kinds: tuple[str, ...], seconds: float, rounds: int, log: Path) -> Result:
    """Measure a cell in a job of its own, with the other values of ``config``. Raises UserError if ``log``
    cannot be written."""
    how = {"model": cell.model, "kinds": cell.kinds(kinds), "seconds": seconds, "rounds": rounds}
    reported, failure = worker.run("speed.cell", config.replaced(**cell.variables), log, **how)
    if failure:
        return Result(cell, {}, failure, log.name)
    rates = {kind: of_rounds(values) for kind, values in reported["images_per_second"].items()}
    taken = cell._replace(precision=reported["precision"])
    return Result(taken, rates, failure, log.name, Step(*reported["step"]))
