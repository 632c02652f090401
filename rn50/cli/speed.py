"""Verbs that measure and tune the speed of training and its input."""

import importlib
import inspect
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from rn50 import frameworks
from rn50.cli import group
from rn50.cli.group import PATH, flag, option
from rn50.cli.numbers import LONGEST_S, Number, Whole
from rn50.cli.ranks import bind, configured, run_as_ranks
from rn50.errors import Status, UserError, excerpt
from rn50.settings import config as configuration
from rn50.terminal import Terminal, print_json, say

verb = group.main.under("Speed")


@verb("bench", "Measure input, storage, network, training", "rn50 bench throughput DEMO_CPU", cls=group.Verbs)
def bench() -> None:
    """Measure this system."""


@group.main.command("rank", hidden=True)
@click.option("--start-ranks", is_flag=True)
@click.argument("module")
@click.argument("arguments")
def become_rank(start_ranks: bool, module: str, arguments: str) -> None:
    """Be one rank of a measurement, or start all of them."""
    config = configuration.from_environment()
    try:
        as_rank = importlib.import_module(f"rn50.{module}").as_rank
        keywords = json.loads(arguments)
        # Only a check: ``bind`` raises TypeError if ``as_rank`` does not take these arguments.
        inspect.signature(as_rank).bind(config, **keywords)
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        problem = f"cannot be called so ({excerpt(str(error))})"
        raise UserError(f"rn50 rank {excerpt(module)}", problem, "rn50 bench calls it") from None
    if start_ranks:
        run_as_ranks(config, module, **keywords)  # does not return
    bind(config)
    as_rank(config, **keywords)


@bench.verb("comm", "Time all-reduces by size", "NCCL_ALGO=Ring rn50 bench comm MINE --json")
@group.config_with_values
@option("--largest-mib", "Stop at this size.", default=256, type=Whole(1, 4_096))
@group.as_json("rn50.speed.communication.AllReduces")
def bench_communication(name: str | None, values: tuple[str, ...], largest_mib: int, as_json: bool) -> None:
    """Time all-reduces over all ranks of CONFIG by size: latency and bandwidth."""
    config = configured(name, values)
    if config.ranks == 1:
        raise UserError("DGXNGPU=1", "one rank has nothing to send", "set DGXNGPU=2 or more")
    run_as_ranks(config, "speed.communication", largest_mib=largest_mib, as_json=as_json)


OF_ROUNDS = "About how long the rounds take, each of 3 steps at least; said once they begin, after the start."
"""Help of --seconds for verbs that measure in rounds."""


def _seconds(default: float, help_: str = OF_ROUNDS) -> Any:
    """Return the option ``--seconds``."""
    return option("--seconds", help_, default=default, type=Number(1, LONGEST_S))


_ROUNDS = "How often to measure; fewer than 5 times show no difference."
rounds = option("--rounds", _ROUNDS, default=5, type=Whole(1, 1_000))


@bench.verb("input", "Measure the input pipeline, stage by stage", "rn50 bench input DEMO_CPU --seconds 20")
@group.config_with_values
@_seconds(60.0)
@rounds
@group.as_json("rn50.speed.input_pipeline.InputSpeed")
def bench_input(
    name: str | None, values: tuple[str, ...], seconds: float, rounds: int, as_json: bool
) -> None:
    """Measure images/s of the input pipeline, stage by stage, and of training on real and synthetic data:
    which waits for which.

    All its ranks run at once. The data set is read, and nothing is written.
    """
    from rn50.data import preflight

    config = configured(name, values)
    preflight.check(config)
    run_as_ranks(config, "speed.input_pipeline", seconds=seconds, rounds=rounds, as_json=as_json)


