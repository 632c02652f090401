"""How many forged results ``rn50 audit`` finds, by kind of forgery and by test, and in how many untouched
ones it finds something.

    python -m benchmarks.forged_selections ROUNDS [--each 50] [--rounds v3.0 v3.1]

ROUNDS holds published result trees, training_results_v1.0 and so on. Campaigns of any length are made of the
runs of sets with the same number of accelerators and the same batch size: their times are scaled to those of
one set, they have its settings, and they follow each other with its gaps. What scripts print beside the
records is left out, for it would give most forgeries away. Seeded.
"""

import argparse
import collections
import dataclasses
import itertools
import json
import math
import pathlib
import random
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence

from rn50.audit import audit
from rn50.audit.run_set import RunSet
from rn50.benchmark import rules
from rn50.progress import counting
from rn50.results import run, tree
from rn50.results.parse import TOKEN
from rn50.results.validity import log_rules

RECORD = re.compile(rf"{TOKEN} *({{.*}})")


@dataclasses.dataclass
class Forged:
    """A run: its records, with times in ms from the begin of the run, and how long it was, in lengths of its
    set."""

    records: list[dict]
    length: float
    said: str = ""
    """Text that its script printed before it."""

    @property
    def end(self) -> float:
        return self.records[-1]["time_ms"]

    def scaled(self, factor: float, with_rates: bool = True) -> "Forged":
        """Return the run with other times, and the images/s that it states changed with them."""
        records = []
        for record in self.records:
            record = {**record, "time_ms": record["time_ms"] * factor}
            if with_rates and record["key"] in ("throughput", "tracked_stats"):
                value = record["value"]
                if isinstance(value, dict) and "throughput" in value:
                    record["value"] = {**value, "throughput": value["throughput"] / factor}
                elif isinstance(value, int | float):
                    record["value"] = value / factor
            records.append(record)
        return Forged(records, self.length * factor)


@dataclasses.dataclass
class Source:
    """A published set: the runs, and when each began and ended, in ms."""

    runs: RunSet
    made: list[Forged]
    spans: list[tuple[float, float]]

    @property
    def ms(self) -> float:
        return 1000 * self.runs.length

    def gap(self, generator: random.Random) -> float:
        """Return a gap as the script left it."""
        gaps = [after[0] - before[1] for before, after in itertools.pairwise(self.spans)]
        usual = [gap for gap in gaps if gap <= min(gaps) + 0.02 * self.ms]
        return generator.choice(usual) * (1 + generator.gauss(0, 0.005))


def read(runs: RunSet) -> Source:
    made, spans = [], []
    for log, (begin, end) in zip(runs.logs, runs.spans, strict=True):
        texts = RECORD.findall(log.path.read_text(errors="replace"))
        records = [json.loads(text) for text in texts]
        begin = 1000 * begin
        records = [record for record in records if begin <= record["time_ms"] <= 1000 * end + 1]
        for record in records:
            record["time_ms"] -= begin
        made.append(Forged(records, (1000 * end - begin) / 1000 / runs.length))
        spans.append((begin, 1000 * end))
    return Source(runs, made, spans)


HIDDEN = (
    "told by another, noise 0.002",
    "best, holes closed",
    "best, of two machines",
    "best, started irregularly",
    "last accuracy raised by 0.002",
    "whole set x 0.9, rates, gaps",
)
"""Kinds of which few are found, or none."""
Placed = list[tuple[float, Forged]]
"""Runs and when each begins, in ms."""
Forgery = tuple[Placed, list[int]]
"""Runs, and the numbers of their files."""
Forger = Callable[[Source, random.Random], Forgery | None]


def untouched(source: Source) -> Placed:
    return [(begin, made) for (begin, _), made in zip(source.spans, source.made, strict=True)]


def campaign(source: Source, pool: Sequence[Forged], length: int, generator: random.Random) -> Placed:
    """Return ``length`` runs of a pool, one after the other, as the script of ``source`` would make them."""
    at, placed = source.spans[0][0], []
    for made in generator.sample(list(pool), length):
        made = made.scaled(made.length * source.ms / made.end)
        placed.append((at, made))
        at += made.end + source.gap(generator)
    return placed


