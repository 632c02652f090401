"""Tables of a throughput matrix: the layout of published comparisons, on a terminal of 80 columns too."""

import io
import re

import pytest

from rn50.rates import Rates
from rn50.speed import throughput_tables as tables
from rn50.speed.cell import Cell, Result, Step
from rn50.speed.networks import OURS
from rn50.terminal import Terminal

WIDTH = 80


def result(
    framework, precision="float32", batch=64, ranks=1, rate=1234.0, model=OURS, failure="",
    kinds=("synthetic",),
):
    rates = {} if failure else {kind: Rates(rate, rate - 1, rate + 1) for kind in kinds}
    cell = Cell(framework, model, None, precision, batch, ranks)
    return Result(cell, rates, failure, "" if failure.startswith("not on") else f"{cell.name}.log")


def measured(results):
    return [tables.MeasuredCell(each, 32, dict.fromkeys(each.rates, 0.987), None) for each in results]


THREE = [
    result(
        framework, precision, batch, ranks,
        failure="not on a CPU" if (framework, precision) == ("paddle", "bfloat16") else "")
    for ranks in (1, 2) for framework in ("mxnet", "pytorch", "paddle")
    for precision in ("float32", "bfloat16") for batch in (32, 64)]


@pytest.fixture
def terminal():
    console = Terminal(file=io.StringIO())
    console.width = WIDTH
    return console


def lines(console):
    found = console.file.getvalue().splitlines()
    assert max(map(len, found)) <= WIDTH, "\n".join(found)
    return found


def test_rows_are_frameworks_and_columns_precision_ranks_and_batch():
    columns = tables.columns(THREE)
    assert [each.heading for each in columns[:3]] == [
        ("float32", "1 rank", "batch 32"), ("float32", "1 rank", "batch 64"),
        ("float32", "2 ranks", "batch 32")]
    assert [each.precision for each in columns] == ["float32"] * 4 + ["bfloat16"] * 4
    assert tables.overview(THREE, "synthetic", linked=True)[2] == [
        "paddle",
        *(f"[1,234](paddle_ours_float32_{batch}_{ranks}.log)" for ranks in (1, 2) for batch in (32, 64)),
        *["not on a CPU"] * 4]


def test_what_has_no_figure_is_told_in_a_word_and_what_was_not_measured_is_empty():
    results = [
        result("mxnet", kinds=("synthetic", "real")),
        result("mxnet", "bfloat16", failure="DATADIR: a long story"),
        result("mxnet", model="alexnet", rate=3.14159), result("paddle", failure="out of memory")]
    assert tables.overview(results, "synthetic") == [
        ["mxnet", "1,234", "failed"], ["mxnet alexnet", "3.1", ""], ["paddle", "out of memory", ""]]
    assert [row[0] for row in tables.overview(results, "real")] == ["mxnet", "paddle"]
    *_, rows = tables.details(measured(results), "synthetic")
    assert ["mxnet", "bfloat16", "64", "1", "", "DATADIR: a long story", ""] in rows


def test_an_overview_that_is_too_wide_becomes_tables_of_like_size(terminal):
    tables.show_overview(THREE, "synthetic", terminal)
    found = lines(terminal)
    headings = [re.findall("float32|bfloat16", line) for line in found if "float" in line]
    assert headings == [["float32"] * 4, ["bfloat16"] * 4]
    assert sum("batch 32 ┃ batch 64 ┃" in re.sub(" +", " ", line) for line in found) == 2
    assert "\n".join(found).count("1,234") == 20 and "\n".join(found).count("not on a CPU") == 4


def test_the_table_of_the_documents_fits(terminal):
    tables.show_overview([each for each in THREE if each.cell.batch_size == 64], "synthetic", terminal)
    (heading,) = [line for line in lines(terminal) if "float" in line]
    assert heading.split(" ┃ ")[1:] and re.findall(r"\w+", heading) == [
        "float32", "float32", "bfloat16", "bfloat16"]


@pytest.mark.parametrize("model", [OURS, "shufflenet_v2_x0_25"])
def test_details_fold_between_words(terminal, model):
    results = [
        each._replace(cell=each.cell._replace(model=model, precision=f"{each.cell.precision} (auto)"))
        for each in THREE]
    _, headings, rows = tables.details(measured(results), "synthetic")
    tables.show_table(headings, rows, terminal)
    text = "\n".join(lines(terminal))
    for word in (
        "framework", "precision", "batch", "ranks", "median", "lowest", "highest", "scaling", "(auto)",
        "bfloat16",
    ):
        assert re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text), text


@pytest.mark.parametrize("joules", [None, 1.5])
def test_a_step_of_every_cell_fits_in_parts_that_name_their_cells(terminal, joules):
    step = Step(0.0613, 34567.0, 0.123, 1.9876, joules)
    results = [tables.MeasuredCell(each._replace(step=step), 32, {}, 0.0012) for each in THREE[2:5]]
    _, headings, rows = tables.steps(results)
    tables.show_table(headings, rows, terminal)
    text = "\n".join(lines(terminal))
    assert text.count("mxnet") == 2 * 2 and text.count("pytorch") == 2 and "+0.0012" in text
    assert set(" ".join(headings).split()) <= set(re.findall(r"[\w/]+", text))
