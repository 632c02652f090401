"""``rn50 bench input``: the speed of the input pipeline, stage by stage, the speed of training, and the
bottleneck.

``rn50 bench input`` calls ``as_rank`` on every rank. ``measure`` makes the measurements; ``rn50 profile``
calls it too.
"""

import statistics
from typing import NamedTuple

from rn50 import rates
from rn50.printed import IfKnown, prints
from rn50.progress import counting
from rn50.rates import Comparison, Rates
from rn50.results import other_load
from rn50.run import precision
from rn50.run.loop import Rank, opened
from rn50.settings.config import Config
from rn50.speed import overlap
from rn50.speed.meter import Meter
from rn50.speed.overlap import Overlap
from rn50.terminal import Terminal, print_json, table

MEANING = {
    "read": "reading alone",
    "decode": "decoding alone, of images in memory",
    "pipeline": "the whole pipeline alone",
    "synthetic": "training on a synthetic batch",
    "real": "training on real data",
}
"""Stage or kind of training -> its name in the table, in the order of the table."""
SHARE_OF_TRAINING = 3
"""Factor by which a measurement of training is longer than that of a stage: a step takes longer than a batch
of the pipeline, and more steps run before the timed ones."""
CLOSE = 1.25
"""The slowest stage is the bottleneck of the pipeline if, measured alone, it is at most this many times as
fast as the whole pipeline."""


class Waiting(NamedTuple):
    """Time that training on real data waits for its data; medians over the rounds."""

    reader_ratio: float
    """Share of the time for which rank 0 waited for its next batch: `reader_cost_s` over `batch_cost_s`."""
    reader_cost_s: float
    """Seconds for which rank 0 waited for its batch, per step."""
    batch_cost_s: float
    """Seconds of a step."""
    images_per_second: float
    """images/s of these steps, of all ranks together."""


class Stages(NamedTuple):
    """images/s of the stages of the input pipeline and of training, of all ranks together."""

    pipeline: Rates
    """The whole input pipeline alone."""
    synthetic: Rates
    """Training on one batch held on the device."""
    real: Rates
    """Training on the data set."""
    read: IfKnown[Rates] = None
    """Reading records; with DALI alone."""
    decode: IfKnown[Rates] = None
    """Decoding images that are in memory; with DALI alone."""

    @property
    def measured(self) -> dict[str, Rates]:
        """Name in ``MEANING`` -> rates of everything that was measured, in the order of ``MEANING``."""
        return {name: getattr(self, name) for name in MEANING if getattr(self, name) is not None}


# What ``--json`` prints of the stages.
prints(Stages, lambda r: (r.read, r.decode, r.pipeline, r.synthetic, r.real))


class InputSpeed(NamedTuple):
    """Speed of input and of training."""

    system: str
    """DGXSYSTEM."""
    device: str
    """cpu or gpu."""
    ranks: int
    """Number of ranks on all machines."""
    precision: str
    """Precision; one that the warm-up chose for PRECISION=auto is marked `(auto)`."""
    images_per_second: Stages
    real_of_synthetic: Comparison
    """Speed of training on real data over that on a synthetic batch."""
    overlap: Overlap
    waiting: Waiting
    bottleneck: str
    """Bottleneck of training, in words."""


def bottleneck(median: dict[str, float], real_of_synthetic: Comparison) -> str:
    """Return the bottleneck of training on real data, in words. ``median`` has the images/s of every stage
    and kind of training that was measured, by its name in ``MEANING``."""
    is_slower_on_real_data = real_of_synthetic.shown and real_of_synthetic.highest < 1
    # "synthetic" is the training step without input.
    pipeline_over_step = median["pipeline"] / median["synthetic"]
    if pipeline_over_step >= 1 and not is_slower_on_real_data:
        # Real data cannot make training faster: something else slowed the rounds on synthetic data.
        load = f"; {other_load.PROBABLY}" if real_of_synthetic.lowest > 1.05 else ""
        return f"the training step, as far as these rounds show{load}"
    if pipeline_over_step >= 1:
        shared = "what training and input share, cores, memory or the device"
        alone = f"fast enough, {pipeline_over_step:.2f} times as fast as training on synthetic data"
        return f"{shared}: alone the pipeline is {alone}"
    if "decode" not in median:
        return "the input pipeline"
    slowest = min(("read", "decode"), key=lambda stage: median[stage])
    where = {"read": "reading", "decode": "decoding"}[slowest]
    # If neither stage is slow, the rest of the pipeline is, which is not measured alone.
    if median[slowest] > CLOSE * median["pipeline"]:
        where = "cropping, resizing and normalising"
    return f"the input pipeline, and in it {where}"


