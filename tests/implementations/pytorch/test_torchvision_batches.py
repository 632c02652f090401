"""Images that torchvision decodes: those of the DataLoader with Pillow, also where the device's decoder
refuses them."""

import io
import multiprocessing
import os
import signal
import sys
import threading
import types

import cv2
import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")

from implementations.pytorch import input_library  # noqa: E402
from rn50.benchmark import rules  # noqa: E402
from rn50.data import recordio  # noqa: E402
from rn50.data.pipeline.batches import BatchFormat  # noqa: E402
from rn50.errors import UserError  # noqa: E402
from tests.conftest import ON_GPU, with_changes  # noqa: E402
from tests.support.imagenet_like import turned  # noqa: E402

SIZES = [(90, 120), (131, 70), (64, 64), (33, 200), (300, 41), (97, 89), (50, 60), (61, 53)]


def picture(width, height, channels=3):
    """Smooth colours, which chroma at half the resolution does not change much."""
    y, x = np.mgrid[:height, :width]
    waves = [128 + 100 * np.sin(x / (9 + k) + k) * np.cos(y / (12 - k)) for k in range(channels)]
    return np.stack(waves, axis=2).astype(np.uint8)


def pillow(pixels, mode, kind, **options):
    file = io.BytesIO()
    Image.fromarray(pixels, mode).save(file, kind, **options)
    return file.getvalue()


@pytest.fixture
def images():
    """One of each kind that there is in ImageNet: colour, with an EXIF orientation, grey, progressive, CMYK,
    and a PNG."""
    made = [pillow(picture(*size), "RGB", "JPEG", quality=95) for size in SIZES[:4]]
    made[3] = turned(made[3])
    made.append(pillow(picture(*SIZES[4])[:, :, 0].copy(), "L", "JPEG", quality=95))
    made.append(pillow(picture(*SIZES[5]), "RGB", "JPEG", quality=95, progressive=True))
    made.append(pillow(picture(*SIZES[6], channels=4), "CMYK", "JPEG", quality=95))
    made.append(cv2.imencode(".png", picture(*SIZES[7]))[1].tobytes())
    return made


@pytest.fixture
def opened(tiny_config, tmp_path):
    """Opens batches of 8 of the given images, whose labels are their places; on the device "thread" by a
    thread on the CPU."""

    def open_batches(images, library, split, device="cpu", channels=3):
        for name in ("train", "val"):
            with recordio.IndexedRecordWriter(tmp_path / name) as writer:
                for index, image in enumerate(images):
                    writer.write(index, float(index), image)
        data = {"folder": str(tmp_path), "train_samples": len(images), "eval_samples": len(images)}
        config = with_changes(
            tiny_config,
            run={"framework": "pytorch"},
            input_pipeline={"library": library},
            data=data,
            hyperparameters={"batch_size": 8},
        )
        communicator = types.SimpleNamespace(rank=0, size=1)
        if device == "thread":  # as on a GPU
            from implementations.pytorch.torchvision_batches import ThreadedBatches

            return ThreadedBatches(config, split, communicator, 5, BatchFormat(None, "HWC", False))
        form = BatchFormat(None if device == "cpu" else 0, "HWC", False, channels)
        return input_library.open_batches(config, split, communicator, 5, form)

    return open_batches


def grey_levels(batches, passes=3):
    """Of all images of some passes, (passes * B, 3, S, S), and their labels."""
    # Copies: the memory of a batch may be that of a later one.
    made = [
        (np.array(batch.images.cpu()), np.array(batch.labels.cpu()))
        for _ in range(passes)
        for batch in batches.epoch()
    ]
    pixels, labels = map(np.concatenate, zip(*made, strict=False))
    mean, std = (np.array(each, np.float32).reshape(1, 3, 1, 1) for each in (rules.MEAN, rules.STD))
    return pixels * std + mean, labels


def running():
    """Processes and threads that prepare batches."""
    return {
        *multiprocessing.active_children(),
        *(each for each in threading.enumerate() if each.name == "input"),
    }


@pytest.mark.parametrize("split", ["train", "val"])
# Grey levels. On a CPU exact halves may be rounded otherwise; nvJPEG enlarges chroma otherwise than libjpeg.
@pytest.mark.parametrize(
    "device, furthest, on_average",
    [("cpu", 1.01, 0.05), ("thread", 1.01, 0.05), pytest.param("cuda:0", 40, 2, marks=ON_GPU)],
)
def test_images_are_those_of_the_dataloader(opened, images, split, device, furthest, on_average):
    pytest.importorskip("torchvision")
    expected, order = grey_levels(opened(images, "dataloader", split))
    made, labels = grey_levels(opened(images, "torchvision", split, device))
    assert (labels == order).all() and set(order) == set(range(len(images)))
    errors = np.abs(made - expected).mean(axis=(1, 2, 3))
    assert np.abs(made - expected).max() < furthest and errors.max() < on_average
    assert (
        np.abs(made[:, :, :, ::-1] - expected).mean(axis=(1, 2, 3)).min() > 2 * on_average
    )  # mirrored it is something else


