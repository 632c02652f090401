"""Speed of input, stage by stage, and of training, and which of the two waits for the other (``rn50 bench
input``)."""

import statistics
from typing import NamedTuple

from rn50 import rates
from rn50.printed import IfKnown, prints
from rn50.progress import counting
from rn50.rates import Comparison, Rates
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
SHARE_OF_TRAINING = 3
"""Time for a training measurement relative to a stage's, because a training step takes longer than a
pipeline's batch, and more steps run before the timed ones."""
CLOSE = 1.25
"""A stage is the pipeline's bottleneck if alone it is at most this many times as fast."""


class Waiting(NamedTuple):
    """Time that training on real data waits; medians over the rounds."""

    reader_ratio: float
    """Share of the time that rank 0 waited for its next batch: `reader_cost_s` over `batch_cost_s`."""
    reader_cost_s: float
    """Seconds a step that it waited."""
    batch_cost_s: float
    """Seconds a step."""
    images_per_second: float
    """images/s of the same steps, of all ranks together."""


class Stages(NamedTuple):
    """images/s of all ranks together."""

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
        """Return the stages that were measured."""
        return {name: getattr(self, name) for name in MEANING if getattr(self, name) is not None}


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
    """Precision; what warm-up took for PRECISION=auto is marked `(auto)`."""
    images_per_second: Stages
    real_of_synthetic: Comparison
    """`real` over `synthetic`."""
    overlap: Overlap
    waiting: Waiting
    bottleneck: str
    """Bottleneck of training."""


def bottleneck(median: dict[str, float], real_of_synthetic: Comparison) -> str:
    """Return the bottleneck of training on real data, in words. ``median`` maps every measured stage and kind
    of training to its images/s."""
    slower = real_of_synthetic.shown and real_of_synthetic.highest < 1
    enough = median["pipeline"] >= median["synthetic"]
    if enough and not slower:
        return "the training step, as far as these rounds show"
    if enough:
        return (
            "what training and input share, cores, memory or the device: alone the pipeline is fast enough, "
            f"{median['pipeline'] / median['synthetic']:.2f} times as fast as training on synthetic data"
        )
    if "decode" not in median:
        return "the input pipeline"
    slowest = min(("read", "decode"), key=lambda stage: median[stage])
    where = {"read": "reading", "decode": "decoding"}[slowest]
    if median[slowest] > CLOSE * median["pipeline"]:
        where = "cropping, resizing and normalising"
    return f"the input pipeline, and in it {where}"


def as_rank(config: Config, seconds: float, rounds: int, as_json: bool) -> None:
    """Measure as one rank for about ``seconds``, in ``rounds`` rounds after a discarded first one. Rank 0
    prints."""
    with opened(config) as rank:
        report = measure(config, rank, seconds, rounds)
        if rank.communicator.rank == 0:
            print_json(report) if as_json else show(report, Terminal())


def measure(config: Config, rank: Rank, seconds: float, rounds: int) -> InputSpeed:
    """Measure every stage and both kinds of training, once a round."""
    meter = Meter(config, rank)
    stages, real = meter.stages(), meter.open(config.input_pipeline)
    inputs = {"pipeline": real._replace(training=False), "synthetic": meter.open(None), "real": real}
    shares = {name: SHARE_OF_TRAINING if source.training else 1 for name, source in inputs.items()}
    slot = seconds / (rounds + 1) / (len(stages) + sum(shares.values()))
    steps = {name: meter.steps(source, shares[name] * slot) for name, source in inputs.items()}
    meter.tell(rounds + 1, (rounds + 1) * len(stages) * slot)
    measured: dict[str, list[float]] = {name: [] for name in (*stages, *inputs)}
    waits: list[Waiting] = []
    with counting("measuring input", meter.communicator.rank == 0) as progress:
        for round_ in range(rounds + 1):
            for index, name in enumerate(measured):
                if name in stages:
                    rate = meter.images_per_second(stages[name], slot)
                else:
                    result = meter.train(inputs[name], steps[name])
                    rate = result.samples / result.seconds
                    if name == "real" and round_:
                        reader, batch = result.data_wait_seconds / steps[name], result.seconds / steps[name]
                        waits.append(Waiting(reader / batch, reader, batch, rate))
                if round_:
                    measured[name].append(rate)
                progress(round_ * len(measured) + index + 1, (rounds + 1) * len(measured))
    of_rounds = {name: rates.of_rounds(values) for name, values in measured.items()}
    compared = rates.compare(measured["real"], measured["synthetic"])
    return InputSpeed(
        system=config.run.system,
        device=config.run.device,
        ranks=config.ranks,
        precision=precision.shown(config, rank.precision),
        images_per_second=Stages(**of_rounds),
        real_of_synthetic=compared,
        overlap=overlap.of_rounds(config, *(measured[name] for name in inputs)),
        waiting=Waiting(*map(statistics.median, zip(*waits, strict=True))),
        bottleneck=bottleneck({name: rate.median for name, rate in of_rounds.items()}, compared),
    )


def show(report: InputSpeed, console: Terminal) -> None:
    """Print one line per stage, then the verdict."""
    ranks = "1 rank" if report.ranks == 1 else f"{report.ranks} ranks together"
    title = f"{report.system}: images/s of {ranks}, {report.device}, {report.precision}"
    stages = table(("", "median", "lowest", "highest"), title=title)
    for name, rate in report.images_per_second.measured.items():
        stages.add_row(MEANING[name], *(f"{value:,.0f}" for value in rate))
    console.print(stages)
    waiting, compared = report.waiting, report.real_of_synthetic
    console.print(
        f"training waited for data {waiting.reader_ratio:.1%} of the time: reader cost "
        f"{waiting.reader_cost_s * 1e3:.2f} ms of a batch cost of {waiting.batch_cost_s * 1e3:.2f} ms, ips "
        f"{waiting.images_per_second:,.0f} images/s"
    )
    console.print(report.overlap.sentence)
    ratio = f"real = {compared.median:.1%} of synthetic, the median of the rounds' ratios ({compared.spread})"
    console.print(f"{ratio}; the bottleneck is {report.bottleneck}")
