"""Two results side by side: what differs, by how much, and whether so few runs can show it.

The interval of a difference of means is Welch's (B. L. Welch, Biometrika 34, 1947), which assumes no equal variances; the p-value
is that of the exact permutation test (R. A. Fisher, The Design of Experiments, 1935), which assumes no distribution at all. Five
runs against five have 252 divisions, so p is never below 2/252 = 0.008.
"""

import math
import statistics
from dataclasses import asdict, dataclass, replace
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rn50 import rules
from rn50.errors import UserError
from rn50.submission import environment, recipe, timing
from rn50.submission.parse import ResultLog, read_log
from rn50.submission.score import SystemScore

CONFIDENCE = 0.95
QUANTITIES = {
    "epochs": ("epochs to target", "needs more epochs", "needs fewer epochs"),
    "minutes": ("minutes to target", "is slower", "is faster"),
    "images_per_second": ("images/s in training", "has the higher throughput", "has the lower throughput"),
}
"""What is compared: its name, and what more and less of it mean."""

EACH_RUNS_OWN = ("seed", "config / run / seed", "config / run / result_file")
"""What is not a setting of a result."""


@dataclass(frozen=True)
class Difference:
    """Of one quantity: the means over the runs, their difference second - first, its interval and p-value, and a sentence.

    ``low`` and ``high`` are None where a side has fewer than two runs or neither side has any spread; ``shown`` says whether
    the runs show a difference: p below 5 %, and 0 outside the interval where there is one.
    """

    quantity: str
    first: float
    second: float
    runs: Tuple[int, int]
    difference: float
    low: Optional[float]
    high: Optional[float]
    p: float
    shown: bool
    sentence: str


@dataclass(frozen=True)
class Comparison:
    """``second`` against ``first``, by name; ``settings`` are what differs, as (name, first, second); ``cautions`` are sentences
    on what is not comparable."""

    first: str
    second: str
    differences: Tuple[Difference, ...]
    settings: Tuple[Tuple[str, str, str], ...]
    cautions: Tuple[str, ...]


def compare(systems: Sequence[SystemScore]) -> List[Comparison]:
    """Every result after the first against the first.

    Raises:
        UserError: fewer than two results.
    """
    if len(systems) < 2:
        raise UserError("one result only; give two folders of results or more, the first is what the others are compared with")
    logs = [[read_log(run.file) for run in system.runs] for system in systems]
    called = names(systems)
    return [
        Comparison(
            first=called[0],
            second=called[i],
            differences=tuple(_differences(systems[0], logs[0], systems[i], logs[i], called[0], called[i])),
            settings=tuple(_settings(logs[0], logs[i])),
            cautions=tuple(_cautions(systems[0], logs[0], systems[i], logs[i], called[0], called[i])),
        )
        for i in range(1, len(systems))
    ]


def names(systems: Sequence[SystemScore]) -> List[str]:
    """A name for each; those of one name have their folder behind it."""
    all_names = [system.system for system in systems]
    return [
        system.system if all_names.count(system.system) == 1 else f"{system.system} in {system.runs[0].file.parent}"
        for system in systems
    ]


def _samples(system: SystemScore, logs: Sequence[ResultLog]) -> Dict[str, List[float]]:
    """The values of each quantity, one a run; only runs that converged have epochs and minutes to the target."""
    rates = [[rate for _, rate in timing.throughput(log).epochs] for log in logs]
    return {
        "epochs": [run.epochs for run in system.runs if run.converged and run.epochs is not None],
        "minutes": [run.minutes for run in system.runs if run.converged and run.minutes is not None],
        "images_per_second": [statistics.median(each) for each in rates if each],
    }


def _differences(
    a: SystemScore, a_logs: Sequence[ResultLog], b: SystemScore, b_logs: Sequence[ResultLog], a_name: str, b_name: str
) -> List[Difference]:
    firsts, seconds = _samples(a, a_logs), _samples(b, b_logs)
    found = [difference(key, firsts[key], seconds[key], a_name, b_name) for key in QUANTITIES if firsts[key] and seconds[key]]
    if _data(a_logs) == _data(b_logs):
        return found
    return [replace(each, shown=False, sentence="not comparable: other data") for each in found]


def _data(logs: Sequence[ResultLog]) -> Set[int]:
    """Data sets are told by their number of training images; a log without it is taken for one of ImageNet, as by the score."""
    return {log.train_samples for log in logs if log.train_samples} or {rules.TRAIN_SAMPLES}


def difference(quantity: str, a: Sequence[float], b: Sequence[float], a_name: str, b_name: str) -> Difference:
    """What the runs ``b`` differ by from the runs ``a`` in a quantity of ``QUANTITIES``; each has at least one run."""
    first, second = statistics.mean(a), statistics.mean(b)
    low, high = _welch_interval(a, b)
    p = _permutation_p(a, b)
    shown = p < 1 - CONFIDENCE and (low is None or high is None or not low <= 0 <= high)
    sentence = _sentence(quantity, a, b, a_name, b_name, low, high, p, shown)
    return Difference(quantity, first, second, (len(a), len(b)), second - first, low, high, p, shown, sentence)


def _welch_interval(a: Sequence[float], b: Sequence[float]) -> Tuple[Optional[float], Optional[float]]:
    """``CONFIDENCE`` interval of mean(b) - mean(a), with the degrees of freedom of Welch and Satterthwaite."""
    from scipy import stats  # takes a second to load

    if min(len(a), len(b)) < 2:
        return None, None
    va, vb = statistics.variance(a) / len(a), statistics.variance(b) / len(b)
    if va + vb == 0:
        return None, None
    freedom = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    margin = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * (va + vb) ** 0.5
    middle = statistics.mean(b) - statistics.mean(a)
    return middle - margin, middle + margin


