"""The matrix of training throughput: real jobs on the tiny set, a cell that does not fit into memory, what a user can mend."""

import json
import os
import pathlib
import resource
import subprocess
import sys

import pytest

from rn50.input.rates import Rates
from rn50.throughput import bench, job
from rn50.throughput.cell import Cell, Result
from tests.contract.frameworks import FRAMEWORKS, installed

ROOT = pathlib.Path(__file__).resolve().parents[2]


def throughput(environment, folder, *options, memory=None):
    """The command, ended; ``memory`` limits the address space of its processes, in bytes."""
    return subprocess.run(
        [sys.executable, "-m", "rn50", "bench", "throughput", "--to", str(folder), "--seconds", "1", "--rounds", "2", *options],
        cwd=str(ROOT), env={**os.environ, **environment}, capture_output=True, text=True, timeout=300,
        preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory))) if memory else None,
    )


@pytest.mark.parametrize("framework", sorted(FRAMEWORKS))
def test_every_cell_has_its_figures(tiny_environment, tmp_path, framework):
    installed(framework)
    done = throughput(tiny_environment, tmp_path / "to", "--frameworks", framework, "--ranks", "2,1", "--batch-sizes", "8,16",
                      "--published", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert [(each["ranks"], each["batch_size"]) for each in told["cells"]] == [(1, 8), (1, 16), (2, 8), (2, 16)]
    for each in told["cells"]:
        assert each["framework"] == framework and each["precision"] == "float32" and not each["failure"]
        assert set(each["images_per_second"]) == {"synthetic", "real"}
        for rate in each["images_per_second"].values():
            assert 0 < rate["lowest"] <= rate["median"] <= rate["highest"]
        assert (tmp_path / "to" / each["log"]).read_text()
    first, _, third, _ = told["cells"]
    assert first["scaling"] == {"synthetic": None, "real": None}
    expected = third["images_per_second"]["real"]["median"] / first["images_per_second"]["real"]["median"] / 2
    assert third["scaling"]["real"] == pytest.approx(expected)
    assert json.loads((tmp_path / "to" / "cells.json").read_text()) == told
    report = (tmp_path / "to" / "report.md").read_text()
    assert "demo data set, not an MLPerf result" in report and "22,690" in report
    assert all(each["log"] in report for each in told["cells"])
    assert not list((tmp_path / "to").glob("*.partial"))


def test_what_does_not_fit_into_memory_is_a_cell(tiny_environment, tmp_path):
    installed("mxnet")
    done = throughput({**tiny_environment, "IMAGE_SIZE": "1024", "EVAL_RESIZE": "1100"}, tmp_path, "--batch-sizes", "1,203",
                      "--data", "synthetic", memory=6 << 30)
    assert done.returncode == 0, done.stdout + done.stderr
    fits, does_not = json.loads((tmp_path / "cells.json").read_text())["cells"]
    assert fits["images_per_second"]["synthetic"]["median"] > 0
    assert does_not["failure"] == "out of memory" and not does_not["images_per_second"]
    assert "out of memory" in (tmp_path / "report.md").read_text() and "out of memory" in done.stdout


def test_a_cell_that_fails_is_told_and_the_others_are_measured(tiny_environment, tmp_path):
    installed("mxnet")
    (tmp_path / "data").mkdir()
    for name in ("train.rec", "train.idx", "val.rec", "val.idx"):
        (tmp_path / "data" / name).write_bytes(b"no record")
    done = throughput({**tiny_environment, "DATADIR": str(tmp_path / "data")}, tmp_path / "to", "--data", "real", "--ranks", "1")
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr
    (only,) = json.loads((tmp_path / "to" / "cells.json").read_text())["cells"]
    assert "train.idx" in only["failure"]


@pytest.mark.parametrize("options, environ, says", [
    (("--frameworks", "caffe"), {}, "'caffe' is none of mxnet, pytorch"),
    (("--batch-sizes", "8,0"), {}, "'0' is not a whole number above 0"),
    (("--batch-sizes", "9999"), {}, "BATCHSIZE=9999"),
    (("--precisions", "float16"), {}, "no CPU trains in float16"),
    ((), {"DATADIR": "/nowhere"}, "/nowhere: No such file or directory; set DATADIR"),
    (("--to", "/proc/nowhere"), {}, "/proc/nowhere: cannot be made"),
])
def test_what_a_user_can_mend(tiny_environment, tmp_path, options, environ, says):
    done = throughput({**tiny_environment, **environ}, tmp_path, *options)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())


def test_scaling_is_against_the_fewest_ranks_of_the_same(tiny_config, tmp_path):
    every = bench.matrix(["mxnet", "mxnet"], ["float32"], [8, 16], [4, 2])
    assert [(each.ranks, each.batch_size) for each in every] == [(2, 8), (2, 16), (4, 8), (4, 16)]
    of = bench.Bench(tiny_config, every, ("real",), tmp_path, "")
    rates = [{"real": Rates(rate, rate, rate)} for rate in (100, 300, 150)]
    of.results = [Result(one, rate, "", "") for one, rate in zip(every, [*rates, {}])]
    assert [of.scaling(each, "real") for each in of.results] == [None, None, 0.75, None]


@pytest.mark.parametrize("status, text, failure", [
    (1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "out of memory"),
    (134, "terminate called after throwing an instance of 'std::bad_alloc'", "out of memory"),
    (137, "rn50: the training process was killed by SIGKILL, out of memory; start the run again", "out of memory"),
    (2, "line\nrn50: DATADIR: is gone\nrn50: more", "DATADIR: is gone"),
    (139, "", "killed by SIGSEGV"),
    (3, "", "exit status 3"),
])
def test_why_there_is_no_figure(status, text, failure):
    assert job.failure(status, text) == failure


def test_names_of_cells_tell_them_apart():
    assert Cell("mxnet", "float32", 8, 1).name == "mxnet_float32_8_1"
