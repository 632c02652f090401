"""Compare results: what differs, by how much, and whether so few runs can show it (method:
``significance.py``)."""

import hashlib
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
from rn50.gathered import gathered
from rn50.printed import Minutes
from rn50.results import published, recipe, score, sidecar, significance, timing, tree
from rn50.results.published import PublishedResult
from rn50.results.run import Run
from rn50.results.score import SystemScore
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
"""Compared quantities: display name, verb phrase for a larger value, verb phrase for a smaller one."""

_TO_TARGET = ("epochs", "minutes", "kilojoules")
"""Quantities that say nothing of two targets; of one target that both reached accuracy says nothing."""

SAME_LOGS = "the same logs"
"""Text for two results whose logs are the same, byte for byte."""

OTHER_PACKAGES = "packages that do not compute"
"""Name of a setting: their number and a hash of their names and versions, which would fill pages."""
_VARIABLE_OF_LOGGED = {
    **{row.shown: VARIABLE_OF.get(field) for field, row in HYPERPARAMETERS.items()},
    "organisation": "SUBMISSION_ORG",
    "platform": "SUBMISSION_PLATFORM",
    "training images": "NUMEXAMPLES",
    "validation images": "NUMVALEXAMPLES",
}
"""Name of a logged setting -> the variable that sets it."""
_PUBLISHED = re.compile(r"v\d\.\d/", re.IGNORECASE)
_OF_A_RUN = RUNS_OWN_NAMES | {"seed", "precision_reason"}
"""Names that are not settings of a result, because every run has its own value."""


@dataclass(frozen=True)
class Difference:
    """Difference in one quantity: the means over the runs, its interval and p-value."""

    quantity: str
    """epochs, minutes, images_per_second or kilojoules; accuracy in place of what is up to the target, where
    the targets differ or one was not reached."""
    first: float
    """Mean of the first."""
    second: float
    """Mean of the other."""
    runs: tuple[int, int]
    """Runs of both."""
    difference: float
    """second - first."""
    low: float | None
    """Lower end of its interval, which allows for all tests made at once; null: a side has fewer than two
    runs, or neither has any spread."""
    high: float | None
    """Upper end."""
    p: float
    """p-value of this test alone."""
    p_adjusted: float
    """Corrected for all tests made at once."""
    shown: bool
    """True if the runs show a difference: `p_adjusted` is below 5 %, and 0 lies outside the interval where
    there is one."""
    sentence: str
    """The same in words."""


class Split(NamedTuple):
    """The difference of two means of the minutes, split without a rest into that by epochs and that by the
    time of an epoch.

    Minutes are the product of both; each has the share that its logarithm has (the logarithmic mean Divisia
    index of B. W. Ang, Energy Policy 32, 2004).
    """

    first: Minutes
    """Mean minutes of the first, of the runs that reached the target."""
    second: Minutes
    """Mean minutes of the other."""
    epochs: tuple[float, float]
    """Mean epochs of both."""
    by_epochs: Minutes
    """Minutes that the epochs add."""
    by_speed: Minutes
    """Minutes that the time of an epoch, evaluations included, adds."""

    @classmethod
    def of(cls, minutes: Sequence[float], epochs: Sequence[float]) -> "Split":
        """Split the difference of two ``minutes``; all four are above 0."""
        ratio, of_epochs = (math.log(after / before) for before, after in (minutes, epochs))
        a_unit = (minutes[1] - minutes[0]) / ratio if ratio else minutes[0]  # the logarithmic mean of both
        shares = a_unit * of_epochs, a_unit * (ratio - of_epochs)
        return cls(minutes[0], minutes[1], (epochs[0], epochs[1]), *shares)

    @property
    def sentence(self) -> str:
        """Return the split in words: in factors where the minutes more than double, else in percent of the
        first."""
        total, by_epochs = self.second / self.first, self.epochs[1] / self.epochs[0]
        shares = (total - 1, self.by_epochs / self.first, self.by_speed / self.first)
        whole, of_epochs, of_speed = (f"{share:+.2%}" for share in shares)
        if total > 2:
            whole, of_epochs, of_speed = map(_times, (total, by_epochs, total / by_epochs))
        epochs = "{:g} to {:g}".format(*self.epochs)
        minutes = f"{_figures(self.first)} to {_figures(self.second)} minutes, {whole}"
        return f"{minutes}: {of_epochs} by epochs ({epochs}), {of_speed} by the time of an epoch"


