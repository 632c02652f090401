"""What PyTorch's profiler told is counted once."""

import functools

import pytest

torch = pytest.importorskip("torch")

from torch.autograd import DeviceType  # noqa: E402
from torch.autograd.profiler_util import EventList, FunctionEvent  # noqa: E402

from implementations.pytorch import communicator, device, engine, measure, zoo  # noqa: E402
from rn50.errors import UserError  # noqa: E402
from rn50.run import communicators  # noqa: E402
from rn50.run.loop import Rank  # noqa: E402
from rn50.speed import measured_steps  # noqa: E402
from rn50.speed.measured_steps import Operator  # noqa: E402
from tests.conftest import ON_GPU, with_changes  # noqa: E402

CONVOLUTION, ADDITION, IN_A_GRAPH = "sm90_xmma_fprop", "vectorized_elementwise_kernel", "triton_red_fused"


def event(name, start_us, end_us, device=DeviceType.CPU, annotation=False):
    return FunctionEvent(
        id=0, name=name, thread=1, start_us=start_us, end_us=end_us, use_device="cuda", device_type=device,
        is_user_annotation=annotation, stack=[])


@pytest.fixture
def averages():
    """Two operators that start a kernel each, one within another operator, twice; a CUDA graph of one kernel;
    an annotation."""
    events = []
    for begin in (0, 1000):
        outer = event("aten::convolution", begin, begin + 50)
        inner = event("aten::cudnn_convolution", begin + 5, begin + 40)
        inner.append_kernel(CONVOLUTION, 0, 300)
        addition = event("aten::add_", begin + 60, begin + 70)
        addition.append_kernel(ADDITION, 0, 100)
        events += [
            outer, inner, addition, event("cudaGraphLaunch", begin + 80, begin + 85),
            event("a step", begin, begin + 90), event(CONVOLUTION, begin + 100, begin + 400, DeviceType.CUDA),
            event(ADDITION, begin + 400, begin + 500, DeviceType.CUDA),
            event(IN_A_GRAPH, begin + 500, begin + 650, DeviceType.CUDA),
            event("a step", begin + 100, begin + 650, DeviceType.CUDA, annotation=True)]
    made = EventList(events, use_device="cuda")
    made._build_tree()
    return made.key_averages()


def test_every_kernel_of_a_gpu_is_counted_once(averages):
    assert sum(each.self_device_time_total for each in averages) == 2 * (2 * 300 + 2 * 100 + 150 + 550), (
        "not to be summed")
    expected = {
        Operator(CONVOLUTION, 2, 600e-6), Operator(ADDITION, 2, 200e-6), Operator(IN_A_GRAPH, 2, 300e-6)}
    assert set(measure.kernels(averages)) == expected


def test_operators_on_a_cpu_are_without_those_they_call(averages):
    told = {each.name: each for each in measure.operators(averages)}
    assert told["aten::convolution"] == Operator("aten::convolution", 2, pytest.approx(30e-6))
    assert told["aten::cudnn_convolution"].seconds == pytest.approx(70e-6) and CONVOLUTION not in told


@pytest.mark.parametrize("mode", [pytest.param(mode, marks=ON_GPU) for mode in ("eager", "graph")])
def test_the_kernels_of_a_stream_take_no_longer_than_the_steps(tiny_config, tmp_path, mode):
    config = with_changes(
        tiny_config, run={"framework": "pytorch", "device": "gpu", "step_mode": mode, "precision": "float16"})
    rank = Rank(config)
    rank.warm_up(5)
    result, kernels = measured_steps.profile(rank, rank.synthetic(), 4, tmp_path / "trace.json")
    assert 0 < sum(each.seconds for each in kernels) <= result.seconds
    assert not [each for each in kernels if each.name.startswith("aten::")]
    rank.close()


@pytest.mark.parametrize(
    "precision, model, channels",
    [("auto", None, 4), ("bfloat16", None, 4), ("float32", None, 3), ("float16", "resnet50", 3)])
def test_our_network_takes_four_channels_on_a_gpu_in_half_precision(
    tiny_config, monkeypatch, precision, model, channels
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_80", "sm_90a", "compute_120"])
    monkeypatch.setattr(engine, "LookBack", lambda device: None)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    config = with_changes(tiny_config, run={"device": "gpu", "precision": precision})
    create = functools.partial(zoo.ZooEngine, model=model) if model else engine.PytorchEngine
    made = create(config, communicators.SingleProcess())
    assert made.batch_format.channels == channels


def test_an_old_driver_is_named_before_the_ranks_connect(tiny_config, monkeypatch):
    def init():
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 12020).\nUpdate it.")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "init", init)
    monkeypatch.setattr(communicator, "Distributed", lambda *_: pytest.fail("connects"))
    config = with_changes(tiny_config, run={"framework": "pytorch", "device": "gpu", "ranks_per_node": 2})
    with pytest.raises(
        UserError, match=r"^DEVICE=gpu: The NVIDIA driver .* too old .*; rn50 doctor says which"
    ):
        communicators.connect(config)


@pytest.mark.parametrize(
    "capability, taken", [((7, 0), False), ((8, 6), True), ((12, 1), True), ((10, 0), False)])
def test_the_installed_pytorch_is_asked_for_its_code(tiny_config, monkeypatch, capability, taken):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: capability)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_80", "sm_90a", "compute_120"])
    config = with_changes(tiny_config, run={"framework": "pytorch", "device": "gpu"})
    if taken:
        device.of_rank(config, 0)
        return
    with pytest.raises(
        UserError, match="PyTorch has code for compute capability 8.0 9.0 and newer, this GPU has"
    ):
        device.of_rank(config, 0)
