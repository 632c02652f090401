"""The loss of the step before is read without a wait for the step that the device computes meanwhile."""

import pytest

torch = pytest.importorskip("torch")

from implementations.pytorch.look_back import LookBack  # noqa: E402
from tests.conftest import ON_GPU  # noqa: E402

LONG = 2_000_000_000
"""Cycles of a GPU, about a second."""


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=ON_GPU)])
def test_what_was_computed_before_the_mark_is_read(device):
    look_back, losses = LookBack(torch.device(device)), torch.zeros(4, device=device)
    if device != "cpu":
        torch.cuda._sleep(LONG)
    losses += 3
    look_back.mark()
    with look_back.reading():
        assert float(losses.mean()) == 3


@pytest.mark.parametrize("device", [pytest.param("cuda:0", marks=ON_GPU)])
def test_the_device_goes_on_meanwhile(device):
    look_back, losses = LookBack(torch.device(device)), torch.ones(4, device=device)
    look_back.mark()
    float(losses.mean())  # what is loaded at a first use is loaded
    torch.cuda._sleep(LONG)
    with look_back.reading():
        assert float(losses.mean()) == 1
    assert not torch.cuda.current_stream().query(), "it waited for the device"
