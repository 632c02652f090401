"""Measure the points of a way: runs of fresh seeds where epochs can change, rounds of timing everywhere.

Everything is kept in a folder, so that the same command goes on where it was stopped.
"""

import itertools
import pathlib
import subprocess
import time
from collections.abc import Callable

from rn50 import files, process, rates
from rn50.attribution.shares import Measured, epochs_key
from rn50.attribution.steps import Point, Way, name_of
from rn50.errors import UserError
from rn50.hyperparameters.search import training
from rn50.hyperparameters.search.objective import epochs_to_target
from rn50.hyperparameters.search.subject import EVALUATION
from rn50.results import counted
from rn50.results.run import Run
from rn50.results.run import read as read_run
from rn50.settings import config as configuration
from rn50.speed import cell, worker
from rn50.speed.networks import OURS

LEAST_SEEDS, MOST_SEEDS, LEAST_ROUNDS, MOST_ROUNDS = 3, 10, 3, 10
TIMED_S = 20
"""Seconds that a point is timed in a round, without its start."""
STARTS_S = 15
"""Usual seconds that a job takes to start and warm up."""
WAY = "way.json"


class Campaign:
    """Measurements of a way, in ``folder``. Raises UserError if that holds those of another way."""

    def __init__(self, way: Way, folder: pathlib.Path):
        self.way, self.folder = way, folder
        self.keys = list(dict.fromkeys(epochs_key(point) for point in way.points))
        about = {"differences": way.differences, "of": configuration.from_environment(way.first).sha256}
        worker.begin(folder / WAY, about, "pair of configurations")
        for key in self.keys:
            self._runs(key)  # what does not count is told before hours of others

    def _place(self, point: Point) -> str:
        return files.path_part(name_of(point).replace(" + ", "+").replace(", ", "_").replace(" ", "-"))

    def rounds(self) -> dict[Point, list[float]]:
        """Return the seconds an epoch of each point so far, one for each whole round."""
        places = {point: self._place(point) for point in self.way.points}
        kept = {point: sorted(self.folder.glob(f"rates/*/{at}.json")) for point, at in places.items()}
        whole = min(map(len, kept.values()))
        return {
            point: [worker.kept(file, "epoch_seconds")[0] for file in timed[:whole]]
            for point, timed in kept.items()
        }

    def time(self, point: Point, number: int) -> None:
        """Time a point in the round of a number, unless it was timed before."""
        file = self.folder / "rates" / f"{number:02d}" / f"{self._place(point)}.json"
        if file.exists():
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        environ, log = self.way.environment(point), file.with_suffix(".log")
        how = {"model": OURS, "kinds": (cell.REAL,), "seconds": TIMED_S, "rounds": 1}
        reported, failure = worker.run("speed.cell", environ, log, **how)
        if failure:
            raise UserError(name_of(point), failure, f"{log} has it all")
        rate = reported["images_per_second"][cell.REAL][0]
        samples = configuration.from_environment(environ).epoch_samples
        worker.write_json(file, {"point": name_of(point), "epoch_seconds": samples / rate})

    def plan(self, budget_s: float) -> tuple[int, int, float]:
        """Return the seeds and rounds that fit a budget, the fewest that say anything where none do, and the
        seconds that they take, as far as the rates of the first round tell."""
        a_round = len(self.way.points) * (TIMED_S * 2 + STARTS_S)
        a_seed, timed = 0.0, self.rounds()
        for key in self.keys:  # at most all epochs of its schedule
            epochs = configuration.from_environment(self.way.environment(key)).hyperparameters.num_epochs
            alike = [seconds for point, (seconds, *_) in timed.items() if epochs_key(point) == key]
            a_seed += STARTS_S + epochs * min(alike)
        rounds = max(LEAST_ROUNDS, min(MOST_ROUNDS, int(budget_s * 0.3 / a_round)))
        seeds = max(LEAST_SEEDS, min(MOST_SEEDS, int((budget_s - rounds * a_round) / a_seed)))
        return seeds, rounds, rounds * a_round + seeds * a_seed

    def train(self, key: Point, number: int) -> None:
        """Make a run of these groups, unless it was made before. It is stopped at the target."""
        log = self.folder / "runs" / self._place(key) / f"result_{number}.txt"
        if log.exists():
            if counted.is_finished(read_run(log)):
                return
            log.replace(log.with_suffix(".unfinished"))
        log.parent.mkdir(parents=True, exist_ok=True)
        environ = {**self.way.environment(key), **EVALUATION, "RESULT_FILE": str(log.absolute())}
        environ.pop("SEED", None)  # a run then draws its own
        with open(log.with_suffix(".out"), "wb") as output:
            process.run(training.COMMAND, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        if not log.exists():
            raise UserError(name_of(key), "its run left no log", f"{log.with_suffix('.out')} says why")

    def _runs(self, key: Point) -> list[Run]:
        """Return the finished runs of these groups. Raises UserError for one that does not count."""
        logs = sorted((self.folder / "runs" / self._place(key)).glob("result_*.txt"))
        finished = [run for run in map(read_run, logs) if counted.is_finished(run)]
        asked = configuration.from_environment({**self.way.environment(key), **EVALUATION})
        counted.refuse_others(finished, asked.as_environment())
        return finished

    def measured(self) -> tuple[Measured, list[str]]:
        """Return all measurements so far, and a caution for runs that missed the target: they count as all
        the epochs that they trained."""
        every: dict[Point, list[float]] = {}
        cautions = []
        for key in self.keys:
            evaluated = [run.log.evaluations for run in self._runs(key)]
            reached = list(map(epochs_to_target, evaluated))
            every[key] = [epochs or seen[-1].epoch for epochs, seen in zip(reached, evaluated, strict=True)]
            missed = reached.count(None)
            if missed:
                counted = f"{missed} of {len(reached)} runs missed the target, and count as all their epochs"
                cautions.append(f"{name_of(key)}: {counted}")
        return Measured(every, self.rounds()), cautions


def go(
    campaign: Campaign, budget_s: float, say: Callable[[str], None], progress: Callable[[int, int], None]
) -> None:
    """Measure as much as the budget allows: a round first, which tells how long runs take."""
    begin, points, keys, done = time.monotonic(), campaign.way.points, campaign.keys, itertools.count(1)
    total = len(points) * LEAST_ROUNDS + len(keys) * LEAST_SEEDS
    for point in points:
        campaign.time(point, 0)
        progress(next(done), total)
    seeds, rounds, seconds = campaign.plan(budget_s - (time.monotonic() - begin))
    total = len(points) * rounds + len(keys) * seeds
    beyond = ", more than the budget: fewer would say nothing" if seconds > budget_s else ""
    say(
        f"{len(points)} points, timed in {rounds} rounds; {seeds} seeds at each of {len(keys)} "
        f"that may differ in epochs: at most {seconds / 60:,.0f} minutes{beyond}"
    )
    for number in range(1, rounds):
        for point in rates.alternated(points, number):
            campaign.time(point, number)
            progress(next(done), total)
    for number, key in itertools.product(range(seeds), keys):
        campaign.train(key, number)
        progress(next(done), total)
