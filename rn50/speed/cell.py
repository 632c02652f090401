"""One cell of the matrix that ``rn50 bench throughput`` measures: training steps of a network, in a
framework, at a precision, batch size and number of ranks.

``throughput.py`` calls ``run``, which starts a job of its own for the cell; each rank of the job calls
``as_rank``.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from rn50 import frameworks
from rn50.errors import UserError, excerpt
from rn50.machine import power
from rn50.printed import IfKnown, Inline
from rn50.rates import Comparison, Rates, compare, of_rounds
from rn50.run import all_reduce, precision
from rn50.run.loop import Rank, opened
from rn50.settings.config import Config
from rn50.speed import measured_steps, worker
from rn50.speed.meter import Meter
from rn50.speed.networks import OURS

SYNTHETIC, REAL = "synthetic", "real"
"""Kinds of data: one random batch held on the device, or the training set."""
LOSS_STEPS = 20
"""Steps after which the loss is reported: enough for a wrong step to show, in few seconds."""


class Cell(NamedTuple):
    """Combination of framework, network, precision, batch size and ranks to measure."""

    framework: str
    """FRAMEWORK."""
    model: str
    """ours, or the name of a model in the framework's zoo."""
    image_size: int | None
    """Side of an image in pixels, in every epoch; None: that of the configuration."""
    precision: str
    """Precision; one that the warm-up chose for PRECISION=auto is marked `(auto)`."""
    batch_size: int
    """Images of a rank and step."""
    ranks: int
    """Ranks of a machine."""
    nodes: int = 1
    """Number of machines."""
    hosts: str | None = None
    """Names of the machines if there are several, separated by commas."""
    setting: IfKnown[str] = None
    """Name of the configuration if two are measured in turn."""

    @property
    def name(self) -> str:
        """Name of the cell's log, without suffix."""
        size = str((self.model == OURS and self.image_size) or "")
        trained = self.framework, self.model, size, self.precision, str(self.batch_size)
        return "_".join(filter(None, (*trained, self.placed, self.setting)))

    @property
    def placed(self) -> str:
        """Number of ranks in words: 8 on one machine, 2x8 on two machines."""
        return f"{self.nodes}x{self.ranks}" if self.nodes > 1 else str(self.ranks)

    @property
    def trained(self) -> str:
        """Name of what is trained: the framework, the model if that is not ours, the size of the images if
        ours has several, and the setting if any."""
        size = f"{self.image_size}x{self.image_size}" if self.image_size else ""
        model = size if self.model == OURS else self.model
        return " ".join(filter(None, (self.framework, model, self.setting)))

    @property
    def names(self) -> tuple[str, str, str, str]:
        """Texts for a row of a table: what is trained, precision, batch size and ranks."""
        return self.trained, self.precision, str(self.batch_size), self.placed

    @property
    def heading(self) -> tuple[str, ...]:
        """Heading of the cell's column in the overview, in parts: precision, ranks, batch size."""
        ranks = "1 rank" if self.placed == "1" else f"{self.placed} ranks"
        return self.precision, ranks, f"batch {self.batch_size}"

    @property
    def variables(self) -> dict[str, Any]:
        """Variables of the configuration that the cell sets -> values; None unsets one."""
        values: dict[str, Any] = {
            "FRAMEWORK": self.framework,
            "PRECISION": self.precision,
            "BATCHSIZE": self.batch_size,
            "DGXNGPU": self.ranks,
            "DGXNNODES": self.nodes,
        }
        if self.hosts:
            values["HOSTS"] = self.hosts
        if side := self.image_size:
            values |= {"IMAGE_SIZE": side, "EVAL_RESIZE": side, "IMAGE_SIZES": None}
        return values

    def lacking(self, device: str) -> str:
        """Return a remark if the framework lacks the precision on ``device``, else an empty string."""
        possible = frameworks.traits(self.framework).precisions.get(device)
        is_possible = possible is not None and self.precision in ("auto", *possible)
        return "" if is_possible else f"not on a {device.upper()}"

    def kinds(self, asked: tuple[str, ...]) -> tuple[str, ...]:
        """Return the kinds of data, of those ``asked`` for, on which the cell can train. A model of a zoo
        trains on synthetic data alone, with the image size that it needs."""
        return tuple(kind for kind in asked if self.model == OURS or kind == SYNTHETIC)


class Step(NamedTuple):
    """Breakdown of a step, and its loss."""

    seconds: float
    """Seconds of a step."""
    forward_images_per_second: float
    """images/s of the forward pass alone, all ranks together."""
    communication: float | None
    """Seconds of the all-reduce of the gradients alone over seconds of a step. In a step it may overlap with
    the backward pass. null: not measured for a model of a zoo."""
    loss: float
    """Training loss after 20 steps of the configuration's own schedule on the synthetic batch, from the same
    weights in every precision."""
    images_per_joule: float | None
    """images/s a watt, by the energy counters of POWER on all machines. null: there is no counter."""


