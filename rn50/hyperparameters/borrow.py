"""A proven path for this system: hyperparameters of somebody's run in a configuration file of ours.

The group is taken whole, because its values were chosen together; run, data, input pipeline and environment stay those of the
configuration that it is for. Where a value is not known, or only some are wanted, that has to be asked for, and the header says
so.
"""

import dataclasses
import os
import pathlib
import re
import shlex
import tempfile
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from rn50 import config_show
from rn50.config import Config, from_environment, variables
from rn50.config_file import CONFIGS
from rn50.errors import UserError
from rn50.hyperparameters import assignments, origin, prediction
from rn50.hyperparameters.origin import Origin
from rn50.hyperparameters.prediction import Prediction

_SECTION = re.compile(r"^# --- hyperparameters\b.*?(?=^# --- )", re.MULTILINE | re.DOTALL)
_FORM = "give a file in the form of those in configs/"
_VARIABLES = {variable.name: variable for section, _, variable in variables() if section == "hyperparameters"}
GROUP = tuple(_VARIABLES)
"""The variables that are borrowed together."""


@dataclass(frozen=True)
class Change:
    """A variable before and after, None where it is not set; ``origin`` says where the new value is from."""

    name: str
    before: Optional[str]
    after: Optional[str]
    origin: str


@dataclass(frozen=True)
class Borrowed:
    """A configuration of borrowed hyperparameters, not written yet; ``text`` is the whole file. ``assumed`` are NAME=value that
    the origin does not say, ``mixed`` the variables that stay those of the base where not the whole group was taken."""

    origin: Origin
    base: pathlib.Path
    config: Config
    changes: Tuple[Change, ...]
    assumed: Tuple[str, ...]
    mixed: Tuple[str, ...]
    prediction: Optional[Prediction]
    text: str

    @property
    def findings(self) -> List[str]:
        """What would make the official rules reject its result, a line each."""
        return config_show.findings(self.config)


def base_file(name: Optional[str], environ: Mapping[str, str]) -> pathlib.Path:
    """The configuration of this system: a file, the name of one of ours, or what CONFIG_FILE or DGXSYSTEM names.

    Raises UserError where there is none.
    """
    name = name or environ.get("CONFIG_FILE") or environ.get("DGXSYSTEM")
    if not name:
        raise UserError("which system is it for? give --for configs/config_NAME.sh, or set DGXSYSTEM")
    ours = CONFIGS / f"config_{name}.sh"
    if not pathlib.Path(name).is_file() and not ours.is_file():
        there = ", ".join(sorted(file.stem[len("config_"):] for file in CONFIGS.glob("config_*.sh")))
        raise UserError(f"--for {name}: no such file, and no system of configs/; there are: {there}")
    return ours if not pathlib.Path(name).is_file() else pathlib.Path(name)