def minutes(made: Forged) -> float:
    times = {
        record["key"]: record["time_ms"] for record in made.records if record["key"].startswith("run_st")
    }
    status = next(r["metadata"].get("status") for r in made.records if r["key"] == "run_stop")
    return times["run_stop"] - times["run_start"] if status == "success" else math.inf


def best(placed: Placed) -> Placed:
    chosen = sorted(placed, key=lambda pair: minutes(pair[1]))[: rules.RUNS]
    return sorted(chosen, key=lambda pair: pair[0])


def dropped(placed: Placed, generator: random.Random) -> Placed:
    inner = range(1, len(placed) - 1)
    without = {*generator.sample(inner, len(placed) - rules.RUNS)}
    return [pair for index, pair in enumerate(placed) if index not in without]


def evaluations(made: Forged) -> list[int]:
    return [index for index, record in enumerate(made.records) if record["key"] == "eval_accuracy"]


def ahead(made: Forged) -> Forged:
    """Return a run that claims the accuracies of one evaluation later, and ends one evaluation earlier."""
    at = evaluations(made)
    records = [dict(record) for record in made.records]
    for index, later in itertools.pairwise(at):
        records[index]["value"] = made.records[later]["value"]
    stop = next(record for record in made.records if record["key"] == "run_stop")
    final, before = made.records[at[-1]], made.records[at[-2]]
    end = [r for r in records[at[-1] + 1 :] if r["key"] in ("eval_stop", "block_stop")]
    for record in end:
        for key in ("epoch_num", "first_epoch_num"):
            if record["metadata"].get(key) == final["metadata"].get(key):
                record["metadata"] = {**record["metadata"], key: before["metadata"].get(key)}
    moved = [*end, dict(stop)]
    earlier = final["time_ms"] - before["time_ms"]
    for record in moved:
        record["time_ms"] -= earlier
    kept = records[: at[-2] + 1]
    return Forged([*kept, *moved], made.length)


def on_grid(accuracy: float) -> float:
    """Return the accuracy of a whole number of right answers."""
    return min(max(round(accuracy * rules.EVAL_SAMPLES), 0), rules.EVAL_SAMPLES) / rules.EVAL_SAMPLES


def with_accuracies(made: Forged, accuracies: Sequence[float]) -> Forged:
    """Return a run with other accuracies at its own times."""
    values = dict(zip(evaluations(made), accuracies, strict=False))
    records = [
        {**record, "value": on_grid(values[index])} if index in values else record
        for index, record in enumerate(made.records)
    ]
    return Forged(records, made.length)


def retold(made: Forged, other: Forged, noise: float, generator: random.Random) -> Forged:
    """Return a run that has the accuracies of another, with noise, but for its last."""
    accuracies = [other.records[index]["value"] for index in evaluations(other)]
    number = min(len(accuracies), len(evaluations(made))) - 1
    changed = [min(accuracy + generator.gauss(0, noise), 0.75899) for accuracy in accuracies[:number]]
    return with_accuracies(made, changed)


def raised(made: Forged) -> Forged:
    accuracies = [made.records[index]["value"] for index in evaluations(made)]
    return with_accuracies(made, [*accuracies[:-1], accuracies[-1] + 0.002])


def holes(placed: Placed, source: Source) -> list[int]:
    """Return the indices of the runs before which others were left out."""
    pairs = enumerate(itertools.pairwise(placed), 1)
    return [i for i, ((at, made), (then, _)) in pairs if then - at - made.end > 0.7 * source.ms]


def laid_in(placed: Placed, source: Source, generator: random.Random) -> Placed:
    """Lay the first 12 records of another run into each hole."""
    laid = [
        (
            placed[i - 1][0] + placed[i - 1][1].end + source.gap(generator),
            Forged(placed[0][1].records[:12], 0),
        )
        for i in holes(placed, source)
    ]
    return [*placed, *laid]


def overlapping(placed: Placed, source: Source, generator: random.Random) -> Placed:
    """Begin the last run before the one before it has ended."""
    before, made = placed[-2]
    return [*placed[:-1], (before + made.end - 0.1 * source.ms, placed[-1][1])]


