"""The crop kernel, and the operations in its place, against the definition: on a GPU compiled, elsewhere by
the interpreter."""

import os
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton", reason="needs Triton, which PyTorch's builds for CUDA bring")

from implementations.pytorch import crop_operations, torchvision_batches  # noqa: E402
from implementations.pytorch.input_thread import InputThread  # noqa: E402
from implementations.pytorch.kernels import crop as crop_kernel  # noqa: E402
from implementations.pytorch.torchvision_records import positions  # noqa: E402
from rn50.benchmark import rules  # noqa: E402
from rn50.data.pipeline import crops  # noqa: E402
from tests.conftest import HAS_GPU, ON_GPU  # noqa: E402

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
interpreted = pytest.mark.skipif(not INTERPRETED, reason="runs in the process of test_by_the_interpreter")
DEVICES = [pytest.param("cpu", marks=interpreted), pytest.param("cuda", marks=ON_GPU)]
MEAN, STD = (np.array(each, np.float32) for each in (rules.MEAN, rules.STD))
SIZES = [
    (1, 1),
    (1, 7),
    (300, 1),
    (2, 2),
    (3, 5),
    (37, 53),
    (131, 70),
    (64, 64),
    (33, 200),
    (301, 41),
    (224, 224),
    (500, 375),
]
"""Width and height of images: a pixel, a line, odd sides, those of an input, and one of ImageNet."""


@pytest.mark.skipif(HAS_GPU or INTERPRETED, reason="the tests of this file run here themselves")
def test_by_the_interpreter():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=500, env={**os.environ, "TRITON_INTERPRET": "1"}
    )
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr


@pytest.fixture(scope="module", params=[3, 4])
def compiled(request):
    if HAS_GPU or INTERPRETED:
        pytest.skip("where kernels run they are compiled")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = dict.fromkeys(crop_kernel._cut.arg_names, "constexpr")
    signature.update(places="*i64", windows="*fp64", mean="*fp32", std="*fp32", out="*fp16")
    constants = {
        "SIZE": 224,
        "CHANNELS": request.param,
        "ROWS": crop_kernel.ROWS,
        "VALUES": crop_kernel.VALUES,
    }
    options = {"enable_fp_fusion": False}
    return triton.compile(
        ASTSource(crop_kernel._cut, signature, constants), target=GPUTarget("cuda", 90, 32), options=options
    )


def test_it_compiles_for_an_h100(compiled):
    assert "sm_90" in compiled.asm["ptx"] and compiled.asm["cubin"]
    assert (
        compiled.metadata.shared == 0 and "bar.sync" not in compiled.asm["ptx"]
    )  # its threads do not wait for each other


def test_it_computes_as_numpy_does(compiled):
    # A multiply-add in one instruction rounds once; what was added to round must not be folded away.
    operations = [line.split()[0] for line in compiled.asm["ptx"].splitlines() if line.strip()]
    assert not [each for each in operations if each.startswith("fma")]
    assert (
        "div.rn.f32" in compiled.asm["ptx"]
        and "0f4B400000" in compiled.asm["ptx"]
        and "0fCB400000" in compiled.asm["ptx"]
    )


def images(sizes, seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(256, size=(height, width, 3), dtype=np.uint8) for width, height in sizes]


def write(cut, pixels, given, out):
    """Write the crops of the images to ``out`` (B, S, S, C)."""
    planes = [torch.tensor(each).permute(2, 0, 1).contiguous().to(out.device) for each in pixels]
    mean, std = (torch.tensor(each, device=out.device) for each in (MEAN, STD))
    windows = torch.tensor([positions(crop, out.shape[1]) for crop in given], dtype=torch.float64)
    cut(planes, torch.tensor([crop.part for crop in given]), windows, mean, std, out)


def made(cut, pixels, given, size, dtype, device, channels=3):
    """The crops of the images, without a channel of zeros; the memory around the output is left alone."""
    memory = torch.full((len(pixels) + 2, size, size, channels), 77, dtype=dtype, device=device)
    write(cut, pixels, given, memory[1:-1])
    assert (memory[0] == 77).all() and (memory[-1] == 77).all() and not memory[1:-1, ..., 3:].any()
    return memory[1:-1, ..., :3].cpu()


def expected(pixels, given, size):
    """The definition: ``crops.cut``, normalised."""
    return torch.tensor(
        np.stack([(crops.cut(*each, size) - MEAN) / STD for each in zip(pixels, given, strict=False)])
    )


def training_crops(sizes, seed):
    random = np.random.default_rng(seed)
    return [crops.training_crop(width, height, 0.05, random) for width, height in sizes]


