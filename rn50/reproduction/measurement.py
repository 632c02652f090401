"""Measure a minute of training before any run of a reproduction, and name the slow part if training is slower
than expected (``measure``)."""

import pathlib
from typing import NamedTuple

from rn50 import files
from rn50.errors import UserError
from rn50.rates import Rates
from rn50.reproduction.expectation import Expected
from rn50.reproduction.here import Here
from rn50.results.parse import finite
from rn50.speed import cell, profile, worker
from rn50.speed.cell import REAL, SYNTHETIC, Cell
from rn50.speed.networks import OURS

SECONDS, ROUNDS = 40, 5
"""Seconds of the measurement of training, and rounds in which real and synthetic data take turns."""
STAGES_S = 30
"""Seconds of the measurement of the stages of the input, which is made only if the input is slow."""
MUCH = 0.2
"""The all-reduce is named as the slow part if it takes more than this fraction of a step."""
_SAVED = (*(f"{data} {rate}" for data in (REAL, SYNTHETIC) for rate in Rates._fields), "communication")
"""Names of the numbers in the file in which a measurement is kept."""


class Measurement(NamedTuple):
    """Speed of training, measured for a minute."""

    real: Rates
    """images/s of training on real data."""
    synthetic: Rates
    """images/s of training on a synthetic batch."""
    communication: float
    """Time of the all-reduce alone as a fraction of the time of a step."""
    slow: str = ""
    """The slow part, and how slow it is, in words; empty: training is as fast as expected, or nothing is
    expected."""
    remedy: str = ""
    """Advice on the slow part; empty as `slow`."""

    @property
    def words(self) -> str:
        """The figures in words."""
        real, synthetic = (f"{rates.median:,.0f}" for rates in (self.real, self.synthetic))
        all_reduce = f", all-reduce {self.communication:.1%} of a step" if self.communication else ""
        return f"{real} images/s on real data, {synthetic} on a synthetic batch{all_reduce}"


def measure(here: Here, expected: Expected, folder: pathlib.Path) -> Measurement:
    """Time training for about a minute, or return an earlier measurement of this configuration that the
    folder has. ``expected`` is the expectation of the images/s in training.

    Raises UserError if training cannot be measured.
    """
    config = here.config
    file, log = folder / f"measured-{config.sha256[:12]}.json", folder / "measured.log"
    if file.exists():
        return _read(file)
    run, batch = config.run, config.hyperparameters.batch_size
    # None is the image size: that of the configuration.
    timed = Cell(run.framework, OURS, None, run.precision, batch, run.ranks_per_node, run.nodes, run.hosts)
    result = cell.run(timed, config, (SYNTHETIC, REAL), SECONDS, ROUNDS, log)
    if result.failure or result.step is None:
        raise UserError(here.config_file, result.failure, f"see {log}")
    measured = Measurement(result.rates[REAL], result.rates[SYNTHETIC], result.step.communication or 0.0)
    slow, remedy = _slow(here, expected, measured, folder)
    if not slow:  # a slow measurement is not kept, because the user may mend the cause and measure again
        numbers = [*measured.real, *measured.synthetic, measured.communication]
        worker.write_json(file, dict(zip(_SAVED, numbers, strict=True)))
    return measured._replace(slow=slow, remedy=remedy)


def _read(file: pathlib.Path) -> Measurement:
    """Return the measurement in a file. Raises UserError if the file has none."""
    remedy = "remove it, and the same command measures again"
    content = files.read_json(file, remedy=remedy)
    numbers = [finite(content.get(name)) if isinstance(content, dict) else None for name in _SAVED]
    valid = [number for number in numbers if number is not None and 0 <= number < 1e12]
    if len(valid) < len(numbers):
        raise UserError(file, "is not what rn50 measured", remedy)
    return Measurement(Rates(*valid[:3]), Rates(*valid[3:6]), valid[6])  # in the order of _SAVED


def _slow(here: Here, expected: Expected, measured: Measurement, folder: pathlib.Path) -> tuple[str, str]:
    """Return the fields ``slow`` and ``remedy`` of a measurement."""
    least, config = expected.low, here.config_file
    real, synthetic, communication, *_ = measured
    # Training is slow only if even its fastest round is below the interval that is expected.
    if least is None or real.highest >= least:
        return "", ""
    behind = f"{real.median:,.0f} images/s where {least:,.0f} to {expected.high:,.0f} are expected"
    # The input is slow if training on synthetic data is fast enough; also if both are too slow, for example
    # because of other load, but training on real data is less than half as fast as on synthetic data.
    if synthetic.highest >= least or real.highest < synthetic.lowest / 2:
        alone = f"{synthetic.median:,.0f} on a synthetic batch{_stages(here, folder)}"
        text = f"the input: training makes {behind}, and {alone}"
        return text, f"raise DALI_THREADS, or rn50 tune input {config}"
    if communication > MUCH:
        text = f"the all-reduce: it takes {communication:.0%} of a step, and training makes {behind}"
        return text, f"rn50 bench comm {config}"
    text = f"the training step: {behind}, and no more without input, {synthetic.median:,.0f}"
    return text, f"rn50 doctor {config}, then rn50 profile {config}; compare precision and packages"


def _stages(here: Here, folder: pathlib.Path) -> str:
    """Measure the stages of the input. Return a phrase on the slowest; empty if they cannot be measured."""
    rate = profile.rate(here.config, STAGES_S, ROUNDS, folder / "stages.log")
    if rate is None:
        return ""
    alone = rate.images_per_second.pipeline.median
    return f"; alone the input delivers {alone:,.0f}, and the bottleneck is {rate.bottleneck}"
