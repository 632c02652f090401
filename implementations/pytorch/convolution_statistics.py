"""Convolutions that add up their outputs, so that the batch norm that follows need not read them for that.

cuDNN has kernels that write, beside the output of a convolution, the sum and the sum of squares of each
channel in float32. PyTorch does not use them; the package nvidia-cudnn-frontend reaches them: a graph of two
operations, for which cuDNN proposes plans. The gradients are those of any convolution.

Plans are for the batches of one size, the full ones. A shape that is seen first has its plans tried in
the steps before a capture, which are before the clock. The fastest plan is kept, if its
results are right, if it can be captured, and if it is faster than a convolution and a pass over its output.
Else there is no plan for the shape, and nothing changes. A plan holds no memory on the device.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from implementations.pytorch.fused_norm import Summed, unsummed
from implementations.pytorch.kernels.moments import moments
from implementations.pytorch.model import BATCH_NORM
from implementations.pytorch.step import captured
from rn50.terminal import say

PLANS = 5
"""Plans tried for a shape, of about ten. cuDNN lists those first that it expects to be fast."""
REPEATS = 6
DELAY = 10_000_000
"""Clock cycles of the GPU, some 5 ms, in which the host starts ``REPEATS`` convolutions."""
TOLERANCE = 0.01

Plan = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""A function of input and weight that returns the output, and sums and sums of squares of its channels in
float32, shape (2, channels)."""


def graph_of(x: Tensor, weight: Tensor, stride: int, padding: int, **device: Any) -> tuple[Any, list[Any]]:
    """Return cuDNN's graph with the plans it proposes, and its tensors: input, weight, output and both sums.
    ``device`` is a handle, or properties of a device. Raises cuDNN's errors."""
    import cudnn

    single = cudnn.data_type.FLOAT
    graph = cudnn.pygraph(intermediate_data_type=single, compute_data_type=single, **device)
    inputs = [
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
    import cudnn

    with torch.cuda.device(device):
        return cudnn.create_handle()


def execute(graph: Any, tensors: list[Any], plan: int, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Do what ``Plan`` does by a plan of a graph that is built. Raises cuDNN's errors."""
    import cudnn

    # During a capture this is memory of the captured graph, as it is for PyTorch's operations.
    empty = functools.partial(torch.empty, device=x.device)
    y = empty(tensors[2].get_dim(), dtype=x.dtype, memory_format=torch.channels_last)
    sums = empty(2, y.shape[1])
    workspace = empty(graph.get_workspace_size_plan_at_index(plan), dtype=torch.uint8)
    places = dict(zip(tensors, (x, weight, y, *sums), strict=True))
    cudnn.set_stream(handle=_handle(x.device), stream=torch.cuda.current_stream(x.device).cuda_stream)
    graph.execute_plan_at_index(places, workspace, plan, handle=_handle(x.device))
    return y, sums


def milliseconds(action: Callable[[], Any]) -> float:
    """Return the time of ``REPEATS`` calls on the GPU."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(DELAY)
    begin.record()
    for _ in range(REPEATS):
        action()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def _agree(result: Tensor, expected: Tensor) -> bool:
    norm = functools.partial(torch.linalg.vector_norm, dtype=torch.float32)
    return bool(norm(result - expected) <= TOLERANCE * norm(expected))


@contextlib.contextmanager
def _kept(failures: list[str]) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # cuDNN's are of many classes, and have many lines
        failures.append(str(error).strip().partition("\n")[0])


@functools.cache
def _say_once(reason: str) -> None:
    text = "warning: STEP_MODE=fused: cuDNN does not add up the outputs of all convolutions"
    say(f"{text}: {reason}; batch norm reads them again", err=True)


@torch.no_grad()
def fastest(x: Tensor, weight: Tensor, stride: int, padding: int) -> Plan | None:
    """Return the fastest plan, or None if a convolution and a pass over its output are faster than all that
    give the same. Say why if plans failed.

    They are tried on random images: means of an untrained network may be so far from 0 that ``moments`` reads
    the output in any case.
    """
    x = torch.randn_like(x).relu_()

    def results(plan: Plan | None) -> tuple[Tensor, ...]:
        y, sums = plan(x, weight) if plan else unsummed(x, weight, stride, padding)
        mean, variance = torch.zeros(2, y.shape[1], device=y.device)
        return y, *moments(y, mean, variance, 0.0, BATCH_NORM["eps"], sums)

    failures: list[str] = []
    times: dict[Plan, float] = {}
    expected, limit = results(None), milliseconds(functools.partial(results, None))
    with _kept(failures):
        graph, tensors = graph_of(x, weight, stride, padding, handle=_handle(x.device))
        for index in range(min(PLANS, graph.get_execution_plan_count())):
            with _kept(failures):
                graph.build_plan_at_index(index)
                plan: Plan = functools.partial(execute, graph, tensors, index)
                if not all(map(_agree, results(plan), expected)):
                    raise RuntimeError("a plan gives other results than a convolution")
                times[plan] = milliseconds(functools.partial(results, plan))
    for plan in sorted((plan for plan in times if times[plan] < limit), key=times.__getitem__):
        with _kept(failures):
            captured(functools.partial(results, plan), x.device)
            return plan
    if failures and not x.device.index:  # the first GPU speaks for all of a machine
        _say_once(failures[0])
    return None


_FASTEST: dict[Any, Plan | None] = {}


def convolve(x: Tensor, weight: Tensor, stride: int, padding: int, images: int) -> Summed:
    """Return the convolution, and its sums if there is a plan; for batches of ``images``, channels-last in
    half precision."""
    if x.shape[0] == images:
        key = x.shape, weight.shape, stride, padding, x.dtype, x.device
        if key not in _FASTEST:
            _FASTEST[key] = fastest(x, weight, stride, padding)
        plan = _FASTEST[key]
        if plan is not None:
            return plan(x, weight)
    return unsummed(x, weight, stride, padding)
