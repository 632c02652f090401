"""Compare results: what differs, by how much, and whether so few runs can show it (method:
``significance.py``)."""

import hashlib
import math
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.table import Table

from rn50 import files, frameworks
from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.results import conditions, recipe, sidecar, significance, timing
from rn50.results.parse import ResultLog, read_log
from rn50.results.score import SystemScore
from rn50.results.significance import CONFIDENCE
from rn50.settings.fields import RUNS_OWN_NAMES
from rn50.terminal import Terminal

QUANTITIES = {
    "epochs": ("epochs to target", "needs more epochs", "needs fewer epochs"),
    "minutes": ("minutes to target", "is slower", "is faster"),
    "images_per_second": ("images/s in training", "has the higher throughput", "has the lower throughput"),
}
"""Compared quantities: display name, verb phrase for a larger value, verb phrase for a smaller one."""

SAME_LOGS = "the same logs"
"""Text for two results whose logs are the same, byte for byte."""

OTHER_PACKAGES = "packages that do not compute"
"""Name of a setting: their number and a hash of their names and versions, which would fill pages."""
_OF_A_RUN = RUNS_OWN_NAMES | {"seed", "precision_reason"}
"""Names that are not settings of a result, because every run has its own value."""
_COMPUTES = re.compile(
    "|".join([*(framework.packages for framework in frameworks.every().values()), "nvidia.*"])
)
"""Packages whose versions may change a result."""


@dataclass(frozen=True)
class Difference:
    """Difference in one quantity: the means over the runs, second - first, its interval and p-value, and a
    sentence.

    ``low`` and ``high`` are None where a side has fewer than two runs or neither side has any spread. ``p``
    is the p-value of this test alone. ``p_adjusted`` and the interval allow for all tests made at once.
    ``shown`` is True where the runs show a difference: ``p_adjusted`` is below 5 %, and 0 lies outside the
    interval where there is one.
    """

    quantity: str
    first: float
    second: float
    runs: tuple[int, int]
    difference: float
    low: float | None
    high: float | None
    p: float
    p_adjusted: float
    shown: bool
    sentence: str


@dataclass(frozen=True)
class Comparison:
    """Comparison of the result named ``second`` with the one named ``first``.

    ``settings`` are those that differ, as (name, first, second). ``cautions`` are sentences on what is not
    comparable. ``tests`` is the number of tests made at once, over this and all other comparisons; the
    intervals have ``confidence`` to allow for it. ``same_logs`` is True for a result and its own copy.
    """

    first: str
    second: str
    differences: tuple[Difference, ...]
    settings: tuple[tuple[str, str, str], ...]
    cautions: tuple[str, ...]
    tests: int
    confidence: float
    same_logs: bool


def compare(systems: Sequence[SystemScore]) -> list[Comparison]:
    """Compare every result after the first with the first.

    Raises:
        UserError: fewer than two results.
    """
    if len(systems) < 2:
        raise UserError(
            "one result only",
            remedy="give two folders of results or more, the first is what the others are compared with",
        )
    logs = [[read_log(run.file) for run in system.runs] for system in systems]
    contents = [sorted(files.sha256(run.file) for run in system.runs) for system in systems]
    called = names(systems)
    samples = [_samples(system, of_system) for system, of_system in zip(systems, logs, strict=False)]
    data = [_data(system, of_system) for system, of_system in zip(systems, logs, strict=False)]
    pairs = [
        (i, key)
        for i in range(1, len(systems))
        for key in QUANTITIES
        if samples[0][key] and samples[i][key] and data[0] == data[i] and contents[0] != contents[i]
    ]
    tests = [(i, key) for i, key in pairs if min(len(samples[0][key]), len(samples[i][key])) > 1]
    adjusted = significance.adjusted(
        [significance.permutation_p(samples[0][key], samples[i][key]) for i, key in tests]
    )
    p_adjusted, confidence = (
        dict(zip(tests, adjusted, strict=False)),
        significance.confidence_at_once(adjusted),
    )

    def differences(i: int) -> Iterator[Difference]:
        for key in QUANTITIES:
            if samples[0][key] and samples[i][key]:
                p = p_adjusted.get((i, key))
                outcome = difference(
                    key, samples[0][key], samples[i][key], called[0], called[i], p, confidence
                )
                if (i, key) not in pairs:
                    reason = SAME_LOGS if contents[0] == contents[i] else "not comparable: other data"
                    outcome = replace(outcome, shown=False, sentence=reason)
                yield outcome

    return [
        Comparison(
            first=called[0],
            second=called[i],
            differences=tuple(differences(i)),
            settings=tuple(_settings(logs[0], logs[i])),
            cautions=(
                *_cautions(systems[0], logs[0], systems[i], logs[i], called[0], called[i]),
                *_in_both(contents[0], contents[i]),
            ),
            tests=len(tests),
            confidence=confidence,
            same_logs=contents[0] == contents[i],
        )
        for i in range(1, len(systems))
    ]


