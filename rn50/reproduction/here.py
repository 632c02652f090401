"""``Here``, the configuration that repeats a claim on this machine, and its differences from the claim
(``configure``)."""

import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from rn50 import files
from rn50.data.certification import certificate
from rn50.doctor import doctor
from rn50.doctor.diagnosis import FAILURE, Diagnosis
from rn50.errors import UserError, UserErrors, excerpt
from rn50.hyperparameters.borrow import borrow
from rn50.hyperparameters.expected_epochs import ExpectedEpochs
from rn50.machine import description, hardware, software
from rn50.machine.hardware import Machine
from rn50.new_config import choices, new_config
from rn50.printed import Hidden
from rn50.reproduction.claim import Claim
from rn50.results import sidecar
from rn50.results.run import read_run
from rn50.settings import named, writing
from rn50.settings.config import Config, of_document
from rn50.settings.document import Document
from rn50.settings.fields import KNOWN_NAMES, VARIABLES
from rn50.settings.libraries import HARMLESS
from rn50.settings.variables import Variable
from rn50.submission import source

_SHOWN = ("FRAMEWORK", "DEVICE", "PRECISION", "STEP_MODE", "DGXNGPU", "DGXNNODES")
"""Variables that decide the speed. They are shown in ``Here.values``, as the hyperparameters are."""
_TASK = ("TARGET", "INITIAL_WEIGHTS", "SPARSITY", "QUANTIZATION", "CROP_AREA_MIN", "IMAGE_SIZE", "WIDTH")
"""Variables other than the hyperparameters on which the epochs depend."""
_GUESSED = {"EVAL_OFFSET", "EVAL_PERIOD", "NUMEPOCHS", "DECAY_EPOCHS"}
"""Hyperparameters that no log has. For a published result they are guessed from the epochs of its
evaluations. Where the runs saved their variables, those count in place of the guess."""


class Here(NamedTuple):
    """This machine and the configuration that repeats a claim on it."""

    machine: str
    """Machine, in one line."""
    config_file: str
    """File of the configuration that repeats the claim."""
    values: dict[str, str]
    """Variables of the configuration that are hyperparameters or decide the speed."""
    same_machine: bool
    """True if this machine has the accelerators and processors of the claim, as far as these are known: only
    then are speeds comparable."""
    same_recipe: bool
    """True if hyperparameters, batch size and data are those of the claim, which logs all of them: only then
    are epochs comparable."""
    differences: list[str]
    """Differences from the claim that cannot be avoided, in words."""
    prevented: list[Diagnosis]
    """Reasons that keep this machine from making the runs, with the remedy."""
    # ``--json`` does not print the hidden fields.
    config: Hidden[Config]
    prediction: Hidden[ExpectedEpochs | None]
    facts: Hidden[Machine]

    @property
    def same_speed(self) -> bool:
        """True if minutes and images/s are comparable. Another batch or image size, which is another recipe,
        changes the time of a step."""
        return self.same_machine and self.same_recipe


def configure(claim: Claim, base: Document | None, folder: pathlib.Path) -> Here:
    """Write the configuration that repeats a claim into a folder, unless the folder has it, and compare it
    with the claim.

    If ``base`` is not None, the configuration is ``base`` with the claim's hyperparameters. Else it is that
    of the claim's own runs if rn50 made them, and otherwise a new one for this machine.

    Raises UserError if no configuration can be made.
    """
    machine, installed = hardware.read(), software.read()
    # The file has the last part of the claim's name, without characters that a shell would interpret.
    last = claim.origin.name.rstrip("/").rpartition("/")[2]
    name = re.sub(r"[^\w.+-]", "-", last, flags=re.ASCII).strip("-.") or "X"
    file = folder / f"config_{name}.sh"
    prediction = None
    if base:
        ranks = of_document(base).ranks
        # The multiple of the number of ranks that is nearest to the claim's batch size, but not 0.
        batch_size = max(1, round((claim.origin.global_batch_size or ranks) / ranks)) * ranks
        borrowed = borrow.borrow(claim.origin, base, batch_size)
        text, prediction = borrowed.text, borrowed.prediction
    elif claim.variables:
        text = source.configuration(claim.saved, claim.origin.name, claim.variables.get("DATADIR", "/data"))
    else:
        new = new_config.make(name, machine, installed, output=file, recipe=claim.origin)
        text, prediction = new.text, new.borrowed.prediction
    if not file.exists():
        files.write(file, text.encode("utf-8", "surrogateescape"), remedy="give another --output")
    document = Document(file)
    # The file was there, with another text: somebody's edits, or a stranger's file.
    if document.text != text:
        _refuse_commands(document)
    config = named.Choice(document).config
    diagnoses = doctor.examine(machine, installed, config)
    same_machine = claim.is_of(machine, description.read())
    same_data = config.data.train_samples == claim.origin.train_samples and not _other_data(claim, config)
    same_batch_size = config.global_batch_size == claim.origin.global_batch_size
    same_recipe = same_batch_size and same_data and not claim.borrowed and not _changed(claim, config)
    values = config.as_environment().items()
    return Here(
        machine=choices.described(machine, choices.devices(machine)),
        config_file=str(file),
        values={name: value for name, value in values if name in (*_SHOWN, *writing.GROUP)},
        same_machine=same_machine,
        same_recipe=same_recipe,
        differences=list(_differences(claim, config, machine, same_machine, same_data)),
        prevented=[diagnosis for diagnosis in diagnoses if diagnosis.severity == FAILURE],
        config=config,
        prediction=prediction,
        facts=machine,
    )


