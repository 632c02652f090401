"""The matrix of training throughput: real jobs on the tiny set, a cell that does not fit into memory, what a
user can mend."""

import json
import math
import os
import pathlib
import re
import resource
import subprocess
import sys

import pytest

from rn50 import files, frameworks
from rn50.errors import UserError
from rn50.launch import hosts
from rn50.machine import hardware
from rn50.rates import Rates
from rn50.settings import named
from rn50.speed import curve, networks, throughput, throughput_tables, worker
from rn50.speed.cell import Cell, Result, Step, joined
from rn50.speed.networks import OURS, Network
from rn50.speed.throughput_tables import MeasuredCell
from tests.contract.frameworks import installed
from tests.support import documented
from tests.system.job import configuration_file

ROOT = pathlib.Path(__file__).resolve().parents[2]


def bench_throughput(environment, folder, *options, memory=None):
    """The command, ended; ``memory`` limits the address space of its processes, in bytes."""
    return subprocess.run(
        [sys.executable, "-m", "rn50", "bench", "throughput", "-o", str(folder), "--seconds", "1",
         "--rounds", "2", *options],
        cwd=str(ROOT), env={**os.environ, **environment}, capture_output=True, text=True, timeout=300,
        preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory))) if memory else None)


def zoo_installed(framework):
    """Skips the test where the framework or its zoo is not installed."""
    installed(framework)
    try:
        networks.zoo(framework)
    except UserError as error:
        pytest.skip(str(error))


def test_every_cell_has_its_figures(tiny_environment, tmp_path):
    framework = "mxnet"  # others have theirs beside models of their zoo, below
    installed(framework)
    arguments = f"--frameworks {framework} --ranks 2,1 --batch-sizes 8,16 --json".split()
    done = bench_throughput(tiny_environment, tmp_path / "to", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall("^timing takes about [0-9]+ s from here", done.stderr, re.MULTILINE)) == 4
    told = json.loads(done.stdout)
    assert documented.differences("bench throughput", told) == []
    assert [(each["ranks"], each["batch_size"]) for each in told["cells"]] == [
        (1, 8), (1, 16), (2, 8), (2, 16)]
    for each in told["cells"]:
        assert each["framework"] == framework and each["precision"] == "float32" and not each["failure"]
        assert each["model"] == OURS and each["image_size"] == 32
        assert set(each["images_per_second"]) == {"synthetic", "real"}
        for rate in each["images_per_second"].values():
            assert 0 < rate["lowest"] <= rate["median"] <= rate["highest"]
        assert (tmp_path / "to" / each["log"]).read_text()
        step, rate = each["step"], each["images_per_second"]["synthetic"]["median"]
        assert step["seconds"] == pytest.approx(each["ranks"] * each["batch_size"] / rate)
        assert step["forward_images_per_second"] > rate and 0 < step["loss"] < 5
        assert (step["communication"] > 0) == (each["ranks"] == 2) and each["loss_to_float32"] == 0
    first, _, third, _ = told["cells"]
    assert first["scaling"] == {"synthetic": None, "real": None}
    expected = third["images_per_second"]["real"]["median"] / first["images_per_second"]["real"]["median"] / 2
    assert third["scaling"]["real"] == pytest.approx(expected)
    assert json.loads((tmp_path / "to" / "cells.json").read_text()) == {"file": files.MARK, **told}
    report = (tmp_path / "to" / "report.md").read_text()
    assert "demo data set, not an MLPerf result" in report
    assert all(each["log"] in report for each in told["cells"])
    assert "](curve.svg)" in report
    assert f"{framework} float32, 2 ranks, real data" in (tmp_path / "to" / "curve.svg").read_text()
    assert not list((tmp_path / "to").glob("*.partial"))


