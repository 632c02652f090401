"""Search for input pipeline settings that make training on real data faster (``rn50 tune input``).

The search changes one setting at a time, in the order of ``input_settings.to_try``: upwards as long as the
speed rises, else downwards. It keeps a faster value while it tries the next setting, and if time is left it
tries all settings again.

No optimiser library is used. The settings are few, and their effects hardly depend on each other. Such a
library also needs an absolute speed of every trial, but the speed of a machine drifts by more than a setting
gains. So a trial is a comparison of a new configuration with the best so far, in rounds in which both are
measured in turn. At the end the best configuration is compared with the initial one again, and counts as
faster only if it is faster in every round.

``as_rank`` in ``tuned_config.py`` runs a ``Tuner`` on every rank and writes the outcome.
"""

import time
from typing import Any, NamedTuple

from rn50 import rates
from rn50.errors import UserError
from rn50.printed import prints
from rn50.progress import Progress, counting, silent
from rn50.rates import Comparison
from rn50.run.loop import Rank
from rn50.settings.config import Config
from rn50.speed import input_settings, overlap
from rn50.speed.input_settings import Setting
from rn50.speed.meter import Input, Meter
from rn50.speed.overlap import Overlap

TRIAL_ROUNDS = 3
"""Rounds of a trial. They suffice to drop slower configurations; whether the best one is faster than the
initial one is decided by the comparison at the end."""
FINAL_ROUNDS = 9
"""Rounds of the comparison at the end. If measurements scatter by 10 % (standard deviation), a configuration
that is 3 % slower wins all rounds with a probability of 1/2,600."""
FINAL_SHARE = 0.35
"""Share of the search's time that is reserved for the comparison at the end."""


class Trial(NamedTuple):
    """A changed configuration, compared with the best so far."""

    change: str
    """NAME=value of every variable that the trial changed."""
    images_per_second: float | None
    """images/s of all ranks together, median over the rounds; null: the configuration could not be run."""
    compared: Comparison | None
    """Speed over that of the best so far; null: the configuration could not be run."""
    kept: bool
    """True if it became the best configuration."""
    reason: str
    """Why the configuration could not be run; empty: it could be run."""


class Tuning(NamedTuple):
    """Outcome of a search."""

    before: Config
    after: Config
    trials: tuple[Trial, ...]
    in_time: bool
    """True if every value was tried before the time was over."""
    images_per_second_before: float
    """images/s of training on real data, in the initial configuration."""
    images_per_second_after: float
    """images/s of training on real data, in the best configuration."""
    compared: Comparison | None
    """Speed of the best configuration over that of the initial one; null: no trial was faster."""
    of_synthetic: float
    """Speed of training on real data over that on a batch held on the device, in the best configuration."""
    overlap: Overlap
    """Overlap of input and step, in the best configuration."""

    @property
    def changes(self) -> dict[str, tuple[str, str]]:
        """Variable -> (old text, new text), for every variable that the search changed."""
        return input_settings.changes(self.before, self.after)

    @property
    def new_values(self) -> dict[str, str]:
        """Variable -> new text, for every variable that the search changed."""
        return {name: new for name, (_, new) in self.changes.items()}

    @property
    def faster(self) -> bool:
        """True if the best configuration was faster in every round of the comparison at the end."""
        return self.compared is not None and self.compared.shown and self.compared.lowest > 1


# The fields that --json prints, some of them under other names.
prints(
    Tuning,
    lambda r: (r.trials, r.in_time, r.of_synthetic, r.overlap, r.faster, {"changes": r.new_values}),
    lambda r: (r.images_per_second_before, r.images_per_second_after, {"after_of_before": r.compared}),
)