@dataclass(frozen=True)
class Comparison:
    """Comparison of a result with the first one."""

    first: str
    """The first result."""
    second: str
    """The other one."""
    differences: tuple[Difference, ...]
    settings: tuple[tuple[str, str, str], ...]
    """Settings that differ: name, value of the first, value of the other."""
    cautions: tuple[str, ...]
    """Reasons why the results are not comparable."""
    tests: int
    """Tests made at once, over this and all other comparisons."""
    confidence: float
    """Confidence of each interval, which allows for them."""
    split: Split | None
    """null: their targets differ, or no run of one of them reached the target."""
    same_logs: bool
    """True if both are the same logs, byte for byte."""


class Comparisons(NamedTuple):
    """Every result against the first."""

    comparisons: Sequence[Comparison]


def sides(paths: Sequence[pathlib.Path]) -> list[SystemScore | PublishedResult]:
    """Return the results that are compared: of logs, and published ones by their names, as in ``rn50
    borrow``.

    Raises UserError as ``score.score`` does, and for an unknown name.
    """
    names = [path for path in paths if _PUBLISHED.match(str(path)) and not os.path.lexists(path)]
    forms = "folders of result logs, or published results like v1.0/Inspur/nf5688m6_mxnet"
    rows = [published.find(str(name), forms) for name in names]
    scored = score.score([path for path in paths if path not in names])
    return [*rows, *scored] if paths[0] in names else [*scored, *rows]


def compare(systems: Sequence[SystemScore | PublishedResult]) -> list[Comparison]:
    """Compare every result after the first with the first.

    Raises:
        UserError: fewer than two results.
    """
    if len(systems) < 2:
        remedy = "give two folders of results or more, the first is what the others are compared with"
        raise UserError("one result only", remedy=remedy)
    first, *others = (_Side(system, name) for system, name in zip(systems, names(systems), strict=True))
    tests = {
        (other, key): significance.permutation_p(first.samples[key], other.samples[key])
        for other in others
        for key in _in_both(first, other)
        if not _incomparable(first, other) and min(len(first.samples[key]), len(other.samples[key])) > 1
    }
    adjusted = dict(zip(tests, significance.adjusted([*tests.values()]), strict=True))
    confidence = significance.confidence_at_once([*adjusted.values()])
    comparisons = []
    for other in others:
        why = _incomparable(first, other)
        differences = []
        for key in _in_both(first, other):
            a, b, test = first.samples[key], other.samples[key], (other, key)
            others_p = [p for tested, p in tests.items() if tested != test]
            lowest = significance.adjusted([significance.lowest_p(len(a), len(b)), *others_p])[0]
            differences.append(difference(key, a, b, other.name, adjusted.get(test), confidence, lowest))
        if why:
            differences = [replace(change, shown=False, sentence=why) for change in differences]
        comparisons.append(
            Comparison(
                first=first.name,
                second=other.name,
                differences=tuple(differences),
                settings=tuple(_settings(first, other)),
                cautions=tuple(_cautions(first, other)),
                tests=len(tests),
                confidence=confidence,
                split=None if why else _split(first, other),
                same_logs=why == SAME_LOGS,
            )
        )
    return comparisons