def begun_early(placed: Placed, source: Source, generator: random.Random) -> Placed:
    """Have each run after a hole say that it began when the one before had ended."""
    filled = list(placed)
    for i in holes(placed, source):
        (before, made), (at, after) = placed[i - 1], placed[i]
        began = before + made.end + source.gap(generator) - at
        records = [{**r, "time_ms": began} if r["key"] == "init_start" else r for r in after.records]
        filled[i] = at, Forged(records, after.length)
    return filled


def trailing(placed: Placed, source: Source, generator: random.Random) -> Placed:
    """Have each run before a hole say something up to ten minutes after its end."""
    filled = list(placed)
    for i in holes(placed, source):
        (before, made), (at, _) = placed[i - 1], placed[i]
        late = min(at - before - source.gap(generator), made.end + 590_000)
        record = {**made.records[-1], "key": "status", "value": "saved", "time_ms": late}
        filled[i - 1] = before, Forged([*made.records, record], made.length)
    return filled


def closed(placed: Placed, source: Source, generator: random.Random) -> Placed:
    """Move whole logs so that no hole is left."""
    at, moved = placed[0][0], []
    for _, made in placed:
        moved.append((at, made))
        at += made.end + source.gap(generator)
    return moved


def typed(placed: Placed, source: Source, generator: random.Random) -> Placed:
    return [(at, dataclasses.replace(made, said="Beginning trial 1 of 5")) for at, made in placed]


def two_machines(placed: Placed, generator: random.Random) -> Placed:
    """Return the best of a campaign, every other run of which another machine made."""
    ms = statistics.median(made.end for _, made in placed)
    both = []
    for machine in (0, 1):
        at = placed[0][0] + machine * ms / 2
        for _, made in placed[machine::2]:
            both.append((at, made))
            at += made.end + 0.03 * ms
    return best(both)


def irregular(placed: Placed, generator: random.Random) -> Placed:
    """Return the best of a campaign that somebody started run by run."""
    at, moved = placed[0][0], []
    for _, made in placed:
        moved.append((at, made))
        at += made.end * (1 + generator.uniform(0.2, 3))
    return best(moved)


def copied(made: Forged, noise: float, generator: random.Random) -> Forged:
    """Return a copy whose accuracies, seed and times were changed."""
    copy = made.scaled(1 + generator.gauss(0, 0.002))
    at = evaluations(copy)
    for index in at:
        accuracy = copy.records[index]["value"] + generator.gauss(0, noise)
        reached = index == at[-1] and made.records[index]["value"] >= rules.TARGET_ACCURACY
        accuracy = max(accuracy, rules.TARGET_ACCURACY) if reached else min(accuracy, 0.75899)
        copy.records[index] = {**copy.records[index], "value": on_grid(accuracy)}
    for record in copy.records:
        if record["key"] == "seed" and record["value"] is not None:
            record["value"] = generator.randrange(32768)
    return copy


def replaced(placed: Placed, index: int, made: Forged) -> Placed:
    return [(at, made if i == index else entry) for i, (at, entry) in enumerate(placed)]