def borrow(
    source: Origin, base: pathlib.Path, global_batch_size: Optional[int] = None, only: Sequence[str] = (), partial: bool = False
) -> Borrowed:
    """The configuration ``base`` with the hyperparameters of ``source``, at another batch size where one is given.

    ``only`` takes no more than these variables, and ``partial`` what the source has; the others stay those of the base.

    Raises UserError where the source lacks a value, the ranks do not divide the batch, or the configuration cannot be run.
    """
    before_text = assignments.text_of(base)
    section = _SECTION.search(before_text)
    if section is None:
        raise UserError(f"{base}: no section `# --- hyperparameters` before another one; {_FORM}")
    before = _configuration(base)
    old = {name: text for name, text in before.as_environment().items() if name in GROUP}
    taken, mixed = _taken(source, only, partial)
    # Of the base stays only what the origin does not decide, and a mix wants.
    new = {name: old[name] for name in GROUP if name in old and name in mixed}
    new.update(taken)
    unsaid = {**origin.LEFT_OUT, **{name: old[name] for name in ("EVAL_OFFSET", "EVAL_PERIOD")}}
    if new["OPTIMIZER"] != "lars":
        unsaid.pop("LARSETA")
    assumed = {name: value for name, value in unsaid.items() if name not in new}
    new.update(assumed)
    batch = global_batch_size or _batch(source, before, mixed)
    new["BATCHSIZE"] = str(_per_rank(batch, before))
    ordered = {name: new[name] for name in GROUP if name in new}
    said = _prediction(source, ordered, batch)
    span = source.batch_norm_span
    if span and span != batch // before.ranks:
        note = f"batch norm is over {batch // before.ranks} images here, and was over {span}"
        source = dataclasses.replace(source, notes=(*source.notes, note))
    named = tuple(f"{name}={value}" for name, value in assumed.items())
    draft = Borrowed(source, base, before, (), named, tuple(mixed), said, "")
    text = _text(draft, before_text, section, ordered, batch)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / base.name
        file.write_text(text, encoding="utf-8")
        config = _configuration(file, base)
    resolved = {name: value for name, value in config.as_environment().items() if name in GROUP}
    kept = (config.run, config.data, config.input_pipeline) == (before.run, before.data, before.input_pipeline)
    read = {name: _VARIABLES[name].read for name in ordered}
    if not kept or any(name not in resolved or read[name](resolved[name]) != read[name](ordered[name]) for name in ordered):
        raise UserError(f"{base}: sets hyperparameters outside of their section too; {_FORM}")
    where = {**dict.fromkeys(ordered, "borrowed"), **dict.fromkeys(assumed, "assumed"), **dict.fromkeys(mixed, "base")}
    changes = tuple(
        Change(name, old.get(name), resolved.get(name), where.get(name, "default"))
        for name in GROUP if name in old or name in resolved
    )  # fmt: skip
    return dataclasses.replace(draft, config=config, changes=changes, text=text)


def _configuration(file: pathlib.Path, called: Optional[pathlib.Path] = None) -> Config:
    """Read without a shell, in an empty environment."""
    try:
        return from_environment(assignments.read(file).values, str(called or file))
    except UserError as error:
        raise UserError("\n".join(f"{called or file}: {line}" for line in str(error).splitlines())) from None


def _taken(source: Origin, only: Sequence[str], partial: bool) -> Tuple[Dict[str, str], List[str]]:
    """The values that are borrowed, and the names of those that stay as they are."""
    unknown = [name for name in only if name not in GROUP]
    if unknown:
        raise UserError(f"--only {','.join(unknown)}: no hyperparameter; there are {', '.join(GROUP)}")
    wanted = only or [name for name in GROUP if name in origin.NEEDED or name in source.doubtful]
    missing = [name for name in wanted if name not in source.values and name != "BATCHSIZE"]
    if missing and (only or not partial):
        remedy = "leave it out of --only" if only else "--partial takes the others and labels the mix"
        why = [note for note in source.notes if note.split(" ")[0] in missing]
        raise UserError("\n".join([f"{source.name}: says nothing readable of {', '.join(missing)}; {remedy}", *why]))
    taken = {name: value for name, value in source.values.items() if not only or name in only}
    if not only and not missing:
        return taken, []
    mixed = [name for name in GROUP if name not in taken and not (name == "BATCHSIZE" and (not only or name in only))]
    if "NUMEPOCHS" in taken and "DECAY_EPOCHS" in mixed:
        mixed.remove("DECAY_EPOCHS")  # one schedule, not two halves
    return taken, mixed


def _batch(source: Origin, before: Config, mixed: Sequence[str]) -> int:
    if "BATCHSIZE" in mixed:
        return before.global_batch_size
    if source.global_batch_size is None:
        raise UserError(f"{source.name}: does not say its global batch size; give --gbs")
    return source.global_batch_size