class Tuner:
    """The search, as one rank runs it. All ranks run it at the same time and take the same decisions, because
    these depend only on values that are summed over the ranks, and on the clock of rank 0."""

    def __init__(self, config: Config, rank: Rank, cores: int, seconds: float):
        """``config`` is the initial configuration, ``cores`` the number of cores that this rank may use, and
        ``seconds`` the time for search and comparison together."""
        self._meter = Meter(config, rank)
        self._begin, self._seconds = time.monotonic(), seconds
        self._search_seconds = seconds * (1 - FINAL_SHARE)
        self._before = self._best = config
        self._settings = input_settings.to_try(config, self._meter.broadcast(cores))
        self._best_input = self._meter.open(config.input_pipeline)
        self._trials: list[Trial] = []
        self._compared: set[tuple[Config, Config]] = set()
        """Pairs (best configuration, configuration compared with it), so that none is tried twice."""
        self._longest_trial = 0.0
        self._in_time = True
        self._progress: Progress = silent

    def run(self) -> Tuning:
        """Search, compare the best configuration with the initial one, and return the outcome."""
        with counting("tuning input, seconds", self._meter.communicator.rank == 0) as self._progress:
            # Steps of a measurement, such that the time suffices for a trial of each value but the current
            # ones. A trial measures two configurations a round.
            trials = sum(len(setting.values) - 1 for setting in self._settings)
            steps = self._steps(self._search_seconds - self._elapsed(), trials * TRIAL_ROUNDS * 2)
            # Try all settings again while one of them helped. Out of time, every trial returns False at once.
            helped = [True]
            while any(helped):
                helped = [self._tune(setting, steps) for setting in self._settings]
                # Then try changes of several settings at once.
                helped += [self._try(change, steps) for change in input_settings.together(self._best)]
            return self._confirm()

    def _elapsed(self) -> float:
        """Return the seconds since the search began, and show them as its progress."""
        elapsed = time.monotonic() - self._begin
        total = max(1, round(self._seconds))
        self._progress(min(round(elapsed), total), total)
        return elapsed

    def _steps(self, seconds: float, measurements: int) -> int:
        """Return how many training steps each of ``measurements`` measurements can time if all together take
        ``seconds``."""
        return self._meter.steps(self._best_input, seconds / measurements)

    def _tune(self, setting: Setting, steps: int) -> bool:
        """Try the larger values of a setting and, if none is faster, the smaller ones. Return True if a value
        was faster and has been kept."""
        current = getattr(self._best.input_pipeline, setting.field)
        return any(self._climb(setting, values, steps) for values in setting.directions(current))

    def _climb(self, setting: Setting, values: list[Any], steps: int) -> bool:
        """Try the values of a setting in this order until one is not faster than the value before. Return
        True if a value was kept."""
        helped = False
        for value in values:
            both = (self._best, input_settings.changed(self._best, {setting.field: value}))
            # If the setting has no effect in the best or in the changed configuration, there is nothing to
            # compare.
            in_effect = all(input_settings.in_effect(config, setting) for config in both)
            if not in_effect or not self._try({setting.field: value}, steps):
                break
            helped = True
        return helped

    def _try(self, values: dict[str, Any], steps: int) -> bool:
        """Try the best configuration with these values (by field), unless this was done before or the time is
        over. Return True if the values are faster and were kept."""
        candidate = input_settings.changed(self._best, values)
        pair = (self._best, candidate)
        if pair in self._compared:
            return False
        begin = self._elapsed()
        # The clock of rank 0 decides for all. A trial begins only if one as long as the longest would end in
        # time.
        self._in_time = bool(self._meter.broadcast(int(begin + self._longest_trial < self._search_seconds)))
        if not self._in_time:
            return False
        self._compared.add(pair)
        kept = self._compare(input_settings.described(values), candidate, steps)
        self._longest_trial = max(self._longest_trial, self._elapsed() - begin)
        return kept

    def _compare(self, change: str, config: Config, steps: int) -> bool:
        """Compare ``config`` with the best configuration. If ``config`` is faster in every round, make it the
        best and return True. ``change`` describes it in words."""
        reason = "another rank cannot run it"
        try:
            candidate: Input | None = self._meter.open(config.input_pipeline)
        except (UserError, RuntimeError) as error:  # such as: its buffers do not fit the memory
            candidate = None
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        # If one rank cannot open the pipeline, no rank measures it.
        if self._meter.sum_over_ranks(float(candidate is None)):
            self._trials.append(Trial(change, None, None, False, reason))
            return False
        assert candidate is not None
        new, old = self._in_turn([candidate, self._best_input], TRIAL_ROUNDS, steps)
        compared = rates.compare(new, old)
        kept = compared.lowest > 1
        self._trials.append(Trial(change, rates.of_rounds(new).median, compared, kept, ""))
        if kept:
            self._best, self._best_input = config, candidate
        return kept

    def _in_turn(self, inputs: list[Input], rounds: int, steps: int) -> list[list[float]]:
        """Measure ``steps`` steps of each input once a round. Return the images/s of each input, a list with
        a value per round. The order of the inputs alternates between rounds."""
        speeds: list[list[float]] = [[] for _ in inputs]
        for round_ in range(rounds):
            for place in rates.alternated(range(len(inputs)), round_):
                speeds[place].append(self._meter.rate(inputs[place], steps))
                self._elapsed()
        return speeds

    def _confirm(self) -> Tuning:
        """Compare the best configuration with the initial one, if they differ. In the best configuration,
        compare training on real data with the input alone, and with training on synthetic data. Return the
        outcome of the search."""
        changed = self._best != self._before
        # The inputs of both configurations are opened anew, so that nothing of the search, such as a full
        # cache, favours one of them.
        self._best_input = self._meter.open(self._best.input_pipeline)
        synthetic = self._meter.open(None)
        # Two configurations, with a first round that does not count, and then the three ``inputs`` below.
        measurements = (2 * (FINAL_ROUNDS + 1) if changed else 0) + 3 * rates.ROUNDS
        steps = self._steps(self._seconds - self._elapsed(), measurements)
        compared = None
        if changed:
            both = [self._meter.open(self._before.input_pipeline), self._best_input]
            self._in_turn(both, 1, steps)  # the first round fills caches, so it does not count
            before, after = self._in_turn(both, FINAL_ROUNDS, steps)
            compared = rates.compare(after, before)
        inputs = [self._best_input._replace(training=False), synthetic, self._best_input]
        input_alone, step_alone, real = self._in_turn(inputs, rates.ROUNDS, steps)
        if not changed:
            before = after = real
        return Tuning(
            before=self._before,
            after=self._best,
            trials=tuple(self._trials),
            in_time=self._in_time,
            images_per_second_before=rates.of_rounds(before).median,
            images_per_second_after=rates.of_rounds(after).median,
            compared=compared,
            of_synthetic=rates.compare(real, step_alone).median,
            overlap=overlap.of_rounds(self._best.run.device, input_alone, step_alone, real),
        )
