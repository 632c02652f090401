"""Put the hyperparameters of another run into a configuration file of this system.

The group is taken whole because its values were chosen together. Run, data, input pipeline and environment
stay those of the base configuration. A mix has to be asked for, with ``only`` for some of the values or
``partial`` if some are not known, and the header says so.
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
from rn50.settings.fields import VARIABLE_OF
from rn50.settings.writing import GROUP


@dataclass(frozen=True)
class Change:
    """A variable's value before and after."""

    name: str
    """Variable."""
    before: str | None
    """Value before; null: not set."""
    after: str | None
    """Value after; null: not set."""
    origin: str
    """Who it is from."""


@dataclass(frozen=True)
class Borrowed:
    """A configuration with borrowed hyperparameters."""

    origin: Origin
    base: pathlib.Path
    """Configuration that received the values."""
    config: Config
    changes: tuple[Change, ...]
    assumed: tuple[str, ...]
    """NAME=value that the source does not say."""
    mixed: tuple[str, ...]
    """Variables that keep the base's values, because the group was not taken whole."""
    prediction: ExpectedEpochs | None
    """null: nobody published a run of it, or the data set is not ImageNet."""
    expected: str
    """Epochs to expect, or why they are not known, in words."""
    header: tuple[tuple[str, str], ...]
    """The lines of the file's header that say where the values come from."""
    text: str
    """The whole new configuration."""
    output: pathlib.Path | None = None
    """File that it was written to."""

    @property
    def findings(self) -> list[str]:
        """Departures from the closed division's rules."""
        return show.findings(self.config)


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
    """Return the configuration ``base`` with the hyperparameters of ``source``, at another batch size if one
    is given.

    ``only`` takes just these variables, ``partial`` takes what the source has. The others keep the base's
    values.

    Raises UserError if the source lacks a value, the ranks do not divide the batch, or the configuration
    cannot be run.
    """
    parts = writing.split(base)
    before, old = parts.config, writing.hyperparameters(parts.config)
    taken, mixed = _taken(source, only, partial)
    kept = before.global_batch_size if "BATCHSIZE" in mixed else source.global_batch_size
    batch = _batch(source, kept if global_batch_size is None else global_batch_size, before)
    new = _values(taken, mixed, old)
    new["BATCHSIZE"] = _Value(str(batch // before.ranks), "base" if "BATCHSIZE" in mixed else "borrowed")
    texts = {name: value.text for name, value in new.items()}
    prediction, expected = _expected(source, texts, batch, before)
    source = dataclasses.replace(source, notes=(*source.notes, *_differences(source, batch, before)))
    assumed = tuple(f"{name}={value.text}" for name, value in new.items() if value.origin == "assumed")
    header = _header(source, base.path, batch, assumed, mixed)
    rows = [("expected", f"{expected}; not measured with this code" if prediction else expected), *header]
    text, config = writing.render(parts, "with borrowed hyperparameters", rows, texts)
    after = writing.hyperparameters(config)
    origins = {name: new[name].origin if name in new else "default" for name in GROUP}
    variables = (name for name in GROUP if name in old or name in after)
    changes = tuple(Change(name, old.get(name), after.get(name), origins[name]) for name in variables)
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
    """New value of a variable, and who it is from."""

    text: str
    origin: str


def _values(taken: Mapping[str, str], mixed: Sequence[str], old: Mapping[str, str]) -> dict[str, _Value]:
    """Return the new values: those of the source, of a mix those of the base, and assumed ones."""
    values = {name: _Value(old[name], "base") for name in mixed if name in old}
    values |= {name: _Value(text, "borrowed") for name, text in taken.items()}
    unsaid = {**origin.LEFT_OUT, **{name: old[name] for name in ("EVAL_OFFSET", "EVAL_PERIOD")}}
    if values["OPTIMIZER"].text != "lars":
        unsaid.pop("LARSETA")
    return {**{name: _Value(text, "assumed") for name, text in unsaid.items()}, **values}


def _taken(source: Origin, only: Sequence[str], partial: bool) -> tuple[dict[str, str], list[str]]:
    """Return the borrowed values, and the names of the variables that keep the base's values."""
    unknown = [name for name in only if name not in GROUP]
    if unknown:
        raise UserError(f"--only {','.join(unknown)}", "no hyperparameter", f"there are {', '.join(GROUP)}")
    variables = only or [name for name in GROUP if name in origin.NEEDED or name in source.doubtful]
    missing = [name for name in variables if name not in source.values and name != "BATCHSIZE"]
    if missing and (only or not partial):
        remedy = "leave it out of --only" if only else "--partial takes the others and labels the mix"
        why = [note for note in source.notes if note.split(" ")[0] in missing]
        error = UserError(source.name, f"says nothing readable of {', '.join(missing)}", remedy)
        raise UserErrors(error, *map(UserError, why))
    taken = {name: value for name, value in source.values.items() if not only or name in only}
    if not only and not missing:
        return taken, []
    mixed = [name for name in GROUP if name not in taken]
    if "BATCHSIZE" in mixed and (not only or "BATCHSIZE" in only):
        mixed.remove("BATCHSIZE")
    if "NUMEPOCHS" in taken and "DECAY_EPOCHS" in mixed:
        mixed.remove("DECAY_EPOCHS")  # one schedule, not two halves
    return taken, mixed


def _batch(source: Origin, batch: int | None, config: Config) -> int:
    """Return a global batch size that is known and that the ranks divide."""
    if batch is None:
        raise UserError(source.name, "does not say its global batch size", "give --gbs")
    refuse_no_count("--gbs", batch)
    if batch % config.ranks:
        fits = sorted({batch // config.ranks * config.ranks, -(-batch // config.ranks) * config.ranks} - {0})
        problem = f"{config.ranks} ranks of {config.run.system} do not divide it"
        raise UserError(f"global batch size {batch}", problem, f"give --gbs {' or '.join(map(str, fits))}")
    return batch


def _differences(source: Origin, batch: int, config: Config) -> Iterator[str]:
    """Yield how a run of this configuration differs from the source's runs, apart from hyperparameters."""
    here, trained = config.data.train_samples, source.train_samples
    if trained and trained != here:
        yield f"its runs trained on {trained:,} images, and this configuration trains on {here:,}"
    if source.batch_norm_span and source.batch_norm_span != batch // config.ranks:
        yield f"batch norm is over {batch // config.ranks} images here, and was over {source.batch_norm_span}"


def _expected(
    source: Origin, values: dict[str, str], batch: int, config: Config
) -> tuple[ExpectedEpochs | None, str]:
    """Return the epochs to expect, and in words or why they are not known. The source's own runs count only
    on data of the same size; published runs and the reference count only on ImageNet."""
    texts = {field: values[name] for field, name in VARIABLE_OF.items() if name in values}
    fields = {field: text if field == "optimizer" else float(text) for field, text in texts.items()}
    recipe = dataclasses.replace(of_configuration(fields, config.ranks), global_batch_size=batch)
    as_published = batch == source.global_batch_size and source.values.items() <= values.items()
    epochs = source.epochs if as_published and source.train_samples == config.data.train_samples else ()
    if rules.labels(dataclasses.asdict(config.data), {}):
        prediction = expected_epochs.of_own_runs(epochs)
        why = ": the epochs of published runs are those of ImageNet, and this data set is another one"
    else:
        prediction, why = expected_epochs.of_recipe(recipe, epochs), ", because nobody published a run of it"
    return prediction, str(prediction or f"not known{why}")


def _header(
    source: Origin, base: pathlib.Path, batch: int, assumed: Sequence[str], mixed: Sequence[str]
) -> list[tuple[str, str]]:
    rows = [("borrowed", f"by `rn50 borrow {shlex.quote(source.name)}`, for {base.name}")]
    rows += [("", f"{what}: {who}") for what, who in source.provenance]
    if source.global_batch_size not in (None, batch):
        sizes = f"global batch size {source.global_batch_size} there, {batch} here"
        rows.append(("changed", f"{sizes}; the rest as it was"))
    if assumed:
        rows.append(("assumed", f"the source does not say: {', '.join(assumed)}"))
    if mixed:
        kept = f"{', '.join(mixed)} of {base.name}"
        rows.append(("PARTIAL", f"not the whole group: {kept}; nobody is known to have run this"))
    return rows + [("note", note) for note in source.notes]


def command(source: str, its_batch_size: int, global_batch_size: int) -> str:
    """Return the command that borrows ``source`` at a batch size into the configuration of the environment,
    or into CONFIG."""
    environ = environment()
    config = environ.get("CONFIG_FILE") or environ.get("DGXSYSTEM") or "CONFIG"
    batch = "" if global_batch_size == its_batch_size else f" --global-batch-size {global_batch_size}"
    return f"rn50 borrow {shlex.quote(source)} {shlex.quote(config)}{batch} -o config_MINE.sh"
