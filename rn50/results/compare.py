"""Compare every result of a list with the first: quantities, settings, and whether the few runs of each
result show a difference.

``rn50 compare`` calls ``compared_results`` and ``compare``, ``rn50 report`` calls ``compare``, and
``rn50 reproduce`` calls ``settings``. The statistical tests are those of ``significance.py``.
"""

import hashlib
import itertools
import math
import os
import pathlib
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rn50 import files
from rn50.benchmark import rules
from rn50.benchmark.recipe import HYPERPARAMETERS, Recipe
from rn50.errors import UserError
from rn50.gathered import differing, gathered
from rn50.printed import Minutes
from rn50.results import published, recipe, score, sidecar, significance, timing, tree
from rn50.results.published import PublishedResult
from rn50.results.run import Run
from rn50.results.score import RunScore, SystemScore
from rn50.results.significance import CONFIDENCE
from rn50.results.validity.result_rules import COMPUTES, NOT_VALID
from rn50.settings.fields import RUNS_OWN_NAMES, VARIABLE_OF
from rn50.terminal import Terminal, counted, table

QUANTITIES = {
    "accuracy": ("top-1 at the end", "is more accurate", "is less accurate"),
    "epochs": ("epochs to target", "needs more epochs", "needs fewer epochs"),
    "minutes": ("minutes to target", "is slower", "is faster"),
    "images_per_second": ("images/s in training", "has the higher throughput", "has the lower throughput"),
    "kilojoules": ("kJ to target", "needs more energy", "needs less energy"),
}
"""Compared quantities -> display name, verb phrase for a larger value, verb phrase for a smaller one."""

_TO_TARGET = ("epochs", "minutes", "kilojoules")
"""Quantities measured up to the target, which are not compared if the two results have different targets."""

SAME_LOGS = "the same logs"
"""Text for two results whose logs are the same, byte for byte, or by the minutes of a published result."""

OTHER_PACKAGES = "packages that do not compute"
"""Name of the setting that stands for all packages that do not compute. Its value is their number and a hash
of their names and versions, because the whole list would fill pages."""
_VARIABLE_OF_LOGGED = {
    **{row.shown: VARIABLE_OF.get(field) for field, row in HYPERPARAMETERS.items()},
    "organisation": "SUBMISSION_ORG",
    "platform": "SUBMISSION_PLATFORM",
    "training images": "NUMEXAMPLES",
    "validation images": "NUMVALEXAMPLES",
}
"""Name of a logged setting -> the variable that sets it."""
_PUBLISHED = re.compile(r"v\d\.\d/", re.IGNORECASE)
"""Beginning of the name of a published result, like v1.0/Inspur/nf5688m6_mxnet."""
_NOT_SETTINGS = RUNS_OWN_NAMES | {"seed", "precision_reason", "runs"}
"""Names that are not settings of a result, because every run has its own value."""


@dataclass(frozen=True)
class Difference:
    """Difference between the means of two results in one quantity, with its interval and p-value."""

    quantity: str
    """epochs, minutes, images_per_second, kilojoules or accuracy. Epochs, minutes and kilojoules are compared
    only if both results have the same target. Accuracy is compared only if the targets differ, or no run of a
    result reached its target."""
    first: float
    """Mean over the runs of the first result."""
    second: float
    """Mean over the runs of the other result."""
    runs: tuple[int, int]
    """Number of runs of the first and of the other result."""
    difference: float
    """second - first."""
    low: float | None
    """Lower end of the interval of the difference. The interval allows for all tests made at once; null: a
    result has fewer than two runs, or the runs of each result are all equal."""
    high: float | None
    """Upper end of the interval; null if `low` is null."""
    p: float
    """p-value of this test alone."""
    p_adjusted: float
    """p-value corrected for all tests made at once."""
    shown: bool
    """True if the runs show a difference: `p_adjusted` is below 5 %, and the interval, if any, excludes 0."""
    sentence: str
    """The difference and its significance in words."""


