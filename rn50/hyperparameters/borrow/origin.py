"""Origins of hyperparameters: published results, result logs, reference convergence points and configuration
files.

``find`` reads the origin that a name stands for, and returns it as an ``Origin``: variables and their values,
who chose them, and how many epochs the runs with them needed. ``borrow.py`` puts it into a configuration.
"""

import dataclasses
import math
import os
import pathlib
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rn50 import files
from rn50.benchmark import rules
from rn50.benchmark.recipe import COLUMN_OF, HYPERPARAMETERS, SHARED, Recipe
from rn50.errors import UserError, excerpt
from rn50.printed import Hidden
from rn50.results import published, recipe, tree
from rn50.results.parse import finite
from rn50.results.result_files import find_result_files
from rn50.results.run import read_run
from rn50.results.validity import result_rules
from rn50.settings import header
from rn50.settings.document import CONFIGS, Document, file_of, systems
from rn50.settings.fields import VARIABLE_OF, variables
from rn50.settings.libraries import is_passed_through
from rn50.settings.parsers import optimizer
from rn50.settings.variables import FIXED

LEFT_OUT = {"LARSETA": "0.001", "LABELSMOOTHING": "0.1"}
"""Variables that most logs omit, and their values in the reference and in nearly all published
configurations."""
_CHOSEN = [name for name in COLUMN_OF if name in SHARED and name != "global_batch_size"]
"""Fields of ``Recipe`` that are chosen together, without the global batch size: optimizer, learning rate,
warm-up, decay, weight decay and momentum."""
NEEDED = tuple(VARIABLE_OF["num_epochs" if name == "decay_epochs" else name] for name in _CHOSEN)
"""Variables that a complete recipe needs. Without DECAY_EPOCHS the learning rate decays until NUMEPOCHS, so
NUMEPOCHS is enough."""
_SIZES = ("BATCHSIZE", "DGXNGPU", "DGXNNODES")
"""Variables whose product is the global batch size."""
_MOST_NOTES = 30
"""Most statements of a configuration file that the notes list as not read, so that a script does not fill
pages."""
FORMS = "a result log or a folder of them, a configuration file, "
FORMS += "ROUND/ORGANISATION/SYSTEM of a published result, or rcp/[RULESET/]BATCH"


@dataclass(frozen=True)
class Origin:
    """Hyperparameters and where they come from."""

    name: str
    """Source of the hyperparameters."""
    kind: str
    """Published result, reference convergence point, log or configuration."""
    values: Hidden[dict[str, str]]
    """Variable -> text; variables that the source does not state are missing."""
    global_batch_size: int | None
    """Global batch size; null: the source does not state it."""
    provenance: tuple[tuple[str, str], ...]
    """Entries (name, text) that say where the values come from: organisation, system, file and the like."""
    epochs: Hidden[tuple[float | None, ...]] = ()
    """Epochs of the source's runs, None for a run that missed the target."""
    notes: tuple[str, ...] = ()
    """Remarks on the source: what was not read in it, and why; why it is no valid result."""
    batch_norm_span: Hidden[int | None] = None
    """Number of images over which batch norm took its statistics; None: not known."""
    doubtful: Hidden[tuple[str, ...]] = ()
    """Variables that a configuration file sets in a way that only a shell can read."""
    train_samples: Hidden[int | None] = rules.TRAIN_SAMPLES
    """Number of images that the source's runs trained on; None: it has no runs."""


def find(name: str, forms: str = FORMS) -> Origin:
    """Return the origin that a name stands for; ``FORMS`` says which names there are. ``forms`` are the names
    that an error advises.

    Raises UserError if there is no origin of that name, it cannot be read, or this code cannot train with its
    values.
    """
    path = pathlib.Path(name)
    # Unlike the methods of a path, these return False for a name that no file can have.
    if os.path.isdir(path):
        return _of_logs(name, find_result_files([path]))
    if os.path.exists(path):
        content = files.read_text(path, remedy=f"give {FORMS}", errors="replace")
        # Some published logs are UTF-16 (a zero byte beside each letter), gzip (its first two bytes, 1f 8b,
        # are read as "\x1f\ufffd"), or a pointer of Git LFS ("version https://git-lfs...").
        is_log = ":::ML" in content.replace("\0", "") or content.startswith(("\x1f\ufffd", "version http"))
        return _of_logs(name, [path]) if is_log else of_document(name, Document(path))
    if name.startswith("rcp/"):
        return _of_reference(name)
    return _of_published(published.find(name, forms))


