"""Put the hyperparameters of another run into a configuration file of this system, the base.

All hyperparameters are taken together, because they were chosen together. The other sections, such as run and
data, stay those of the base. Two options mix the hyperparameters of the source and the base: ``only`` takes
just some variables of the source, and ``partial`` accepts a source that lacks some. Then the header of the
new file names the variables that keep the values of the base.

``borrow`` is what ``rn50 borrow``, ``rn50 config new`` and ``rn50 reproduce`` call.
"""

import dataclasses
import pathlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rn50.benchmark import rules
from rn50.benchmark.recipe import of_configuration
from rn50.errors import UserError, UserErrors
from rn50.hyperparameters import expected_epochs
from rn50.hyperparameters.borrow import origin
from rn50.hyperparameters.borrow.origin import Origin
from rn50.hyperparameters.expected_epochs import ExpectedEpochs, refuse_no_count
from rn50.printed import prints
from rn50.process import environment
from rn50.settings import show, writing
from rn50.settings.config import Config
from rn50.settings.document import Document
from rn50.settings.fields import VARIABLE_OF, VARIABLES
from rn50.settings.writing import GROUP


@dataclass(frozen=True)
class Change:
    """A variable's value before, in the base, and after, in the new file."""

    name: str
    """Variable."""
    before: str | None
    """Value before; null: not set."""
    after: str | None
    """Value after; null: not set."""
    origin: str
    """Origin of the value after: borrowed, assumed, base or default."""


@dataclass(frozen=True)
class Borrowed:
    """A configuration with borrowed hyperparameters."""

    origin: Origin
    base: pathlib.Path
    """Configuration file that received the values."""
    config: Config
    changes: tuple[Change, ...]
    """Every hyperparameter that is set before or after, changed or not."""
    assumed: tuple[str, ...]
    """NAME=value of every variable that the source does not state and that has a usual value instead."""
    mixed: tuple[str, ...]
    """Variables that keep the base's values; empty if all hyperparameters are the source's."""
    prediction: ExpectedEpochs | None
    """Epochs to expect; null: nobody published a run with these hyperparameters, or the data set is not
    ImageNet."""
    expected: str
    """Epochs to expect, or why they are not known, in words."""
    header: tuple[tuple[str, str], ...]
    """Entries (name, text) of the new file's header that say where the values come from."""
    text: str
    """Content of the new file."""
    output: pathlib.Path | None = None
    """File that it was written to; null: it was not written."""

    @property
    def findings(self) -> list[str]:
        """Departures from the closed division's rules."""
        return show.findings(self.config)


# What ``--json`` prints of it.
prints(
    Borrowed,
    lambda r: (r.base, r.changes, r.assumed, r.findings, r.expected, r.prediction),
    lambda r: ({"source": r.origin, "partial": r.mixed}, r.config.global_batch_size),
    lambda r: {"written": r.output, "config": r.text},
)