def listed(
    *names: str, possible: Sequence[str] | Callable[[], Sequence[str]] | None = None, **settings: Any
) -> Any:
    """Return an option that takes a list with commas, and passes it to the verb as a tuple. ``possible`` has
    the words that the list may have, or is a function that returns them when the option is read. Without it
    the list has whole numbers above 0. ``settings`` are arguments of ``click.option``."""

    def read(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[Any, ...] | None:
        """Return the words or numbers of an option's value; None if the option was not given."""
        words = () if value is None else tuple(word.strip() for word in value.split(","))
        if possible is None:
            return tuple(Whole(1, 1_000_000).convert(word, parameter, context) for word in words) or None
        allowed = possible() if callable(possible) else possible
        for word in words:
            if word not in allowed:
                raise click.BadParameter(f"{word!r} is none of {', '.join(allowed)}")
        return words or None

    return click.option(*names, callback=read, **settings)


@bench.verb(
    "throughput",
    "Measure a matrix of training settings",
    f"rn50 bench throughput DEMO_CPU --frameworks {','.join(frameworks.names())} --models "
    "ours,alexnet --precisions auto,float32 --batch-sizes 32,64 --ranks 1,2",
)
@group.config_with_values
@group.against
@listed(
    "--frameworks", possible=frameworks.names(), help="Several with commas, as below. [default: FRAMEWORK]"
)
@option("--models", "Ours, and models of the framework's zoo, on synthetic data.", default="ours")
@listed("--precisions", possible=("auto", "float32", "float16", "bfloat16"), help="[default: PRECISION]")
@listed("--batch-sizes", help="Images a step of a rank. [default: BATCHSIZE]")
@listed("--image-sizes", help="Sides of our images, in pixels. [default: IMAGE_SIZES, else IMAGE_SIZE]")
@listed("--ranks", help="Numbers of ranks on a machine, one per GPU. [default: DGXNGPU]")
@listed("--nodes", help="Numbers of machines, the first of HOSTS. [default: DGXNNODES]")
@listed(
    "--data",
    "kinds",
    default="synthetic,real",
    possible=("synthetic", "real"),
    help="synthetic: a random batch held on the device; real: the data set at DATADIR.",
)
@_seconds(10.0, OF_ROUNDS.replace("rounds", "rounds of a cell"))
@rounds
@group.output("Folder of the report and of a log for every cell.", "folder", default="throughput")
@group.as_json("rn50.speed.throughput.Bench")
def bench_throughput(
    name: str | None,
    values: tuple[str, ...],
    against: tuple[str, ...],
    models: str,
    image_sizes: tuple[int, ...] | None,
    ranks: tuple[int, ...] | None,
    nodes: tuple[int, ...] | None,
    kinds: tuple[str, ...],
    seconds: float,
    rounds: int,
    folder: Path,
    as_json: bool,
    **lists: tuple[Any, ...] | None,  # frameworks, precisions, batch_sizes
) -> None:
    """Measure images/s of training by framework, model, precision, batch size, image size and ranks, on
    synthetic and on real data.

    Beside its images/s a cell has the loss after 20 steps: a precision that drifts from float32 is fast for
    nothing.

    One cell after the other runs in a job of its own. What does not fit into memory is a cell too, and so is
    a precision that only some of the frameworks have.

    With --against every round of a cell is a job of its own, and the jobs of two settings alternate, so that
    other load slows both alike: A B, B A, A B. The table has the range of each, and the last lines their
    ratio in each round.

    Exit status: 0 every cell measured, out of memory or unsupported, 1 a cell failed, 2 something to fix.
    """
    from rn50.data import preflight
    from rn50.launch import hosts
    from rn50.settings import document, named
    from rn50.speed import cell, networks, throughput

    base = configured(name, values)
    # Name -> configuration of the two settings that alternate; empty without --against.
    settings: dict[str | None, configuration.Config] = {}
    if against:
        first = named.Choice(document.find(name), values)
        second = named.against(first, against)
        settings = {first.system: base, second.system: second.config}
    matrices = []  # the cells of each setting, in the same order
    for setting, config in (settings or {None: base}).items():
        run = config.run
        machines = hosts.first_of(config, nodes or (run.nodes,))  # for each number of machines their names
        of_epochs = config.image_sizes if config.hyperparameters.image_sizes else (None,)
        names = [word.strip() for word in models.split(",")]
        nets = networks.networks(lists["frameworks"] or (run.framework,), names, image_sizes or of_epochs)
        rank_counts = ranks or (run.ranks_per_node,)
        sizes = lists["batch_sizes"] or (config.hyperparameters.batch_size,)
        precisions = lists["precisions"] or (run.precision,)
        combinations = throughput.matrix(nets, precisions, sizes, rank_counts, machines)
        throughput.check(combinations, kinds, config)
        # A combination is a cell of the matrix. Only cells on real data need the data set.
        if any(cell.REAL in combination.kinds(kinds) for combination in combinations):
            preflight.check(config)
        matrices.append([combination._replace(setting=setting) for combination in combinations])
    if len({tuple(combination.image_size for combination in cells) for cells in matrices}) > 1:
        raise UserError("--against", "the two train with images of different sizes", "give --image-sizes")
    # The two cells that differ only in their setting follow each other.
    cells = [combination for pair in zip(*matrices, strict=True) for combination in pair]
    command = shlex.join(["rn50", *sys.argv[1:]])
    measured = throughput.Bench(base, cells, kinds, folder, command, settings=settings)
    measured.run(seconds, rounds)
    print_json(measured) if as_json else measured.show(Terminal())
    report = measured.write()
    if not as_json:
        say(f"report: {report}")
    sys.exit(Status.FAULT if measured.failed else Status.SUCCESS)


@bench.verb(
    "storage",
    "Measure reading, cold and warm",
    "rn50 bench storage /data/imagenet /scratch/imagenet --seconds 60",
)
@click.argument("folder", metavar="DIR", type=PATH)
@click.argument("other", metavar="[DIR2]", required=False, type=PATH)
@_seconds(20.0, "About how long to take.")
@rounds
@group.as_json("rn50.speed.storage.StorageSpeed")
def bench_storage(folder: Path, other: Path | None, seconds: float, rounds: int, as_json: bool) -> None:
    """Measure how fast train.rec of DIR is read, sequentially and shuffled, cold and warm; with DIR2, beside
    another copy of it.

    Before a cold measurement the kernel is asked to drop the file from memory, for other readers too.
    """
    from rn50.speed import storage

    storage.bench([folder] if other is None else [folder, other], seconds, rounds, as_json)


@verb("tune", "Search faster settings of the input", "rn50 tune input DEMO_CPU", cls=group.Verbs)
def tune() -> None:
    """Search settings that decide speed alone."""


@tune.verb(
    "input",
    "Search faster settings of the input pipeline",
    "DATADIR=/data/imagenet rn50 tune input MINE -o config_TUNED.sh",
)
@group.config
@group.output("Write the configuration there, if it is faster; by default it is shown what would change.")
@flag("--force", "Replace a file that exists.")
@_seconds(600.0, "About how long to take, after the start; at least 15 measurements of 3 steps.")
@group.as_json("rn50.speed.tuned_config.Tuned")
def tune_input(name: str | None, output: Path | None, force: bool, seconds: float, as_json: bool) -> None:
    """Search settings of the input pipeline with which CONFIG trains faster on real data, those at DATADIR.

    It tries the settings that take effect there: fused or separate decoding, threads, hardware decoder,
    cache, prefetching, mapping of the file. The best are measured once more, in turn with CONFIG, and
    written only if every round finds them faster.

    Exit status: 0, also if nothing faster was found; "faster" of --json says which.
    """
    from rn50.data import preflight
    from rn50.settings import document, writing
    from rn50.speed import tuned_config

    base = document.find(name)
    if output is not None:
        tuned_config.refuse_output(output, force)
    config = tuned_config.configured(base)
    writing.split(base, "input_pipeline")  # raises an error if it cannot be rewritten
    preflight.check(config)
    options = {"output": output, "force": force, "seconds": seconds, "as_json": as_json}
    run_as_ranks(config, "speed.tuned_config", base=base.path.resolve(), **options)


@verb("profile", "Find where the time of a step goes", "rn50 profile DEMO_CPU -o after --baseline before")
@group.config_with_values
@_seconds(30.0)
@rounds
@option("--steps", "Training steps under the profiler.", default=10, type=Whole(1, 10_000))
@group.output("Folder of figures, timelines and logs.", "folder", default="profile")
@option("--baseline", "Folder of an earlier profile: what has changed since.", type=PATH)
@group.as_json("rn50.speed.profile.Profile")
def profile_training(
    name: str | None,
    values: tuple[str, ...],
    seconds: float,
    rounds: int,
    steps: int,
    folder: Path,
    baseline: Path | None,
    as_json: bool,
) -> None:
    """Find where the time of training goes, in four steps: rate, profile, bottleneck, and the gain over an
    earlier profile.

    It trains on real data under the profiler of its framework. The timeline is for Perfetto or
    chrome://tracing.
    """
    from rn50 import files
    from rn50.data import preflight
    from rn50.speed import profile

    inputs = [baseline / profile.REPORT_FILE] if baseline else []
    report = folder / profile.REPORT_FILE
    files.refuse_to_replace(report, files.JSON, remedy="give another --output", inputs=inputs)
    config = configured(name, values)
    preflight.check(config)
    before = profile.read(baseline) if baseline else None
    now = profile.measure(config, seconds, rounds, steps, folder)
    if before:
        now = now._replace(gain=profile.gain(before, now))
    print_json(now) if as_json else profile.show(now, before, folder, Terminal())