class _Side:
    """A result with what is compared of it.

    ``samples`` are the values of each quantity, one per run; only runs that converged have epochs and minutes
    to target. ``data`` are the numbers of training images, which identify data sets other than ImageNet. A
    result without a label counts as ImageNet, although some of them log only whole batches of it. ``hashes``
    are those of the logs. A published result has neither logs nor sidecar files, only a row of the table.
    ``refusal`` is the verdict of its score.
    """

    def __init__(self, source: SystemScore | PublishedResult, name: str) -> None:
        self.name, self.samples = name, dict[str, list[float]]()
        self.hashes, self.data, self.targets = [name], {rules.TRAIN_SAMPLES}, {rules.TARGET_ACCURACY}
        self.label: str | None = None
        self.refusal: str | None = None
        self.runs: Sequence[Run] = ()
        if isinstance(source, PublishedResult):
            machine = _machine(source.accelerators, source.accelerator_model)
            self.logged = _texts(source.organisation, source.system, source.recipe, machine)
            self.number, self.missed = len(source.runs), source.runs.count(None)
            minutes = zip(source.runs, source.minutes, strict=True)
            self.samples["epochs"] = source.epochs_to_target
            self.samples["minutes"] = [taken for epochs, taken in minutes if epochs and taken]
            return
        logs = [run.log for run in source.runs]
        rates = [timing.training_rate([log]) for log in logs]
        converged = [run for run in source.runs if run.converged]
        self.samples = {
            "epochs": [run.epochs for run in converged if run.epochs is not None],
            "minutes": [run.minutes for run in converged if run.minutes is not None],
            "kilojoules": [run.energy.kilojoules for run in converged if run.energy],
            "images_per_second": [rate for rate in rates if rate],
            "accuracy": [run.accuracy for run in source.runs if run.accuracy is not None],
        }
        self.runs, self.label, self.refusal = source.runs, source.label, source.refusal
        self.logged = _merged(_logged, source.runs) | _machine_of(source)
        self.number, self.missed = len(logs), len(logs) - len(converged)
        self.data = {log.train_samples or 0 for log in logs} if source.label else self.data
        self.targets = {log.target for log in logs}
        self.hashes = sorted(files.sha256(log.path) for log in logs)


def _in_both(first: _Side, second: _Side) -> list[str]:
    """Return the quantities that can be compared, and of which both sides have values."""
    reached = first.samples["epochs"] and second.samples["epochs"]
    left_out = _TO_TARGET if first.targets != second.targets else ("accuracy",) if reached else ()
    quantities = [key for key in QUANTITIES if first.samples.get(key) and second.samples.get(key)]
    return [key for key in quantities if key not in left_out]


def _incomparable(first: _Side, second: _Side) -> str | None:
    """Return why the differences say nothing, or None."""
    if first.hashes == second.hashes:
        return SAME_LOGS
    if first.data != second.data:
        return "not comparable: other data"
    refused = next((side.name for side in (first, second) if side.refusal), None)
    return refused and f"nothing is concluded: {refused} is {NOT_VALID}"


def _split(first: _Side, second: _Side) -> Split | None:
    if not {"epochs", "minutes"} <= {*_in_both(first, second)}:
        return None
    sides = (first.samples, second.samples)
    minutes, epochs = ([statistics.mean(side[key]) for side in sides] for key in ("minutes", "epochs"))
    return Split.of(minutes, epochs) if all(minutes) and all(epochs) else None


def correction(comparisons: Sequence[Comparison]) -> str | None:
    """Return the sentence on the correction for several tests made at once; None for at most one test."""
    tests = comparisons[0].tests
    return f"p-values and intervals are corrected for {tests} tests" if tests > 1 else None


def names(systems: Sequence[SystemScore | PublishedResult]) -> list[str]:
    """Return a name without the label for each system; equal names are followed by their folder."""
    all_names = [system.name for system in systems]
    return [
        f"{name} in {system.runs[0].file.parent}"
        if isinstance(system, SystemScore) and all_names.count(name) > 1
        else name
        for system, name in zip(systems, all_names, strict=True)
    ]


def difference(
    quantity: str,
    a: Sequence[float],
    b: Sequence[float],
    b_name: str,
    p_adjusted: float | None = None,
    confidence: float = CONFIDENCE,
    lowest: float = 0,
) -> Difference:
    """Compare the runs ``b`` with the runs ``a`` in one of ``QUANTITIES``; each side has at least one run.
    Where several tests are made at once, ``p_adjusted`` is this test's p-value, ``lowest`` the lowest that it
    could be beside the others, and ``confidence`` holds for every interval."""
    first, second = statistics.mean(a), statistics.mean(b)
    low, high = significance.welch_interval(a, b, confidence)
    p = significance.permutation_p(a, b)
    at_once = p if p_adjusted is None else p_adjusted
    shown = at_once < 1 - CONFIDENCE and (low is None or high is None or not low <= 0 <= high)
    without_sentence = Difference(
        quantity=quantity,
        first=first,
        second=second,
        runs=(len(a), len(b)),
        difference=second - first,
        low=low,
        high=high,
        p=p,
        p_adjusted=at_once,
        shown=shown,
        sentence="",
    )
    return replace(without_sentence, sentence=_sentence(without_sentence, b_name, confidence, lowest))


