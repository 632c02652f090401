"""Convolutions that also compute the sum and the sum of squares of each channel of their output, which the
batch norm behind them needs for mean and variance. Without these sums batch norm reads the whole output once
more.

cuDNN has kernels that write the output and both sums, in float32. PyTorch does not use these kernels, but the
package nvidia-cudnn-frontend does. It takes a graph of two operations, the convolution and the sums, and
cuDNN proposes several plans to execute it. The backward pass is that of any convolution (``fused_norm.py``).

``layers.py`` chooses ``convolve`` in STEP_MODE=fused if the package is installed. Full batches, which all
have one shape, use plans; ragged batches do not. The first call with a shape tries the plans for it. A plan
qualifies if its results are right, a CUDA graph can capture it, and it is faster than an ordinary convolution
and a pass over its output. The fastest one is kept; if none qualifies, the shape has ordinary convolutions.
The first calls are in the steps before a capture, so before the clock starts. A plan holds no memory on the
device.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from implementations.pytorch.fused_norm import OutputAndSums, without_sums
from implementations.pytorch.kernels.moments import moments
from implementations.pytorch.model import BATCH_NORM
from implementations.pytorch.step import captured
from rn50.terminal import say

PLANS = 5
"""Number of plans that are tried for a shape. cuDNN proposes about ten, those first that it expects to be the
fastest."""
REPEATS = 6
"""Number of calls that are timed together."""
DELAY = 10_000_000
"""Clock cycles, about 5 ms, that the GPU waits before ``REPEATS`` calls are timed. Meanwhile the host starts
all of them, so that the time of the host is not measured."""
TOLERANCE = 0.01
"""Largest relative difference, in the Euclidean norm, between the results of a plan and of a convolution."""

Plan = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""A function of the input and the weight of a convolution. It returns the output; and the sum and the sum of
squares of each of its channels, float32 of shape (2, channels)."""


def graph_of(x: Tensor, weight: Tensor, stride: int, padding: int, **device: Any) -> tuple[Any, list[Any]]:
    """Return cuDNN's graph of the convolution and its sums, with the plans that cuDNN proposes; and the five
    tensors of the graph: input, weight, output, sum and sum of squares.

    ``device`` is one keyword argument of ``cudnn.pygraph``: ``handle``, of a GPU, or ``device_property``, of
    a GPU that need not be present. Raises cuDNN's errors.
    """
    import cudnn

    single = cudnn.data_type.FLOAT
    graph = cudnn.pygraph(intermediate_data_type=single, compute_data_type=single, **device)
    inputs = [
        # The strides are those of channels-last memory.
        graph.tensor(dim=[n, c, h, w], stride=[c * h * w, 1, c * w, c], data_type=x.dtype)
        for n, c, h, w in (x.shape, weight.shape)
    ]
    y = graph.conv_fprop(*inputs, padding=[padding] * 2, stride=[stride] * 2, dilation=[1, 1])
    sums = graph.genstats(y)
    for output in (y, *sums):
        output.set_output(True).set_data_type(x.dtype if output is y else single)
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    return graph, [*inputs, y, *sums]


@functools.cache
def _handle(device: torch.device) -> Any:
    """Return the handle of cuDNN for a GPU, created once."""
    import cudnn

    with torch.cuda.device(device):
        return cudnn.create_handle()


