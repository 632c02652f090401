"""Evaluate a file of weights as one rank, through the evaluation of a timed run (``rn50 evaluate``)."""

import pathlib
from typing import Any, Callable, Dict, List, Optional

from rn50.benchmark import sparsity
from rn50.errors import UserError
from rn50.results import evaluation, weights
from rn50.results.evaluation import Counts
from rn50.results.weights import Weights
from rn50.run import all_reduce
from rn50.run.implementation import Implementation
from rn50.settings.config import Config
from rn50.terminal import Terminal, print_json, say

SEED = 1
"""Seed of the values that the weights replace."""
_DIGITS = 10


def environment_for(file: pathlib.Path, config: Config) -> Dict[str, str]:
    """Return the variables that the network of a file of weights needs in place of those of ``config``.

    Raises UserError if the file is none of ours, or its network is for another number of classes.
    """
    saved = weights.read(file)
    if saved.classes != config.data.classes:
        raise UserError(file, f"it tells {saved.classes} classes apart, and the data set has NUMCLASSES={config.data.classes}",
                        "name the configuration of its data set")
    return {"WIDTH": saved.facts["width"], "IMAGE_SIZE": str(saved.image_size), "EVAL_RESIZE": str(saved.eval_resize),
            "STEP_MODE": "eager"}


def arguments(file: pathlib.Path, report: Optional[pathlib.Path], as_json: bool) -> List[str]:
    """Return the arguments for ``rn50`` as one rank of the evaluation."""
    return ["evaluate", str(file), "--as-rank", *(["--report", str(report)] if report else []), *(["--json"] if as_json else [])]


def evaluate(
    config: Config, create: Callable[[Config], Implementation], file: pathlib.Path, report: Optional[pathlib.Path], as_json: bool
) -> None:
    """Evaluate as one rank; rank 0 prints what was counted and writes the report.

    Raises UserError unless every image of the validation set was counted.
    """
    saved = weights.read(file)
    implementation = create(config)
    try:
        communicator = implementation.communicator
        implementation.warm_up(SEED)
        implementation.assign(saved.arrays)
        own = Counts.none(saved.classes, confusion=report is not None)
        for logits, labels in implementation.predictions():
            own.add(logits, labels)
        counts = Counts(all_reduce.in_pieces(communicator, own.numbers), saved.classes)
        evaluation.refuse_other_count(counts.images, config.data.eval_samples)
        if communicator.rank == 0:
            found = to_json(file, saved, config, implementation.precision.name, counts)
            if report is not None:
                from rn50.results.report import evaluation_page

                evaluation_page.write(report, found, counts)
            if as_json:
                print_json(found)
            else:
                _show(found, report, Terminal())
        communicator.barrier()
    finally:
        implementation.close()


def to_json(file: pathlib.Path, saved: Weights, config: Config, precision: str, counts: Counts) -> Dict[str, Any]:
    """Return the outcome as plain data."""
    densities = sparsity.densities(saved.arrays)
    return {
        "weights": str(file), "framework": config.run.framework, "precision": precision,
        "facts": {name: value for name, value in sorted(saved.facts.items()) if name != "file"},
        "images": counts.images, "correct": counts.correct, "top5_correct": counts.top_correct,
        "top1": counts.correct / counts.images, "top5": counts.top_correct / counts.images,
        "calibration_error": counts.calibration_error, "bins": [each._asdict() for each in counts.bins],
        "sparse": sparsity.holds(saved.arrays),
        "density": [{"layer": name, "density": value} for name, value in densities.items()],
    }


def _show(found: Dict[str, Any], report: Optional[pathlib.Path], terminal: Terminal) -> None:
    facts = found["facts"]
    trained = ", ".join(f"{name} {facts[name][:_DIGITS]}" for name in ("framework", "seed", "epoch", "accuracy") if name in facts)
    terminal.print(f"{found['weights']}: {trained or 'says nothing of its training'}")
    terminal.print(f"evaluated by {found['framework']} in {found['precision']}")
    images = found["images"]
    for name, part, count in (("top-1", found["top1"], found["correct"]), ("top-5", found["top5"], found["top5_correct"])):
        terminal.print(f"{name:6} {part:8.2%}   {count:,} of {images:,}")
    terminal.print(f"expected calibration error {found['calibration_error']:.2%} ({evaluation.BINS} bins)")
    _show_density(found, terminal)
    if report is not None:
        say(f"report: {report}")


def _show_density(found: Dict[str, Any], terminal: Terminal) -> None:
    """Print the density of the layers, if any of them has zeros; layers of one density share a line."""
    by_density: Dict[str, List[str]] = {}
    for each in found["density"]:
        by_density.setdefault(f"{each['density']:.1%}", []).append(each["layer"][: -len("_weight")])
    if set(by_density) == {"100.0%"}:
        return
    for density, layers in by_density.items():
        which = ", ".join(layers) if len(layers) <= 4 else f"{len(layers)} layers, {layers[0]} to {layers[-1]}"
        terminal.print(f"density {density}: {which}")
    terminal.print("2:4: " + ("in every group of four at least two are 0" if found["sparse"] else "not in every group of four"))