def _sentence(d: Difference, name: str, confidence: float, lowest: float) -> str:
    """Return the sentence on a difference of the result ``name`` from another."""
    quantity, more, less = QUANTITIES[d.quantity]
    a, b = d.runs
    runs = f"{counted(b, 'run')} against {a}"
    if d.difference == 0 and d.low is None and min(a, b) > 1:
        steps = "they are reported in steps, and a difference below one step cannot be seen"
        return f"no difference: every run of both has {d.first:g} {quantity}; {steps}"
    size = _figures(abs(d.difference)) + (f" ({_relative(d).lstrip('+-')})" if d.first else "")
    figures, spread = f"p = {d.p_adjusted:.3f}", ""
    # An interval without 0 would contradict a p-value that shows nothing.
    if d.low is not None and d.high is not None and (d.shown or d.low <= 0 <= d.high):
        interval = f"{_signed(d.low)} to {_signed(d.high)}"
        figures = f"{100 * confidence:.3g}% interval {interval}, {figures}"
        spread = f"; with this spread they could show one of about {_figures((d.high - d.low) / 2)}"
    if d.shown:
        return f"{runs} show that {name} {more if d.difference > 0 else less}, by {size}; {figures}"
    if max(alone := significance.lowest_p(a, b), lowest) >= 1 - CONFIDENCE:
        among = "" if alone >= 1 - CONFIDENCE else " among so many tests"
        return f"{runs} cannot show a difference{among}, whatever it is; here it is {size}"
    return f"{runs} do not show a difference: it is {size}; {figures}{spread}"


def _relative(d: Difference) -> str:
    """Return the difference relative to the first: as a factor from twice on, else in percent."""
    return _times(d.second / d.first) if d.second >= 2 * d.first else f"{d.difference / d.first:+.1%}"


def _times(ratio: float) -> str:
    return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.2f} times"


def _figures(value: float) -> str:
    """Format ``value`` with four significant digits, and with all its integer digits from 1,000 on."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + _figures(value)


def settings(a: Sequence[Run], b: Sequence[Run]) -> Iterator[tuple[str, str, str]]:
    """Yield (name, first, second) of settings that differ in the logs, and in the sidecar files where both
    sides have some. What a file has as a variable too is said once, by that."""
    saved = [_merged(_saved, runs) for runs in (a, b)]
    beside = list(_differing(*saved)) if all(saved) else []
    names = {name for name, _, _ in beside}
    for setting in _differing(*(_merged(_logged, runs) for runs in (a, b))):
        if _VARIABLE_OF_LOGGED.get(setting[0]) not in names:
            yield setting
    yield from beside


def _settings(first: _Side, second: _Side) -> Iterator[tuple[str, str, str]]:
    """Yield the settings that differ; beside a published result those that are known of both."""
    if first.runs and second.runs:
        return settings(first.runs, second.runs)
    return (setting for setting in _differing(first.logged, second.logged) if "-" not in setting)


def _merged(source: Callable[[Run], dict[str, str]], runs: Sequence[Run]) -> dict[str, str]:
    """Return the settings of runs by name, the values of each that differ joined."""
    by_name = gathered(setting for facts in map(source, runs) for setting in facts.items())
    return {name: ", ".join(dict.fromkeys(values)) for name, values in by_name.items()}


def _differing(first: dict[str, str], second: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    for name in {**first, **second}:
        if first.get(name) != second.get(name):
            yield name, first.get(name, "-"), second.get(name, "-")


def _logged(run: Run) -> dict[str, str]:
    log = run.log
    more = {"training images": log.train_samples, "validation images": log.eval_samples}
    return _texts(log.org, log.platform, recipe.of_log(log), more)


def _machine_of(system: SystemScore) -> dict[str, str]:
    """Return the accelerators of a result; those of a CPU run are none, whatever its machine has."""
    run = system.runs[0]
    if sidecar.section(run.saved, "run").get("device") == "cpu":
        return _machine(0, "")
    described = tree.described(run.file.parent) or run.saved.get("system", {})
    return _machine(system.accelerators or run.accelerators, described.get("accelerator_model_name"))


def _machine(accelerators: int | None, model: Any) -> dict[str, str]:
    values = {"accelerators": accelerators, "accelerator model": model or None}
    return {name: str(value) for name, value in values.items() if value is not None}


def _texts(
    organisation: str | None, platform: str | None, logged: Recipe, more: Mapping[str, Any] = {}
) -> dict[str, str]:
    rows = {row.shown: getattr(logged, name) for name, row in HYPERPARAMETERS.items()}
    settings = {"organisation": organisation, "platform": platform, **rows, **more}
    # Some programs log 37, others 37.0.
    has = ((name, value) for name, value in settings.items() if value is not None)
    return {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in has}


def _saved(run: Run) -> dict[str, str]:
    """Return a sidecar file's settings by variable, and its computing packages; all other packages as one."""
    variables = run.saved.get("variables", {})
    settings, others = dict(variables), []
    for name, value in sidecar.named(run.saved).items():
        section, _, package = name.partition(" / ")
        if section == "packages" and not re.fullmatch(COMPUTES, package):
            others.append(f"{package} {value}")
        elif section != "config" or not variables:
            settings[name] = value
    if others:
        listed = "\n".join(sorted(others)).encode(errors="surrogatepass")
        settings[OTHER_PACKAGES] = f"{len(others)} (SHA-256 {hashlib.sha256(listed).hexdigest()[:8]})"
    return {name: value for name, value in settings.items() if name not in _OF_A_RUN}


