"""Operations and bytes of a training step: against PyTorch's own count, and against cases counted by hand."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from benchmarks import step_floor
from rn50.benchmark import rules

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("batch, size, width", [(2, 224, 1.0), (3, 48, 0.25), (2, 65, 1.0)])
def test_operations_are_those_that_pytorch_counts(batch, size, width):
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    from implementations.pytorch.model import ResNet50

    network = ResNet50(1000, width, False, "float32").to("meta")  # shapes alone, nothing is computed
    with FlopCounterMode(display=False) as counter:
        network.features(torch.empty(batch, 3, size, size, device="meta")).sum().backward()
    for version in step_floor.VERSIONS:
        kernels = step_floor.kernels(version, batch, "float16", size, 1000, width)
        assert step_floor.operations_and_bytes(kernels)[0] == counter.get_total_flops()


def test_it_has_all_convolutions_and_parameters():
    layers = list(step_floor.convolutions(224))
    assert len(layers) == len({each.name for each in layers}) == 53
    weights = sum(each.inputs * each.outputs * each.kernel**2 + 2 * each.outputs for each in layers)
    assert weights + 2049 * rules.CLASSES == rules.PARAMETERS
    update = next(each for each in step_floor.kernels("separate", 1, "float32") if each.kind == "update")
    assert update.bytes == 16 * 4 * rules.PARAMETERS


def test_bytes_of_casts_and_update_by_hand():
    def of_a_parameter(version):
        moved = {
            each.kind: each.bytes for each in step_floor.kernels(version, 1, "float16")
            if each.layer == "parameters"}
        return moved["casts"] / rules.PARAMETERS, moved["update"] / rules.PARAMETERS

    # the cast 4 + 2, the gradient's 2 + 4, added to another 4 + 4 + 4; set to 0 4, norms 4 + 4, divided 8,
    # decayed 12, momentum 8 + 12, weights 12
    assert of_a_parameter("fused, stem") == (6 + 6 + 12, 4 + 8 + 52)
    # the cast 4 + 2, the gradient's 2 + 4
    assert of_a_parameter("fused, half weights") == (6 + 6, 8 + 52)


def bytes_of(version, layer, precision="float16"):
    """By kind, of 10 images of 224x224."""
    return {
        each.kind: each.bytes for each in step_floor.kernels(version, 10, precision) if each.layer == layer}


def test_bytes_of_a_convolution_by_hand():
    images, activations, weights = 10 * 3 * 224 * 224, 10 * 64 * 112 * 112, 64 * 3 * 7 * 7
    found = bytes_of("separate", "conv0")
    assert found["forward"] == found["weights' gradient"] == 2 * (images + activations + weights)
    assert "inputs' gradient" not in found
    assert bytes_of("separate", "conv0", "float32")["forward"] == 2 * found["forward"]


# One pass over what stage1_unit1_conv1 gives: 10 images of 64 channels at 56x56, two bytes each.
PASS = 10 * 64 * 56 * 56 * 2
BY_HAND = [
    # statistics 1, normalise 2, ReLU 2; ReLU back 3, reduce 2, input's gradient 3
    ("separate", "stage1_unit1_conv1", 5 + 8),
    # statistics 1, normalise with ReLU 2; reduce 2, input's gradient 3
    ("fused", "stage1_unit1_conv1", 3 + 5),
    # no ReLU; four times the channels
    ("fused", "stage1_unit1_conv1sc", 4 * (3 + 5)),
    # input's gradient 3 is part of the convolution's gradients
    ("fused, one pass", "stage1_unit1_conv1", 3 + 5 - 3),
    # and the statistics of the convolution
    ("fused, statistics", "stage1_unit1_conv1", 3 + 5 - 3 - 1),
    ("fused, statistics", "stage1_unit1_conv2", 3 + 5 - 1),
]


@pytest.mark.parametrize("version, layer, passes", BY_HAND)
def test_bytes_of_a_batch_norm_by_hand(version, layer, passes):
    found = sum(
        each.bytes for each in step_floor.kernels(version, 10, "float16", cache=0)
        if each.layer == layer and each.kind == "batch norm, ReLU, sum")
    assert found == passes * PASS


def test_one_kernel_of_both_gradients_by_hand():
    # gradient, output and input read, the input's gradient written; weights read, and their gradient written
    expected = 2 * (10 * 56 * 56 * (64 + 256) * 2 + 2 * 64 * 256)
    found, before = (bytes_of(version, "stage1_unit1_conv3") for version in ("fused, one pass", "fused"))
    assert found["weights' gradient"] == expected and "inputs' gradient" not in found
    assert before["weights' gradient"] + before["inputs' gradient"] == expected
    strided = [bytes_of(version, "stage2_unit1_conv1sc") for version in ("fused, one pass", "fused, stem")]
    assert strided[0] == strided[1]


def test_bytes_of_the_end_of_a_block_by_hand():
    def passes(version, layer, **options):
        found = [
            each.bytes for each in step_floor.kernels(version, 10, "float16", **options)
            if each.layer == layer and each.kind == "batch norm, ReLU, sum"]
        return sum(found) / PASS / (4 if "stage1" in layer else 0.5)

    # statistics 1, normalise 2, sum 3, ReLU 2; ReLU back 3, reduce 2, input's gradient 3; the gradients of
    # two readers summed 3
    assert passes("separate", "stage1_unit1_conv3") == 8 + 8 + 3
    # the last one goes to the pooling alone; there 2048 channels at 7x7 are half of a pass
    assert passes("separate", "stage4_unit3_conv3") == 8 + 8
    # statistics 1, normalise with sum and ReLU 3; reduce 3, masked gradient 1, input's gradient 3; the sum of
    # two 3
    assert passes("fused", "stage1_unit1_conv3") == 4 + 7 + 3
    # the mask, a bit a value, is written and read; gradient, x and masked gradient 3, input's gradient 3; the
    # second gradient 1
    assert passes("fused, gradients", "stage1_unit1_conv3", cache=0) == 4 + 2 / 16 + 6 + 1
    assert passes("fused, gradients", "stage4_unit3_conv3", cache=0) == 4 + 2 / 16 + 6


def test_bytes_of_the_stem_by_hand():
    one = 10 * 64 * 112 * 112 * 2

    def passes(version, layer, kind):
        return (
            sum(
                each.bytes for each in step_floor.kernels(version, 10, "float16", cache=0)
                if (each.layer, each.kind) == (layer, kind))
            / one)

    last = 2 * 2048 * (7 * 7 + 1) / (64 * 112 * 112)  # of the other pooling
    # read, write a quarter with its indices of 8 bytes; the same back
    assert passes("fused", "pooling", "pooling") == pytest.approx(2 * (1 + 1 / 4 + 1) + last)
    assert passes("fused", "conv0", "batch norm, ReLU, sum") == 3 + 5
    # a quarter and its indices of one byte: written once, and read twice
    assert passes("fused, stem", "pooling", "pooling") == pytest.approx(3 * (1 / 4 + 1 / 8) + last)
    # statistics 1, forward 1; reduce 1, input's gradient 2
    assert passes("fused, stem", "conv0", "batch norm, ReLU, sum") == 2 + 3


def test_time_is_that_of_the_slower_of_memory_and_arithmetic():
    slow_memory = step_floor.Kernel("a", "forward", operations=10, bytes=100)
    slow_arithmetic = step_floor.Kernel("b", "forward", operations=100, bytes=10)
    assert step_floor.seconds([slow_memory, slow_arithmetic], 10, 20) == 10 + 5


def test_every_change_of_the_fused_kernels_moves_less_than_before_and_convolutions_could_move_least():
    moved = {
        version: step_floor.operations_and_bytes(step_floor.kernels(version, 400, "float16"))[1]
        for version in step_floor.VERSIONS}
    built = [version for version in moved if version.startswith("fused")]
    assert built[-1] == step_floor.BUILT
    found = [moved[version] for version in ("separate", *built, "in convolutions")]
    assert found == sorted(set(found), reverse=True) and moved["compiled"] < moved["separate"]


@pytest.mark.parametrize("cache, saved", [(0, 0), (PASS // 2, PASS), (10 * PASS, 3 * PASS)])
def test_a_second_pass_backwards_finds_what_the_cache_holds(cache, saved):
    # the input in the forward pass; gradient and input in the backward pass
    before, after = (
        next(
            each.bytes for each in step_floor.kernels(version, 10, "float16", cache=cache)
            if each.layer == "stage1_unit1_conv1" and each.kind == "batch norm, ReLU, sum")
        for version in ("fused", "fused, backwards"))
    assert before - after == saved


def test_the_bench_prints_it():
    def said(*options):
        command = [sys.executable, str(ROOT / "benchmarks" / "step_floor.py"), *options]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, env={**os.environ, "COLUMNS": "150"})

    rates = ("--terabytes", "4", "--teraflops", "800")
    done = said(*rates, "--batch", "100", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["version"]: row for row in json.loads(done.stdout)["versions"]}
    assert list(rows) == list(step_floor.VERSIONS)
    kernels = step_floor.kernels("fused", 100, "float16")
    assert rows["fused"]["images_per_second"] == pytest.approx(100 / step_floor.seconds(kernels, 4e12, 8e14))
    assert sum(rows["fused"]["milliseconds_by_kind"].values()) == pytest.approx(rows["fused"]["milliseconds"])
    expected = {version: row["expected_images_per_second"] for version, row in rows.items()}
    for version, value in expected.items():  # of what STEP_MODE has, at the shares that an H200 reached
        share = step_floor.SHARES.get(version)
        assert value == (share and pytest.approx(share * rows[version]["images_per_second"]))
    assert {version for version, value in expected.items() if value} == set(step_floor.SHARES)
    shown = said(*rates).stdout
    assert "separate" in shown and "norm, ReLU, sum" in shown
    assert {kind for kinds in step_floor.GROUPS.values() for kind in kinds} == set(
        rows["fused"]["milliseconds_by_kind"])
    refused = said("--terabytes", "0", "--teraflops", "1")
    assert refused.returncode == 2 and "must be greater than 0" in refused.stderr


def test_the_layers_of_one_pass_are_those_of_the_kernel():
    pytest.importorskip("triton", reason="needs Triton, which PyTorch's builds for CUDA bring")
    from implementations.pytorch.kernels import one_pass

    assert set(one_pass.SHAPES) == step_floor.ONE_PASS
