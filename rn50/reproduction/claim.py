"""``Claim``, the facts of a result that is to be reproduced: its runs, hyperparameters and machine.
``claim_of`` reads it from the table of published results or from logs."""

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.hyperparameters import expected_epochs
from rn50.hyperparameters.borrow import origin
from rn50.hyperparameters.borrow.origin import Origin
from rn50.hyperparameters.plan import images_per_second
from rn50.machine.hardware import Machine
from rn50.printed import prints
from rn50.results import chips, counted, published, score, sidecar, timing, tree

FORMS = "a published result like v1.0/Inspur/nf5688m6_mxnet, or a folder of result logs"
"""Phrase for error messages: the arguments that ``claim_of`` takes."""


class Claim(NamedTuple):
    """A result that is to be reproduced."""

    origin: Origin
    epochs: list[float]
    """Epochs to the target of each run that reached it."""
    minutes: list[float]
    """Minutes to the target of each such run."""
    training_rate: float | None
    """Images/s of all accelerators in training, without evaluations and start-up; null: not known."""
    accelerator: str
    """Model of the accelerators, or of the processors of a machine without accelerators."""
    accelerators: int | None
    """Number of accelerators; null: not known."""
    framework: str
    borrowed: tuple[str, ...] = ()
    """Hyperparameters that the result does not log, and the result that they are taken from: NAME of
    SOURCE."""
    logs: tuple[pathlib.Path, ...] = ()
    saved: Mapping[str, Any] = {}
    """Contents of the sidecar file of the first log that has one; empty for a published result."""
    refusal: str | None = None
    """Verdict of `rn50 score` that the logs are no valid result; null: they are one, or there are none."""

    @property
    def images_per_second(self) -> list[float]:
        """Training images of each run divided by its whole time, of all accelerators together."""
        samples = self.origin.train_samples or rules.TRAIN_SAMPLES
        runs = zip(self.epochs, self.minutes, strict=True)
        return [epochs * samples / minutes / 60 for epochs, minutes in runs]

    @property
    def variables(self) -> dict[str, str]:
        """Variables of the runs that may be set here; empty if rn50 did not make the runs."""
        return sidecar.variables(self.saved)

    def is_of(self, machine: Machine, description: Mapping[str, str]) -> bool:
        """Return whether ``machine``, whose system description has the fields ``description``, has the same
        accelerators and processors as the machine of the claim. If the claim did not save its machine,
        compare the accelerators alone."""
        saved = self.saved.get("system", {})
        models = [name for name in saved if name.startswith(("host_processor", "accelerator"))]
        if models:
            return all(description.get(name) == saved[name] for name in models)
        # ``chips.name`` makes one name of all spellings.
        expected = chips.name(self.accelerator).lower()
        are_alike = all(chips.name(gpu.name).lower() == expected for gpu in machine.gpus)
        return len(machine.gpus) == self.accelerators and are_alike


prints(
    Claim,
    lambda r: (r.origin.name, r.epochs, r.minutes, r.images_per_second),
    lambda r: (r.training_rate, r.origin.global_batch_size),
    lambda r: (r.accelerator, r.accelerators, r.framework),
)


def claim_of(name: str) -> Claim:
    """Return the claim of a result: the name of a published one, or a folder of logs.

    Raises UserError if there is no such result, it is of several systems, or rn50 does not have its
    optimizer.
    """
    if os.path.exists(name):
        return _claim_of_logs(name, pathlib.Path(name))
    if name.startswith("rcp/"):
        raise UserError(name, "claims no minutes", f"give {FORMS}")
    source, result = origin.find(name, FORMS), published.find(name, FORMS)
    rate = images_per_second.training_rate(result)
    return _claim(
        source,
        zip(source.epochs, result.minutes, strict=False),
        training_rate=rate * result.accelerators if rate and result.accelerators else None,
        accelerator=result.accelerator_model,
        accelerators=result.accelerators,
        framework=result.framework,
    )


def _claim_of_logs(name: str, path: pathlib.Path) -> Claim:
    """Return the claim of the logs at ``path``. Raises UserError as ``claim_of``, and for runs that may not
    count."""
    systems = score.score([path])
    if len(systems) > 1:
        folders = ", ".join(str(system.runs[0].file.parent) for system in systems[:3])
        raise UserError(name, f"results of {len(systems)} systems", f"name one of them, like {folders}")
    runs = systems[0].runs
    first = next((run for run in runs if run.saved), runs[0])
    saved = first.saved
    if any(run.is_cut for run in runs):
        problem = "its epochs were cut short by BENCHMARK_STEPS, so it claims nothing"
        raise UserError(name, problem, "name a result of whole epochs")
    # Refuse a finished run of another configuration than ``first``, or one that is a copy of another.
    counted.refuse_others([run for run in runs if counted.is_finished(run)], saved.get("variables", {}))
    # What the run saved of its machine, else the description beside the results in a published tree.
    facts = saved.get("system") or tree.described(runs[0].file.parent)
    model = facts.get("accelerator_model_name") or facts.get("host_processor_model_name")
    return _claim(
        origin.find(name),
        ((run.epochs, run.minutes) for run in runs if run.converged),
        training_rate=timing.training_rate([run.log for run in runs]),
        accelerator=str(model or "not said"),
        accelerators=systems[0].accelerators or first.accelerators,
        framework=str(sidecar.section(saved, "run").get("framework") or facts.get("framework") or "not said"),
        logs=tuple(run.file for run in runs),
        saved=saved,
        refusal=systems[0].refusal,
    )


def _claim(source: Origin, runs: Iterable[tuple[float | None, float | None]], **facts: Any) -> Claim:
    """Return the claim of ``source``. ``runs`` are the (epochs, minutes) of its runs, with None for an
    unknown number; ``facts`` are other fields of ``Claim``.

    Hyperparameters that the result does not log are taken from the recipe that ``rn50 borrow --suggest``
    ranks first for its batch size. Raises UserError if no run reached the target.
    """
    complete = [run for run in runs if all(run)]  # both numbers are known
    if not complete:
        raise UserError(source.name, "no run of it reached the target", f"give another result: {FORMS}")
    epochs, minutes = map(list, zip(*complete, strict=True))
    missing = [name for name in origin.NEEDED if name not in source.values]
    if missing and source.global_batch_size:
        optimizer = source.values.get("OPTIMIZER", "lars")
        donor = origin.find(expected_epochs.candidates(source.global_batch_size, optimizer)[0].name)
        values = {**{name: donor.values[name] for name in missing}, **source.values}
        source = dataclasses.replace(source, values=values)
        facts["borrowed"] = tuple(f"{name} of {donor.name}" for name in missing)
    return Claim(source, epochs, minutes, **facts)
