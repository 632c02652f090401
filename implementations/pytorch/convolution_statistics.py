"""Convolutions that add up their outputs, so that the batch norm that follows need not read them for that.

cuDNN has kernels that write, beside the output of a convolution, the sum and the sum of squares of each
channel in float32. PyTorch does not use them; the package nvidia-cudnn-frontend reaches them: a graph of two
operations, for which cuDNN proposes plans. The gradients are those of any convolution.

Plans are for the batches of one size, the full ones. A shape that is seen first has its plans tried on the
tensors given: in the steps before a capture, which are before the clock. The fastest plan is kept, if its
results are right and if it is faster than a convolution and a pass over its output. Else there is no plan for
the shape, and nothing changes. A plan holds no memory on the device.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

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


class Shape(NamedTuple):
    """A convolution of images of shape (N, C, H, W) by weights of shape (K, C, R, R)."""

    images: torch.Size
    weights: torch.Size
    stride: int
    padding: int
    dtype: torch.dtype


def graph_of(shape: Shape, **device: Any) -> tuple[Any, list[Any]]:
    """Return cuDNN's graph with the plans it proposes, and its tensors: images, weights, output, and two for
    the sums. ``device`` is a handle, or properties of a device. Raises cuDNN's errors."""
    import cudnn

    def tensor(size: torch.Size) -> Any:
        _, channels, height, width = size
        strides = [channels * height * width, 1, channels * width, channels]
        return graph.tensor(dim=list(size), stride=strides, data_type=shape.dtype)

    single = cudnn.data_type.FLOAT
    graph = cudnn.pygraph(intermediate_data_type=single, compute_data_type=single, **device)
    given = [tensor(shape.images), tensor(shape.weights)]
    around = {"padding": [shape.padding] * 2, "stride": [shape.stride] * 2, "dilation": [1, 1]}
    y = graph.conv_fprop(*given, **around)
    y.set_output(True).set_data_type(shape.dtype)
    sums = graph.genstats(y)
    for each in sums:
        each.set_output(True).set_data_type(single)
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    return graph, [*given, y, *sums]


@functools.cache
def _handle(device: torch.device) -> Any:
    import cudnn

    with torch.cuda.device(device):
        return cudnn.create_handle()


class Plan:
    """Computes a convolution and its sums by one of the plans of a graph. Raises cuDNN's errors."""

    def __init__(self, graph: Any, tensors: list[Any], index: int, device: torch.device):
        graph.build_plan_at_index(index)
        self._graph, self._tensors, self._index, self._device = graph, tensors, index, device

    def __call__(self, x: torch.Tensor, weight: torch.Tensor) -> Summed:
        import cudnn

        graph, device, shape = self._graph, self._device, self._tensors[2].get_dim()
        # During a capture all of this comes from the graph's memory, as it does for PyTorch's operations.
        y = torch.empty(shape, dtype=x.dtype, device=device, memory_format=torch.channels_last)
        sums = torch.empty(2, shape[1], device=device)
        size = graph.get_workspace_size_plan_at_index(self._index)
        workspace = torch.empty(size, dtype=torch.uint8, device=device)
        places = dict(zip(self._tensors, (x, weight, y, *sums), strict=True))
        cudnn.set_stream(handle=_handle(device), stream=torch.cuda.current_stream(device).cuda_stream)
        graph.execute_plan_at_index(places, workspace, self._index, handle=_handle(device))
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


def _agree(found: torch.Tensor, expected: torch.Tensor) -> bool:
    norm = functools.partial(torch.linalg.vector_norm, dtype=torch.float32)
    return bool(norm(found - expected) <= TOLERANCE * norm(expected))


@contextlib.contextmanager
def _kept(failures: list[Exception]) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # cuDNN's are of many classes
        failures.append(error)


@functools.cache
def _say_once(reason: str, device: torch.device) -> None:
    if not device.index:  # the first one speaks for all of a machine
        say(
            f"warning: STEP_MODE=fused: cuDNN does not add up the outputs of all convolutions: {reason}; "
            "batch norm reads them again",
            err=True,
        )


def fastest(shape: Shape, x: torch.Tensor, weight: torch.Tensor) -> Plan | None:
    """Return the fastest plan, or None if a convolution and a pass over its output are faster than all that
    give the same. Say why if plans failed.

    They are tried on random images: means of an untrained network may be so far from 0 that ``moments`` reads
    the output in any case.
    """
    x = torch.randn_like(x).relu_()

    def results(convolve: Callable[..., Any]) -> tuple[torch.Tensor, ...]:
        y, sums = convolve(x, weight)
        mean, variance = torch.zeros(2, y.shape[1], device=y.device)
        return y, *moments(y, mean, variance, 0.0, BATCH_NORM["eps"], sums)

    plain = functools.partial(unsummed, stride=shape.stride, padding=shape.padding)
    failures: list[Exception] = []
    times: dict[Plan, float] = {}
    expected = results(plain)
    limit = milliseconds(functools.partial(results, plain))
    with _kept(failures):
        graph, tensors = graph_of(shape, handle=_handle(x.device))
        for index in range(min(PLANS, graph.get_execution_plan_count())):
            with _kept(failures):
                plan = Plan(graph, tensors, index, x.device)
                if not all(map(_agree, results(plan), expected)):
                    raise RuntimeError("its results differ from those of a convolution")
                times[plan] = milliseconds(functools.partial(results, plan))
    for plan in sorted(times, key=times.__getitem__):
        if times[plan] >= limit:
            return None
        with _kept(failures):
            captured(functools.partial(results, plan), x.device)
            return plan
    if failures:
        _say_once(str(failures[0]).strip().partition("\n")[0], x.device)
    return None


_FASTEST: dict[tuple[Shape, torch.device], Plan | None] = {}


def convolve(x: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, images: int) -> Summed:
    """Return the convolution, and its sums if there is a plan; for batches of ``images``, channels-last in
    half precision."""
    if x.shape[0] == images:
        shape = Shape(x.shape, weight.shape, stride, padding, x.dtype)
        key = shape, x.device
        if key not in _FASTEST:
            _FASTEST[key] = fastest(shape, x, weight)
        plan = _FASTEST[key]
        if plan is not None:
            return plan(x, weight)
    return unsummed(x, weight, stride, padding)