def names() -> list[str]:
    """Return the names of all published results and reference convergence points."""
    all_names = [result.name for result in published.results()]
    for ruleset in rules.RCP_RULESETS:
        points = recipe.convergence_points(ruleset).values()
        all_names += [f"rcp/{ruleset}/{point['BS']}" for point in points]
    return all_names


def _of_published(result: published.PublishedResult) -> Origin:
    """Return the origin of a published result."""
    count = result.accelerators or "unknown number of"
    provenance = (
        ("source", f"published result, division {result.division or 'not stated'}"),
        ("round", f"MLPerf Training {result.round}"),
        ("organisation", result.organisation),
        ("system", result.system),
        ("hardware", f"{count} x {result.accelerator_model}, {result.framework}"),
        ("table", f"{published.TABLE.name}, SHA-256 {files.sha256(published.TABLE)}"),
    )
    # Some results of the open division log no hyperparameters. A configuration file that has them names the
    # result in its header.
    for file in [] if result.recipe.learning_rate else map(file_of, systems()):
        if result.name in header.read(Document(file)).get("published", ""):
            stated = of_document(f"{CONFIGS.name}/{file.name}", Document(file))
            note = f"its logs name no hyperparameter; {file.name} has them, and says where they come from"
            whole = dataclasses.replace(stated, name=result.name, kind="published result", epochs=result.runs)
            return dataclasses.replace(
                whole,
                provenance=provenance + stated.provenance,
                notes=(note, *stated.notes),
                train_samples=rules.TRAIN_SAMPLES,
            )
    evaluations = (result.first_evaluation_epoch, result.evaluation_interval or rules.EVAL_PERIOD_EPOCHS)
    return _of_runs(result.name, "published result", result.recipe, provenance, result.runs, evaluations)


def _of_logs(name: str, paths: Sequence[pathlib.Path]) -> Origin:
    """Return the origin of result logs, called ``name``. Raises UserError if their recipes differ."""
    runs = [read_run(path) for path in paths]
    logs = [run.log for run in runs]
    recipes = [recipe.of_log(log) for log in logs]
    first = recipes[0]
    for path, other in zip(paths, recipes, strict=True):
        if fields := [field for field in HYPERPARAMETERS if getattr(other, field) != getattr(first, field)]:
            # The batch size is only named if nothing else differs.
            shown = [HYPERPARAMETERS[field].shown for field in fields if field != "global_batch_size"]
            subject = ", ".join(shown) or "global batch size"
            raise UserError(path, f"{subject} differs from {paths[0]}", "give the runs of one recipe")
    samples = logs[0].train_samples or rules.TRAIN_SAMPLES
    epochs = tuple(log.reached.epoch if log.reached else None for log in logs)
    evaluated_epochs = [evaluation.epoch for evaluation in logs[0].evaluations]
    first_epoch = next(iter(evaluated_epochs), None)
    # An ImageNet log with a single evaluation is taken to have the interval of the rules.
    usual_interval = rules.EVAL_PERIOD_EPOCHS if samples == rules.TRAIN_SAMPLES else None
    interval = evaluated_epochs[1] - evaluated_epochs[0] if len(evaluated_epochs) > 1 else usual_interval
    place = tree.place(paths[0].parent)
    provenance = (
        ("source", f"result log {name}" + (f", {len(paths)} runs" if len(paths) > 1 else "")),
        # The ruleset 2.1.0 is that of round v2.1.
        ("round", f"v{place.ruleset[:3]}" if place and place.ruleset else "not known"),
        ("organisation", runs[0].organisation or "not logged"),
        ("system", (place.system if place else logs[0].platform) or "not logged"),
        *(("SHA-256", f"{files.sha256(path)} {path.name}") for path in paths),
    )
    origin = _of_runs(name, "result log", first, provenance, epochs, (first_epoch, interval), samples)
    # Runs that break a rule can be borrowed from too; the note tells that they are no valid result.
    refusal = result_rules.judge_in(paths[0].parent, runs).refusal
    return dataclasses.replace(origin, notes=(refusal,)) if refusal else origin