class Split(NamedTuple):
    """The difference of two mean times in minutes, split into a part due to the number of epochs and a part
    due to the time of an epoch. The two parts add up to the difference.

    The minutes are the product of epochs and minutes per epoch. The difference is divided in proportion to
    the logarithms of their ratios (logarithmic mean Divisia index of B. W. Ang, Energy Policy 32, 2004).
    """

    first: Minutes
    """Mean minutes of the first result's runs that reached the target."""
    second: Minutes
    """Mean minutes of the other result's runs that reached the target."""
    epochs: tuple[float, float]
    """Mean epochs of the first and of the other result."""
    by_epochs: Minutes
    """Minutes of the difference that are due to the number of epochs."""
    by_speed: Minutes
    """Minutes of the difference that are due to the time of an epoch, evaluations included."""

    @classmethod
    def from_means(cls, minutes: Sequence[float], epochs: Sequence[float]) -> "Split":
        """Return the split for mean ``minutes`` and ``epochs``: two values each (first result, other result),
        all above 0."""
        log_minutes = math.log(minutes[1] / minutes[0])
        log_epochs = math.log(epochs[1] / epochs[0])
        # The logarithmic mean of two equal values is that value; the formula would divide 0 by 0.
        logarithmic_mean = (minutes[1] - minutes[0]) / log_minutes if log_minutes else minutes[0]
        by_epochs = logarithmic_mean * log_epochs
        by_speed = logarithmic_mean * (log_minutes - log_epochs)
        return cls(minutes[0], minutes[1], (epochs[0], epochs[1]), by_epochs, by_speed)

    @property
    def sentence(self) -> str:
        """Return the split in words: in factors if the minutes more than double, else in percent of the first
        result's minutes, as in "50 to 60 minutes, +20.00%: +6.10% by epochs (35 to 37), +13.90% by the time
        of an epoch"."""
        ratio = self.second / self.first
        epochs_ratio = self.epochs[1] / self.epochs[0]
        if ratio > 2:
            total, by_epochs, by_speed = map(_times, (ratio, epochs_ratio, ratio / epochs_ratio))
        else:
            changes = (ratio - 1, self.by_epochs / self.first, self.by_speed / self.first)
            total, by_epochs, by_speed = (f"{change:+.2%}" for change in changes)
        epochs = "{:g} to {:g}".format(*self.epochs)
        minutes = f"{_figures(self.first)} to {_figures(self.second)} minutes, {total}"
        return f"{minutes}: {by_epochs} by epochs ({epochs}), {by_speed} by the time of an epoch"


@dataclass(frozen=True)
class Comparison:
    """Comparison of a result with the first one."""

    first: str
    """Name of the first result."""
    second: str
    """Name of the other result."""
    differences: tuple[Difference, ...]
    settings: tuple[tuple[str, str, str], ...]
    """Settings that differ: name, value of the first, value of the other."""
    cautions: tuple[str, ...]
    """Reasons to doubt the comparison, a sentence each."""
    tests: int
    """Number of tests made at once, over this and all other comparisons."""
    confidence: float
    """Confidence level of each interval, which allows for the number of tests."""
    split: Split | None
    """Split of the difference in minutes; null: the targets differ, a result has no run that reached its
    target, or nothing can be concluded from the pair."""
    same_logs: bool
    """True if both results have the same logs: byte for byte or, of a published result, its minutes."""
    reason: str | None
    """Reason why nothing is concluded from the differences, whose p-values then mean nothing; null: none."""


class Comparisons(NamedTuple):
    """Comparisons of every result after the first with the first."""

    comparisons: Sequence[Comparison]


def compared_results(paths: Sequence[pathlib.Path]) -> list[SystemScore | PublishedResult]:
    """Return the results that ``paths`` mean. A path that does not exist and looks like the name of a
    published result, such as v1.0/Inspur/nf5688m6_mxnet, stands for that result. All other paths are result
    logs or folders of them.

    Raises UserError as ``score.score`` does, and for an unknown name.
    """
    names = [path for path in paths if _PUBLISHED.match(str(path)) and not os.path.lexists(path)]
    forms = "folders of result logs, or published results like v1.0/Inspur/nf5688m6_mxnet"
    rows = [published.find(str(name), forms) for name in names]
    scored = score.score([path for path in paths if path not in names])
    # If the first path is a published result, it stays the first, with which all others are compared.
    return [*rows, *scored] if paths[0] in names else [*scored, *rows]