def as_rank(config: Config, seconds: float, rounds: int, as_json: bool) -> None:
    """Measure as one rank, and print the result on rank 0. The measurement takes about ``seconds``, for a
    first round, which is discarded, and ``rounds`` further rounds."""
    with opened(config) as rank:
        report = measure(config, rank, seconds, rounds)
        if rank.communicator.rank == 0:
            print_json(report) if as_json else show(report, Terminal())


def measure(config: Config, rank: Rank, seconds: float, rounds: int) -> InputSpeed:
    """Measure every stage and both kinds of training once a round. ``seconds`` and ``rounds`` are as in
    ``as_rank``. All ranks call it at once."""
    meter = Meter(config, rank)
    stages = meter.stages()  # those that can run alone: "read" and "decode", or none
    # The whole pipeline without training, and the two kinds of training.
    real = meter.open(config.input_pipeline)
    inputs = {"pipeline": real._replace(training=False), "synthetic": meter.open(None), "real": real}
    # Divide a round into slots: a stage and the pipeline get one each, a kind of training gets several.
    slots = {name: SHARE_OF_TRAINING if source.training else 1 for name, source in inputs.items()}
    slot_seconds = seconds / (rounds + 1) / (len(stages) + sum(slots.values()))
    steps = {name: meter.steps(source, slots[name] * slot_seconds) for name, source in inputs.items()}
    # The meter knows the time of the inputs from its method ``steps``; the time of the stages is added here.
    meter.say_duration(rounds + 1, (rounds + 1) * len(stages) * slot_seconds)
    measured: dict[str, list[float]] = {name: [] for name in (*stages, *inputs)}  # images/s of each round
    waits: list[Waiting] = []  # of training on real data, in each round
    with counting("measuring input", meter.communicator.rank == 0) as progress:
        for round_ in range(rounds + 1):
            for index, name in enumerate(measured):
                if name in stages:
                    rate = meter.images_per_second(stages[name], slot_seconds)
                else:
                    result = meter.train(inputs[name], steps[name])
                    rate = result.samples / result.seconds
                    if name == "real":
                        reader_cost = result.data_wait_seconds / steps[name]
                        batch_cost = result.seconds / steps[name]
                        waits.append(Waiting(reader_cost / batch_cost, reader_cost, batch_cost, rate))
                measured[name].append(rate)
                progress(round_ * len(measured) + index + 1, (rounds + 1) * len(measured))
    counted = {name: values[1:] for name, values in measured.items()}  # without round 0, which is discarded
    images_per_second = {name: rates.of_rounds(values) for name, values in counted.items()}
    compared = rates.compare(counted["real"], counted["synthetic"])
    return InputSpeed(
        system=config.run.system,
        device=config.run.device,
        ranks=config.ranks,
        precision=precision.label(config, rank.precision),
        images_per_second=Stages(**images_per_second),
        real_of_synthetic=compared,
        # The rates of "pipeline", "synthetic" and "real": the input alone, the step alone, and both.
        overlap=overlap.of_rounds(config.run.device, *(counted[name] for name in inputs)),
        # The median of each field.
        waiting=Waiting(*map(statistics.median, zip(*waits[1:], strict=True))),
        bottleneck=bottleneck({name: rate.median for name, rate in images_per_second.items()}, compared),
    )


def show(report: InputSpeed, console: Terminal) -> None:
    """Print a row for every stage, the time that training waits, the overlap and the bottleneck."""
    ranks = "1 rank" if report.ranks == 1 else f"{report.ranks} ranks together"
    title = f"{report.system}: images/s of {ranks}, {report.device}, {report.precision}"
    stages = table(("", "median", "lowest", "highest"), title=title)
    for name, rate in report.images_per_second.measured.items():
        stages.add_row(MEANING[name], *(f"{value:,.0f}" for value in rate))
    console.print(stages)
    waiting, compared = report.waiting, report.real_of_synthetic
    costs = f"{waiting.reader_cost_s * 1e3:.2f} ms of a batch cost of {waiting.batch_cost_s * 1e3:.2f} ms"
    share, speed = f"{waiting.reader_ratio:.1%} of the time", f"{waiting.images_per_second:,.0f} images/s"
    console.print(f"training waited for data {share}: reader cost {costs}, ips {speed}")
    console.print(report.overlap.sentence)
    ratio = f"real = {compared.median:.1%} of synthetic, the median of the rounds' ratios ({compared.spread})"
    console.print(f"{ratio}; the bottleneck is {report.bottleneck}")