def _of_reference(name: str) -> Origin:
    """Return the origin of a reference convergence point, called rcp/BATCH or rcp/RULESET/BATCH."""
    # rcp/3.0.0/3200 or rcp/3200, which is of the newest ruleset.
    match = re.fullmatch(r"rcp/(?:([\d.]+)/)?(\d{1,9})", name)
    ruleset = (match.group(1) if match else None) or rules.RULESETS[-1]
    if not match or ruleset not in rules.RCP_RULESETS:
        remedy = f"write rcp/RULESET/BATCH with a ruleset of {', '.join(rules.RCP_RULESETS)}"
        raise UserError(name, "no reference convergence point", remedy)
    file = recipe.reference_file(ruleset)
    points = recipe.convergence_points(ruleset)
    key_of = {point["BS"]: key for key, point in points.items()}  # batch size -> name of its point
    key = key_of.get(int(match.group(2)))
    if key is None:
        raise UserError(name, f"ruleset {ruleset} has points at {', '.join(map(str, key_of))}", "name one")
    point = points[key]
    epochs = tuple(map(float, point["Epochs to converge"]))
    period = rules.EVAL_PERIOD_EPOCHS
    note = f"a reference is evaluated after every epoch, a run after every {period}: it ends at the next"
    provenance = (
        ("source", f"reference convergence point {key} of ruleset {ruleset}"),
        ("organisation", str(point.get("Creator", "not named"))),
        ("system", f"{point.get('Platform', 'not named')}, {point.get('When', 'no date')}"),
        ("file", f"{file.name}, SHA-256 {files.sha256(file)}"),
    )
    kind = "reference convergence point"
    origin = _of_runs(name, kind, recipe.of_point(point), provenance, epochs, (None, period))
    return dataclasses.replace(origin, notes=(note,))


def of_document(name: str, document: Document) -> Origin:
    """Return the origin of a configuration file, called ``name``. Its assignments are read without running
    anything. Raises UserError as ``find`` does."""
    path, assigned = document.path, document.assigned
    values: dict[str, str] = {}
    notes = [str(statement) for statement in assigned.not_read[:_MOST_NOTES]]
    if len(assigned.not_read) > _MOST_NOTES:
        notes.append(f"not read: {len(assigned.not_read) - _MOST_NOTES} more statements")
    doubtful = []
    meaningful = set(FIXED)  # names of all variables that mean something here, aliases included
    for section, _, variable in variables():
        spellings = (variable.name, *variable.aliases)
        meaningful.update(spellings)
        if section != "hyperparameters" and variable.name not in _SIZES:
            continue
        # Why only a shell can tell the value; None: it is known without one.
        doubt = next((assigned.doubtful[key] for key in spellings if key in assigned.doubtful), None)
        set_as, assigned_text = variable.given(assigned.values)
        if doubt is not None:
            doubtful.append(variable.name)
            notes.append(f"{variable.name} is in doubt: {doubt}")
        # A variable that nothing reads with the values so far, such as LARSETA with SGD, is left out.
        elif assigned_text is not None and variable.is_read(values):
            try:
                value = variable.read(assigned_text)
            except ValueError as error:
                problem = f"{set_as}={excerpt(assigned_text)} {error}"
                raise UserError(path, problem, "borrow from a file that can be run") from None
            values[variable.name] = variable.write(value)
    if not (values or doubtful):
        raise UserError(path, "holds no hyperparameter that is known", f"give {FORMS}")
    # Variables of published files of which this code implements one meaning only.
    for fixed, rule in FIXED.items():
        if assigned.values.get(fixed) and not re.fullmatch(rule.pattern, assigned.values[fixed]):
            raise UserError(path, f"{fixed}={excerpt(assigned.values[fixed])} {rule.refusal}")
    if unknown := [key for key in assigned.values if key not in meaningful and not is_passed_through(key)]:
        notes.append(f"ignored, because they mean nothing here: {', '.join(unknown)}")
    # Take the three variables of ``_SIZES`` out of the values: their product is the global batch size.
    sizes = [int(values.pop(key)) for key in _SIZES if key in values]
    global_batch_size = math.prod(sizes) if len(sizes) == len(_SIZES) else None
    provenance = [("source", f"configuration file {name}")]
    provenance += [("SHA-256", f"{files.sha256(file)} {file.name}") for file in assigned.files]
    origin = Origin(name, "configuration file", values, global_batch_size, tuple(provenance))
    return dataclasses.replace(origin, notes=tuple(notes), doubtful=tuple(doubtful), train_samples=None)


