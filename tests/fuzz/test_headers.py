"""What other programs leave where a run reads: headers of checkpoints, and metadata of installed packages."""

import contextlib
import io
import pathlib
import sys
import tempfile
from unittest import mock

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors import numpy as format_

from rn50.cli import group
from rn50.errors import UserError
from rn50.machine import software
from rn50.run import checkpoint
from rn50.settings.parsers import SEED
from tests.conftest import with_changes
from tests.fuzz.mutations import spoiled_bytes

TEXT = st.text(max_size=40) | st.sampled_from(
    ["", "9" * 5000, "nan", "-0", "\x1b[2J", "\ud7ff", "a\nrn50: forged"])
FACTS = st.fixed_dictionaries(
    {},
    optional={
        "epoch": TEXT | st.integers(-3, 15).map(str), "seed": TEXT | st.integers(-(2**70), 2**70).map(str),
        "precision": TEXT | st.sampled_from(["float32", "float64", "auto"]), "configuration": TEXT})


@given(facts=FACTS, missing=st.sets(st.sampled_from(["epoch", "seed", "precision"])), data=st.data())
def test_the_header_of_a_checkpoint(tiny_config, facts, missing, data):
    with tempfile.TemporaryDirectory() as folder:
        config = with_changes(
            tiny_config, hyperparameters={"num_epochs": 12, "eval_offset": 2, "eval_period": 4},
            run={"result_file": f"{folder}/result_0.txt", "resume": True, "precision": "auto"})
        header = {"configuration": config.sha256, "seed": "7", "epoch": "3", "precision": "float32", **facts}
        content = format_.save(
            {"bn0_running_var": np.ones(8, np.float32)},
            {name: value for name, value in header.items() if name not in missing})
        if data.draw(st.booleans()):
            content = data.draw(spoiled_bytes(content.decode("latin1")))
        checkpoint.path(config).write_bytes(content)
        checkpoint.peek(config)
        try:
            found = checkpoint.read(config)
        except UserError as error:
            shown = io.StringIO()
            with contextlib.redirect_stderr(shown):
                group.report(error)
            assert str(checkpoint.path(config)) in shown.getvalue() and "\x1b" not in shown.getvalue()
        else:
            assert found and 1 <= found.epoch < 11 and SEED.holds(found.seed) and found.precision == "float32"


@given(
    metadata=st.lists(
        st.binary(max_size=200) | TEXT.map(lambda text: f"Name: {text}\nVersion: {text}\n".encode())))
@example([b"Name: a\nVersion: \xff\n", b"Version: 1\n", b""])
def test_the_packages_of_a_python(metadata):
    with tempfile.TemporaryDirectory() as folder:
        for number, content in enumerate(metadata):
            place = pathlib.Path(folder, f"p{number}-1.dist-info")
            place.mkdir()
            (place / "METADATA").write_bytes(content)
        with mock.patch.object(sys, "path", [folder]):
            packages = software.packages()
        assert all(isinstance(text, str) and text for pair in packages.items() for text in pair)
