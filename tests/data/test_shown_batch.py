"""``rn50 data show``: one training batch as a picture."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from rn50 import files
from rn50.cli import main
from rn50.data import layout
from rn50.data.pipeline import dali, shown_batch
from rn50.data.pipeline.batches import BatchFormat
from rn50.settings import named
from tests.support import documented

pytest.importorskip("nvidia.dali")


def show(environment, *arguments):
    return CliRunner().invoke(main, ["data", "show", *map(str, arguments)], env=environment)


def test_it_is_the_batch_of_a_run_with_its_labels(tiny_environment, tmp_path):
    file = tmp_path / "batch.png"
    config = named.read(None, environ={**tiny_environment, "PATH": "/usr/bin:/bin"})
    drawn = shown_batch.draw(config, 1, file).labels
    images, labels = dali.build(config, "train", 0, 1, 1, BatchFormat(None, "CHW", False)).run()
    count, side = config.hyperparameters.batch_size, config.data.image_size
    assert drawn == np.asarray(labels.as_tensor())[:, 0].astype(int).tolist() and len(drawn) == count
    with Image.open(file) as picture:
        first = np.asarray(picture.crop((0, 0, side, side))).transpose(2, 0, 1)
        assert picture.info["Software"] == files.MARK
    seen = np.asarray(images.as_tensor())[0]
    assert np.abs((first - np.array([123.675, 116.28, 103.53])[:, None, None]) - seen * 57).max() < 8
    before = file.read_bytes()
    assert show(tiny_environment, "-o", file).exit_code == 0 and file.read_bytes() == before
    said = show(tiny_environment, "-o", file, "--seed", 2).output
    assert f"batch.png: {count} training images, as x = 0 to 255; the network sees (x - mean) / std," in said
    told = json.loads(show(tiny_environment, "-o", file, "--json").stdout)
    assert not documented.differences("data show", told) and told["labels"] == drawn
    assert told["class_names"] == [layout.DEMO_CLASSES[label] for label in drawn]
    show(tiny_environment, "-o", file, "--seed", 2)
    assert file.read_bytes() != before and [each.name for each in tmp_path.iterdir()] == ["batch.png"]


@pytest.mark.parametrize(
    "name, values, says",
    [("batch.jpg", {}, "batch.jpg: the name does not end in .png; give it such a name\n"),
     ("no/batch.png", {}, "batch.png: cannot be written (No such file or directory); name another file\n"),
     ("foreign.png", {}, "foreign.png: exists, and rn50 did not write it; name another file"),
     ("batch.png", {"NUMEXAMPLES": "70"}, "but NUMEXAMPLES is 70; set DATADIR to the data that are meant"),
     ("batch.png", {"DATADIR": "/nowhere"}, "/nowhere: No such file or directory; set DATADIR to")])
def test_what_cannot_be_drawn_is_said_in_a_line(tiny_environment, tmp_path, name, values, says):
    (tmp_path / "foreign.png").write_bytes(b"\x89PNG of somebody")
    done = show({**tiny_environment, **values}, "-o", tmp_path / name)
    assert done.exit_code == 2 and says in done.output and done.output.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["foreign.png"]
