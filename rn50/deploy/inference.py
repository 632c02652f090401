"""Measure latency and throughput of models on inference engines, by batch size (``rn50 bench inference``).

A subject is a model on an engine in a precision. Each subject runs in a process of its own
(``inference_process.py``). All processes load their models at once, and are then measured one at a time.
"""

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
"""Percentiles of latency that are reported. A percentile of n sorted latencies is the one at index
n * percentile // 100, counted from 0, as in MLPerf's load generator (mlcommons/inference,
loadgen/results.cc)."""
KEPT_UP = 0.95
"""Fraction of the requested rate that an engine must reach in every round. The queue of a slower engine
grows, so that its latencies depend on the length of the round: it does not keep up."""


def bind(cores: int | None, engines: Sequence[str]) -> tuple[str, int]:
    """Bind this process and its children to ``cores`` cores; None: to all cores. If an engine uses a GPU,
    only cores near the GPU are used. Return a line that describes the binding, and the number of cores."""
    machine = hardware.read()
    # Bind this process as if it were the only rank of this machine, and drop the rank's name from the line.
    [plan] = binding.plan(machine, 1, near_gpus=any(map(inference_engines.on_gpu, engines)))
    core_of = {cpu.number: (cpu.socket, cpu.core) for cpu in machine.cpus}
    chosen_cores = list(dict.fromkeys(core_of[number] for number in plan.cpus))[:cores]
    # All hardware threads of the chosen cores.
    cpus = tuple(number for number in plan.cpus if core_of[number] in chosen_cores)
    return binding.apply(plan._replace(cpus=cpus)).removeprefix("rank 0 of this machine: "), len(chosen_cores)


def measure(
    subjects: Sequence[ModelOnEngine],
    batch_sizes: Sequence[int],
    seconds: float,
    rounds: int,
    rate: float | None,
    threads: int,
) -> InferenceReport:
    """Measure every subject at every batch size. Each round measures them all in turn. The results of a first
    round, beside the ``rounds`` that count, are discarded.

    ``seconds`` is the time for a subject at a batch size, over all ``rounds``. ``rate`` is the number of
    requests per second that arrive; None: the next request arrives when the previous one is answered.
    ``threads`` is the number of threads of an engine. If a subject fails, the others are still measured.
    """
    rounds_of: dict[tuple[ModelOnEngine, int], list[Round]] = {}
    failures: dict[ModelOnEngine, UserError] = {}
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        processes = []
        for number, subject in enumerate(subjects):
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
            if round_:  # round 0 is discarded
                rounds_of.setdefault((process.subject, size), []).append(measured)
            progress(done, len(jobs))
    processor = description.read().get("host_processor_model_name", "unknown processor")
    engines = {subject.engine for subject in subjects}
    gpus = hardware.read().gpus if any(map(inference_engines.on_gpu, engines)) else ()
    return InferenceReport(
        machine=(f"{gpus[0].name}, " if gpus else "") + f"{counted(threads, 'core')} of {processor}",
        cores=threads,
        requests_per_second=rate,
        results=[_result(subject, size, measured, rate) for (subject, size), measured in rounds_of.items()],
        failures=[Failure(subject, str(error)) for subject, error in failures.items()],
    )


def _result(
    subject: ModelOnEngine, size: int, measured: Sequence[Round], rate: float | None
) -> InferenceResult:
    """Return the result of a subject at batch size ``size`` from its rounds."""
    latencies = np.sort(np.concatenate([round_.latencies for round_ in measured])) * 1e3
    percentiles = [float(latencies[len(latencies) * percentile // 100]) for percentile in PERCENTILES]
    latency = Latency(float(latencies.mean()), *percentiles)
    requests_per_second = [len(round_.latencies) / round_.seconds for round_ in measured]
    kept_up = rate is None or min(requests_per_second) >= KEPT_UP * rate
    images_per_second = rates.of_rounds([per_second * size for per_second in requests_per_second])
    return InferenceResult(subject, size, len(latencies), latency, images_per_second, kept_up)


def print_report(report: InferenceReport, console: Terminal) -> None:
    """Print the machine, a table for each subject, and a line for each result that did not keep up."""
    results, rate = report.results, report.requests_per_second
    load = "each request when the one before is answered" if rate is None else f"{rate:g} requests per second"
    console.print(f"{report.machine}; {load}")
    headings = ("batch", "average", *(f"p{percentile}" for percentile in PERCENTILES), "images/s")
    for subject in dict.fromkeys(result.subject for result in results):
        by_size = table(headings, title=f"{subject.name}: latency in ms of a request")
        of_subject = [result for result in results if result.subject == subject]
        for result in of_subject:
            latencies = (f"{value:,.2f}" for value in result.latency_ms)
            by_size.add_row(str(result.batch_size), *latencies, f"{result.images_per_second.median:,.0f}")
        console.print(by_size)
    for result in results:
        if not result.kept_up:
            late = "requests arrived faster than they were answered"
            console.print(f"{result.subject.name}, batch {result.batch_size}: {late}")