def _in_both(first: Sequence[str], second: Sequence[str]) -> Iterator[str]:
    """Yield the caution on results that have some logs in common, given as hashes."""
    common = len(set(first) & set(second))
    if common and first != second:
        yield (
            f"{common} of the logs {'is' if common == 1 else 'are'} in both, so the runs are not independent"
        )


def correction(comparisons: Sequence[Comparison]) -> str | None:
    """Return the sentence on the correction for several tests made at once; None for at most one test."""
    tests, confidence = comparisons[0].tests, comparisons[0].confidence
    if tests < 2:
        return None
    return (
        f"{tests} tests at once: p-values are adjusted (Benjamini and Hochberg) and intervals have "
        f"{confidence:.1%} confidence (Benjamini and Yekutieli); of the differences that they show, "
        f"at most {1 - CONFIDENCE:.0%} are expected to be chance"
    )


def names(systems: Sequence[SystemScore]) -> list[str]:
    """Return a name without the label for each system; equal names are followed by their folder."""
    all_names = [system.name for system in systems]
    return [
        system.name if all_names.count(system.name) == 1 else f"{system.name} in {system.runs[0].file.parent}"
        for system in systems
    ]


def _samples(system: SystemScore, logs: Sequence[ResultLog]) -> dict[str, list[float]]:
    """Return the values of each quantity, one per run; only runs that converged have epochs and minutes to
    target."""
    rates = [[rate for _, rate in timing.throughput(log).epochs] for log in logs]
    return {
        "epochs": [run.epochs for run in system.runs if run.converged and run.epochs is not None],
        "minutes": [run.minutes for run in system.runs if run.converged and run.minutes is not None],
        "images_per_second": [statistics.median(run_rates) for run_rates in rates if run_rates],
    }


def _data(system: SystemScore, logs: Sequence[ResultLog]) -> set[int | None]:
    """Return the numbers of training images, which identify data sets other than ImageNet. A result without a
    label counts as ImageNet, although some of them log only whole batches of it."""
    return {log.train_samples for log in logs} if system.label else {rules.TRAIN_SAMPLES}


def difference(
    quantity: str,
    a: Sequence[float],
    b: Sequence[float],
    a_name: str,
    b_name: str,
    p_adjusted: float | None = None,
    confidence: float = CONFIDENCE,
) -> Difference:
    """Compare the runs ``b`` with the runs ``a`` in one of ``QUANTITIES``; each side has at least one run.
    Where several tests are made at once, ``p_adjusted`` is this test's p-value and ``confidence`` holds for
    every interval."""
    first, second = statistics.mean(a), statistics.mean(b)
    low, high = significance.welch_interval(a, b, confidence)
    p = significance.permutation_p(a, b)
    of_all = p if p_adjusted is None else p_adjusted
    shown = of_all < 1 - CONFIDENCE and (low is None or high is None or not low <= 0 <= high)
    interval = None if low is None or high is None else (low, high, confidence)
    sentence = _sentence(quantity, a, b, a_name, b_name, interval, of_all, shown)
    return Difference(
        quantity, first, second, (len(a), len(b)), second - first, low, high, p, of_all, shown, sentence
    )


def _sentence(
    quantity: str,
    a: Sequence[float],
    b: Sequence[float],
    a_name: str,
    b_name: str,
    interval: tuple[float, float, float] | None,
    p: float,
    shown: bool,
) -> str:
    """Return the sentence of a ``Difference``; ``interval`` is (low, high, confidence)."""
    name, more, less = QUANTITIES[quantity]
    first, change = statistics.mean(a), statistics.mean(b) - statistics.mean(a)
    runs = f"{len(b)} {'run' if len(b) == 1 else 'runs'} against {len(a)}"
    if change == 0 and interval is None and min(len(a), len(b)) > 1:
        return (
            f"no difference: every run of both has {first:g} {name}; they are reported in steps, and a "
            "difference below one step cannot be seen"
        )
    size = _figures(abs(change)) + (f" ({abs(change / first):.1%})" if first else "")
    figures = f"p = {p:.3f}"
    if interval:
        low, high, confidence = interval
        figures = f"{100 * confidence:.3g}% interval {_signed(low)} to {_signed(high)}, {figures}"
    if shown:
        return f"{runs} show that {b_name} {more if change > 0 else less}, by {size}; {figures}"
    if min(len(a), len(b)) < 2 or 2 / math.comb(len(a) + len(b), len(a)) >= 1 - CONFIDENCE:
        return f"{runs} cannot show a difference, whatever it is; here it is {size}"
    if interval:
        figures += (
            f"; with this spread they could show one of about {_figures((interval[1] - interval[0]) / 2)}"
        )
    return f"{runs} do not show a difference: it is {size}; {figures}"