def border_crops(sizes):
    """A pixel in a corner, half of the image at the other one, all of it mirrored."""
    made = []
    for index, (width, height) in enumerate(sizes):
        w, h = [(1, 1), ((width + 1) // 2, (height + 1) // 2), (width, height)][index % 3]
        x, y = [(width - w, 0), (width - w, height - h), (0, 0)][index % 3]
        made.append(crops.Crop((x, y, w, h), crops.Window(0, 0, w, h), index % 2 == 0))
    return made


def evaluation_crops(sizes, size, resize):
    return [crops.evaluation_crop(width, height, size, resize) for width, height in sizes]


LARGE = SIZES[-2:]
"""For outputs of many tiles, which take the interpreter long."""
CASES = {
    "training, 32": (32, training_crops(SIZES, 1)),
    "training, 33": (33, training_crops(SIZES, 2)),
    "training, 224": (224, training_crops(LARGE, 3)),
    "borders, 40": (40, border_crops(SIZES)),
    "borders, 1": (1, border_crops(SIZES)),
    "borders, 97": (97, border_crops(SIZES[-4:])),
    "evaluation, 32": (32, evaluation_crops(SIZES, 32, 36)),
    "evaluation, 224": (224, evaluation_crops(LARGE, 224, 256)),
    "beyond the image": (32, evaluation_crops(SIZES, 32, 20)),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_the_kernel_gives_what_the_definition_gives_to_the_last_bit(device, case):
    size, given = CASES[case]
    pixels = images(SIZES[-len(given) :])
    for channels in (3, 4) if size < 224 else (3,):
        found = made(crop_kernel.cut, pixels, given, size, torch.float32, device, channels)
        assert torch.equal(found, expected(pixels, given, size))


@pytest.mark.parametrize("device", DEVICES)
def test_float16_is_rounded_once(device):
    size, given = CASES["training, 33"]
    pixels = images(SIZES)
    assert torch.equal(
        made(crop_kernel.cut, pixels, given, size, torch.float16, device),
        expected(pixels, given, size).half(),
    )


@pytest.mark.parametrize("device", DEVICES)
def test_another_order_of_the_images_is_another_batch(device):
    # Each program finds its image by its own pointer.
    size, given = CASES["training, 33"]
    pixels = images(SIZES)
    turned = made(crop_kernel.cut, pixels[::-1], given[::-1], size, torch.float32, device)
    assert torch.equal(turned.flip(0), expected(pixels, given, size))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("part", [(1, 0, 3, 5), (0, 1, 3, 5), (0, 0, 4, 5), (0, 0, 3, 6)])
def test_nothing_outside_an_image_is_read(device, part):
    with pytest.raises(ValueError, match="outside its image"):
        made(
            crop_kernel.cut,
            images([(3, 5)]),
            [crops.Crop(part, crops.Window(0, 0, 3, 5), False)],
            8,
            torch.float32,
            device,
        )


@pytest.mark.skipif(HAS_GPU or INTERPRETED, reason="needs a machine on which no kernel can be compiled")
@pytest.mark.parametrize("missing", ["GPU", "triton"])
def test_where_it_cannot_be_compiled_the_operations_crop(missing, monkeypatch, capsys):
    if missing == "triton":
        monkeypatch.delitem(sys.modules, crop_kernel.__name__)
        monkeypatch.delattr(sys.modules["implementations.pytorch.kernels"], "crop")
        monkeypatch.setitem(sys.modules, "triton", None)
    torchvision_batches.cut_on.cache_clear()
    for _ in range(2):  # one warning
        assert (
            torchvision_batches.cut_on(torch.device("cuda", 0), (1, 8, 8, 4), torch.float16)
            is crop_operations.cut
        )
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "warning: INPUT_LIBRARY=torchvision: Triton cannot compile the kernel that crops ("
    )
    assert missing != "triton" or "triton" in line.partition("(")[2]


@pytest.mark.skipif(INTERPRETED, reason="needs no interpreter")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_GPU)])
@pytest.mark.parametrize("case", CASES)
def test_the_operations_give_the_same_up_to_a_rounding(device, case):
    size, given = CASES[case]
    pixels = images(SIZES[-len(given) :])
    apart = (
        made(crop_operations.cut, pixels, given, size, torch.float32, device, 4)
        - expected(pixels, given, size)
    ).abs() * STD
    assert apart.max() < 1.01 and apart.mean() < 0.05  # grey levels


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("slow", ["training", "input"])
def test_a_thread_fills_buffers_with_it_while_others_are_read(device, slow):
    sizes, size, streams = SIZES[:6], 17, torch.get_device_module(device)
    batches, given = ([made(sizes, seed) for seed in range(8)] for made in (images, training_crops))
    waiting = iter(zip(batches, given, strict=False))

    def work(name):
        if device != "cpu" and name == slow:
            torch.cuda._sleep(20_000_000)  # cycles, some 10 ms

    def fill(out, prepared):
        work("input")
        write(crop_kernel.cut, *prepared, out)

    buffers = [torch.empty(len(sizes), size, size, 3, device=device) for _ in range(3)]
    thread, read = InputThread(lambda: next(waiting), fill, buffers, torch.device(device), streams), []
    for _ in batches:
        thread.give_back()
        buffer = thread.lend(thread.wait())
        work("training")
        read.append(buffer.content.clone())
    for found, *of in zip(read, batches, given, strict=False):
        assert torch.equal(found.cpu(), expected(*of, size))


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=ON_GPU)])
def test_a_whole_batch_on_a_gpu(device):
    sizes = [(400 + 3 * index, 500 - 2 * index) for index in range(128)]
    pixels, given = images(sizes), training_crops(sizes, 4)
    found = made(crop_kernel.cut, pixels, given, 224, torch.float16, device, 4)
    assert torch.equal(found, expected(pixels, given, 224).half())