def forgeries(pools: dict) -> dict[str, Forger]:
    """Return the kinds: functions from a set to its forged runs and the numbers of their files; None where a
    kind cannot be made of it."""

    def selected(length: int, choose: Callable) -> Forger:
        def forge(source: Source, generator: random.Random) -> Forgery | None:
            pool = pools[kind(source.runs)]
            if len(pool) < length:
                return None
            return choose(campaign(source, pool, length, generator), generator), list(range(rules.RUNS))

        return forge

    def disguised(change: Callable) -> Forger:
        forge_best = selected(8, lambda placed, _: best(placed))

        def forge(source: Source, generator: random.Random) -> Forgery | None:
            outcome = forge_best(source, generator)
            if outcome is None or not holes(outcome[0], source):
                return None
            placed = change(outcome[0], source, generator)
            return placed, [*range(rules.RUNS), *range(20, 20 + len(placed) - rules.RUNS)]

        return forge

    def retold_with(noise: float) -> Callable:
        def change(source: Source, index: int, generator: random.Random) -> Forged:
            others = [made for i, made in enumerate(source.made) if i != index]
            return retold(source.made[index], generator.choice(others), noise, generator)

        return change

    def whole_set(source: Source, generator: random.Random) -> Forgery:
        begin = source.spans[0][0]
        placed = [(begin + 0.9 * (at - begin), made.scaled(0.9)) for at, made in untouched(source)]
        return placed, list(range(len(placed)))

    def renumbered(source: Source, generator: random.Random) -> Forgery:
        order = list(range(len(source.made)))
        while order == sorted(order):
            generator.shuffle(order)
        return untouched(source), order

    def of_one(change: Callable) -> Forger:
        def forge(source: Source, generator: random.Random) -> Forgery | None:
            if min(len(evaluations(made)) for made in source.made) < 6:
                return None
            index = generator.randrange(len(source.made))
            made = change(source, index, generator)
            return replaced(untouched(source), index, made), list(range(len(source.made)))

        return forge

    def all_ahead(source: Source, generator: random.Random) -> Forgery | None:
        if min(len(evaluations(made)) for made in source.made) < 6:
            return None
        return [(at, ahead(made)) for at, made in untouched(source)], list(range(len(source.made)))

    def all_faster(source: Source, generator: random.Random) -> Forgery:
        factor, at, placed = generator.uniform(0.92, 0.97), source.spans[0][0], []
        for made in source.made:
            placed.append((at, made.scaled(factor, with_rates=False)))
            at += placed[-1][1].end + source.gap(generator)
        return placed, list(range(len(source.made)))

    def faster(with_rates: bool) -> Callable:
        return lambda source, i, g: source.made[i].scaled(g.uniform(0.92, 0.98), with_rates)

    def copy_of(noise: float) -> Callable:
        def change(source: Source, index: int, generator: random.Random) -> Forged:
            others = [made for i, made in enumerate(source.made) if i != index]
            return copied(generator.choice(others), noise, generator)

        return change

    return {
        "best 5 of 8": selected(8, lambda placed, _: best(placed)),
        "best 5 of 10": selected(10, lambda placed, _: best(placed)),
        "best 5 of 20": selected(20, lambda placed, _: best(placed)),
        "1 middle run dropped": selected(6, dropped),
        "2 middle runs dropped": selected(7, dropped),
        "numbered anew": renumbered,
        "one run an evaluation ahead": of_one(lambda source, i, _: ahead(source.made[i])),
        "all runs an evaluation ahead": all_ahead,
        "copied, noise 0.0001": of_one(copy_of(1e-4)),
        "copied, noise 0.0005": of_one(copy_of(5e-4)),
        "copied, noise 0.001": of_one(copy_of(1e-3)),
        "copied, noise 0.002": of_one(copy_of(2e-3)),
        "told by another, noise 0.0005": of_one(retold_with(5e-4)),
        "told by another, noise 0.001": of_one(retold_with(1e-3)),
        "told by another, noise 0.002": of_one(retold_with(2e-3)),
        "best, each says trial 1 of 5": disguised(typed),
        "best, 12 records in the holes": disguised(laid_in),
        "best, the last overlaps": disguised(overlapping),
        "best, init_start moved": disguised(begun_early),
        "best, a record 10 minutes late": disguised(trailing),
        "best, holes closed": disguised(closed),
        "best, of two machines": selected(8, two_machines),
        "best, started irregularly": selected(8, irregular),
        "last accuracy raised by 0.002": of_one(lambda source, i, _: raised(source.made[i])),
        "whole set x 0.9, rates, gaps": whole_set,
        "clock: one run 2 to 8 % faster": of_one(faster(with_rates=False)),
        "clock: one run, with its rates": of_one(faster(with_rates=True)),
        "clock: all runs 3 to 8 % faster": all_faster,
    }


