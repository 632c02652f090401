"""Measure how many forged results ``rn50 audit`` finds, by kind of forgery and by test, and in how many
untouched results it finds something.

    python -m benchmarks.forged_selections ROUNDS [--each 50] [--only v3.0 v3.1]

ROUNDS is a folder of published result trees: training_results_v1.0 and so on. A set is the five runs of a
published result. Most forgeries select five runs of a longer campaign, and the longer campaign is made up
here: it has runs of several sets with the same number of accelerators and the same batch size, scaled to the
duration of one set, with the settings of this set, one after the other with the gaps of this set. Forged logs
have the MLPerf records only, without the other output of a script, which would give most forgeries away. A
seed makes the result reproducible.
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
from rn50.results import tree
from rn50.results.parse import TOKEN
from rn50.results.run import read_folders
from rn50.results.validity import log_rules

RECORD = re.compile(rf"{TOKEN} *({{.*}})")
BELOW_TARGET = 0.75899
"""Highest accuracy that a forged evaluation before the last one claims: just below the target."""


@dataclasses.dataclass
class ForgedRun:
    """A run from which, or as which, a result is forged."""

    records: list[dict]
    """Its MLPerf records; ``time_ms`` counts from the begin of the run."""
    length: float
    """Its duration, as a multiple of the usual duration of a run of its set (``RunSet.length``)."""
    text: str = ""
    """Text that the script printed before the run."""

    @property
    def end(self) -> float:
        """Time of its last record in ms from its begin."""
        return self.records[-1]["time_ms"]

    def scaled(self, factor: float, with_rates: bool = True) -> "ForgedRun":
        """Return the run with all times multiplied by ``factor``. With ``with_rates`` the images/s that its
        records state are divided by it."""
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
        return ForgedRun(records, self.length * factor)


@dataclasses.dataclass
class Source:
    """A published set from which results are forged."""

    runs: RunSet
    forged_runs: list[ForgedRun]
    """The runs of the set, not changed yet."""
    spans: list[tuple[float, float]]
    """Begin and end of each run, in ms."""

    @property
    def ms(self) -> float:
        """The usual duration of a run in ms."""
        return 1000 * self.runs.length

    def gap(self, generator: random.Random) -> float:
        """Return a random pause between two runs in ms, like those of the script of this set."""
        gaps = [after[0] - before[1] for before, after in itertools.pairwise(self.spans)]
        usual = [gap for gap in gaps if gap <= min(gaps) + 0.02 * self.ms]
        return generator.choice(usual) * (1 + generator.gauss(0, 0.005))


def read(runs: RunSet) -> Source:
    """Return a published set as a source of forgeries."""
    forged_runs, spans = [], []
    for log, (begin, end) in zip(runs.logs, runs.spans, strict=True):
        texts = RECORD.findall(log.path.read_text(errors="replace"))
        records = [json.loads(text) for text in texts]
        begin = 1000 * begin
        records = [record for record in records if begin <= record["time_ms"] <= 1000 * end + 1]
        for record in records:
            record["time_ms"] -= begin
        forged_runs.append(ForgedRun(records, (1000 * end - begin) / 1000 / runs.length))
        spans.append((begin, 1000 * end))
    return Source(runs, forged_runs, spans)


HIDDEN = (
    "told by another, noise 0.002",
    "best, holes closed",
    "best, of two machines",
    "best, started irregularly",
    "last accuracy raised by 0.002",
    "whole set x 0.9, rates, gaps",
)
"""Kinds of forgery of which the audit finds few or none."""
Timeline = list[tuple[float, ForgedRun]]
"""Runs in their order, each with the time in ms at which it begins."""
Forgery = tuple[Timeline, list[int]]
"""The runs of a forged result, and the number N of the file result_N.txt of each."""
Forger = Callable[[Source, random.Random], Forgery | None]
"""A function that forges a result from a set; None if its kind of forgery cannot be made of the set."""


def untouched(source: Source) -> Timeline:
    """Return the runs of a set as they were published."""
    return [(begin, run) for (begin, _), run in zip(source.spans, source.forged_runs, strict=True)]


def campaign(source: Source, pool: Sequence[ForgedRun], length: int, generator: random.Random) -> Timeline:
    """Return ``length`` random runs of a pool, one after the other, scaled to the durations of ``source`` and
    with its pauses."""
    begin, timeline = source.spans[0][0], []
    for run in generator.sample(list(pool), length):
        run = run.scaled(run.length * source.ms / run.end)
        timeline.append((begin, run))
        begin += run.end + source.gap(generator)
    return timeline


def measured_ms(run: ForgedRun) -> float:
    """Return the time from run_start to run_stop in ms; infinity if the run missed the target."""
    times = {record["key"]: record["time_ms"] for record in run.records if record["key"].startswith("run_st")}
    status = next(record["metadata"].get("status") for record in run.records if record["key"] == "run_stop")
    return times["run_stop"] - times["run_start"] if status == "success" else math.inf


def best(timeline: Timeline) -> Timeline:
    """Return the fastest five runs, in the order of their begins."""
    chosen = sorted(timeline, key=lambda pair: measured_ms(pair[1]))[: rules.RUNS]
    return sorted(chosen, key=lambda pair: pair[0])


def without_middle_runs(timeline: Timeline, generator: random.Random) -> Timeline:
    """Return five runs: all but some random ones between the first and the last."""
    inner = range(1, len(timeline) - 1)
    left_out = {*generator.sample(inner, len(timeline) - rules.RUNS)}
    return [pair for index, pair in enumerate(timeline) if index not in left_out]


def evaluations(run: ForgedRun) -> list[int]:
    """Return the indices of the records with an accuracy."""
    return [index for index, record in enumerate(run.records) if record["key"] == "eval_accuracy"]


def one_evaluation_ahead(run: ForgedRun) -> ForgedRun:
    """Return a run in which every evaluation claims the accuracy of the next one, so that the run ends one
    evaluation earlier."""
    indices = evaluations(run)
    records = [dict(record) for record in run.records]
    for index, next_index in itertools.pairwise(indices):
        records[index]["value"] = run.records[next_index]["value"]
    stop = next(record for record in run.records if record["key"] == "run_stop")
    last, last_but_one = run.records[indices[-1]], run.records[indices[-2]]
    end = [record for record in records[indices[-1] + 1 :] if record["key"] in ("eval_stop", "block_stop")]
    for record in end:
        for key in ("epoch_num", "first_epoch_num"):
            if record["metadata"].get(key) == last["metadata"].get(key):
                record["metadata"] = {**record["metadata"], key: last_but_one["metadata"].get(key)}
    moved = [*end, dict(stop)]
    for record in moved:
        record["time_ms"] -= last["time_ms"] - last_but_one["time_ms"]
    return ForgedRun([*records[: indices[-2] + 1], *moved], run.length)


def on_grid(accuracy: float) -> float:
    """Return the nearest accuracy that a whole number of correct images gives."""
    return min(max(round(accuracy * rules.EVAL_SAMPLES), 0), rules.EVAL_SAMPLES) / rules.EVAL_SAMPLES


def with_accuracies(run: ForgedRun, accuracies: Sequence[float]) -> ForgedRun:
    """Return a run with the first accuracies replaced by ``accuracies``; the times stay."""
    values = dict(zip(evaluations(run), accuracies, strict=False))
    records = [
        {**record, "value": on_grid(values[index])} if index in values else record
        for index, record in enumerate(run.records)
    ]
    return ForgedRun(records, run.length)


def with_accuracies_of(run: ForgedRun, other: ForgedRun, noise: float, generator: random.Random) -> ForgedRun:
    """Return a run with the accuracies of another run and normal noise of this deviation. The last accuracy
    of the run stays."""
    accuracies = [other.records[index]["value"] for index in evaluations(other)]
    number = min(len(accuracies), len(evaluations(run))) - 1
    changed = [min(accuracy + generator.gauss(0, noise), BELOW_TARGET) for accuracy in accuracies[:number]]
    return with_accuracies(run, changed)


def with_last_accuracy_raised(run: ForgedRun) -> ForgedRun:
    """Return a run whose last accuracy is higher by 0.002."""
    accuracies = [run.records[index]["value"] for index in evaluations(run)]
    return with_accuracies(run, [*accuracies[:-1], accuracies[-1] + 0.002])


def holes(timeline: Timeline, source: Source) -> list[int]:
    """Return the indices of the runs before which there is time for another run, which was left out."""
    pairs = enumerate(itertools.pairwise(timeline), 1)
    return [
        i for i, ((begin, run), (next_begin, _)) in pairs if next_begin - begin - run.end > 0.7 * source.ms
    ]


def with_records_in_holes(timeline: Timeline, source: Source, generator: random.Random) -> Timeline:
    """Add a log with the first 12 records of a run in each hole, as of a run that failed."""
    added = []
    for i in holes(timeline, source):
        begin, run = timeline[i - 1]
        added.append((begin + run.end + source.gap(generator), ForgedRun(timeline[0][1].records[:12], 0)))
    return [*timeline, *added]


def with_last_overlapping(timeline: Timeline, source: Source, generator: random.Random) -> Timeline:
    """Move the last run, so that it begins before the run before it has ended."""
    begin, run = timeline[-2]
    return [*timeline[:-1], (begin + run.end - 0.1 * source.ms, timeline[-1][1])]


def with_init_start_moved(timeline: Timeline, source: Source, generator: random.Random) -> Timeline:
    """Move init_start of each run after a hole to the end of the run before the hole."""
    changed = list(timeline)
    for i in holes(timeline, source):
        (previous_begin, previous), (begin, run) = timeline[i - 1], timeline[i]
        init_start = previous_begin + previous.end + source.gap(generator) - begin
        records = [
            {**record, "time_ms": init_start} if record["key"] == "init_start" else record
            for record in run.records
        ]
        changed[i] = begin, ForgedRun(records, run.length)
    return changed


def with_late_record(timeline: Timeline, source: Source, generator: random.Random) -> Timeline:
    """Add a record to each run before a hole, up to ten minutes after the end of the run."""
    changed = list(timeline)
    for i in holes(timeline, source):
        (begin, run), (next_begin, _) = timeline[i - 1], timeline[i]
        late = min(next_begin - begin - source.gap(generator), run.end + 590_000)
        record = {**run.records[-1], "key": "status", "value": "saved", "time_ms": late}
        changed[i - 1] = begin, ForgedRun([*run.records, record], run.length)
    return changed


def with_holes_closed(timeline: Timeline, source: Source, generator: random.Random) -> Timeline:
    """Move all runs, so that they follow each other with usual pauses."""
    begin, moved = timeline[0][0], []
    for _, run in timeline:
        moved.append((begin, run))
        begin += run.end + source.gap(generator)
    return moved


def with_trial_numbers(timeline: Timeline, source: Source, generator: random.Random) -> Timeline:
    """Let each log begin with the line of a script that says that it is trial 1."""
    text = "Beginning trial 1 of 5"
    return [(begin, dataclasses.replace(run, text=text)) for begin, run in timeline]


def best_of_two_machines(timeline: Timeline, generator: random.Random) -> Timeline:
    """Return the best of a campaign that two machines made at the same time, every other run each."""
    ms = statistics.median(run.end for _, run in timeline)
    both = []
    for machine in (0, 1):
        begin = timeline[0][0] + machine * ms / 2
        for _, run in timeline[machine::2]:
            both.append((begin, run))
            begin += run.end + 0.03 * ms
    return best(both)


def best_started_irregularly(timeline: Timeline, generator: random.Random) -> Timeline:
    """Return the best of a campaign with pauses of 0.2 to 3 runs, as if somebody had started each run."""
    begin, moved = timeline[0][0], []
    for _, run in timeline:
        moved.append((begin, run))
        begin += run.end * (1 + generator.uniform(0.2, 3))
    return best(moved)


def copy_with_noise(run: ForgedRun, noise: float, generator: random.Random) -> ForgedRun:
    """Return a copy of a run with a new seed, slightly other times, and normal noise of this deviation on its
    accuracies."""
    copy = run.scaled(1 + generator.gauss(0, 0.002))
    indices = evaluations(copy)
    for index in indices:
        accuracy = copy.records[index]["value"] + generator.gauss(0, noise)
        reached = index == indices[-1] and run.records[index]["value"] >= rules.TARGET_ACCURACY
        accuracy = max(accuracy, rules.TARGET_ACCURACY) if reached else min(accuracy, BELOW_TARGET)
        copy.records[index] = {**copy.records[index], "value": on_grid(accuracy)}
    for record in copy.records:
        if record["key"] == "seed" and record["value"] is not None:
            record["value"] = generator.randrange(32768)
    return copy


def forgeries(pools: dict) -> dict[str, Forger]:
    """Return the kinds of forgery: name -> function that forges a result. ``pools`` are the runs from which
    campaigns are made, by ``kind``."""

    def selected(length: int, choose: Callable) -> Forger:
        """Choose five runs of a campaign of ``length`` runs by ``choose(timeline, generator)``."""

        def forge(source: Source, generator: random.Random) -> Forgery | None:
            pool = pools[kind(source.runs)]
            if len(pool) < length:
                return None
            return choose(campaign(source, pool, length, generator), generator), list(range(rules.RUNS))

        return forge

    def disguised(change: Callable) -> Forger:
        """Choose the best 5 of 8 runs, then hide the holes by ``change(timeline, source, generator)``. Logs
        that it adds have numbers from 20 on."""
        forge_best = selected(8, lambda timeline, _: best(timeline))

        def forge(source: Source, generator: random.Random) -> Forgery | None:
            outcome = forge_best(source, generator)
            if outcome is None or not holes(outcome[0], source):
                return None
            timeline = change(outcome[0], source, generator)
            return timeline, [*range(rules.RUNS), *range(20, 20 + len(timeline) - rules.RUNS)]

        return forge

    def accuracies_of_another(noise: float) -> Callable:
        """Change a run to the accuracies of another run of its set, with noise."""

        def change(source: Source, index: int, generator: random.Random) -> ForgedRun:
            others = [run for i, run in enumerate(source.forged_runs) if i != index]
            return with_accuracies_of(source.forged_runs[index], generator.choice(others), noise, generator)

        return change

    def whole_set(source: Source, generator: random.Random) -> Forgery:
        """Multiply all times of the set, pauses included, by 0.9, and change the images/s accordingly."""
        first = source.spans[0][0]
        timeline = [(first + 0.9 * (begin - first), run.scaled(0.9)) for begin, run in untouched(source)]
        return timeline, list(range(len(timeline)))

    def renumbered(source: Source, generator: random.Random) -> Forgery:
        """Number the files in another order than that of the runs."""
        order = list(range(len(source.forged_runs)))
        while order == sorted(order):
            generator.shuffle(order)
        return untouched(source), order

    def with_one_changed(change: Callable) -> Forger:
        """Replace a random run by ``change(source, index of the run, generator)``."""

        def forge(source: Source, generator: random.Random) -> Forgery | None:
            if min(len(evaluations(run)) for run in source.forged_runs) < 6:
                return None
            index = generator.randrange(len(source.forged_runs))
            timeline = untouched(source)
            timeline[index] = timeline[index][0], change(source, index, generator)
            return timeline, list(range(len(timeline)))

        return forge

    def all_ahead(source: Source, generator: random.Random) -> Forgery | None:
        """Let all runs claim the accuracies of one evaluation later."""
        if min(len(evaluations(run)) for run in source.forged_runs) < 6:
            return None
        timeline = [(begin, one_evaluation_ahead(run)) for begin, run in untouched(source)]
        return timeline, list(range(len(timeline)))

    def all_faster(source: Source, generator: random.Random) -> Forgery:
        """Make all runs 3 to 8 % faster, without changing the images/s that they state."""
        factor, begin, timeline = generator.uniform(0.92, 0.97), source.spans[0][0], []
        for run in source.forged_runs:
            faster_run = run.scaled(factor, with_rates=False)
            timeline.append((begin, faster_run))
            begin += faster_run.end + source.gap(generator)
        return timeline, list(range(len(timeline)))

    def faster(with_rates: bool) -> Callable:
        """Make a run 2 to 8 % faster."""

        def change(source: Source, index: int, generator: random.Random) -> ForgedRun:
            return source.forged_runs[index].scaled(generator.uniform(0.92, 0.98), with_rates)

        return change

    def copy_of_another(noise: float) -> Callable:
        """Replace a run by a copy of another run of its set, with noise."""

        def change(source: Source, index: int, generator: random.Random) -> ForgedRun:
            others = [run for i, run in enumerate(source.forged_runs) if i != index]
            return copy_with_noise(generator.choice(others), noise, generator)

        return change

    def ahead(source: Source, index: int, generator: random.Random) -> ForgedRun:
        return one_evaluation_ahead(source.forged_runs[index])

    def last_raised(source: Source, index: int, generator: random.Random) -> ForgedRun:
        return with_last_accuracy_raised(source.forged_runs[index])

    return {
        "best 5 of 8": selected(8, lambda timeline, _: best(timeline)),
        "best 5 of 10": selected(10, lambda timeline, _: best(timeline)),
        "best 5 of 20": selected(20, lambda timeline, _: best(timeline)),
        "1 middle run dropped": selected(6, without_middle_runs),
        "2 middle runs dropped": selected(7, without_middle_runs),
        "numbered anew": renumbered,
        "one run an evaluation ahead": with_one_changed(ahead),
        "all runs an evaluation ahead": all_ahead,
        "copied, noise 0.0001": with_one_changed(copy_of_another(1e-4)),
        "copied, noise 0.0005": with_one_changed(copy_of_another(5e-4)),
        "copied, noise 0.001": with_one_changed(copy_of_another(1e-3)),
        "copied, noise 0.002": with_one_changed(copy_of_another(2e-3)),
        "told by another, noise 0.0005": with_one_changed(accuracies_of_another(5e-4)),
        "told by another, noise 0.001": with_one_changed(accuracies_of_another(1e-3)),
        "told by another, noise 0.002": with_one_changed(accuracies_of_another(2e-3)),
        "best, each says trial 1 of 5": disguised(with_trial_numbers),
        "best, 12 records in the holes": disguised(with_records_in_holes),
        "best, the last overlaps": disguised(with_last_overlapping),
        "best, init_start moved": disguised(with_init_start_moved),
        "best, a record 10 minutes late": disguised(with_late_record),
        "best, holes closed": disguised(with_holes_closed),
        "best, of two machines": selected(8, best_of_two_machines),
        "best, started irregularly": selected(8, best_started_irregularly),
        "last accuracy raised by 0.002": with_one_changed(last_raised),
        "whole set x 0.9, rates, gaps": whole_set,
        "clock: one run 2 to 8 % faster": with_one_changed(faster(with_rates=False)),
        "clock: one run, with its rates": with_one_changed(faster(with_rates=True)),
        "clock: all runs 3 to 8 % faster": all_faster,
    }


def kind(runs: RunSet) -> tuple:
    """Return a key that is equal for sets whose runs may be mixed in one campaign: number of accelerators,
    batch size, optimizer, duration to 20 %, number of validation images, and whether an accuracy of the first
    run is no whole number of right answers."""
    log = runs.logs[0]
    optimizer = next((event.value for event in log.by_key.get("opt_name", ())), None)
    duration = round(math.log(runs.length) / 0.2)
    form = log.eval_samples, any(log_rules.accuracies(runs.runs[0]))
    return tree.accelerators(runs.folder), log.global_batch_size, optimizer, duration, form


def write(timeline: Timeline, numbers: Sequence[int], source: Source, folder: pathlib.Path) -> pathlib.Path:
    """Write a forged result into a new published tree in ``folder``, with the settings and the description of
    the set ``source``. Return the folder of its logs."""
    place = tree.place(source.runs.folder)
    assert place
    organisation = folder / source.runs.folder.parts[-5] / place.organisation.name
    results = organisation / "results" / place.system / rules.BENCHMARK
    results.mkdir(parents=True)
    if place.description.exists():
        (organisation / "systems").mkdir()
        (organisation / "systems" / place.description.name).write_bytes(place.description.read_bytes())
    settings = {  # values that all runs of the set share, which all forged runs get
        key: {"value": events[0].value}
        for key, events in source.runs.logs[0].by_key.items()
        if key not in ("seed", "eval_accuracy") and len({json.dumps(event.value) for event in events}) == 1
    }
    for number, (begin, run) in zip(numbers, timeline, strict=True):
        with (results / f"result_{number}.txt").open("w") as log:
            print(run.text, file=log)
            for record in run.records:
                changed = settings.get(record["key"], {})
                moved = {**record, **changed, "time_ms": round(begin + record["time_ms"])}
                print(TOKEN, json.dumps(moved), file=log)
    return results


def audit_findings(folder: pathlib.Path) -> list[str]:
    """Return the names of the tests of the audit in which the result of a folder stands out."""
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
    folders = read_folders([options.rounds])
    sets = [RunSet.in_folder(folder, runs) for folder, runs in folders.items()]
    if options.only:
        sets = [run_set for run_set in sets if run_set.name.split("/")[0] in options.only]
    alarms: collections.Counter = collections.Counter()
    clean = []
    with counting("auditing untouched sets") as progress:
        for done, run_set in enumerate(sets, 1):
            alarming = audit_findings(run_set.folder)
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
    known_spans = set()
    for source in sources:  # a result that was published in several rounds counts once
        new = [
            run for run, span in zip(source.forged_runs, source.spans, strict=True) if span not in known_spans
        ]
        known_spans |= {*source.spans}
        pools[kind(source.runs)] += new
    print(f"forged from {len(sources)} sets in which nothing stands out\n")
    kinds = forgeries(pools)
    print(f"| {'forgery':32} | forged | found | by |\n|---|---|---|---|")
    total = 0
    for name, forge in kinds.items():
        by_test, hits, forged = collections.Counter[str](), 0, 0
        with counting(name) as progress:
            while forged < options.each:
                source = generator.choice(sources)
                outcome = forge(source, generator)
                if outcome is None:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    findings = audit_findings(write(*outcome, source, pathlib.Path(folder)))
                forged += 1
                hits += bool(findings)
                by_test.update(findings)
                progress(forged, options.each)
        total += forged
        tests = ", ".join(f"{test} {count}" for test, count in by_test.most_common())
        print(f"| {name:32} | {forged} | {hits / forged:.0%} | {tests} |", flush=True)
    print(f"\n{total} forgeries")
    return 0


if __name__ == "__main__":
    sys.exit(main())
