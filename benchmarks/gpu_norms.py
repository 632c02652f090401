"""Time every kernel of batch norm, layer by layer, beside a copy of the same tensor: those of STEP_MODE=fused
and those of PyTorch's separate operations.

    python benchmarks/gpu_norms.py [--batch 400]

The first part has lines for each size of activation of ResNet-50 and each kind of operation that follows its
batch norm, in float16. The unit is a pass over the activation, as fast as a copy makes it: a copy makes two
passes, one that reads and one that writes. So a kernel that reads two tensors and writes one takes at least
3.0. The second part has for each convolution but the first the time of the convolution and of the kernels
that compute mean and variance of its output: "read" by kernels that read the output, and "summed" with sums
from a convolution of nvidia-cudnn-frontend, where that is faster. The last lines of both parts are
milliseconds of a whole step.
"""

import argparse
import functools
import importlib.util
import pathlib
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from benchmarks.gpu_probe import milliseconds, require_gpu
from benchmarks.step_floor import LAST, PLAIN, Convolution, convolutions
from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.terminal import say

REPEATS = 8
"""Number of calls over which the time of a kernel is averaged."""


def kernel_milliseconds(action: Callable[[], Any]) -> dict[str, float]:
    """Return the kernels that ``action`` runs: name -> mean time."""
    import torch

    from implementations.pytorch.measure import kernels

    action()  # compiles the kernels
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(REPEATS):
            action()
        torch.cuda.synchronize()
    times: defaultdict[str, float] = defaultdict(float)
    for kernel in kernels(profiler.key_averages()):
        times[short(kernel.name)] += kernel.seconds * 1e3 / REPEATS
    return dict(times)


def short(kernel: str) -> str:
    """Return a kernel's name without its C++ return type, namespaces, templates and arguments."""
    return re.sub(r"[<(].*", "", kernel.replace("(anonymous namespace)", "")).split("::")[-1].split(" ")[-1]


def step_of(normalise: Callable[..., Any], shape: Any, then: str, device: str = "cuda") -> Callable[[], None]:
    """Return a function that runs the forward and the backward pass of ``normalise`` on random activations of
    ``shape``, channels-last in float16. ``then`` is that of ``step_floor.Convolution``."""
    import torch

    def activation() -> Any:
        return torch.randn(shape, device=device).half().contiguous(memory_format=torch.channels_last)

    x, gradient = activation().requires_grad_(True), activation()
    shortcut = activation().requires_grad_(True) if then == LAST else None
    gamma, beta = (torch.ones(shape[1], device=device, requires_grad=True) for _ in range(2))
    mean, variance = (torch.ones(shape[1], device=device) for _ in range(2))
    inputs = [tensor for tensor in (x, shortcut, gamma, beta) if tensor is not None]

    def step() -> None:
        y = normalise(x, shortcut, gamma, beta, mean, variance, 0.1, 1e-5, then != PLAIN)
        torch.autograd.grad(y, inputs, gradient)

    return step


def convolution_times(layer: Convolution, batch: int) -> dict[str, dict[str, float]]:
    """Return the times of the kernels of a convolution and of mean and variance of its output: "read" by
    kernels that read the output, and "summed" with cuDNN's sums, if a plan of cuDNN is faster."""
    import torch

    from implementations.pytorch.convolution_statistics import fastest
    from implementations.pytorch.kernels.moments import moments
    from implementations.pytorch.model import plain_convolution

    def random(*size: int) -> Any:
        values = torch.randn(size, dtype=torch.float16, device="cuda")
        return values.contiguous(memory_format=torch.channels_last)

    def plain(x: Any, weight: Any) -> Any:
        return plain_convolution(x, weight, *around)[0], None

    def action(convolve: Callable[..., Any]) -> None:
        y, sums = convolve(x, weight)
        moments(y, mean, variance, 0.1, 1e-5, sums)

    x = random(batch, layer.inputs, layer.side, layer.side)
    weight = random(layer.outputs, layer.inputs, layer.kernel, layer.kernel) / 32
    mean, variance = torch.zeros(2, layer.outputs, device="cuda")
    around = layer.stride, layer.kernel // 2
    ways = {"read": plain, "summed": fastest(x, weight, *around)}
    return {name: kernel_milliseconds(functools.partial(action, way)) for name, way in ways.items() if way}


def compare_sums(batch: int) -> None:
    """Print the times of ``convolution_times`` for every convolution but the first, and their sums over a
    step."""
    totals = dict.fromkeys(("read", "summed"), 0.0)
    layers = Counter(
        layer._replace(name="", then="") for layer in convolutions(rules.IMAGE_SIZE) if layer.kernel < 7
    )
    for layer, count in layers.items():
        times = convolution_times(layer, batch)
        sums = {name: sum(kernels.values()) for name, kernels in times.items()}
        for name in totals:
            totals[name] += count * sums.get(name, sums["read"])
        sizes = f"{layer.inputs} x {layer.side} x {layer.side} to {layer.outputs}"
        say(f"{sizes}, {layer.kernel} x {layer.kernel}, stride {layer.stride}, {count} layers")
        for name, kernels in times.items():
            parts = ", ".join(f"{kernel} {value:.3f}" for kernel, value in kernels.items())
            say(f"  {name} {sums[name]:.3f} ms: {parts}")
    for name, total in totals.items():
        say(f"{name}: {total:.2f} ms a step")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--batch", type=int, default=400, help="images (400)")
    args = parser.parse_args()
    import torch

    require_gpu()
    from implementations.pytorch.fused_norm import normalise
    from implementations.pytorch.model import separate_normalise

    layers = Counter(
        (convolution.outputs, convolution.side_after, convolution.then)
        for convolution in convolutions(rules.IMAGE_SIZE)
    )
    totals: dict[str, float] = dict.fromkeys(("fused", "separate"), 0.0)
    for (channels, side, then), count in layers.items():
        shape = (args.batch, channels, side, side)
        source = torch.empty(shape, dtype=torch.float16, device="cuda")
        target = torch.empty_like(source)
        copy = milliseconds(functools.partial(target.copy_, source))
        say(f"{channels} x {side} x {side}, then {then}, {count} layers; a copy takes {copy:.3f} ms")
        for name, function in (("fused", normalise), ("separate", separate_normalise)):
            times = kernel_milliseconds(step_of(function, shape, then))
            totals[name] += count * sum(times.values())
            say(
                f"  {name} {2 * sum(times.values()) / copy:.1f}: "
                + ", ".join(f"{kernel} {2 * value / copy:.1f}" for kernel, value in times.items())
            )
    for name, total in totals.items():
        say(f"{name}: {total:.2f} ms a step")
    if importlib.util.find_spec("cudnn") is None:
        say("nvidia-cudnn-frontend is not installed: no convolution adds up its output")
    else:
        torch.backends.cudnn.benchmark = True
        with torch.no_grad():
            compare_sums(args.batch)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"rn50: {error}") from None