def compare(
    systems: Sequence[SystemScore | PublishedResult], audits: Mapping[pathlib.Path, str] = {}
) -> list[Comparison]:
    """Compare every result after the first with the first. ``audits`` has for the folder of a result that
    stands out in an audit the verdict.

    All tests of all comparisons count as made at once: their p-values and intervals are corrected together.

    Raises:
        UserError: fewer than two results.
    """
    if len(systems) < 2:
        remedy = "give two folders of results or more, the first is what the others are compared with"
        raise UserError("one result only", remedy=remedy)
    named = zip(systems, names(systems), strict=True)
    first, *others = (_Result(system, name, audits) for system, name in named)
    # (other result, quantity) -> p-value of the test that compares the quantity with the first result's.
    p_values: dict[tuple[_Result, str], float] = {}
    for other in others:
        if _incomparable(first, other):
            continue
        for quantity in _common_quantities(first, other):
            a, b = first.samples[quantity], other.samples[quantity]
            if min(len(a), len(b)) > 1:
                p_values[other, quantity] = significance.permutation_p(a, b)
    adjusted = dict(zip(p_values, significance.adjusted([*p_values.values()]), strict=True))
    confidence = significance.confidence_at_once([*adjusted.values()])
    comparisons = []
    for other in others:
        reason = _incomparable(first, other)
        differences = []
        for quantity in _common_quantities(first, other):
            a, b = first.samples[quantity], other.samples[quantity]
            p_of_other_tests = [p for test, p in p_values.items() if test != (other, quantity)]
            # The lowest corrected p-value that this test can have with so few runs, beside the other tests.
            lowest = significance.adjusted([significance.lowest_p(len(a), len(b)), *p_of_other_tests])[0]
            p_adjusted = adjusted.get((other, quantity))
            differences.append(difference(quantity, a, b, other.name, p_adjusted, confidence, lowest))
        if reason:  # the figures stay, and the reason takes the place of every sentence on them
            differences = [replace(change, shown=False, sentence=reason) for change in differences]
        comparison = Comparison(
            first=first.name,
            second=other.name,
            differences=tuple(differences),
            settings=tuple(_settings(first, other)),
            cautions=tuple(_cautions(first, other)),
            tests=len(p_values),
            confidence=confidence,
            split=None if reason else _split(first, other),
            same_logs=reason == SAME_LOGS,
            reason=reason,
        )
        comparisons.append(comparison)
    return comparisons


