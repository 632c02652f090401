"""Two matrices side by side: equal cells are paired, and what differs by chance is not called faster."""

import io
import json

import pytest
from click.testing import CliRunner

from rn50.cli import main
from rn50.errors import UserError
from rn50.speed import throughput_sides
from rn50.terminal import Terminal
from tests.support import documented


def cell(median, precision="float32", batch=8, spread=1.0, kind="real", framework="mxnet"):
    rate = {"median": median, "lowest": median - spread, "highest": median + spread}
    names = {"framework": framework, "model": "ours", "precision": precision, "batch_size": batch, "ranks": 1}
    return {**names, "images_per_second": {kind: rate}}


def write(file, *cells):
    where = {"machine": f"machine {file.stem}", "versions": "Python 3.11", "commit": "c0ffee"}
    file.write_text(json.dumps({**where, "cells": cells}))
    return file


@pytest.fixture
def both(tmp_path):
    return (
        write(
            tmp_path / "a.json", cell(100), cell(50, "bfloat16 (auto)"), cell(10, batch=16),
            cell(7, framework="paddle")),
        write(
            tmp_path / "b.json", cell(150), cell(50.5, "bfloat16"), cell(9, batch=32),
            cell(8, kind="synthetic")))


def test_equal_cells_are_paired(both):
    sides = throughput_sides.compare(*both)
    assert sides.first == "machine a, Python 3.11, c0ffee"
    assert [
        (pair.cell.precision, pair.first, pair.second, pair.ratio, pair.apart) for pair in sides.cells
    ] == [("float32", 100, 150, 1.5, True), ("bfloat16", 50, 50.5, 1.01, False)]
    stream = io.StringIO()
    throughput_sides.show(sides, Terminal(file=stream))
    text = stream.getvalue()
    assert "1.500" in text and "1.010, rounds overlap" in text and "second: machine b" in text


def test_machines_and_sizes_of_images_are_not_mixed(tmp_path):
    one = write(tmp_path / "a.json", cell(100), {**cell(190), "nodes": 2, "hosts": "a,b"})
    other = write(
        tmp_path / "b.json", {**cell(110), "image_size": 48}, {**cell(209), "nodes": 2, "hosts": "c,d"})
    (pair,) = throughput_sides.compare(one, other).cells
    assert pair.cell.placed == "2x1" and pair.ratio == pytest.approx(1.1)


def test_the_command(both):
    done = CliRunner().invoke(main, ["bench", "throughput", "--compare", *map(str, both), "--json"])
    assert done.exit_code == 0, done.output
    assert documented.differences("bench throughput --compare", json.loads(done.output)) == []


def test_nothing_in_common_is_said(tmp_path):
    one, other = write(tmp_path / "a.json", cell(100)), write(tmp_path / "b.json", cell(100, batch=9))
    with pytest.raises(UserError, match="b.json: has no cell that .*a.json has; measure the same"):
        throughput_sides.compare(one, other)


@pytest.mark.parametrize(
    "content", ["{}", "[]", "x", json.dumps({"machine": 1, "versions": 2, "commit": 3, "cells": [{}]})]
    + [json.dumps({"machine": 1, "versions": 2, "commit": 3, "cells": [cell(rate)]}) for rate in (0, -5)])
def test_another_file_is_refused(tmp_path, content):
    one, other = write(tmp_path / "a.json", cell(100)), tmp_path / "b.json"
    other.write_text(content)
    with pytest.raises(UserError, match="^.*b.json: .*; give two files cells.json"):
        throughput_sides.compare(one, other)
    with pytest.raises(UserError, match="absent.json"):
        throughput_sides.compare(one, tmp_path / "absent.json")
