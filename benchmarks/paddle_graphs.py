"""Time PaddlePaddle's forward and backward pass at the demo's shape on the CPU: the dynamic graph of our runs
against to_static.

    OMP_NUM_THREADS=1 python benchmarks/paddle_graphs.py

Both sides are in one process and take turns, STEPS steps at a time. CPU time is compared, on which other load
has less influence. The last line is the median of the rounds' ratios, with the lowest and the highest.
Gradients are PaddlePaddle's own. With those of `flatten_gradients`, as a run has them, the process of a first
trial with to_static died of SIGSEGV.
"""

import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import numpy as np

from implementations.paddle import paddle
from implementations.paddle.model import ResNet50, training_loss
from rn50.terminal import say

ROUNDS, STEPS, WARM_UP = 7, 3, 3
BATCH, SIDE, CLASSES, WIDTH = 64, 48, 10, 0.25
"""As in configs/config_DEMO_CPU_PADDLE.sh."""


def in_static_graph(network: Any) -> Any:
    """Return the network as one static graph. By default to_static would cut it into several, and fail to run
    the second."""
    return paddle.jit.to_static(network, full_graph=True)


def step_of(wrapped: Callable[[Any], Any]) -> Callable[[], None]:
    """Return a forward and backward pass of ``wrapped(network)``, after some to warm up."""
    network = ResNet50(CLASSES, WIDTH, True, "float32", "NCHW")
    network.initialize(0)
    network.train()
    called, random = wrapped(network), np.random.RandomState(0)
    images = paddle.to_tensor(random.standard_normal((BATCH, 3, SIDE, SIDE)).astype(np.float32))
    labels = paddle.to_tensor(random.randint(CLASSES, size=BATCH))

    def step() -> None:
        training_loss(called, images, labels, 0.1).sum().backward()
        network.clear_gradients()

    for _ in range(WARM_UP):
        step()
    return step


def milliseconds(step: Callable[[], None]) -> float:
    """Return the CPU time of a step, the mean of STEPS."""
    begin = time.process_time()
    for _ in range(STEPS):
        step()
    return 1000 * (time.process_time() - begin) / STEPS


def main() -> None:
    steps = [step_of(wrapped) for wrapped in (lambda network: network, in_static_graph)]
    rounds = [[milliseconds(step) for step in steps] for _ in range(ROUNDS)]
    for dynamic, static in rounds:
        say(f"dynamic {dynamic:.0f} ms, to_static {static:.0f} ms")
    ratios = [dynamic / static for dynamic, static in rounds]
    say(f"dynamic / to_static {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