def _of_runs(
    name: str,
    kind: str,
    logged: Recipe,
    provenance: tuple[tuple[str, str], ...],
    epochs: tuple[float | None, ...],
    evaluations: tuple[float | None, float | None],
    train_samples: int = rules.TRAIN_SAMPLES,
) -> Origin:
    """Return the origin of the recipe ``logged`` that runs were made with.

    ``epochs`` are those of each run, None for a run that missed the target. ``evaluations`` are (epoch of the
    first evaluation, epochs from one evaluation to the next), None if not known.
    """
    values = _values(name, logged) | _schedule(finite(logged.decay_epochs), epochs, evaluations)
    origin = Origin(name, kind, values, logged.global_batch_size, provenance, epochs)
    span = logged.model_bn_span if isinstance(logged.model_bn_span, int) else None
    return dataclasses.replace(origin, batch_norm_span=span, train_samples=train_samples)


def _values(name: str, logged: Recipe) -> dict[str, str]:
    """Return variable -> text of logged hyperparameters, without evaluations and epochs. Raises UserError if
    this code cannot train with one of them."""
    values: dict[str, str] = {}
    remedy = "borrow from another result"
    if logged.optimizer:
        try:
            values["OPTIMIZER"] = optimizer(str(logged.optimizer))
        except ValueError as error:
            raise UserError(name, f"its optimizer {logged.optimizer!r} {error}", remedy) from None
    for field, row in HYPERPARAMETERS.items():
        value = getattr(logged, field)
        if row.fixed is not None and value not in (None, row.fixed):
            problem = f"{row.shown} is {value!r}, and only {row.fixed} is implemented"
            raise UserError(name, problem, "borrow from another")
        if value is None or field not in VARIABLE_OF or field in ("optimizer", "decay_epochs"):
            continue
        number = finite(value)
        if number is None:
            raise UserError(name, f"{row.shown} {value!r} is not a number", remedy)
        values[VARIABLE_OF[field]] = text(number)
    return values


def _schedule(
    decay: float | None, epochs: Sequence[float | None], evaluations: tuple[float | None, float | None]
) -> dict[str, str]:
    """Return variable -> text of EVAL_OFFSET, EVAL_PERIOD, NUMEPOCHS and DECAY_EPOCHS, as far as they follow
    from the arguments. ``decay`` is the number of epochs in which the learning rate decays; None: not known.
    ``epochs`` and ``evaluations`` are as in ``_of_runs``.

    The epochs that a run evaluates are EVAL_OFFSET + 1, EVAL_OFFSET + 1 + EVAL_PERIOD and so on.
    """
    values: dict[str, str] = {}
    evaluated_epoch, interval = evaluations
    reached = [count for count in epochs if count is not None]
    period = round(interval or rules.EVAL_PERIOD_EPOCHS)
    if evaluated_epoch is None and reached:  # a run that reached the target ends with an evaluation
        evaluated_epoch = statistics.median_low(reached)
    # Any epoch that is evaluated will do: it lies a whole number of periods behind the first.
    offset = None if evaluated_epoch is None else (round(evaluated_epoch) - 1) % period
    if offset is not None and interval:
        values |= {"EVAL_OFFSET": str(offset), "EVAL_PERIOD": str(period)}
    if decay is not None:
        decay = round(decay, 2)
        # The slowest run's epochs, rounded up to an epoch that is evaluated. If that is after the decay,
        # NUMEPOCHS allows one more evaluation.
        needed_epochs = math.ceil(max(reached, default=0))
        needed_epochs += ((offset or 0) + 1 - needed_epochs) % period
        values["NUMEPOCHS"] = str(needed_epochs + period if needed_epochs > decay else math.ceil(decay))
        # NUMEPOCHS is also the end of the decay, unless DECAY_EPOCHS says another one.
        if decay != int(decay) or needed_epochs > decay:
            values["DECAY_EPOCHS"] = text(decay)
    return values


def text(value: float) -> str:
    """Return a number as a configuration file has it: 10.5, 2, 5e-05."""
    return str(int(value)) if float(value) == int(value) else repr(float(value))