def borrow(
    source: Origin,
    base: Document,
    global_batch_size: int | None = None,
    only: Sequence[str] = (),
    partial: bool = False,
) -> Borrowed:
    """Return the configuration file ``base`` with the hyperparameters of ``source``, at the batch size of the
    source or at ``global_batch_size``.

    ``only`` takes just these variables, ``partial`` takes the variables that the source has. The others keep
    the values of the base.

    Raises UserError if the source lacks a value, the ranks do not divide the batch, or the configuration
    cannot be run.
    """
    parts = writing.split(base)
    # ``before`` and ``after`` are the hyperparameters of the base and of the new file, variable -> text.
    before = writing.hyperparameters(parts.config)
    taken, mixed = _taken(source, only, partial)
    if global_batch_size is None:
        # Take it from where BATCHSIZE comes from, the base or the source.
        global_batch_size = (parts.config if "BATCHSIZE" in mixed else source).global_batch_size
    batch = _batch(source, global_batch_size, parts.config)  # on all ranks; BATCHSIZE is that of a rank
    batch_origin = "base" if "BATCHSIZE" in mixed else "borrowed"
    new = _values(taken, mixed, before)
    new["BATCHSIZE"] = _Value(str(batch // parts.config.ranks), batch_origin)
    texts = {name: value.text for name, value in new.items()}
    prediction, expected = _expected(source, texts, batch, parts.config)
    # From here on the notes of the source, which the header and the result show, tell the differences too.
    source = dataclasses.replace(source, notes=(*source.notes, *_differences(source, batch, parts.config)))
    assumed = tuple(f"{name}={value.text}" for name, value in new.items() if value.origin == "assumed")
    header = _header(source, base.path, batch, assumed, mixed)
    rows = [("expected", f"{expected}; not measured with this code" if prediction else expected), *header]
    text, config = writing.render(parts, "with borrowed hyperparameters", rows, texts)
    after = writing.hyperparameters(config)
    origins = {name: new[name].origin if name in new else "default" for name in GROUP}
    variables = (name for name in GROUP if name in before or name in after)
    changes = tuple(Change(name, before.get(name), after.get(name), origins[name]) for name in variables)
    return Borrowed(
        origin=source,
        base=base.path,
        config=config,
        changes=changes,
        assumed=assumed,
        mixed=tuple(mixed),
        prediction=prediction,
        expected=expected,
        header=tuple(header),
        text=text,
    )


class _Value(NamedTuple):
    """New value of a variable, and its origin as in ``Change``."""

    text: str
    origin: str


def _values(taken: Mapping[str, str], mixed: Sequence[str], old: Mapping[str, str]) -> dict[str, _Value]:
    """Return variable -> new value. ``taken`` are the values from the source. The variables ``mixed`` keep
    the value that they have in ``old``, the values of the base. For a variable with neither, a value is
    assumed: the usual one if most logs omit the variable (``origin.LEFT_OUT``), that of the base for
    EVAL_OFFSET and EVAL_PERIOD."""
    values = {name: _Value(old[name], "base") for name in mixed if name in old}
    values |= {name: _Value(text, "borrowed") for name, text in taken.items()}
    usual = {**origin.LEFT_OUT, "EVAL_OFFSET": old["EVAL_OFFSET"], "EVAL_PERIOD": old["EVAL_PERIOD"]}
    if values["OPTIMIZER"].text != "lars":  # LARSETA has no effect without LARS
        usual.pop("LARSETA")
    return {**{name: _Value(text, "assumed") for name, text in usual.items()}, **values}


def _taken(source: Origin, only: Sequence[str], partial: bool) -> tuple[dict[str, str], list[str]]:
    """Return the values to borrow (variable -> text), and the names of the variables that keep the values of
    the base. Raises UserError if the source lacks a value, or ``only`` names an unknown variable."""
    if unknown := [name for name in only if name not in GROUP]:
        raise UserError(f"--only {','.join(unknown)}", "no hyperparameter", f"there are {', '.join(GROUP)}")
    # Without ``only``: all that a complete recipe needs, and the ``doubtful`` variables, which the source
    # sets in a way that only a shell can read.
    variables = only or [name for name in GROUP if name in origin.NEEDED or name in source.doubtful]
    # ``borrow`` computes BATCHSIZE from the global batch size, and ``_batch`` refuses a source without one.
    missing = [name for name in variables if name not in source.values and name != "BATCHSIZE"]
    # ``partial`` allows that variables are missing, but not those that ``only`` names.
    if missing and (only or not partial):
        remedy = "leave it out of --only" if only else "--partial takes the others and labels the mix"
        # The notes on a variable begin with its name.
        why = [note for note in source.notes if note.split(" ")[0] in missing]
        error = UserError(source.name, f"says nothing readable of {', '.join(missing)}", remedy)
        raise UserErrors(error, *map(UserError, why))
    taken = {name: value for name, value in source.values.items() if not only or name in only}
    if not only and not missing:  # the whole recipe is taken
        return taken, []
    mixed = [name for name in GROUP if name not in taken]
    if "BATCHSIZE" in mixed and (not only or "BATCHSIZE" in only):
        mixed.remove("BATCHSIZE")  # it comes from the source, by the global batch size
    if "NUMEPOCHS" in taken and "DECAY_EPOCHS" in mixed:
        mixed.remove("DECAY_EPOCHS")  # both together are the schedule, so they have one origin
    return taken, mixed


def _batch(source: Origin, batch: int | None, config: Config) -> int:
    """Return the global batch size ``batch``. Raises UserError if it is None, which means that the source
    does not state it, or if the ranks do not divide it."""
    if batch is None:
        raise UserError(source.name, "does not say its global batch size", "give --gbs")
    refuse_no_count("--gbs", batch)
    if batch % config.ranks:
        # The multiples of the number of ranks below and above, without 0.
        fits = sorted({batch // config.ranks * config.ranks, -(-batch // config.ranks) * config.ranks} - {0})
        problem = f"{config.ranks} ranks of {config.run.system} do not divide it"
        raise UserError(f"global batch size {batch}", problem, f"give --gbs {' or '.join(map(str, fits))}")
    return batch


def _differences(source: Origin, batch: int, config: Config) -> Iterator[str]:
    """Yield, in words, other differences than hyperparameters between a run of ``config`` and the runs of the
    source."""
    here, trained = config.data.train_samples, source.train_samples
    if trained and trained != here:
        yield f"its runs trained on {trained:,} images, and this configuration trains on {here:,}"
    if source.batch_norm_span and source.batch_norm_span != batch // config.ranks:
        yield f"batch norm is over {batch // config.ranks} images here, and was over {source.batch_norm_span}"


def _expected(
    source: Origin, values: dict[str, str], batch: int, config: Config
) -> tuple[ExpectedEpochs | None, str]:
    """Return the epochs to expect of the hyperparameters ``values`` (variable -> text) at the global batch
    size ``batch``, and a text of them or of why they are not known. The runs of the source count only if they
    had these values and as many training images; published runs and the reference count only on ImageNet."""
    # Field of ``Hyperparameters`` -> its value, for the variables that have one.
    fields = {f: VARIABLES[name].read(values[name]) for f, name in VARIABLE_OF.items() if name in values}
    recipe = dataclasses.replace(of_configuration(fields, config.ranks), global_batch_size=batch)
    as_in_source = batch == source.global_batch_size and source.values.items() <= values.items()
    epochs = source.epochs if as_in_source and source.train_samples == config.data.train_samples else ()
    if rules.labels(dataclasses.asdict(config.data), {}):  # a label: the data set is not ImageNet
        prediction = expected_epochs.of_own_runs(epochs)
        why = ": the epochs of published runs are those of ImageNet, and this data set is another one"
    else:
        prediction = expected_epochs.of_recipe(recipe, epochs)
        why = ", because nobody published a run of it"
    return prediction, str(prediction or f"not known{why}")


def _header(
    source: Origin, base: pathlib.Path, batch: int, assumed: Sequence[str], mixed: Sequence[str]
) -> list[tuple[str, str]]:
    """Return the entries (name, text) of the new file's header that say where the values come from."""
    rows = [("borrowed", f"by `rn50 borrow {shlex.quote(source.name)}`, for {base.name}")]
    rows += [("", f"{name}: {text}") for name, text in source.provenance]
    if source.global_batch_size not in (None, batch):
        sizes = f"global batch size {source.global_batch_size} there, {batch} here"
        rows.append(("changed", f"{sizes}; the rest as it was"))
    if assumed:
        rows.append(("assumed", f"the source does not say: {', '.join(assumed)}"))
    if mixed:
        values_of_base = f"{', '.join(mixed)} of {base.name}"
        rows.append(("PARTIAL", f"not the whole group: {values_of_base}; nobody is known to have run this"))
    return rows + [("note", note) for note in source.notes]


def command(source: str, its_batch_size: int, global_batch_size: int) -> str:
    """Return the ``rn50 borrow`` command that takes the hyperparameters of ``source``, which were chosen for
    ``its_batch_size``, at ``global_batch_size``. Its base is the configuration that the environment names, or
    the placeholder CONFIG."""
    environ = environment()
    config = environ.get("CONFIG_FILE") or environ.get("DGXSYSTEM") or "CONFIG"
    batch = "" if global_batch_size == its_batch_size else f" --global-batch-size {global_batch_size}"
    return f"rn50 borrow {shlex.quote(source)} {shlex.quote(config)}{batch} -o config_MINE.sh"