class _Result:
    """The facts of a result that are compared. A published result has no logs and no sidecar files: its facts
    come from its row in the table of published results.

    Attributes:
        samples: quantity of ``QUANTITIES`` -> its values, one per run. Only runs that converged have epochs,
            minutes and kilojoules.
        hashes: the SHA-256 of each log; for a published result its name.
        contents: (seed, accuracies) of each log that has both.
        audit: the verdict of an audit in which the result stands out; None if it does not.
        minutes: the minutes of all runs.
        published: the row of a published result; None for logs.
        data: the numbers of training images, by which data sets are told apart: those in the logs if the
            result has a label; else ImageNet's, even if a log counts only whole batches. Empty if no log
            tells.
        targets: the target accuracies of the runs.
        label: text that says in what the runs differ from the benchmark, such as other data; None if they do
            not.
        refusal: text that says which rule the logs break; None if they break none.
        runs: the runs; empty for a published result.
        logged: logged settings by name.
        number: the number of runs.
        missed: the number of runs that did not converge.
    """

    def __init__(
        self, source: SystemScore | PublishedResult, name: str, audits: Mapping[pathlib.Path, str]
    ) -> None:
        self.name = name
        self.contents: set[tuple[int, tuple[float, ...]]] = set()
        self.audit: str | None = None
        self.samples: dict[str, list[float]] = {}
        self.hashes = [name]
        self.data, self.targets = {rules.TRAIN_SAMPLES}, {rules.TARGET_ACCURACY}
        self.label: str | None = None
        self.refusal: str | None = None
        self.published: PublishedResult | None = None
        self.runs: Sequence[Run] = ()
        if isinstance(source, PublishedResult):
            machine = _machine(source.accelerators, source.accelerator_model)
            self.published, self.minutes = source, source.minutes
            self.logged = _texts(source.organisation, source.system, source.recipe, **machine)
            self.number, self.missed = len(source.runs), source.runs.count(None)
            # ``source.runs`` are epochs, None for a run that missed the target.
            times = zip(source.runs, source.minutes, strict=True)
            self.samples["epochs"] = source.epochs_to_target
            self.samples["minutes"] = [minutes for epochs, minutes in times if epochs and minutes]
            return  # ``data`` and ``targets`` stay those of the benchmark
        logs = [run.log for run in source.runs]
        by_run = (measured(run).items() for run in source.runs)
        # A quantity that no run has keeps its empty list.
        self.samples = {quantity: [] for quantity in QUANTITIES} | gathered(itertools.chain(*by_run))
        self.runs, self.label, self.refusal = source.runs, source.label, source.refusal
        self.logged = _merged(_logged, source.runs) | _machine_of(source)
        self.number, self.missed = len(logs), sum(not run.converged for run in source.runs)
        if source.label:
            self.data = {log.train_samples for log in logs if log.train_samples}  # a cut log may lack it
        self.targets = {log.target for log in logs}
        self.minutes = tuple(log.minutes for log in logs)
        self.hashes = sorted(files.sha256(log.path) for log in logs)
        contents = ((log.seed, tuple(row.accuracy for row in log.evaluations)) for log in logs)
        self.contents = {(seed, values) for seed, values in contents if seed is not None and values}
        self.audit = audits.get(source.runs[0].file.parent.resolve())


def measured(run: RunScore) -> dict[str, float]:
    """Return the quantities of ``QUANTITIES`` that a run has, by name. Only a run that converged has epochs,
    minutes and kilojoules."""
    values = {"accuracy": run.accuracy, "images_per_second": timing.training_rate([run.log]) or None}
    if run.converged:
        energy = run.energy.kilojoules if run.energy else None
        values |= {"epochs": run.epochs, "minutes": run.minutes, "kilojoules": energy}
    return {quantity: value for quantity, value in values.items() if value is not None}


def _common_quantities(first: _Result, second: _Result) -> list[str]:
    """Return the quantities that are compared: those of which both results have values, without those that
    their targets make meaningless."""
    common = [key for key in QUANTITIES if first.samples.get(key) and second.samples.get(key)]
    if first.targets != second.targets:
        return [quantity for quantity in common if quantity not in _TO_TARGET]
    # Runs of both reached the target. Training ended there, so the accuracies are all close to it.
    return [quantity for quantity in common if quantity != "accuracy"] if "epochs" in common else common


def _incomparable(first: _Result, second: _Result) -> str | None:
    """Return why nothing can be concluded from the differences of two results; None where it can."""
    if first.published:
        first, second = second, first
    if second.published.is_of(first.minutes) if second.published else first.hashes == second.hashes:
        return SAME_LOGS
    if _other_data(first, second):
        return "not comparable: other data"
    if first.contents and first.contents == second.contents:
        return "nothing is concluded: the runs of both have the same seeds and accuracies"
    invalid = next((result.name for result in (first, second) if result.refusal), None)
    return f"nothing is concluded: {invalid} is {NOT_VALID}" if invalid else None


def _other_data(first: _Result, second: _Result) -> bool:
    """Return True if both results tell their data, and the data differ."""
    return bool(first.data and second.data) and first.data != second.data