def _refuse_commands(document: Document) -> None:
    """Raise UserError if a file that existed before, and may be a stranger's, does more than set variables
    that rn50 reads or harmless variables of libraries."""
    assigned = document.assigned
    if refused := [*map(str, assigned.not_read), *(assigned.values.keys() - KNOWN_NAMES - HARMLESS)]:
        problem = f"is not what was written there: {excerpt(refused[0])}"
        raise UserError(document.path, problem, "give another --output")


def _other_data(claim: Claim, config: Config) -> bool:
    """Return True if the data set here and that of the claim have certificates with different hashes."""
    theirs, ours = sidecar.data_set(claim.saved), certificate.read(pathlib.Path(config.data.folder))
    return bool(theirs and ours and ours.content.get("set_sha256") not in (theirs, None))


def _changed(claim: Claim, config: Config) -> list[str]:
    """Return a phrase on each variable on which the epochs depend and whose value here is, or may be, another
    than in the claim."""
    saved = {name: claim.variables[name] for name in (*writing.GROUP, *_TASK) if name in claim.variables}
    # The saved values replace the guessed ones.
    guessed = _GUESSED if saved else ()
    texts = ((name, text) for name, text in claim.origin.values.items() if name not in guessed)
    # Read and written again, so that equal values have equal texts: "0.10" becomes "0.1".
    logged = {name: Variable.write(VARIABLES[name].read(text)) for name, text in texts}
    # Name -> text of every variable that decides the epochs, here and there. A logged text replaces a saved
    # one, and a saved one the default.
    ours = {**dict.fromkeys((*writing.GROUP, *_TASK), "not set"), **config.as_environment()}
    theirs = {**{name: str(VARIABLES[name].default or "not set") for name in _TASK}, **saved, **logged}
    # BATCHSIZE is that of a rank: ``_differences`` compares the global batch size.
    names = [name for name in theirs if ours[name] != theirs[name] and name != "BATCHSIZE"]
    if config.run.initial_weights and "INITIAL_WEIGHTS" not in names:  # files of one name may differ
        names.append("INITIAL_WEIGHTS")
    return [f"{name}={theirs[name]} there, {ours[name]} here" for name in names]


def _differences(
    claim: Claim, config: Config, machine: Machine, same_machine: bool, same_data: bool
) -> Iterator[str]:
    """Yield the phrases of ``Here.differences``. Between different machines, only the phrase on the machine
    tells the ranks."""
    if not same_machine:
        theirs = f"{claim.accelerators or 'an unknown number of'} x {claim.accelerator or 'accelerators'}"
        ours = f"{config.ranks} x {machine.gpus[0].name}" if machine.gpus else machine.processor
        yield f"machine: {theirs} there, {ours} here, so minutes and images/s are not comparable"
        if config.is_imagenet and config.run.device == "cpu":
            yield "no GPU here: a run on ImageNet takes weeks on a CPU"
    elif claim.accelerators != config.ranks:
        yield f"ranks: {claim.accelerators} there, {config.ranks} here, so minutes and images/s may differ"
    yield from named.other_batch(claim.origin.global_batch_size, "there", config)
    if not same_data:
        sizes = f"{claim.origin.train_samples} images there, {config.data.train_samples} here"
        yield f"data: another set, {sizes}, so epochs are not comparable"
    if changed := _changed(claim, config):
        yield f"hyperparameters and task: {', '.join(changed)}, so epochs are not comparable"
    if left_out := ", ".join(sidecar.left_out(claim.saved)):
        yield f"variables of its runs that are not taken, because they could run code: {left_out}"
    if missed := [run.file.name for run in map(read_run, claim.logs) if not run.converged]:
        yield f"its runs: {', '.join(missed)} did not end at the target, and are left out"
    if config.run.framework not in claim.framework.lower():
        theirs = claim.framework or "not said"
        yield f"framework: {theirs} there, {config.run.framework} here, which decides speed"
    if claim.borrowed:
        yield f"hyperparameters that it does not log: {', '.join(claim.borrowed)}; epochs are not comparable"


def refuse_prevented(here: Here) -> None:
    """Raise UserErrors for what keeps this machine from making the runs."""
    if here.prevented:
        raise UserErrors(*(UserError(row.subject, row.found, row.remedy) for row in here.prevented))