def test_a_precision_has_the_loss_of_its_steps_beside_its_speed(tiny_environment, tmp_path):
    """Twenty steps from the same weights on the same batch: as far from float32 as its roundings, no
    further."""
    installed("pytorch")  # MXNet's bfloat16 wants AVX-512
    asked = ("--frameworks", "pytorch", "--precisions", "float32,bfloat16", "--data", "synthetic")
    done = bench_throughput(tiny_environment, tmp_path, *asked, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    single, half = json.loads(done.stdout)["cells"]
    assert single["loss_to_float32"] == 0
    assert half["loss_to_float32"] == pytest.approx(half["step"]["loss"] - single["step"]["loss"])
    assert 0 < abs(half["loss_to_float32"]) < 0.2
    assert single["step"]["loss"] < math.log(10)  # that of guessing among ten classes
    assert "| framework | precision | batch | ranks | ms |" in (tmp_path / "report.md").read_text()


DRAWN = """
import time
from rn50.machine import power
from rn50.settings import config
from rn50.speed import cell
watch = power.Counter("watch", lambda: 50 * time.monotonic())
power.counters = lambda how: ([watch, watch._replace(is_power=True)], [])
cell.as_rank(config.from_environment(), "ours", ["synthetic"], 1, 2)
"""


def test_two_settings_alternate_and_have_their_ratio(tiny_environment, tmp_path):
    installed("mxnet")
    file, to = configuration_file(tmp_path / "config_TINY.sh", tiny_environment), tmp_path / "to"
    done = bench_throughput(
        {}, to, str(file), "--against", "BATCHSIZE=4", "--data", "synthetic", "--ranks", "1", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert documented.differences("bench throughput", told) == []
    assert told["differing"] == "BATCHSIZE: 16 -> 4"
    first, second = told["cells"]
    assert [(each["setting"], each["batch_size"]) for each in (first, second)] == [
        ("TINY", 16), ("TINY+BATCHSIZE=4", 4)]
    ratio = second["ratios"]["synthetic"]
    assert not first["ratios"] and ratio["rounds"] == 2 and not ratio["shown"]
    ours, theirs = (each["images_per_second"]["synthetic"] for each in (second, first))
    assert ours["lowest"] / theirs["highest"] <= ratio["lowest"] <= ratio["median"] <= ratio["highest"]
    assert ratio["highest"] <= ours["highest"] / theirs["lowest"]
    # A B, B A: the log of the first, which every job of it writes anew, is the younger one.
    ages = [(to / each["log"]).stat().st_mtime_ns for each in (first, second)]
    assert ages[0] > ages[1]
    report = (to / "report.md").read_text()
    assert "- differing: BATCHSIZE: 16 -> 4" in report
    assert "- mxnet TINY+BATCHSIZE=4, float32, 1 rank, batch 4, synthetic data: " in report


def test_a_side_that_fails_has_no_ratio_and_the_other_its_rates():
    cell = Cell("mxnet", OURS, None, "float32", 8, 1)
    good, slow = (Result(cell, {"real": Rates(rate, rate, rate)}, "", "log") for rate in (100, 80))
    bad = Result(cell, {}, worker.OUT_OF_MEMORY, "log")
    first, both = [good, slow, good], [slow, slow, slow]
    assert joined(first, first).rates == {"real": (100, 80, 100)} and joined(first, first).ratios == {}
    assert joined(both, first).ratios["real"][:4] == (0.8, 0.8, 1.0, 3)
    assert joined([bad], first) == bad and joined(both, [good, bad]).ratios == {}


def test_images_a_joule_are_of_the_counted_energy(tiny_environment):
    """The counter counts 50 J a second; readings of power, which say nothing of the time between them, are
    left out."""
    installed("mxnet")
    environment = {**os.environ, **tiny_environment, "POWER": "auto"}
    done = subprocess.run([sys.executable, "-c", DRAWN], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.split("rn50 measured ")[1])
    step = Step(*told["step"])
    assert step.images_per_joule == pytest.approx(sum(told["images_per_second"]["synthetic"]) / 2 / 50, 1e-3)
    cell = Cell("mxnet", OURS, None, "float32", 8, 1)
    _, headings, (row,) = throughput_tables.steps(
        [MeasuredCell(Result(cell, {}, "", "", step), 32, {}, None)])
    assert headings[-1] == "img/s/W" and float(row[-1]) == pytest.approx(step.images_per_joule, 0.01)
    unmeasured = Result(cell, {}, "", "", step._replace(images_per_joule=None))
    _, headings, (row,) = throughput_tables.steps([MeasuredCell(unmeasured, 32, {}, None)])
    assert len(headings) == len(row) == 9


@pytest.mark.parametrize("framework", ["paddle", "pytorch"])  # MXNet's are in the next test
def test_models_of_the_zoo_stand_beside_ours(tiny_environment, tmp_path, framework):
    zoo_installed(framework)
    done = bench_throughput(
        tiny_environment, tmp_path, "--frameworks", framework, "--models", "ours,SqueezeNet1.1",
        "--batch-sizes", "4,2")
    assert done.returncode == 0, done.stdout + done.stderr
    cells = json.loads((tmp_path / "cells.json").read_text())["cells"]
    shown = [
        (each["model"], each["image_size"], each["batch_size"], sorted(each["images_per_second"]))
        for each in cells]
    assert shown == [
        (OURS, 32, 4, ["real", "synthetic"]), (OURS, 32, 2, ["real", "synthetic"]),
        ("squeezenet1_1", 224, 4, ["synthetic"]), ("squeezenet1_1", 224, 2, ["synthetic"])]
    report, picture = (tmp_path / "report.md").read_text(), (tmp_path / "curve.svg").read_text()
    assert f"squeezenet1_1 of {framework} 224x224" in report and f"| {framework} squeezenet1_1 |" in report
    assert picture.endswith("</svg>\n") and f"{framework} squeezenet1_1 float32, synthetic data" in picture
    assert "squeezenet1_1 float32, real data" not in picture


def test_sizes_of_the_images_are_rows_of_one_table_on_synthetic_and_real_data(tiny_environment, tmp_path):
    installed("pytorch")
    of_run = {"FRAMEWORK": "pytorch", "IMAGE_SIZES": "32:1", "SUBMISSION_DIVISION": "open"}
    environment = {**tiny_environment, **of_run}
    done = bench_throughput(environment, tmp_path, "--image-sizes", "40,64", "--batch-sizes", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    cells = json.loads((tmp_path / "cells.json").read_text())["cells"]
    assert [(each["image_size"], sorted(each["images_per_second"]), each["log"]) for each in cells] == [
        (size, ["real", "synthetic"], f"pytorch_ours_{size}_float32_4_1.log") for size in (40, 64)]
    rows = [line for line in done.stdout.splitlines() if re.search("pytorch (40x40|64x64) ", line)]
    assert len(rows) == 2 * 5  # an overview and details of each kind of data, and the steps
    report, picture = (tmp_path / "report.md").read_text(), (tmp_path / "curve.svg").read_text()
    assert "40x40, 64x64, 10 classes" in report and "pytorch 64x64 float32, real data" in picture


def test_without_a_list_the_sizes_are_those_of_the_epochs():
    (small, large) = networks.networks(["pytorch"], [OURS], [96, 160])
    assert (small, large) == (("pytorch", OURS, 96), ("pytorch", OURS, 160))
    (cell,) = throughput.matrix([large], ["float16"], [8], [1])
    config = named.read("H200_OPEN", environ={}).replaced(**cell.variables)
    assert config.image_sizes == [160] and config.hyperparameters.blur_pool


def test_two_settings_of_different_sizes_are_no_pair(tiny_environment, tmp_path):
    installed("pytorch")
    environment = {**tiny_environment, "FRAMEWORK": "pytorch", "SUBMISSION_DIVISION": "open"}
    file = configuration_file(tmp_path / "config_TINY.sh", environment)
    done = bench_throughput({}, tmp_path, str(file), "--against", "IMAGE_SIZES=32:1", "--data", "synthetic")
    assert done.returncode == 2 and "--against: the two train with images of different sizes" in done.stderr


def test_the_precision_that_auto_became_is_told(tiny_environment, tmp_path):
    zoo_installed("mxnet")
    done = bench_throughput(
        {**tiny_environment, "PRECISION": "auto"}, tmp_path, "--models", "ours,squeezenet1.1",
        "--batch-sizes", "4", "--data", "synthetic")
    assert done.returncode == 0, done.stdout + done.stderr
    for each in json.loads((tmp_path / "cells.json").read_text())["cells"]:
        taken = each["precision"].split()[0]
        assert each["precision"] == f"{taken} (auto)" and taken in ("float32", "bfloat16")
        assert f"PRECISION=auto is {taken}: " in (tmp_path / each["log"]).read_text()
        named = "mxnet" if each["model"] == OURS else f"mxnet {each['model']}"
        assert f"| {named} | {taken} (auto) |" in (tmp_path / "report.md").read_text()


@pytest.mark.skipif(
    not frameworks.traits("mxnet").bfloat16_flags <= hardware.cpu_flags(),
    reason="MXNet computes in bfloat16 with AVX-512 alone")
def test_a_precision_that_one_framework_lacks_is_a_cell(tiny_environment, tmp_path):
    installed("mxnet"), installed("paddle")
    done = bench_throughput(
        tiny_environment, tmp_path, "--frameworks", "mxnet,paddle", "--precisions", "float32,bfloat16",
        "--data", "synthetic")
    assert done.returncode == 0, done.stdout + done.stderr
    cells = json.loads((tmp_path / "cells.json").read_text())["cells"]
    assert [(each["framework"], each["precision"], each["failure"]) for each in cells] == [
        ("mxnet", "float32", ""), ("mxnet", "bfloat16", ""), ("paddle", "float32", ""),
        ("paddle", "bfloat16", "not on a CPU")]
    assert cells[3]["log"] == "" and not cells[3]["images_per_second"]
    assert len(list(tmp_path.glob("*.log"))) == 3
    report = (tmp_path / "report.md").read_text()
    assert "| framework | float32, 1 rank, batch 16 | bfloat16, 1 rank, batch 16 |" in report
    assert re.search(
        r"^\| paddle \| \[[\d.]+\]\(paddle_ours_float32_16_1.log\) \| not on a CPU \|$", report, re.MULTILINE)
    assert "not on a CPU" in done.stdout


def test_what_does_not_fit_into_memory_is_a_cell(tiny_environment, tmp_path):
    installed("mxnet")
    done = bench_throughput(
        {**tiny_environment, "IMAGE_SIZE": "1024", "EVAL_RESIZE": "1100"}, tmp_path, "--batch-sizes", "1,203",
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
        (tmp_path / "data" / name).write_bytes(b"no record" * 200)
    environment = {**tiny_environment, "DATADIR": str(tmp_path / "data")}
    done = bench_throughput(environment, tmp_path / "to", "--data", "real", "--ranks", "1")
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr
    (only,) = json.loads((tmp_path / "to" / "cells.json").read_text())["cells"]
    assert "train.idx" in only["failure"]


@pytest.mark.parametrize(
    "options, environ, says",
    [(("--frameworks", "caffe"), {}, "'caffe' is none of mxnet, paddle, pytorch"),
     (("--batch-sizes", "8,0"), {}, "0 is not in the range 1 to 1,000,000"),
     (("--batch-sizes", "9999"), {}, "BATCHSIZE=9999"),
     (("--precisions", "float16"), {}, "with FRAMEWORK=mxnet and DEVICE=cpu PRECISION is auto or float32"),
     (("--precisions", "float32,float16"), {},
      "with FRAMEWORK=mxnet and DEVICE=cpu PRECISION is auto or float32"),
     (("--frameworks", "mxnet,paddle", "--precisions", "float16"), {},
      "--precisions: float16 on a CPU is in none of mxnet, paddle; they have float32, bfloat16"),
     (("--frameworks", "paddle", "--precisions", "bfloat16"), {},
      "with FRAMEWORK=paddle and DEVICE=cpu PRECISION is auto or float32"),
     (("--models", "ours,alexnit"), {},
      "alexnit is in the zoo of none of mxnet; names that are close: alexnet"),
     (("--models", "???"), {}, "there are alexnet, densenet121"),
     (("--models", "ours,alexnet", "--data", "real"), {},
      "alexnet trains on synthetic data alone; add synthetic to --data"),
     (("--nodes", "1,3"), {"HOSTS": "a,b"}, "names 2 machines, DGXNNODES=3; make them agree"),
     (("--nodes", "2"), {},
      "DGXNNODES=2: on which machines? Set HOSTS, for example HOSTS=host1:1,host2:1"),
     (("DEMO_CPU", "--against", "BATCHSIZE=4", "--batch-sizes", "8", "--data", "synthetic"), {},
      "--against: the same values on both sides; leave out the lists that set its values"),
     (("DEMO_CPU", "--against", "DEMO_CPU"), {}, "--against DEMO_CPU: has every value that DEMO_CPU has"),
     ((), {"DATADIR": "/nowhere"}, "/nowhere: No such file or directory; set DATADIR"),
     (("-o", "/proc/nowhere"), {}, "/proc/nowhere: cannot be made")])
def test_what_a_user_can_mend(tiny_environment, tmp_path, options, environ, says):
    pytest.importorskip("implementations.mxnet")
    done = bench_throughput({**tiny_environment, **environ}, tmp_path, *options)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert done.stderr.splitlines()[-1].startswith(("rn50: ", "Error: ")) and not done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [throughput.REPORT, throughput.PLAIN, throughput.CURVE])
def test_a_file_of_somebody_else_is_found_before_anything_is_measured(tiny_config, tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(UserError, match=f"{name}: exists, and rn50 did not write it; give another --output"):
        throughput.Bench(tiny_config, [], ("real",), tmp_path, "")


def test_scaling_is_against_the_fewest_ranks_of_the_same(tiny_config, tmp_path):
    every = throughput.matrix([Network("mxnet", OURS, None)] * 2, ["float32"], [8, 16], [4, 2])
    assert [(each.ranks, each.batch_size) for each in every] == [(2, 8), (2, 16), (4, 8), (4, 16)]
    of = throughput.Bench(tiny_config, every, ("real",), tmp_path, "")
    rates = [{"real": Rates(rate, rate, rate)} for rate in (100, 300, 150)]
    of.results = [Result(one, rate, "", "") for one, rate in zip(every, [*rates, {}], strict=False)]
    assert [each.scaling.get("real") for each in of.measured] == [None, None, 0.75, None]


def test_machines_are_cells(tiny_config, tmp_path):
    """Of as many ranks those of fewer machines come first."""
    machines = hosts.first_of(tiny_config.replaced(HOSTS="a:2,b:2,c", DGXNGPU=2), (1, 3))
    every = throughput.matrix([Network("mxnet", OURS, None)], ["float32"], [8], [3, 1], machines)
    assert [(each.placed, each.hosts) for each in every] == [
        ("1", None), ("3", None), ("3x1", "a,b,c"), ("3x3", "a,b,c")]
    assert every[3].variables.items() >= {"DGXNNODES": 3, "HOSTS": "a,b,c", "DGXNGPU": 3}.items()
    assert len({each.name for each in every}) == 4
    of = throughput.Bench(tiny_config, every, ("real",), tmp_path, "")
    rates = [{"real": Rates(rate, rate, rate)} for rate in (100, 270, 240, 630)]
    of.results = [Result(one, rate, "", "") for one, rate in zip(every, rates, strict=True)]
    scalings = [each.scaling["real"] for each in of.measured]
    assert scalings == [None, pytest.approx(0.9), pytest.approx(0.8), pytest.approx(0.7)]
    headings = [column.heading[1] for column in throughput_tables.columns(of.results)]
    assert headings == ["1 rank", "3 ranks", "3x1 ranks", "3x3 ranks"]


@pytest.mark.parametrize(
    "status, text, failure",
    [(1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "out of memory"),
     (134, "terminate called after throwing an instance of 'std::bad_alloc'", "out of memory"),
     (137, "rn50: the training process was killed by SIGKILL, out of memory; start the run again",
      "out of memory"),
     (2, "line\nrn50: DATADIR: is gone\nrn50: more", "DATADIR: is gone"), (139, "", "killed by SIGSEGV"),
     (3, "", "exit status 3")])
def test_why_there_is_no_figure(status, text, failure):
    assert worker.failure(status, text) == failure


def test_names_of_cells_tell_them_apart():
    assert Cell("mxnet", "alexnet", 224, "float32", 8, 1).name == "mxnet_alexnet_float32_8_1"


def test_a_model_is_trained_by_the_frameworks_whose_zoo_has_it(monkeypatch):
    zoos = {
        "mxnet": {"inception_v3": 299, "resnet50_v1": 224}, "pytorch": {"inception_v3": 300, "resnet50": 224}}
    monkeypatch.setattr(networks, "zoo", zoos.__getitem__)
    assert networks.networks(["mxnet", "pytorch"], [OURS, "InceptionV3", "resnet50"]) == [
        ("mxnet", OURS, None), ("mxnet", "inception_v3", 299), ("pytorch", OURS, None),
        ("pytorch", "inception_v3", 300), ("pytorch", "resnet50", 224)]
    with pytest.raises(
        UserError, match="resnet50v is in the zoo of none of mxnet, pytorch; .* resnet50_v1, resnet50"
    ):
        networks.networks(["mxnet", "pytorch"], ["resnet50v"])


def test_without_a_zoo_no_framework_is_imported(monkeypatch):
    monkeypatch.setattr(networks, "zoo", None)
    assert networks.networks(["mxnet"], [OURS]) == [("mxnet", OURS, None)]


def test_a_curve_for_each_framework_model_precision_and_kind_of_data():
    def result(model, batch, ranks, **rates):
        return Result(
            Cell("mxnet", model, None, "float32", batch, ranks),
            {k: Rates(v, v, v) for k, v in rates.items()}, "", "")

    several = [
        result(OURS, 16, 1, synthetic=30, real=20), result(OURS, 8, 1, synthetic=10),
        result("alexnet", 8, 1, synthetic=5)]
    assert curve.lines([*several, result(OURS, 32, 1)]) == {
        ("mxnet float32", "synthetic"): [(8, 10), (16, 30)], ("mxnet float32", "real"): [(16, 20)],
        ("mxnet alexnet float32", "synthetic"): [(8, 5)]}
    assert ("mxnet float32, 2 ranks", "real") in curve.lines([*several, result(OURS, 8, 2, real=1)])
    assert b"alexnet" in curve.draw(several) and curve.draw(several) == curve.draw(several)
    assert curve.draw([result(OURS, 8, 1)]).endswith(b"</svg>\n")  # nothing fitted into memory
