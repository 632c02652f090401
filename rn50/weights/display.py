"""Print an evaluation for people and scripts."""

import pathlib
from typing import Any

from rn50.terminal import Terminal, print_json, say
from rn50.weights.counts import BINS, Counts, margin

_TOLD, _DIGITS = ("framework", "seed", "epoch", "accuracy", "quantization"), 16
"""Facts of a file that are printed, and the most characters of each."""


def tell(evaluation: dict[str, Any], counts: Counts, report: pathlib.Path | None, as_json: bool) -> None:
    """Print an evaluation, plain data that includes ``counts``; write its page if ``report`` is a file."""
    if report is not None:
        from rn50.weights import page

        page.write(report, evaluation, counts)
    if as_json:
        print_json(evaluation)
    else:
        _show(evaluation, Terminal())
        if report is not None:
            say(f"report: {report}")


def _show(evaluation: dict[str, Any], terminal: Terminal) -> None:
    facts = evaluation["facts"]
    trained = ", ".join(f"{name} {facts[name][:_DIGITS]}" for name in _TOLD if name in facts)
    terminal.print(f"{evaluation['weights']}: {trained or 'says nothing of its training'}")
    terminal.print(f"evaluated by {evaluation['framework']} in {evaluation['precision']}")
    images = evaluation["images"]
    for name, count in (("top-1", evaluation["correct"]), ("top-5", evaluation["top5_correct"])):
        known_to = f"± {margin(count, images):.1f} points"
        terminal.print(f"{name:6} {count / images:8.2%}   {count:,} of {images:,}, {known_to}")
    terminal.print(f"expected calibration error {evaluation['calibration_error']:.2%} ({BINS} bins)")
    _show_density(evaluation, terminal)


def _show_density(evaluation: dict[str, Any], terminal: Terminal) -> None:
    """Print the density of the layers, if any of them has zeros; layers of one density share a line."""
    by_density: dict[str, list[str]] = {}
    for layer in evaluation["density"]:
        by_density.setdefault(f"{layer['density']:.1%}", []).append(layer["layer"][: -len("_weight")])
    if set(by_density) <= {"100.0%"}:
        return
    for density, layers in by_density.items():
        which = f"{len(layers)} layers, {layers[0]} to {layers[-1]}"
        if len(layers) <= 4:
            which = ", ".join(layers)
        terminal.print(f"density {density}: {which}")
    sparse = "in every group of four at least two are 0"
    terminal.print(f"2:4: {sparse if evaluation['sparse'] else 'not in every group of four'}")