def _split(first: _Result, second: _Result) -> Split | None:
    """Return the split of the difference in minutes; None if minutes or epochs cannot be compared, or a mean
    is 0, so that there is no ratio."""
    if not {"epochs", "minutes"} <= {*_common_quantities(first, second)}:
        return None
    samples = (first.samples, second.samples)
    minutes = [statistics.mean(values["minutes"]) for values in samples]
    epochs = [statistics.mean(values["epochs"]) for values in samples]
    return Split.from_means(minutes, epochs) if all(minutes) and all(epochs) else None


def correction(comparisons: Sequence[Comparison]) -> str | None:
    """Return the sentence on the correction for several tests made at once; None for at most one test."""
    tests = comparisons[0].tests
    return f"p-values and intervals are corrected for {tests} tests" if tests > 1 else None


def names(systems: Sequence[SystemScore | PublishedResult]) -> list[str]:
    """Return the name of each system without its label. If several systems have the same name, the folder of
    the logs follows it, so that they can be told apart; published results have no folder."""
    system_names = [system.name for system in systems]
    distinct = []
    for system in systems:
        name = system.name
        if isinstance(system, SystemScore) and system_names.count(name) > 1:
            name += f" in {system.runs[0].file.parent}"
        distinct.append(name)
    return distinct


def difference(
    quantity: str,
    a: Sequence[float],
    b: Sequence[float],
    b_name: str,
    p_adjusted: float | None = None,
    confidence: float = CONFIDENCE,
    lowest: float = 0,
) -> Difference:
    """Compare two results in a quantity of ``QUANTITIES``. ``a`` are the values of the first result's runs,
    at least one, and ``b`` those of the second result's, whose name is ``b_name``.

    The last three arguments are for several tests made at once: the adjusted p-value of this test (None: it
    needs no adjustment), the confidence level of every interval, and the lowest adjusted p-value that so many
    runs could have, given the p-values of the other tests.
    """
    first, second = statistics.mean(a), statistics.mean(b)
    low, high = significance.welch_interval(a, b, confidence)
    p = significance.permutation_p(a, b)
    p_adjusted = p if p_adjusted is None else p_adjusted
    shown = p_adjusted < 1 - CONFIDENCE and (low is None or high is None or not low <= 0 <= high)
    runs = (len(a), len(b))
    change = Difference(
        quantity, first, second, runs, second - first, low, high, p, p_adjusted, shown, sentence=""
    )
    return replace(change, sentence=_sentence(change, b_name, confidence, lowest))


def _sentence(d: Difference, name: str, confidence: float, lowest: float) -> str:
    """Return the sentence on ``d``, the difference of the result ``name`` from the first one. ``confidence``
    and ``lowest`` are as for ``difference``."""
    quantity, more, less = QUANTITIES[d.quantity]
    runs = f"{counted(d.runs[1], 'run')} against {d.runs[0]}"
    # If there is no interval although each result has two runs or more, the runs of each are all equal.
    if d.difference == 0 and d.low is None and min(d.runs) > 1:
        steps = "they are reported in steps, and a difference below one step cannot be seen"
        return f"no difference: every run of both has {d.first:g} {quantity}; {steps}"
    size = _figures(abs(d.difference)) + (f" ({_relative(d).lstrip('+-')})" if d.first else "")
    figures = f"p = {d.p_adjusted:.3f}"
    spread = ""
    # An interval that leaves out 0 is not told if the p-value shows nothing: the two would contradict.
    if d.low is not None and d.high is not None and (d.shown or d.low <= 0 <= d.high):
        interval = f"{_signed(d.low)} to {_signed(d.high)}"
        figures = f"{100 * confidence:.3g}% interval {interval}, {figures}"
        # A difference above half the width of the interval would be shown: the interval then leaves out 0.
        spread = f"; with this spread they could show one of about {_figures((d.high - d.low) / 2)}"
    if not d.shown and d.p_adjusted < 1 - CONFIDENCE:
        figures += ", which is not enough while the interval contains 0"
    if d.shown:
        return f"{runs} show that {name} {more if d.difference > 0 else less}, by {size}; {figures}"
    # With so few runs, or so many tests, even the clearest difference has a p-value of 5 % or more.
    lowest_alone = significance.lowest_p(*d.runs)
    if max(lowest_alone, lowest) >= 1 - CONFIDENCE:
        among = "" if lowest_alone >= 1 - CONFIDENCE else " among so many tests"
        return f"{runs} cannot show a difference{among}, whatever it is; here it is {size}"
    return f"{runs} do not show a difference: it is {size}; {figures}{spread}"


