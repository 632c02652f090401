"""Claims of a result: its runs, hyperparameters and machine, from a published row or from logs."""

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NamedTuple

from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.hyperparameters import expected_epochs
from rn50.hyperparameters.borrow import origin
from rn50.hyperparameters.borrow.origin import Origin
from rn50.hyperparameters.plan import accelerators, images_per_second
from rn50.machine.hardware import Machine
from rn50.printed import HIDDEN
from rn50.results import published, score, sidecar, timing, tree

FORMS = "a published result like v1.0/Inspur/nf5688m6_mxnet, or a folder of result logs"


class Claim(NamedTuple):
    """A result that is to be reproduced."""

    name: str
    """Source."""
    epochs: list[float]
    """Epochs to the target, of each run that reached it."""
    minutes: list[float]
    """Minutes to the target."""
    images_per_second: list[float]
    """Training images over the whole time, of all accelerators."""
    training_rate: float | None
    """The same without evaluations and start-up; null: not known."""
    global_batch_size: int | None
    """Images a step."""
    accelerator: str
    """Accelerator, or processor where there is none."""
    accelerators: int | None
    """Their number; null: not known."""
    framework: str
    """Framework."""
    origin: Annotated[Origin, HIDDEN]
    borrowed: Annotated[tuple[str, ...], HIDDEN] = ()
    """Variables that it does not log, and who has them: NAME of SOURCE."""
    logs: Annotated[tuple[pathlib.Path, ...], HIDDEN] = ()
    saved: Annotated[Mapping[str, Any], HIDDEN] = {}
    """Contents of the file that rn50 saved beside its first log."""

    @property
    def variables(self) -> dict[str, str]:
        """Return every variable of its runs, empty where rn50 did not make them."""
        return {**self.saved.get("variables", {}), **self.saved.get("environment", {})}

    def is_of(self, machine: Machine, description: Mapping[str, str]) -> bool:
        """Return whether a machine has the same accelerators, or without any the same processors."""
        its = {
            name: value
            for name, value in self.saved.get("system", {}).items()
            if name.startswith(("host_processor", "accelerator"))
        }
        if its:
            return all(description.get(name) == value for name, value in its.items())
        models = {gpu.name for gpu in machine.gpus}
        alike = [accelerators.of_gpu(model, [accelerators.name(self.accelerator)]) for model in models]
        return len(machine.gpus) == self.accelerators and all(alike)


def find(name: str) -> Claim:
    """Return what a source claims (``FORMS``).

    Raises UserError if there is none of that name, it is of several systems, or this code has not its
    optimizer.
    """
    if os.path.exists(name):
        return _of_logs(name, pathlib.Path(name))
    source = origin.find(name, FORMS)
    result = next((row for row in published.results() if row.name.lower() == name.lower()), None)
    if result is None:
        raise UserError(name, "claims no minutes", f"give {FORMS}")
    runs = zip(source.epochs, result.minutes, strict=False)
    rate = images_per_second.training_rate(result)
    claim = Claim(
        result.name,
        *_lists(runs, rules.TRAIN_SAMPLES),
        rate * result.accelerators if rate and result.accelerators else None,
        result.global_batch_size,
        result.accelerator_model,
        result.accelerators,
        result.framework,
        source,
    )
    return _complete(claim)


def _of_logs(name: str, path: pathlib.Path) -> Claim:
    systems = score.score([path])
    if len(systems) > 1:
        folders = ", ".join(str(system.runs[0].file.parent) for system in systems[:3])
        raise UserError(name, f"results of {len(systems)} systems", f"name one of them, like {folders}")
    made = systems[0].runs
    logs, saved = [run.log for run in made], made[0].saved
    samples = logs[0].epoch_samples or rules.TRAIN_SAMPLES
    about = saved.get("system") or tree.described(made[0].file.parent)
    ranks = sidecar.section(saved, "run")
    runs = ((run.epochs, run.minutes) for run in made if run.converged)
    claim = Claim(
        name,
        *_lists(runs, samples),
        timing.training_rate(logs),
        logs[0].global_batch_size,
        str(about.get("accelerator_model_name") or about.get("host_processor_model_name") or "not said"),
        systems[0].accelerators or ranks.get("ranks_per_node", 0) * ranks.get("nodes", 1) or None,
        str(ranks.get("framework") or about.get("framework") or "not said"),
        origin.find(name),
        logs=tuple(run.file for run in made),
        saved=saved,
    )
    return _complete(claim)


def _lists(
    runs: Iterable[tuple[float | None, float | None]], samples: int
) -> tuple[list[float], list[float], list[float]]:
    """Return epochs, minutes and images/s of the runs that have both."""
    whole = [(epochs, minutes) for epochs, minutes in runs if epochs and minutes]
    rates = [epochs * samples / minutes / 60 for epochs, minutes in whole]
    return [epochs for epochs, _ in whole], [minutes for _, minutes in whole], rates


def _complete(claim: Claim) -> Claim:
    """Return a claim with the hyperparameters that it does not log, as the recipe has them which ``rn50
    borrow --suggest`` ranks first for its batch size. Raises UserError if no run reached the target."""
    if not claim.epochs:
        raise UserError(claim.name, "no run of it reached the target", f"give another result: {FORMS}")
    source = claim.origin
    missing = [name for name in origin.NEEDED if name not in source.values]
    if not missing or not claim.global_batch_size:
        return claim
    optimizer = source.values.get("OPTIMIZER", "lars")
    donor = origin.find(expected_epochs.candidates(claim.global_batch_size, optimizer)[0].name)
    values = {**{name: donor.values[name] for name in missing}, **source.values}
    borrowed = tuple(f"{name} of {donor.name}" for name in missing)
    return claim._replace(origin=dataclasses.replace(source, values=values), borrowed=borrowed)
