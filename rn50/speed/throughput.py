"""``rn50 bench throughput``: training throughput of frameworks, models, precisions, batch sizes and ranks,
side by side.

``matrix`` makes the cells, ``check`` refuses those that cannot run, and a ``Bench`` measures them, writes the
report, its picture and the plain data, and prints the tables of ``throughput_tables.py``.
"""

import dataclasses
import functools
import itertools
import pathlib
import platform
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rn50 import files, frameworks
from rn50.benchmark import rules
from rn50.doctor import packages as advice
from rn50.doctor.diagnosis import FAILURE
from rn50.errors import UserError
from rn50.machine import description, software
from rn50.machine.sources import Sources
from rn50.printed import IfKnown, Inline, as_json, prints
from rn50.progress import counting
from rn50.rates import alternated
from rn50.settings import named
from rn50.settings.config import Config
from rn50.speed import cell as cells
from rn50.speed import curve, worker
from rn50.speed import throughput_tables as tables
from rn50.speed.cell import Cell, Result
from rn50.speed.networks import OURS, Network
from rn50.speed.throughput_tables import MeasuredCell
from rn50.terminal import Terminal, markdown

REPORT, PLAIN, CURVE = "report.md", "cells.json", "curve.svg"
"""Names of the files that ``Bench`` writes."""


def matrix(
    networks: Sequence[Network],
    precisions: Sequence[str],
    batch_sizes: Sequence[int],
    ranks: Sequence[int],
    machines: Sequence[Sequence[str]] = (("localhost",),),
) -> list[Cell]:
    """Return a cell for every combination of the arguments. Each of ``machines`` is a list of host names, to
    measure on all of them together; ``ranks`` are numbers of ranks on a machine.

    Cells with fewer ranks come first, because scaling is reported relative to them.
    """
    # (ranks on a machine, number of machines, names of the machines; None: this machine alone)
    places = []
    for names in machines:
        hosts = ",".join(names) if len(names) > 1 else None
        places += [(count, len(names), hosts) for count in ranks]
    # By the number of ranks in all, then by the number of machines.
    places.sort(key=lambda place: (place[0] * place[1], place[1]))
    combinations = itertools.product(places, networks, precisions, batch_sizes)
    # In the order of the fields of ``Cell``; a network is (framework, model, image size).
    grid = (Cell(*network, precision, batch, *place) for place, network, precision, batch in combinations)
    return list(dict.fromkeys(grid))


def check(all_cells: Sequence[Cell], kinds: tuple[str, ...], config: Config) -> None:
    """Raise UserError, before anything is measured, if a cell cannot run: a framework is not installed, no
    framework has any of the precisions, or a model of a framework's zoo, which trains on synthetic data
    alone, is to train on other ``kinds`` of data only. Each cell changes some variables of ``config``."""
    for cell in all_cells:
        if not cell.kinds(kinds):
            problem = f"{cell.model} trains on synthetic data alone"
            raise UserError("--models", problem, "add synthetic to --data")
    device = config.run.device
    names = list(dict.fromkeys(cell.framework for cell in all_cells))
    # One of several frameworks may lack a precision: ``Bench`` leaves out its cells. With a single framework
    # all cells are kept, and ``replaced``, below, raises UserError.
    possible = [cell for cell in all_cells if not cell.lacking(device)] if len(names) > 1 else all_cells
    if not possible:
        precisions = " or ".join(dict.fromkeys(cell.precision for cell in all_cells))
        possible_precisions = [frameworks.traits(name).precisions.get(device, ()) for name in names]
        have = ", ".join(dict.fromkeys(itertools.chain(*possible_precisions))) or "no precision there"
        problem = f"{precisions} on a {device.upper()} is in none of {', '.join(names)}"
        raise UserError("--precisions", problem, f"they have {have}")
    installed = software.read()
    for changed in [config.replaced(**cell.variables) for cell in possible]:
        framework = changed.run.framework
        for finding in advice.diagnoses(installed, changed, framework):
            if finding.severity == FAILURE and finding.subject == "packages":
                raise UserError(f"FRAMEWORK={framework}", finding.found, finding.remedy)


class Facts(NamedTuple):
    """Machine, software and task of the measurement."""

    machine: str
    """Number of CPUs, and the processor."""
    accelerator: IfKnown[str]
    """Model of the GPUs."""
    device: str
    """cpu or gpu."""
    versions: str
    """Versions of Python and of the frameworks' packages."""
    commit: str
    """Commit of the code."""
    task: str
    """Image size, classes and width, with a label if the task is not that of the benchmark."""
    models: IfKnown[str]
    """Models of the frameworks' zoos that were measured."""
    differing: IfKnown[str] = None
    """Values in which two settings differ: variable, value of the first, value of the other."""
    timed: str = "forward, backward, sum over the ranks and update; steps at the beginning do not count"
    """Parts of a step that are timed."""


# Names and order of the facts in the report and in ``PLAIN``.
prints(
    Facts,
    lambda r: (r.machine, r.accelerator, r.device, r.versions, r.commit, r.task, r.differing),
    lambda r: {"models of the frameworks' zoos": r.models, "what is timed": r.timed},
)