def _relative(d: Difference) -> str:
    """Return the other mean relative to the first: as a factor where it is at least twice as large, else as a
    change in percent."""
    return _times(d.second / d.first) if d.second >= 2 * d.first else f"{d.difference / d.first:+.1%}"


def _times(ratio: float) -> str:
    return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.2f} times"


def _figures(value: float) -> str:
    """Format ``value`` with four significant digits, and with all its integer digits from 1,000 on."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + _figures(value)


def settings(a: Sequence[Run], b: Sequence[Run]) -> Iterator[tuple[str, str, str]]:
    """Yield (name, value of ``a``, value of ``b``) of the settings that differ between the runs ``a`` of one
    result and ``b`` of another. Settings come from the logs, and from the sidecar files if both results have
    some. A logged setting that is also a saved variable is yielded once, under the variable's name."""
    saved = [_merged(_saved, runs) for runs in (a, b)]
    saved_settings = list(differing(*saved)) if all(saved) else []
    variables = {name for name, _, _ in saved_settings}
    for name, value_a, value_b in differing(_merged(_logged, a), _merged(_logged, b)):
        if _VARIABLE_OF_LOGGED.get(name) not in variables:
            yield name, value_a, value_b
    yield from saved_settings


def _settings(first: _Result, second: _Result) -> Iterator[tuple[str, str, str]]:
    """Yield the settings that differ, as ``settings`` does. If one result is a published one, leave out those
    that only one of the two results has."""
    if first.runs and second.runs:
        return settings(first.runs, second.runs)
    # ``differing`` yields "-" in place of a value that a result does not have.
    return (setting for setting in differing(first.logged, second.logged) if "-" not in setting)


def _merged(settings_of: Callable[[Run], dict[str, str]], runs: Sequence[Run]) -> dict[str, str]:
    """Return the settings of all runs by name. Where runs have different values, the values are joined."""
    by_name = gathered(itertools.chain(*(settings_of(run).items() for run in runs)))
    return {name: ", ".join(dict.fromkeys(values)) for name, values in by_name.items()}


def _logged(run: Run) -> dict[str, str]:
    """Return the settings in the log of a run by name."""
    log = run.log
    more = {"training images": log.train_samples, "validation images": log.eval_samples}
    return _texts(run.organisation, log.platform, recipe.of_log(log), **more)


def _machine_of(system: SystemScore) -> dict[str, str]:
    """Return the accelerators of a result as settings. A run on the CPU has 0, whatever its machine has."""
    run = system.runs[0]  # the runs of a result are of one machine
    if sidecar.section(run.saved, "run").get("device") == "cpu":
        return _machine(0, "")
    # The description of the system in a published tree, else the machine that the sidecar file saved.
    described = tree.described(run.file.parent) or run.saved.get("system", {})
    return _machine(system.accelerators or run.accelerators, described.get("accelerator_model_name"))


def _machine(accelerators: int | None, model: Any) -> dict[str, str]:
    """Return number and model of the accelerators as settings, without unknown ones."""
    values = {"accelerators": accelerators, "accelerator model": model or None}
    return {name: str(value) for name, value in values.items() if value is not None}


def _texts(org: str | None, platform: str | None, logged: Recipe, **more: Any) -> dict[str, str]:
    """Return settings as text by name, without unknown ones."""
    hyperparameters = {row.shown: getattr(logged, name) for name, row in HYPERPARAMETERS.items()}
    settings = {"organisation": org, "platform": platform, **hyperparameters, **more}
    logged_values = ((name, value) for name, value in settings.items() if value is not None)
    # Some programs log 37, others 37.0.
    return {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in logged_values}