def _cautions(first: _Side, second: _Side) -> Iterator[str]:
    sides = (first, second)
    yield from (f"{side.name} is {side.refusal}" for side in sides if side.refusal)
    if first.targets != second.targets:
        targets = (" or ".join(f"{target:g}" for target in side.targets) for side in sides)
        differ = f"their targets differ ({' and '.join(targets)})".replace("inf", "none")
        yield f"{differ}, so epochs and minutes say not which is better"
    if first.data != second.data:
        yield "they were trained on different data, so the figures do not say which is better"
    for label in dict.fromkeys(side.label for side in sides if side.label):
        yield f"{' and '.join(side.name for side in sides if side.label == label)}: {label}"
    for side in sides:
        if side.missed:  # the others are no longer a sample of all its runs
            some = side.missed < side.number
            rest = "epochs and minutes are of those that did" if some else "no minutes to compare"
            yield f"{side.missed} of {side.number} runs of {side.name} did not converge; {rest}"
    common = len(set(first.hashes) & set(second.hashes))
    if common and first.hashes != second.hashes:
        verb = "is" if common == 1 else "are"
        yield f"{common} of the logs {verb} in both, so the runs are not independent"


def print_table(comparisons: Sequence[Comparison], console: Terminal) -> None:
    """Print for each comparison the cautions, its figures, the sentence on each and the settings that
    differ."""
    for comparison in comparisons:
        headings = ("mean of the runs", "from", "to", "change", "p")
        figures = table(headings, headings[:1], f"{comparison.first} -> {comparison.second}")
        for d in comparison.differences:
            change = _signed(d.difference) + (f" ({_relative(d)})" if d.first else "")
            means = _figures(d.first), _figures(d.second)
            figures.add_row(QUANTITIES[d.quantity][0], *means, change, f"{d.p_adjusted:.3f}")
        for caution in comparison.cautions:
            console.print(f"caution: {caution}")
        if comparison.same_logs:
            lines = [f"{SAME_LOGS}: {comparison.second} is a copy of {comparison.first}"]
        else:
            console.print(figures)
            lines = [f"{QUANTITIES[d.quantity][0]}: {d.sentence}" for d in comparison.differences]
        lines += [comparison.split.sentence] if comparison.split else []
        lines += [f"{name}: {first} -> {second}" for name, first, second in comparison.settings]
        for line in lines:
            console.print(line)
    sentence = correction(comparisons)
    if sentence:
        console.print(sentence, style="italic")