def _per_rank(batch: int, config: Config) -> int:
    if batch % config.ranks:
        fits = sorted({batch // config.ranks * config.ranks, -(-batch // config.ranks) * config.ranks} - {0})
        raise UserError(
            f"global batch size {batch}: {config.ranks} ranks of {config.run.system} do not divide it; give --gbs "
            + " or ".join(map(str, fits))
        )  # fmt: skip
    return batch // config.ranks


def _prediction(source: Origin, values: Dict[str, str], batch: int) -> Optional[Prediction]:
    decay = float(values.get("DECAY_EPOCHS", values["NUMEPOCHS"]))
    key = (batch, values["OPTIMIZER"], float(values["LR"]), float(values["WARMUP_EPOCHS"]), decay, float(values["WD"]),
           float(values["MOM"]))
    as_published = batch == source.global_batch_size and all(values[name] == text for name, text in source.values.items())
    return prediction.of_recipe(key, source.epochs if as_published else ())


def _text(draft: Borrowed, before: str, section: "re.Match[str]", values: Dict[str, str], batch: int) -> str:
    base_machine = re.search(r"^#   machine +(.+)$", before[: section.start()], re.MULTILINE)
    source, ranks = draft.origin, draft.config.ranks
    rows = [
        ("command", "CONFIG_FILE=/path/to/this/file ./run_and_time.sh"),
        ("machine", base_machine.group(1) if base_machine else f"that of {draft.base.name}"),
        ("expected", f"{draft.prediction}; not measured with this code" if draft.prediction else "not known"),
        ("borrowed", f"by `rn50 borrow {shlex.quote(source.name)}`, for {draft.base.name}"),
        *(("", f"{what}: {who}") for what, who in source.provenance),
    ]  # fmt: skip
    if source.global_batch_size and source.global_batch_size != batch:
        rows.append(("changed", f"global batch size {source.global_batch_size} there, {batch} here; the rest as it was"))
    if draft.assumed:
        rows.append(("assumed", f"the source does not say: {', '.join(draft.assumed)}"))
    if draft.mixed:
        kept = ", ".join(draft.mixed)
        rows.append(("PARTIAL", f"not the whole group: {kept} of {draft.base.name}; nobody is known to have run this"))
    rows += [("note", note) for note in source.notes]
    lines = ["# shellcheck shell=bash", f"# ResNet-50 at a global batch size of {batch}, with borrowed hyperparameters.", "#"]
    lines += [f"#   {name:<11} {_one_line(said)}" for name, said in rows]
    lines += ["", "# --- hyperparameters (one group: together they decide convergence) ------------"]
    for name, value in values.items():
        line = f"export {name}={value}"
        lines.append(f"{line:<35} # per rank; {batch} in all, on {ranks} ranks" if name == "BATCHSIZE" else line)
    return "\n".join(lines) + "\n\n" + before[section.end():]


def _one_line(text: str) -> str:
    """Names come from other people's files: whatever they hold, it stays a comment."""
    text = "".join(each if each.isprintable() else " " for each in text)
    return text if len(text) <= 200 else text[:197] + "..."


def write(borrowed: Borrowed, output: pathlib.Path, force: bool) -> None:
    """Writes the file, whole or not at all.

    Raises UserError where it exists and ``force`` is not given, or cannot be written.
    """
    exists = UserError(f"{output}: exists; give another --output, or --force to replace it")
    if output.exists() and not force:
        raise exists
    try:
        descriptor, name = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name}.")
        temporary = pathlib.Path(name)
        try:
            with open(descriptor, "w", encoding="utf-8") as stream:
                stream.write(borrowed.text)
            temporary.chmod(0o644)
            if force:
                temporary.replace(output)
            else:
                os.link(temporary, output)  # unlike a rename, it replaces nothing that came meanwhile
        finally:
            temporary.unlink(missing_ok=True)
    except FileExistsError:
        raise exists from None
    except OSError as error:
        raise UserError(f"{output}: cannot be written ({error.strerror}); give another --output") from None