def _saved(run: Run) -> dict[str, str]:
    """Return the settings of a run's sidecar file by name: its variables, or its configuration if it has no
    variables; the versions of packages that compute, and ``OTHER_PACKAGES`` for all other packages; and all
    other values."""
    variables = run.saved.get("variables", {})
    settings, other_packages = dict(variables), []
    for name, value in sidecar.named(run.saved).items():
        section, _, package = name.partition(" / ")  # as "packages / numpy" or "config / run / device"
        if section == "packages" and not re.fullmatch(COMPUTES, package):
            other_packages.append(f"{package} {value}")
        elif section != "config" or not variables:
            settings[name] = value
    if other_packages:
        listed = "\n".join(sorted(other_packages)).encode(errors="surrogatepass")
        digest = hashlib.sha256(listed).hexdigest()[:8]
        settings[OTHER_PACKAGES] = f"{len(other_packages)} (SHA-256 {digest})"
    return {name: value for name, value in settings.items() if name not in _NOT_SETTINGS}


def _cautions(first: _Result, second: _Result) -> Iterator[str]:
    """Yield the reasons to doubt the comparison of two results, a sentence each."""
    results = (first, second)
    yield from (f"{result.name} is {result.refusal}" for result in results if result.refusal)
    if first.targets != second.targets:
        targets = (" or ".join(f"{target:g}" for target in result.targets) for result in results)
        # The target of a run with TARGET=none is infinity.
        differ = f"their targets differ ({' and '.join(targets)})".replace("inf", "none")
        yield f"{differ}, so epochs and minutes say not which is better"
    if _other_data(first, second):
        yield "they were trained on different data, so the figures do not say which is better"
    for label in dict.fromkeys(result.label for result in results if result.label):
        yield f"{' and '.join(result.name for result in results if result.label == label)}: {label}"
    for result in results:
        if result.missed:  # the runs that converged are no longer a random sample of all its runs
            some_converged = result.missed < result.number
            rest = "epochs and minutes are of those that did" if some_converged else "no minutes to compare"
            yield f"{result.missed} of {result.number} runs of {result.name} did not converge; {rest}"
    common = len(set(first.hashes) & set(second.hashes))
    if common and first.hashes != second.hashes:
        verb = "is" if common == 1 else "are"
        yield f"{common} of the logs {verb} in both, so the runs are not independent"
    alike = len(first.contents & second.contents)
    if alike > common:
        yield f"{counted(alike, 'run')} in both by seed and accuracies, so the runs are not independent"
    yield from (f"an audit of {result.name}: {result.audit}" for result in results if result.audit)


def print_table(comparisons: Sequence[Comparison], console: Terminal) -> None:
    """Print for each comparison its cautions, a table of its quantities, a sentence on each quantity, and the
    settings that differ."""
    for comparison in comparisons:
        headings = ("mean of the runs", "from", "to", "change", "p")
        rows = table(headings, headings[:1], f"{comparison.first} -> {comparison.second}")
        for d in comparison.differences:
            means = (_figures(d.first), _figures(d.second))
            change = _signed(d.difference) + (f" ({_relative(d)})" if d.first else "")
            p = "-" if comparison.reason else f"{d.p_adjusted:.3f}"
            rows.add_row(QUANTITIES[d.quantity][0], *means, change, p)
        for caution in comparison.cautions:
            console.print(f"caution: {caution}")
        if comparison.same_logs:
            lines = [f"{SAME_LOGS}: {comparison.first} and {comparison.second} are one result"]
        else:
            console.print(rows)
            lines = [f"{QUANTITIES[d.quantity][0]}: {d.sentence}" for d in comparison.differences]
        lines += [comparison.split.sentence] if comparison.split else []
        lines += [f"{name}: {first} -> {second}" for name, first, second in comparison.settings]
        for line in lines:
            console.print(line)
    if sentence := correction(comparisons):
        console.print(sentence, style="italic")