def _figures(value: float) -> str:
    """Format ``value`` with four significant digits, and with all its integer digits from 1,000 on."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + _figures(value)


def _settings(a: Sequence[ResultLog], b: Sequence[ResultLog]) -> Iterator[tuple[str, str, str]]:
    """Yield (name, first, second) of settings that differ in the logs, and in the sidecar files where both
    sides have some."""
    for source in (_logged, _saved):
        first, second = _of_all(a, source), _of_all(b, source)
        if source is _logged or (first and second):
            for name in {**first, **second}:
                if first.get(name) != second.get(name):
                    yield name, first.get(name, "-"), second.get(name, "-")


def _of_all(logs: Sequence[ResultLog], source: Callable[[ResultLog], dict[str, str]]) -> dict[str, str]:
    """Return the settings of a result; one that differs between its runs has all its values, separated by
    commas."""
    values: dict[str, list[str]] = {}
    for log in logs:
        for name, value in source(log).items():
            if value not in values.setdefault(name, []):
                values[name].append(value)
    return {name: ", ".join(texts) for name, texts in values.items()}


def _logged(log: ResultLog) -> dict[str, str]:
    logged = recipe.of_log(log)
    settings = {
        "organisation": log.org,
        "platform": log.platform,
        "global batch": logged.batch_size,
        **{recipe.NAMES[key]: value for key, value in logged.values.items()},
        "training images": log.train_samples,
        "validation images": log.eval_samples,
    }
    # Some programs log 37, others 37.0.
    return {
        name: f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in settings.items()
        if value is not None
    }


def _saved(log: ResultLog) -> dict[str, str]:
    """Return a sidecar file's settings by variable, and its computing packages; all other packages as one."""
    variables = sidecar.read(log.path).get("variables", {})
    settings = {name: value for name, value in variables.items() if name not in _OF_A_RUN}
    others = []
    for name, value in conditions.saved(log.path).items():
        section, _, package = name.partition(" / ")
        if section == "packages" and not _COMPUTES.fullmatch(package):
            others.append(f"{package} {value}")
        elif not (section == "config" and variables) and name not in _OF_A_RUN:
            settings[name] = value
    if others:
        listed = "\n".join(sorted(others))
        settings[OTHER_PACKAGES] = (
            f"{len(others)} (SHA-256 {hashlib.sha256(listed.encode(errors='surrogatepass')).hexdigest()[:8]})"
        )
    return settings


def _cautions(
    a: SystemScore,
    a_logs: Sequence[ResultLog],
    b: SystemScore,
    b_logs: Sequence[ResultLog],
    a_name: str,
    b_name: str,
) -> Iterator[str]:
    if _data(a, a_logs) != _data(b, b_logs):
        yield "they were trained on different data, so the figures do not say which is better"
    if a.label or b.label:
        yield (
            f"{' and '.join(name for system, name in ((a, a_name), (b, b_name)) if system.label)}: "
            f"{a.label or b.label}"
        )
    for system, name in ((a, a_name), (b, b_name)):
        missed = sum(not run.converged for run in system.runs)
        if missed:  # the others are no longer a sample of all its runs
            yield (
                f"{missed} of {len(system.runs)} runs of {name} did not converge; epochs and minutes are "
                "of those that did"
            )


def to_json(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return the comparisons as JSON values."""
    return {"comparisons": [asdict(comparison) for comparison in comparisons]}


def print_table(comparisons: Sequence[Comparison], console: Terminal) -> None:
    """Print for each comparison its figures, the sentence on each, the cautions and the settings that
    differ."""
    for comparison in comparisons:
        table = Table(title=f"{comparison.second} against {comparison.first}", title_justify="left")
        for heading in ("mean of the runs", "first", "second", "difference", "p"):
            table.add_column(
                heading, justify="left" if heading == "mean of the runs" else "right", no_wrap=True
            )
        for d in comparison.differences:
            change = _signed(d.difference) + (f" ({d.difference / d.first:+.1%})" if d.first else "")
            table.add_row(
                QUANTITIES[d.quantity][0],
                _figures(d.first),
                _figures(d.second),
                change,
                f"{d.p_adjusted:.3f}",
            )
        if comparison.same_logs:
            lines = [f"{SAME_LOGS}: {comparison.second} is a copy of {comparison.first}"]
        else:
            console.print(table)
            lines = [f"{QUANTITIES[d.quantity][0]}: {d.sentence}" for d in comparison.differences]
        lines += [f"caution: {caution}" for caution in comparison.cautions]
        lines += [f"{name}: {first} -> {second}" for name, first, second in comparison.settings]
        for line in lines:
            console.print(line)
    sentence = correction(comparisons)
    if sentence:
        console.print(sentence, style="italic")