@dataclasses.dataclass
class Bench:
    """The cells of a matrix, and the results so far."""

    config: Config
    """Configuration of which the cells change some variables."""
    cells: Sequence[Cell]
    kinds: tuple[str, ...]
    """Kinds of data to train on: synthetic, real or both."""
    folder: pathlib.Path
    """Folder of the results."""
    command: str
    """Command line of the measurement."""
    results: list[Result] = dataclasses.field(default_factory=list)
    settings: Mapping[str | None, Config] = dataclasses.field(default_factory=dict)
    """Setting of a cell -> its configuration, if two are measured in turn. Then the cells are pairs, one cell
    of each."""

    def __post_init__(self) -> None:
        """Make ``folder``. Raises UserError if it cannot be made, or if it holds files of the same names that
        rn50 has not written. Raises it also if the cells of two settings have the same values."""
        if self.settings and not self.differing:
            problem = "the same values on both sides"
            raise UserError("--against", problem, "leave out the lists that set its values, as --precisions")
        files.make_folder(self.folder, worker.REMEDY)
        for name, kind in ((PLAIN, files.JSON), (CURVE, files.PICTURE), (REPORT, files.TEXT)):
            files.refuse_to_replace(self.folder / name, kind, remedy=worker.REMEDY)

    @property
    def failed(self) -> bool:
        """True if the job of a cell failed, and not because of too little memory."""
        harmless = ("", worker.OUT_OF_MEMORY)
        # A result without a log is of no job, because the framework lacks the precision.
        return any(result.log and result.failure not in harmless for result in self.results)

    @property
    def _in_turn(self) -> list[Sequence[Cell]]:
        """The cells that are measured in turn: pairs, or each cell alone."""
        sides = len(self.settings) or 1
        return [self.cells[begin : begin + sides] for begin in range(0, len(self.cells), sides)]

    def _of(self, cell: Cell) -> Config:
        """Return the configuration of which a cell changes some variables."""
        return self.settings.get(cell.setting, self.config)

    @functools.cached_property
    def differing(self) -> str | None:
        """The values in which the cells of two settings differ, in words. None: there is one setting, or
        there is no such value."""
        if not self.settings:
            return None
        # A value that the lists set, as --precisions does, is the same in both cells.
        first, second = (set(cell.variables.items()) for cell in self.cells[:2])
        equal = dict(first & second)
        differences = named.differences(*self.settings.values())
        return "; ".join(f"{name}: {a} -> {b}" for name, a, b in differences if name not in equal) or None

    def run(self, seconds: float, rounds: int) -> None:
        """Measure the cells one after the other, each for about ``seconds`` in ``rounds`` rounds, in each of
        which every kind of data has its turn. Cells of two settings alternate instead, with a job for every
        round. After every cell or pair write the results so far. A cell whose framework lacks the precision
        is not run; its result has this as its failure, and no log."""
        jobs = rounds if self.settings else 1  # of each cell
        done = 0
        with counting("measuring throughput") as progress:
            for cells_in_turn in self._in_turn:
                # For each cell the results of its jobs.
                parts: list[list[Result]] = [[] for _ in cells_in_turn]
                for job in range(jobs):
                    for cell, results in alternated([*zip(cells_in_turn, parts, strict=True)], job):
                        if not any(result.failure for result in results):  # a cell that failed fails again
                            results.append(self._job(cell, seconds / jobs, rounds // jobs))
                        done += 1
                        progress(done, len(self.cells) * jobs)
                self.results += [cells.joined(results, parts[0]) for results in parts]
                worker.write_json(self.folder / PLAIN, as_json(self))

    def _job(self, cell: Cell, seconds: float, rounds: int) -> Result:
        """Return the result of a cell, measured in one job; not run if its framework lacks the precision."""
        if lacking := cell.lacking(self._of(cell).run.device):
            return Result(cell, {}, lacking, "")
        return cells.run(cell, self._of(cell), self.kinds, seconds, rounds, self.folder / f"{cell.name}.log")

    @property
    def measured(self) -> list[MeasuredCell]:
        """The results so far, each compared with others: its scaling over ranks, its loss in float32."""
        measured = []
        for result in self.results:
            image_size = result.cell.image_size or self._of(result.cell).data.image_size
            scaling = {kind: self._scaling(result.cell, kind) for kind in result.rates}
            measured.append(MeasuredCell(result, image_size, scaling, self._to_float32(result)))
        return measured

    def _scaling(self, measured: Cell, kind: str) -> float | None:
        """Return the images/s per rank in this cell, divided by those in the cell with the fewest ranks that
        is otherwise equal. None: this is that cell."""
        # (ranks in all, machines) -> images/s per rank
        per_rank = {
            (cell.ranks * cell.nodes, cell.nodes): rates[kind].median / (cell.ranks * cell.nodes)
            for cell, rates, *_ in self.results
            # in all but ranks, nodes and hosts
            if kind in rates and (*cell[:5], cell.setting) == (*measured[:5], measured.setting)
        }
        place = (measured.ranks * measured.nodes, measured.nodes)
        fewest = min(per_rank)  # of equally many ranks, those on fewer machines
        return None if place == fewest else per_rank[place] / per_rank[fewest]

    def _to_float32(self, result: Result) -> float | None:
        """Return the loss of a result minus the loss of the same cell in float32; None: not measured."""
        in_float32 = result.cell._replace(precision="float32")
        for other in self.results:
            # "float32 (auto)", which PRECISION=auto has chosen, counts as float32.
            cell = other.cell._replace(precision=other.cell.precision.partition(" ")[0])
            if result.step and other.step and cell == in_float32:
                return result.step.loss - other.step.loss
        return None

    @property
    def _tables(self) -> list[tables.Titled]:
        """The tables that follow the overview."""
        measured = self.measured
        return [*(tables.details(measured, kind) for kind in self.kinds), tables.steps(measured)]

    def write(self) -> pathlib.Path:
        """Write the report and its picture, each completely or not at all. Return the path of the report."""
        parts = ["# Training throughput", f"<!-- {files.MARK} -->", f"`{self.command}`"]
        parts.append("\n".join(f"- {name}: {value}" for name, value in as_json(self.facts).items()))
        headings = ["framework", *(", ".join(column.heading) for column in tables.columns(self.results))]
        for kind in self.kinds:
            rows = tables.overview(self.results, kind, linked=True)
            parts += [f"## {_title(kind)}", markdown(headings, rows)]
        parts.append(f"![Images/s over the batch size]({CURVE})")
        for title, names, rows in self._tables:
            parts += [f"## {title}", markdown(names, rows)]
        if self._ratios:
            parts += ["## Ratio of the two settings", "\n".join(f"- {ratio}" for ratio in self._ratios)]
        topology = Sources().output("nvidia-smi", "topo", "-m") if self.config.run.device == "gpu" else ""
        if topology:
            parts += ["## Topology: `nvidia-smi topo -m`", f"```text\n{topology.rstrip()}\n```"]
        files.write(self.folder / CURVE, curve.draw(self.results), remedy=worker.REMEDY)
        file = self.folder / REPORT
        files.write(file, "\n\n".join(parts) + "\n", remedy=worker.REMEDY)
        return file

    def show(self, console: Terminal) -> None:
        """Print the tables on a terminal."""
        console.print(f"{self.config.run.system}, {self.config.run.device}")
        for kind in self.kinds:
            console.print(_title(kind))
            tables.show_overview(self.results, kind, console)
        for title, headings, rows in self._tables:
            console.print(title)
            tables.show_table(headings, rows, console)
        for line in filter(None, (self.differing, *self._ratios)):
            console.print(line)

    @property
    def _ratios(self) -> list[str]:
        """A sentence for each ratio of two settings."""
        first = next(iter(self.settings), None)
        return [
            f"{result.cell.trained}, {', '.join(result.cell.heading)}, {kind} data: {ratio.median:.3f} times "
            f"{first} ({ratio.spread})"
            for result in self.results
            for kind, ratio in result.ratios.items()
        ]

    @property
    def facts(self) -> Inline[Facts]:
        """Machine, software and task of the measurement."""
        machine = description.read()
        cpus = machine.get("host_processor_vcpu_count", "unknown")
        device, data = self.config.run.device, self.config.data
        installed = software.read().packages
        # ``traits.packages`` is a regular expression of the names of a framework's packages.
        pattern = "|".join(traits.packages for traits in frameworks.every().values())
        versions = [f"{name} {installed[name]}" for name in sorted(installed) if re.fullmatch(pattern, name)]
        sides = [(cell.model == OURS and cell.image_size) or data.image_size for cell in self.cells]
        sizes = ", ".join(dict.fromkeys(f"{side}x{side}" for side in sides))
        task = f"{sizes}, {data.classes} classes, width {data.width:g}"
        # (framework, model, image size) of each model of a zoo, once.
        of_zoos = dict.fromkeys(cell[:3] for cell in self.cells if cell.model != OURS)
        models = ", ".join(f"{model} of {framework} {size}x{size}" for framework, model, size in of_zoos)
        return Facts(
            machine=f"{cpus} CPUs, {machine.get('host_processor_model_name', 'unknown')}",
            accelerator=machine.get("accelerator_model_name", "unknown") if device == "gpu" else None,
            device=device,
            versions=f"Python {platform.python_version()}, {', '.join(versions)}",
            commit=software.commit() or "unknown",
            task=task if self.config.is_imagenet else f"{task}; {rules.NOT_A_RESULT}",
            models=f"{models}; trained for their throughput alone" if models else None,
            differing=self.differing,
        )


# Keys of ``PLAIN``.
prints(Bench, lambda r: (r.command, r.facts, {"cells": r.measured}))


def _title(kind: str) -> str:
    """Return the title of the overview of a kind of data."""
    return f"Images/s of all ranks together on {kind} data, median"