def kind(runs: RunSet) -> tuple:
    """Return what sets of one pool share: number of accelerators, batch size, optimizer, time within 20 %,
    and how their accuracies are written."""
    log = runs.logs[0]
    optimizer = next((event.value for event in log.by_key.get("opt_name", ())), None)
    number = tree.accelerators(runs.folder)
    written = log.eval_samples, any(log_rules.accuracies(runs.runs[0]))
    return number, log.global_batch_size, optimizer, round(math.log(runs.length) / 0.2), written


def write(placed: Placed, numbers: Sequence[int], source: Source, folder: pathlib.Path) -> pathlib.Path:
    """Write the runs into a published tree of their own; return their folder."""
    place = tree.place(source.runs.folder)
    assert place
    organisation = folder / source.runs.folder.parts[-5] / place.organisation.name
    results = organisation / "results" / place.system / rules.BENCHMARK
    results.mkdir(parents=True)
    if place.description.exists():
        (organisation / "systems").mkdir()
        (organisation / "systems" / place.description.name).write_bytes(place.description.read_bytes())
    settings = {  # of all runs, whatever campaign they are of
        key: {"value": events[0].value}
        for key, events in source.runs.logs[0].by_key.items()
        if key not in ("seed", "eval_accuracy") and len({json.dumps(event.value) for event in events}) == 1
    }
    for number, (at, made) in zip(numbers, placed, strict=True):
        with (results / f"result_{number}.txt").open("w") as log:
            print(made.said, file=log)
            for record in made.records:
                changed = settings.get(record["key"], {})
                moved = {**record, **changed, "time_ms": round(at + record["time_ms"])}
                print(TOKEN, json.dumps(moved), file=log)
    return results


def found(folder: pathlib.Path) -> list[str]:
    (verdict,) = audit.audit([folder]).audits
    return [evidence.test for evidence in verdict.stands_out]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("rounds", type=pathlib.Path)
    parser.add_argument("--each", type=int, default=50, help="forgeries of each kind [default: 50]")
    parser.add_argument("--only", nargs="*", help="rounds whose sets are forged, as v3.0 v3.1 [default: all]")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    generator = random.Random(options.seed)
    folders = run.read_folders([options.rounds])
    sets = [RunSet.of(folder, runs) for folder, runs in folders.items()]
    if options.only:
        sets = [run_set for run_set in sets if run_set.name.split("/")[0] in options.only]
    alarms: collections.Counter = collections.Counter()
    clean = []
    with counting("auditing untouched sets") as progress:
        for done, run_set in enumerate(sets, 1):
            alarming = found(run_set.folder)
            if alarming:
                print(f"untouched: {run_set.name}: {', '.join(alarming)}")
            alarms.update(alarming)
            alarms["any"] += bool(alarming)
            clean += [] if alarming else [run_set]
            progress(done, len(sets))
    print(f"untouched sets: {len(sets)}; of these stand out: {dict(alarms)}")
    usable = [
        run_set
        for run_set in clean
        if len(run_set.runs) == rules.RUNS and min(run_set.gaps) >= 0 and max(run_set.gaps) < 1
    ]
    sources = [read(run_set) for run_set in usable]
    pools: dict = collections.defaultdict(list)
    begun = set()
    for source in sources:
        fresh = [i for i, span in enumerate(source.spans) if span not in begun]
        begun |= {*source.spans}
        pools[kind(source.runs)] += [source.made[i] for i in fresh]
    print(f"forged from {len(sources)} sets in which nothing stands out\n")
    kinds = forgeries(pools)
    print(f"| {'forgery':32} | forged | found | by |\n|---|---|---|---|")
    total = 0
    for name, forge in kinds.items():
        by, hits, made = collections.Counter[str](), 0, 0
        with counting(name) as progress:
            while made < options.each:
                source = generator.choice(sources)
                outcome = forge(source, generator)
                if outcome is None:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    seen = found(write(*outcome, source, pathlib.Path(folder)))
                made += 1
                hits += bool(seen)
                by.update(seen)
                progress(made, options.each)
        total += made
        tests = ", ".join(f"{test} {count}" for test, count in by.most_common())
        print(f"| {name:32} | {made} | {hits / made:.0%} | {tests} |", flush=True)
    print(f"\n{total} forgeries")
    return 0


if __name__ == "__main__":
    sys.exit(main())