def _permutation_p(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided p-value of the difference of means over all divisions of the runs, or 9,999 random ones of very many; 1 where a
    side has one run, which shows nothing."""
    import numpy as np
    from scipy import stats

    if min(len(a), len(b)) < 2:
        return 1.0

    def mean_difference(x: Any, y: Any, axis: int) -> Any:
        return np.mean(x, axis=axis) - np.mean(y, axis=axis)

    return float(stats.permutation_test((a, b), mean_difference, vectorized=True, random_state=0).pvalue)


def _sentence(
    quantity: str, a: Sequence[float], b: Sequence[float], a_name: str, b_name: str,
    low: Optional[float], high: Optional[float], p: float, shown: bool,
) -> str:  # fmt: skip
    name, more, less = QUANTITIES[quantity]
    first, change = statistics.mean(a), statistics.mean(b) - statistics.mean(a)
    runs = f"{len(b)} {'run' if len(b) == 1 else 'runs'} against {len(a)}"
    if change == 0 and low is None and min(len(a), len(b)) > 1:
        return f"no difference: every run of both has {first:g} {name}; one below the steps they are told in cannot be seen"
    size = _figures(abs(change)) + (f" ({abs(change / first):.1%})" if first else "")
    figures = f"p = {p:.3f}"
    if low is not None and high is not None:
        figures = f"{CONFIDENCE:.0%} interval {_signed(low)} to {_signed(high)}, {figures}"
    if shown:
        return f"{runs} show that {b_name} {more if change > 0 else less}, by {size}; {figures}"
    if min(len(a), len(b)) < 2 or 2 / math.comb(len(a) + len(b), len(a)) >= 1 - CONFIDENCE:
        return f"{runs} cannot show a difference, whatever it is; here it is {size}"
    if low is not None and high is not None:
        figures += f"; with this spread they could show one of about {_figures((high - low) / 2)}"
    return f"{runs} do not show a difference: it is {size}; {figures}"


def _figures(value: float) -> str:
    """Four digits, but all of a thousand and above."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + _figures(value)


def _settings(a: Sequence[ResultLog], b: Sequence[ResultLog]) -> Iterator[Tuple[str, str, str]]:
    """What differs in what the logs say, and in what was saved beside them where both sides have it."""
    for source in (_logged, _saved):
        first, second = _of_all(a, source), _of_all(b, source)
        if source is _logged or (first and second):
            for name in {**first, **second}:
                if first.get(name) != second.get(name):
                    yield name, first.get(name, "-"), second.get(name, "-")


def _of_all(logs: Sequence[ResultLog], source: Callable[[ResultLog], Dict[str, str]]) -> Dict[str, str]:
    """The settings of a result; those that are not the same in all its runs with every value that they have."""
    values: Dict[str, List[str]] = {}
    for log in logs:
        for name, value in source(log).items():
            if name not in EACH_RUNS_OWN and value not in values.setdefault(name, []):
                values[name].append(value)
    return {name: ", ".join(found) for name, found in values.items()}


def _logged(log: ResultLog) -> Dict[str, str]:
    said = recipe.of_log(log)
    settings = {
        "organisation": log.org, "platform": log.platform, "global batch": said.batch_size,
        **{recipe.NAMES[key]: value for key, value in said.values.items()},
        "training images": log.train_samples, "validation images": log.eval_samples,
    }
    # One program logs 37, the other 37.0.
    return {
        name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in settings.items() if value is not None
    }


def _saved(log: ResultLog) -> Dict[str, str]:
    return environment.saved(log.path)


def _cautions(
    a: SystemScore, a_logs: Sequence[ResultLog], b: SystemScore, b_logs: Sequence[ResultLog], a_name: str, b_name: str
) -> Iterator[str]:
    if _data(a_logs) != _data(b_logs):
        yield "they were trained on different data, so the figures do not say which is better"
    if a.label or b.label:
        yield f"{' and '.join(name for system, name in ((a, a_name), (b, b_name)) if system.label)}: {a.label or b.label}"
    for system, name in ((a, a_name), (b, b_name)):
        missed = sum(not run.converged for run in system.runs)
        if missed:  # not a sample of all its runs any more
            yield f"{missed} of {len(system.runs)} runs of {name} did not converge; epochs and minutes are of those that did"


def to_json(comparisons: Sequence[Comparison]) -> Dict[str, Any]:
    """The comparisons as JSON values."""
    return {"comparisons": [asdict(comparison) for comparison in comparisons]}


def print_table(comparisons: Sequence[Comparison], console: Console) -> None:
    """Prints for each comparison its figures, the sentence on each, the cautions and the settings that differ."""
    for comparison in comparisons:
        table = Table(title=escape(f"{comparison.second} against {comparison.first}"), title_justify="left")
        for heading in ("mean of the runs", "first", "second", "difference", "p"):
            table.add_column(heading, justify="left" if heading == "mean of the runs" else "right", no_wrap=True)
        for d in comparison.differences:
            change = _signed(d.difference) + (f" ({d.difference / d.first:+.1%})" if d.first else "")
            table.add_row(QUANTITIES[d.quantity][0], _figures(d.first), _figures(d.second), change, f"{d.p:.3f}")
        console.print(table)
        lines = [f"{QUANTITIES[d.quantity][0]}: {d.sentence}" for d in comparison.differences]
        lines += [f"caution: {caution}" for caution in comparison.cautions]
        lines += [f"{name}: {first} -> {second}" for name, first, second in comparison.settings]
        for line in lines:
            console.print(line, markup=False, highlight=False, soft_wrap=True)
