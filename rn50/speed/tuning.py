"""Search for input pipeline settings that make training on real data faster (``rn50 tune input``).

One setting is changed at a time, in the order of ``input_settings.of``, upwards and then downwards as long as
that helps. What helped stays while the next setting is tried, and with time left all are tried again. No
optimiser library is needed: settings are few, and their effects hardly depend on each other. Such a library
also needs an absolute figure for every trial, while a machine drifts by more than a setting gains. So a trial
is a comparison with the best so far, in rounds that take turns. At the end the best is compared again with
the configuration that the search began with, and stands only if every round finds it faster.
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
"""Rounds of a trial: enough to drop what is slower; the comparison at the end decides whether something is
faster."""
FINAL_ROUNDS = 9
"""Rounds of the comparison at the end. With measurements that are 10 % off (standard deviation), a
configuration that is 3 % slower wins all of them with a probability of 1/2,600."""
FINAL_SHARE = 0.35
"""Share of the time that is kept for the comparison at the end."""


class Trial(NamedTuple):
    """One value of one setting, compared with the best so far."""

    change: str
    """NAME=value."""
    images_per_second: float | None
    """Median over the rounds, of all ranks; null: it could not be run."""
    compared: Comparison | None
    """Against the best so far."""
    kept: bool
    """True if it became the best."""
    reason: str
    """Why it could not be run, or empty."""


class Tuning(NamedTuple):
    """Outcome of a search."""

    before: Config
    after: Config
    trials: tuple[Trial, ...]
    in_time: bool
    """True if every value had its trial."""
    images_per_second_before: float
    """images/s of the configuration as it was."""
    images_per_second_after: float
    """images/s with the changes."""
    compared: Comparison | None
    """null: nothing was found that could be faster."""
    of_synthetic: float
    """Real over synthetic data, as it is after: relative to training on a batch held on the device."""
    overlap: Overlap
    """Overlap of input and step, as the configuration is after."""

    @property
    def changes(self) -> dict[str, tuple[str, str]]:
        """Return the texts, old and new, of every variable that the search changed."""
        return input_settings.changes(self.before, self.after)

    @property
    def new_values(self) -> dict[str, str]:
        """New text of every variable that the search changed."""
        return {name: new for name, (_, new) in self.changes.items()}

    @property
    def faster(self) -> bool:
        """True if every round of the comparison at the end was faster."""
        return self.compared is not None and self.compared.shown and self.compared.lowest > 1


prints(
    Tuning,
    lambda r: (r.trials, r.in_time, r.of_synthetic, r.overlap, r.faster, {"changes": r.new_values}),
    lambda r: (r.images_per_second_before, r.images_per_second_after, {"after_of_before": r.compared}),
)


class Tuner:
    """One rank of a search. All ranks decide alike, because they use all-reduced values and the clock of rank
    0."""

    def __init__(self, config: Config, rank: Rank, cores: int, seconds: float):
        self._meter = Meter(config, rank)
        self._begin, self._seconds = time.monotonic(), seconds
        self._search_seconds = seconds * (1 - FINAL_SHARE)
        self._before = self._best = config
        self._settings = input_settings.of(config, self._meter.agreed(cores))
        self._best_input = self._meter.open(config.input_pipeline)
        self._trials: list[Trial] = []
        self._compared: set[tuple[Config, Config]] = set()
        self._longest_trial = 0.0
        self._in_time = True
        self._progress: Progress = silent

    def run(self) -> Tuning:
        """Search, then compare."""
        with counting("tuning input, seconds", self._meter.communicator.rank == 0) as self._progress:
            values = sum(len(setting.values) - 1 for setting in self._settings)
            steps = self._steps(self._search_seconds - self._elapsed(), values * TRIAL_ROUNDS * 2)
            helped = [True]
            while any(helped):
                helped = [self._turn(setting, steps) for setting in self._settings]
                helped += [self._tried(change, steps) for change in input_settings.together(self._best)]
            return self._confirm()

    def _elapsed(self) -> float:
        elapsed, total = time.monotonic() - self._begin, max(1, round(self._seconds))
        self._progress(min(round(elapsed), total), total)
        return elapsed

    def _steps(self, seconds: float, measurements: int) -> int:
        """Return the steps of one of ``measurements`` measurements."""
        return self._meter.steps(self._best_input, seconds / measurements)

    def _turn(self, setting: Setting, steps: int) -> bool:
        """Change a setting upwards and, if that does not help, downwards, as far as it helps; return whether
        it did."""
        current = getattr(self._best.input_pipeline, setting.field)
        return any(self._climb(setting, values, steps) for values in setting.directions(current))

    def _climb(self, setting: Setting, values: list[Any], steps: int) -> bool:
        helped = False
        for value in values:
            both = (self._best, input_settings.turned(self._best, {setting.field: value}))
            in_effect = all(input_settings.in_effect(config, setting) for config in both)
            if not in_effect or not self._tried({setting.field: value}, steps):
                break
            helped = True
        return helped

    def _tried(self, values: dict[str, Any], steps: int) -> bool:
        """Try these values on the best, unless they were tried or time is up. Return whether they helped."""
        candidate = input_settings.turned(self._best, values)
        pair = (self._best, candidate)
        if pair in self._compared:
            return False
        begin = self._elapsed()
        self._in_time = bool(self._meter.agreed(int(begin + self._longest_trial < self._search_seconds)))
        if not self._in_time:
            return False
        self._compared.add(pair)
        kept = self._try(input_settings.described(values), candidate, steps)
        self._longest_trial = max(self._longest_trial, self._elapsed() - begin)
        return kept

    def _try(self, change: str, config: Config, steps: int) -> bool:
        """Compare ``config`` with the best, and make it the best if every round finds it faster."""
        reason, candidate = "", None
        try:
            candidate = self._meter.open(config.input_pipeline)
        except (UserError, RuntimeError) as error:  # such as too little memory for it
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if self._meter.over_ranks(float(candidate is None)):
            self._trials.append(Trial(change, None, None, False, reason or "another rank cannot run it"))
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
        """Return images/s of each input, one value per round. Their order alternates between rounds."""
        speeds: list[list[float]] = [[] for _ in inputs]
        for round_ in range(rounds):
            for place in rates.alternated(range(len(inputs)), round_):
                speeds[place].append(self._meter.rate(inputs[place], steps))
                self._elapsed()
        return speeds

    def _confirm(self) -> Tuning:
        """Compare the best with the initial configuration, both measured again, and with synthetic data."""
        changed = self._best != self._before
        # Both are opened again, so that nothing of the search, such as a full cache, favours one of them.
        self._best_input = self._meter.open(self._best.input_pipeline)
        synthetic = self._meter.open(None)
        measurements = (2 * (FINAL_ROUNDS + 1) if changed else 0) + 3 * rates.ROUNDS
        steps = self._steps(self._seconds - self._elapsed(), measurements)
        compared = None
        if changed:
            both = [self._meter.open(self._before.input_pipeline), self._best_input]
            self._in_turn(both, 1, steps)  # not counted, because the first round fills caches
            before, after = self._in_turn(both, FINAL_ROUNDS, steps)
            compared = rates.compare(after, before)
        inputs = [self._best_input._replace(training=False), synthetic, self._best_input]
        alone, bound, real = self._in_turn(inputs, rates.ROUNDS, steps)
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
            of_synthetic=rates.compare(real, bound).median,
            overlap=overlap.of_rounds(self._best, alone, bound, real),
        )
