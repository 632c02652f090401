"""Tell people and scripts what was counted of a validation set."""

import pathlib
from typing import Any

from rn50.results.evaluation import BINS, Counts, margin
from rn50.terminal import Terminal, print_json, say

_TOLD, _DIGITS = ("framework", "seed", "epoch", "accuracy", "quantization"), 16
"""Facts of a file that are printed, each cut to so many characters."""


def tell(found: dict[str, Any], counts: Counts, report: pathlib.Path | None, as_json: bool) -> None:
    """Print an evaluation, plain data with those of ``counts``, and write a page of it if ``report`` is a
    file."""
    if report is not None:
        from rn50.results.report import evaluation_page

        evaluation_page.write(report, found, counts)
    if as_json:
        print_json(found)
    else:
        _show(found, Terminal())
        if report is not None:
            say(f"report: {report}")


def _show(found: dict[str, Any], terminal: Terminal) -> None:
    facts = found["facts"]
    trained = ", ".join(f"{name} {facts[name][:_DIGITS]}" for name in _TOLD if name in facts)
    terminal.print(f"{found['weights']}: {trained or 'says nothing of its training'}")
    terminal.print(f"evaluated by {found['framework']} in {found['precision']}")
    for name, part, count in (
        ("top-1", found["top1"], found["correct"]),
        ("top-5", found["top5"], found["top5_correct"]),
    ):
        known_to = margin(count, found["images"])
        terminal.print(f"{name:6} {part:8.2%}   {count:,} of {found['images']:,}, ± {known_to:.1f} points")
    terminal.print(f"expected calibration error {found['calibration_error']:.2%} ({BINS} bins)")
    _show_density(found, terminal)


def _show_density(found: dict[str, Any], terminal: Terminal) -> None:
    """Print the density of the layers, if any of them has zeros; layers of one density share a line."""
    by_density: dict[str, list[str]] = {}
    for each in found["density"]:
        by_density.setdefault(f"{each['density']:.1%}", []).append(each["layer"][: -len("_weight")])
    if set(by_density) <= {"100.0%"}:
        return
    for density, layers in by_density.items():
        which = (
            ", ".join(layers) if len(layers) <= 4 else f"{len(layers)} layers, {layers[0]} to {layers[-1]}"
        )
        terminal.print(f"density {density}: {which}")
    terminal.print(
        "2:4: "
        + ("in every group of four at least two are 0" if found["sparse"] else "not in every group of four")
    )