def execute(graph: Any, tensors: list[Any], plan: int, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Execute the plan with index ``plan`` of a graph, which has been built, and return what a ``Plan``
    returns. ``tensors`` are those of ``graph_of``. Raises cuDNN's errors."""
    import cudnn

    # PyTorch allocates this memory. During a capture it belongs to the captured graph, as for any operation.
    empty = functools.partial(torch.empty, device=x.device)
    # tensors[2] is the output.
    y = empty(tensors[2].get_dim(), dtype=x.dtype, memory_format=torch.channels_last)
    sums = empty(2, y.shape[1])
    workspace = empty(graph.get_workspace_size_plan_at_index(plan), dtype=torch.uint8)
    memory = dict(zip(tensors, (x, weight, y, *sums), strict=True))
    cudnn.set_stream(handle=_handle(x.device), stream=torch.cuda.current_stream(x.device).cuda_stream)
    graph.execute_plan_at_index(memory, workspace, plan, handle=_handle(x.device))
    return y, sums


def milliseconds(action: Callable[[], Any]) -> float:
    """Return the time that ``REPEATS`` calls of ``action`` take on the GPU."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(DELAY)
    begin.record()
    for _ in range(REPEATS):
        action()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def _agree(result: Tensor, expected: Tensor) -> bool:
    """Return True if two tensors differ by no more than ``TOLERANCE``."""
    norm = functools.partial(torch.linalg.vector_norm, dtype=torch.float32)
    return bool(norm(result - expected) <= TOLERANCE * norm(expected))


@contextlib.contextmanager
def _recorded(failures: list[str]) -> Iterator[None]:
    """Append the first line of an exception in this context to ``failures``, and go on behind the context."""
    try:
        yield
    except Exception as error:  # cuDNN raises errors of many classes, with messages of many lines
        failures.append(str(error).strip().partition("\n")[0])


@functools.cache
def _warn_once(reason: str) -> None:
    """Warn that some shapes have no plan. The cache lets each reason be printed once."""
    text = "warning: STEP_MODE=fused: cuDNN does not add up the outputs of all convolutions"
    say(f"{text}: {reason}; batch norm reads them again", err=True)


@torch.no_grad()
def fastest(x: Tensor, weight: Tensor, stride: int, padding: int) -> Plan | None:
    """Return the fastest plan with right results for tensors of these shapes. Return None if there is no such
    plan, or if an ordinary convolution and a pass over its output are faster. In both cases warn if a plan
    has failed.

    The values of ``x`` are replaced by random ones. In an untrained network the means of some channels may be
    so far from 0 that ``moments`` reads the output in any case, and a plan would have no advantage.
    """
    x = torch.randn_like(x).relu_()

    def results(plan: Plan | None) -> tuple[Tensor, ...]:
        """Return output, mean and 1 / sqrt(variance + eps), by a plan or, for None, by a convolution."""
        y, sums = plan(x, weight) if plan else without_sums(x, weight, stride, padding)
        # ``moments`` also updates running statistics; nobody reads these.
        mean, variance = torch.zeros(2, y.shape[1], device=y.device)
        return y, *moments(y, mean, variance, 0.0, BATCH_NORM["eps"], sums)

    failures: list[str] = []
    times: dict[Plan, float] = {}
    expected = results(None)
    limit = milliseconds(functools.partial(results, None))
    with _recorded(failures):
        graph, tensors = graph_of(x, weight, stride, padding, handle=_handle(x.device))
        for index in range(min(PLANS, graph.get_execution_plan_count())):
            with _recorded(failures):
                graph.build_plan_at_index(index)
                plan: Plan = functools.partial(execute, graph, tensors, index)
                if not all(map(_agree, results(plan), expected)):
                    raise RuntimeError("a plan gives other results than a convolution")
                times[plan] = milliseconds(functools.partial(results, plan))
    faster = (plan for plan in times if times[plan] < limit)
    for plan in sorted(faster, key=times.__getitem__):
        with _recorded(failures):
            captured(functools.partial(results, plan), x.device)  # an error if a CUDA graph cannot capture it
            return plan
    if failures and not x.device.index:  # the rank of the machine's first GPU warns for all its ranks
        _warn_once(failures[0])
    return None


_FASTEST: dict[Any, Plan | None] = {}
"""The result of ``fastest`` for every shape, stride, padding, type and device that was met."""


def convolve(x: Tensor, weight: Tensor, stride: int, padding: int, images: int) -> OutputAndSums:
    """Return the convolution, and its sums if there is a plan for its shape and ``x`` is a full batch of
    ``images`` images. Tensors are channels-last and in half precision."""
    if x.shape[0] == images:
        key = x.shape, weight.shape, stride, padding, x.dtype, x.device
        if key not in _FASTEST:
            _FASTEST[key] = fastest(x, weight, stride, padding)
        if plan := _FASTEST[key]:
            return plan(x, weight)
    return without_sums(x, weight, stride, padding)