class Result(NamedTuple):
    """Images/s of a cell, or the reason why it has none."""

    cell: Inline[Cell]
    """Cell, with the precision that the warm-up chose for "auto"."""
    rates: dict[Annotated[str, "data"], Rates]
    """images/s on synthetic or real data, all ranks together."""
    failure: str
    """Why there is no figure; empty: there are figures."""
    log: str
    """Name of the cell's log; empty: the framework lacks the precision, so that no job ran."""
    step: Step | None = None
    """null: there is no figure."""
    ratios: dict[Annotated[str, "data"], Comparison] = {}
    """images/s over those of the first of two settings, in each round; empty for that one, and without
    --against."""


def as_rank(config: Config, model: str, kinds: Sequence[str], seconds: float, rounds: int) -> None:
    """Measure as one rank, for about ``seconds``. Each round measures every kind of data once; a first round,
    which is discarded, comes before the ``rounds`` that count. Rank 0 reports the result to ``run``."""
    is_ours = model == OURS
    if not set(kinds) <= {SYNTHETIC, REAL}:
        raise UserError(f"kinds {excerpt(str(kinds))}", "no kinds of data", f"give {SYNTHETIC} or {REAL}")
    with opened(config, None if is_ours else model) as rank:
        meter = Meter(config, rank)
        # The first rank of a machine measures the energy of the machine.
        counters = [] if meter.communicator.local_rank else power.counters(config.run.power)[0]
        # Power readings are left out: they would be read only at both ends of a measurement.
        energy = power.PowerMeter([counter for counter in counters if not counter.is_power])
        inputs = {kind: meter.open(None if kind == SYNTHETIC else config.input_pipeline) for kind in kinds}
        slot = seconds / (rounds + 1) / len(kinds)  # seconds for one kind in one round
        steps = {kind: meter.steps(source, slot) for kind, source in inputs.items()}
        # ``step_seconds`` comes from the last call of ``meter.steps``. The loss is measured after the rounds.
        if rounds > 1:  # a single round takes no longer than the start of its job
            meter.say_duration(rounds + 1, LOSS_STEPS * meter.step_seconds)
        measured: dict[str, list[float]] = {kind: [] for kind in kinds}
        watts: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(rounds + 1):
            for kind, source in inputs.items():
                energy.watts()  # begins the interval whose mean power the next call returns
                measured[kind].append(meter.rate(source, steps[kind]))
                watts[kind].append(energy.watts())
        counted = {kind: rates[1:] for kind, rates in measured.items()}  # without the first round
        # The breakdown of a step is that of the first kind of data.
        rate = statistics.median(counted[kinds[0]])
        total_watts = meter.sum_over_ranks(statistics.mean(watts[kinds[0]][1:]))
        step = _step(config, rank, meter, rate, total_watts, is_ours)
        if meter.communicator.rank == 0:
            chosen = precision.label(config, rank.precision)
            worker.report({"precision": chosen, "images_per_second": counted, "step": step})


def _step(config: Config, rank: Rank, meter: Meter, rate: float, watts: float, is_ours: bool) -> Step:
    """Measure the parts of a step as one rank. ``rate`` is the images/s of all ranks together, and ``watts``
    the power of all machines while they trained at this rate; 0: it is not measured."""
    batch = config.hyperparameters.batch_size
    ranks = meter.communicator.size
    seconds = batch * ranks / rate
    forward = meter.sum_over_ranks(batch / rank.forward_seconds)
    communication = 0.0 if is_ours else None
    if is_ours and ranks > 1:
        all_reduce_seconds = all_reduce.time_gradients(config, meter.communicator).seconds
        communication = meter.sum_over_ranks(all_reduce_seconds) / ranks / seconds
    loss = measured_steps.loss_after(rank, meter.open(None).batches, LOSS_STEPS)
    mean_loss = meter.sum_over_ranks(loss) / ranks
    return Step(seconds, forward, communication, mean_loss, rate / watts if watts else None)


def run(cell: Cell, config: Config, kinds: tuple[str, ...], seconds: float, rounds: int, log: Path) -> Result:
    """Measure a cell in a job of its own, whose output becomes ``log``. Variables that the cell does not set
    have their values of ``config``. Raises UserError if ``log`` cannot be written."""
    # The arguments of ``as_rank``, which each rank of the job calls.
    arguments = {"model": cell.model, "kinds": cell.kinds(kinds), "seconds": seconds, "rounds": rounds}
    reported, failure = worker.run("speed.cell", config.replaced(**cell.variables), log, **arguments)
    if failure:
        return Result(cell, {}, failure, log.name)
    rates = {kind: of_rounds(values) for kind, values in reported["images_per_second"].items()}
    measured = cell._replace(precision=reported["precision"])
    return Result(measured, rates, failure, log.name, Step(*reported["step"]))


def joined(parts: Sequence[Result], first: Sequence[Result]) -> Result:
    """Return the result of a cell from its jobs, of which each measured a round. ``first`` are the jobs of
    the first setting, in the same rounds; the same object as ``parts`` for that setting."""
    last = parts[-1]  # without rates if it failed
    of_first = {} if parts is first else first[-1].rates
    ratios = {
        kind: compare(_medians(parts, kind), _medians(first, kind)) for kind in last.rates if kind in of_first
    }
    if len(parts) > 1:
        last = last._replace(rates={kind: of_rounds(_medians(parts, kind)) for kind in last.rates})
    return last._replace(ratios=ratios)


def _medians(parts: Sequence[Result], kind: str) -> list[float]:
    return [part.rates[kind].median for part in parts]
