"""Every kernel compiled for an H100, without a GPU: its barriers, and its loads and stores of 16 bytes."""

import os
import pathlib
import re
import subprocess
import tempfile
from typing import NamedTuple

import pytest

pytest.importorskip("torch")
triton = pytest.importorskip("triton", reason="needs Triton, which PyTorch's builds for CUDA bring")
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("compiles nothing", allow_module_level=True)

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from implementations.pytorch.kernels import block, gradients, moments, normalise, one_pass, stem, tile  # noqa: E402

HALF = {"x", "y", "shortcut", "gradient", "out", "first", "second", "g_out", "weight", "dx"}
WHOLE = {"rows", "columns", "parts", "height", "width", "out_height", "out_width"}
BYTES = {"mask", "maxima"}
FLOAT = {"momentum", "eps"}


class Counts(NamedTuple):
    """Instructions of a stretch of PTX. ``loads`` and ``stores`` are those of 16 bytes in the device's
    memory."""

    barriers: int
    loads: int
    stores: int


def compiled(kernel, constants: dict[str, object], capability: int = 90):
    """Return ``kernel`` as it is compiled for float16 where the number of columns is divisible by 16."""
    constants = {**tile.SHAPE, **constants}
    warps = constants.pop("num_warps")
    types = {
        **dict.fromkeys(HALF, "*fp16"), **dict.fromkeys(BYTES, "*u8"), **dict.fromkeys(WHOLE, "i32"),
        **dict.fromkeys(FLOAT, "fp32"), **dict.fromkeys(constants, "constexpr")}
    signature = {name: types.get(name, "*fp32") for name in kernel.arg_names}
    divisible = {
        (place,): [["tt.divisibility", 16]] for place, name in enumerate(signature)
        if signature[name].startswith("*") or name == "columns"}
    source = ASTSource(
        kernel, signature, {name: constants[name] for name in signature if name in constants}, divisible)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps})


def counts(ptx: str) -> Counts:
    """Count the instructions in ``ptx``."""
    return Counts(
        *(
            len(re.findall(pattern, ptx))
            for pattern in (r"bar\.sync|barrier", r"ld\.global\S*v4\.b32", r"st\.global\S*v4\.b32")))


def resources(kernel) -> str:
    """Return what a compiled kernel uses, in NVIDIA's words."""
    program = pathlib.Path(triton.backends.nvidia.__file__).parent / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        return subprocess.run(
            [str(program), "-res-usage", file.name], capture_output=True, text=True, check=True).stdout


def registers(kernel) -> int:
    """Return the registers of a thread of a compiled kernel."""
    return int(re.findall(r"REG:(\d+)", resources(kernel))[0])


def spilled(kernel) -> int:
    """Return the bytes that a thread of a compiled kernel keeps on its stack."""
    return int(re.findall(r"STACK:(\d+)", resources(kernel))[0])


def loop(ptx: str) -> str:
    """Return the only loop of ``ptx``: the lines from a label to the branch back to it."""
    found = [
        match[0]
        for match in re.finditer(r"^(\$L\w+):.*?\bbra(?:\.uni)?\s+\1;", ptx, re.DOTALL | re.MULTILINE)]
    assert len(found) == 1
    return found[0]


# A tile of 64 x 64 values is two loads a thread and tensor, and one of 32 x 64 is one.
LOOPS = [
    (moments.moments_of_parts, {"sums": None}, Counts(0, 2, 0)),  # x
    (moments.moments_of_parts, {}, Counts(0, 2, 0)),
    (gradients.sums_of_parts, {"RELU": True}, Counts(0, 4, 0)),  # gradient and x
    (gradients.sums_of_parts, {"RELU": False}, Counts(0, 4, 0)),
    (block.block_sums, {"TWO": False, **tile.NARROW}, Counts(0, 2, 1)),  # gradient and x; writes g
    (block.block_sums, {"TWO": True, **tile.NARROW}, Counts(0, 3, 1)),  # both gradients
    (stem.stem_sums, tile.NARROW, Counts(0, 1 + 4, 0)),  # x, and the gradient of up to four windows
]


@pytest.mark.parametrize("kernel, constants, expected", LOOPS)
def test_a_loop_has_no_barrier_and_loads_16_bytes_at_a_time(kernel, constants, expected):
    ptx = compiled(kernel, constants).asm["ptx"]
    assert "sm_90" in ptx
    inside = loop(ptx)
    assert counts(inside) == expected
    assert "shared" not in inside and "shfl" not in inside


MODULES = {
    moments.moments_of_parts: moments, gradients.sums_of_parts: gradients, block.block_sums: block,
    stem.stem_sums: stem}


@pytest.mark.parametrize("capability", [75, 80, 86, 89, 90, 100, 120])
@pytest.mark.parametrize("kernel, constants, _", LOOPS)
def test_as_many_programs_run_at_once_as_are_started(kernel, constants, _, capability):
    threads = 32 * tile.SHAPE["num_warps"] * MODULES[kernel].RESIDENT
    assert registers(compiled(kernel, constants, capability)) * threads <= 65536


# 8 columns a thread are two loads for each value of a column: mean, scale, gamma, beta and two sums.
WHOLES = [
    (normalise.normalise, {"RELU": True}, Counts(0, 2 + 8, 2)),
    (block.end_of_block, tile.NARROW, Counts(0, 2 + 8, 1)),
    (stem.stem, tile.NARROW, Counts(0, 9 + 8, 1)),  # the pixels of a window
    (stem.stem_input_gradient, tile.NARROW, Counts(0, 5 + 10, 1)),
    (gradients.input_gradient, {"RELU": True}, Counts(0, 4 + 12, 2)),
    (gradients.input_gradient, {"RELU": False}, Counts(0, 4 + 10, 2)),
]


@pytest.mark.parametrize("kernel, constants, expected", WHOLES)
def test_a_kernel_without_a_loop_has_no_barrier(kernel, constants, expected):
    assert counts(compiled(kernel, constants).asm["ptx"]) == expected


@pytest.mark.parametrize("summed", [False, True])
def test_the_kernel_of_few_bytes_compiles_too(summed):
    constants = {"PARTS": 1024, "COLUMNS": moments.COMBINED_COLUMNS, **({} if summed else {"sums": None})}
    assert compiled(moments.combine_moments, constants).asm["cubin"]


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("layer", sorted(one_pass.SHAPES), ids=str)
def test_both_gradients_use_the_matrix_units_and_load_ahead(layer, relu):
    shape = one_pass.SHAPES[layer]
    constants = {
        "RELU": relu, "C": layer[0], "K": layer[1], "ROWS": shape.rows, "COLUMNS": shape.columns,
        "STAGES": shape.stages, "num_warps": shape.warps,
    }  # fmt: skip
    made = compiled(one_pass.one_pass, constants)
    ptx = made.asm["ptx"]
    assert ptx.count("wgmma.mma_async") >= 2 and "cp.async" in ptx
    assert made.metadata.shared * shape.resident <= 227 << 10
    assert registers(made) * 32 * shape.warps * shape.resident <= 65536
    assert spilled(made) <= 16
