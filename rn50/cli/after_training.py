"""Verbs on the weights that a run has saved."""

import pathlib
from typing import Optional

import click

from rn50 import process
from rn50.cli import group, ranks
from rn50.settings import config as configuration
from rn50.terminal import say


@click.command("evaluate", short_help="Evaluate saved weights",
               epilog="Example: rn50 evaluate results/DEMO_CPU/result_0.safetensors DEMO_CPU_PYTORCH")
@click.argument("weights", metavar="WEIGHTS", type=click.Path(path_type=pathlib.Path))
@group.config
@click.option("--precision", default="float32", show_default=True, type=click.Choice(["float32", "float16", "bfloat16"]),
              help="Of the matrix products; in float32 every framework counts the same.")
@click.option("--report", type=click.Path(path_type=pathlib.Path),
              help="Write a page with the confusion of classes and the calibration there.")
@click.option("--as-rank", is_flag=True, hidden=True)
@group.as_json
def evaluate_weights(weights: pathlib.Path, name: Optional[str], precision: str, report: Optional[pathlib.Path], as_rank: bool,
                     as_json: bool) -> None:
    """Evaluate WEIGHTS, a result_N.safetensors, on the validation set and in the framework of CONFIG: top-1, top-5, calibration.

    It is the evaluation of a timed run: every image once, by all ranks of CONFIG. The network is that of WEIGHTS, whichever
    framework has trained it.
    """
    from rn50 import files
    from rn50.data import layout, preflight
    from rn50.run import evaluation

    if as_rank:
        from rn50.launch import launchers

        config = configuration.from_environment()
        say(launchers.bind(config, process.environment()), err=True)  # before a framework starts threads

        from rn50.run import implementation

        evaluation.evaluate(config, implementation.load(config.run.framework), weights, report, as_json)
        return
    config, environ = ranks.configured(name)
    if report is not None:
        files.refuse_to_replace(report, remedy="give another file with --report")
    environ = {**environ, **evaluation.environment_for(weights, config), "PRECISION": precision}
    config = configuration.from_environment(environ)
    preflight.preflight(pathlib.Path(config.data.folder), config.is_imagenet, layout.VALIDATION_FILES)
    ranks.run_as_ranks(config, environ, evaluation.arguments(weights, report, as_json))
