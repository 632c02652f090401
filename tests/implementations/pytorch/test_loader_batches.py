"""Batches of PyTorch's DataLoader: every kind of image, the fourth channel, a process that is killed."""

import io
import multiprocessing
import signal
import types

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")

from rn50.benchmark import rules  # noqa: E402
from rn50.data import recordio  # noqa: E402
from rn50.data.pipeline.batches import BatchFormat  # noqa: E402
from rn50.errors import UserError  # noqa: E402
from rn50.run import input_library  # noqa: E402
from tests.conftest import with_changes  # noqa: E402

KINDS = [("RGB", "JPEG"), ("L", "JPEG"), ("CMYK", "JPEG"), ("RGB", "PNG")]
"""Kinds of images in ImageNet: Pillow's name of the colours, and the format of the file."""
COLOUR = (200, 100, 50)


@pytest.fixture
def opened(tiny_config, tmp_path):
    """Opens batches of four images that the library reads."""

    def encoded(mode, kind):
        file = io.BytesIO()
        Image.fromarray(np.full((50, 60, 3), COLOUR, np.uint8)).convert(mode).save(file, kind)
        return file.getvalue()

    def open_batches(library, channels=3):
        for name in ("train", "val"):
            with recordio.IndexedRecordWriter(tmp_path / name) as writer:
                for index, kind in enumerate(KINDS):
                    writer.write(index, float(index), encoded(*kind))
        config = with_changes(
            tiny_config, input_pipeline={"library": library, "threads": 1},
            data={"folder": str(tmp_path), "train_samples": len(KINDS), "eval_samples": len(KINDS)},
            hyperparameters={"batch_size": len(KINDS)})
        form = BatchFormat(None, "HWC", False, channels)
        return input_library.open_batches(config, "val", types.SimpleNamespace(rank=0, size=1), 5, form, 1)

    return open_batches


def pixels(batches):
    [batch] = batches.epoch()
    assert batch.images.is_contiguous(memory_format=torch.channels_last)
    return batch.images.clone()


def test_every_kind_of_image_is_decoded_to_the_same_colour(opened):
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in (rules.MEAN, rules.STD))
    made = pixels(opened("dataloader")) * std + mean
    grey = (124, 124, 124)  # the luminance of the colour
    for kind, image in zip(KINDS, made, strict=True):
        expected = torch.tensor(grey if "L" in kind else COLOUR).view(3, 1, 1)
        assert (image - expected).abs().max() < 3, kind  # JPEG is a level off


@pytest.mark.parametrize("library", ["dali", "dataloader"])
def test_a_fourth_channel_is_zero_and_the_others_are_as_without_it(opened, library):
    pytest.importorskip({"dali": "nvidia.dali", "dataloader": "torch"}[library])
    made = pixels(opened(library, 4))
    assert torch.equal(made[:, :3], pixels(opened(library))) and made.shape[1] == 4 and not made[:, 3].any()


def test_a_killed_process_is_named(opened):
    """Takes 5 s: PyTorch looks after its processes that often."""
    others = set(multiprocessing.active_children())
    batches = opened("dataloader")
    [process] = set(multiprocessing.active_children()) - others
    # Else PyTorch raises its error wherever the main thread is, in pytest too.
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    process.kill()
    try:
        with pytest.raises(UserError, match=r"val\.rec.*DataLoader cannot read it: .+; lower DALI_THREADS"):
            while True:
                pixels(batches)
    finally:
        signal.signal(signal.SIGCHLD, handler)


@pytest.mark.parametrize("error", [ConnectionResetError(104, "Connection reset by peer"), EOFError()])
def test_so_is_one_that_is_killed_while_it_hands_a_batch_over(opened, error):
    batches = opened("dataloader")

    def broken():
        raise error
        yield

    batches._loader = broken()
    with pytest.raises(UserError, match=r"val\.rec.*DataLoader cannot read it: (.*reset.*|EOFError); lower"):
        pixels(batches)