@pytest.mark.parametrize("library", ["dali", "dataloader", "torchvision"])
def test_a_fourth_channel_is_zero_and_the_others_are_as_without_it(opened, images, library):
    pytest.importorskip({"dali": "nvidia.dali", "dataloader": "torch"}.get(library, library))

    def pixels(channels):
        [batch] = opened(images, library, "val", channels=channels).epoch()
        assert batch.images.is_contiguous(memory_format=torch.channels_last)
        return batch.images.clone()

    made = pixels(4)
    assert torch.equal(made[:, :3], pixels(3)) and made.shape[1] == 4 and not made[:, 3].any()


@pytest.mark.parametrize("device", ["cpu", "thread"])
def test_what_the_device_refuses_is_decoded_by_pillow(opened, images, monkeypatch, capsys, device):
    torchvision = pytest.importorskip("torchvision")
    expected, _ = grey_levels(opened(images, "torchvision", "train"), passes=1)
    decode, half, asked = torchvision.io.decode_jpeg, sorted(map(len, images))[len(images) // 2], []

    def decode_small(batch, *others):
        asked.append([len(image) < half for image in batch])
        if not all(asked[-1]):
            raise RuntimeError("not in this decoder")
        return decode(batch, *others)

    monkeypatch.setattr(torchvision.io, "decode_jpeg", decode_small)
    batches = opened(images, "torchvision", "train", device)
    made, _ = grey_levels(batches, passes=1)
    assert np.abs(made - expected).max() < 1.01
    assert len(asked[0]) == len(images) - 2  # neither CMYK nor PNG
    refused = asked[0].count(False)
    assert 1 < refused < len(asked[0]) - 1
    assert sum(len(each) for each in asked if all(each)) == len(asked[0]) - refused  # each decoded once
    assert sum(each == [False] for each in asked) == refused and len(asked) < 2 * len(asked[0])
    asks, counts = capsys.readouterr().err.splitlines()
    assert asks == (
        "warning: INPUT_LIBRARY=torchvision: rank 0, train: the decoder refuses a batch (not in this "
        "decoder); such a batch is decoded in ever smaller parts, which is slow"
    )
    assert counts.endswith(
        f" 1 of 1 batches of this pass were decoded in parts, and {refused} images of them by Pillow"
    )
    grey_levels(batches, passes=1)  # the next pass counts anew
    assert capsys.readouterr().err.splitlines() == [asks, counts]


@pytest.mark.parametrize("device", ["cpu", "thread"])
def test_a_record_of_the_batch_that_nobody_decodes_is_named(opened, images, device):
    pytest.importorskip("torchvision")
    images[3] = images[3][: len(images[3]) // 2]
    for split in ("train", "val"):
        with pytest.raises(UserError, match=r"\.rec: record 3 at byte \d+ does not decode \(.*truncated"):
            grey_levels(opened(images, "torchvision", split, device))


def test_a_thread_changes_no_batch_and_a_seed_gives_the_same_ones_again(opened, images):
    pytest.importorskip("torchvision")
    expected, order = grey_levels(opened(images, "torchvision", "train"))
    for _ in range(2):
        made, labels = grey_levels(opened(images, "torchvision", "train", "thread"))
        assert (made == expected).all() and (labels == order).all()


def test_batches_of_a_thread_that_nobody_takes_are_discarded_and_no_process_stays(opened, images):
    pytest.importorskip("torchvision")
    others = running()
    batches = opened(images, "torchvision", "train", "thread")
    next(batches.epoch())
    batches.drain()
    _, (first, *_) = grey_levels(batches, passes=1)
    assert batches.wait_seconds > 0 and not batches.waiting and 0 <= first < len(images)
    assert len(running() - others) > 1
    del batches
    assert not running() - others


def test_a_killed_process_of_the_loader_is_named(opened, images):
    pytest.importorskip("torchvision")
    others = running()
    batches = opened(images, "torchvision", "train", "thread")
    processes = [each for each in running() - others if isinstance(each, multiprocessing.process.BaseProcess)]
    next(batches.epoch())
    for process in processes:
        os.kill(process.pid, signal.SIGSTOP)
        threading.Timer(1, process.kill).start()
    with pytest.raises(
        UserError, match=r"train\.rec.*DataLoader cannot read it: DataLoader worker .*; lower DALI_THREADS"
    ):
        while True:
            grey_levels(batches, passes=1)


def test_torchvision_is_named_where_it_is_missing(opened, images, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(
        UserError, match=r"^INPUT_LIBRARY=torchvision: torchvision cannot be imported .*; install"
    ):
        opened(images, "torchvision", "train")


def test_a_decoder_that_is_missing_is_found_before_the_clock_starts(tiny_config, monkeypatch):
    torchvision = pytest.importorskip("torchvision")

    def without_nvjpeg(*_):
        raise RuntimeError("torchvision not compiled with nvJPEG support\nat line 1")

    config = with_changes(
        tiny_config, run={"framework": "pytorch"}, input_pipeline={"library": "torchvision"}
    )
    input_library.prepare(config, BatchFormat(None, "HWC", False))
    monkeypatch.setattr(torchvision.io, "decode_jpeg", without_nvjpeg)
    with pytest.raises(
        UserError, match=r"^INPUT_LIBRARY=torchvision: .* does not decode on cpu \(.*support\); install"
    ):
        input_library.prepare(config, BatchFormat(None, "HWC", False))
