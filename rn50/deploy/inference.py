"""Latency and throughput of models on engines, by batch size (``rn50 bench inference``)."""

import contextlib
import itertools
import pathlib
import tempfile
from collections.abc import Sequence

import numpy as np

from rn50 import rates
from rn50.deploy import inference_engines
from rn50.deploy.inference_process import Load, Process, Round
from rn50.deploy.outcomes import Failure, InferenceReport, InferenceResult, Latency, ModelOnEngine
from rn50.errors import UserError
from rn50.machine import binding, description, hardware
from rn50.progress import counting
from rn50.terminal import Terminal, counted, table

PERCENTILES = (50, 90, 95, 99)
"""Percentiles of latency: of n sorted latencies, the one at index n * percentile / 100, from 0.

MLPerf's load generator takes the same index (mlcommons/inference, loadgen/results.cc)."""
KEPT_UP = 0.95
"""Share of the requested rate that an engine must answer in every round. Below it the queue grows, and
latencies mean nothing."""


def bind(cores: int | None, engines: Sequence[str]) -> tuple[str, int]:
    """Bind this process and its children to ``cores`` cores, by default all, near the GPU if an engine runs
    on one. Return a line about it and the number of cores."""
    machine = hardware.read()
    plan = binding.plan(machine, 1, near_gpus=any(map(inference_engines.on_gpu, engines)))[0]
    # All hardware threads of the first cores.
    core_of = {cpu.number: (cpu.socket, cpu.core) for cpu in machine.cpus}
    kept = list(dict.fromkeys(core_of[number] for number in plan.cpus))[:cores]
    bound = plan._replace(cpus=tuple(number for number in plan.cpus if core_of[number] in kept))
    return binding.apply(bound).replace("rank 0 of this machine: ", ""), len(kept)


def measure(
    subjects: Sequence[ModelOnEngine],
    batch_sizes: Sequence[int],
    seconds: float,
    rounds: int,
    rate: float | None,
    threads: int,
) -> InferenceReport:
    """Measure every subject at every batch size, in turn within each round. An extra first round is
    discarded.

    ``seconds`` is the time for a subject at a batch size, over all rounds. A subject that fails does not stop
    the others.
    """
    rounds_of: dict[tuple[ModelOnEngine, int], list[Round]] = {}
    failures: dict[ModelOnEngine, UserError] = {}
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        processes = []
        for number, subject in enumerate(subjects):  # they load together, and are measured in turn
            processes.append(Process(subject, threads, folder / f"{number}.log"))
            stack.callback(processes[-1].close)
        progress = stack.enter_context(counting("measuring inference"))
        jobs = list(itertools.product(range(rounds + 1), batch_sizes, processes))
        for done, (round_, size, process) in enumerate(jobs, start=1):
            if process.subject in failures:
                continue
            try:
                measured = process.measure(Load(size, seconds / rounds, rate))
            except UserError as error:
                failures[process.subject] = error
                continue
            if round_:
                rounds_of.setdefault((process.subject, size), []).append(measured)
            progress(done, len(jobs))
    model = description.read().get("host_processor_model_name", "unknown processor")
    engines = {subject.engine for subject in subjects}
    gpus = hardware.read().gpus if any(map(inference_engines.on_gpu, engines)) else ()
    return InferenceReport(
        "".join(f"{gpu.name}, " for gpu in gpus[:1]) + f"{counted(threads, 'core')} of {model}",
        threads,
        rate,
        [_result(subject, size, of_rounds, rate) for (subject, size), of_rounds in rounds_of.items()],
        [Failure(subject, str(error)) for subject, error in failures.items()],
    )


def _result(
    subject: ModelOnEngine, size: int, of_rounds: Sequence[Round], rate: float | None
) -> InferenceResult:
    latencies = np.sort(np.concatenate([round_.latencies for round_ in of_rounds])) * 1e3
    percentiles = [float(latencies[len(latencies) * percentile // 100]) for percentile in PERCENTILES]
    latency = Latency(float(latencies.mean()), *percentiles)
    answered = [len(round_.latencies) / round_.seconds for round_ in of_rounds]
    kept_up = rate is None or min(answered) >= KEPT_UP * rate
    served = rates.of_rounds([per_second * size for per_second in answered])
    return InferenceResult(subject, size, len(latencies), latency, served, kept_up)


def print_report(report: InferenceReport, console: Terminal) -> None:
    """Print a table for each model on each engine."""
    results, rate = report.results, report.requests_per_second
    load = "each request when the one before is answered" if rate is None else f"{rate:g} requests per second"
    console.print(f"{report.machine}; {load}")
    headings = ("batch", "average", *(f"p{percentile}" for percentile in PERCENTILES), "images/s")
    for subject in dict.fromkeys(result.subject for result in results):
        by_size = table(headings, title=f"{subject.name}: latency in ms of a request")
        for result in (result for result in results if result.subject == subject):
            latencies = (f"{value:,.2f}" for value in result.latency_ms)
            by_size.add_row(str(result.batch_size), *latencies, f"{result.images_per_second.median:,.0f}")
        console.print(by_size)
    for result in results:
        if not result.kept_up:
            late = "requests arrived faster than they were answered"
            console.print(f"{result.subject.name}, batch {result.batch_size}: {late}")
