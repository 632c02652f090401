"""The bench of a GPU: without one a single line, and what it measures as far as a CPU can go through it."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import weakref

import psutil
import pytest

from benchmarks import gpu_steps, step_floor
from rn50.new_config import choices
from rn50.settings import config as configuration
from tests.conftest import HAS_GPU, ON_GPU

torch = pytest.importorskip("torch")
ROOT = pathlib.Path(__file__).resolve().parents[2]


PARTS = [
    "probe", "norms", "tests", "long_tests", "data", "steps", "compile", "input", "bfloat16", "batch256",
    "throughput", "seeds"]
BY_NAME = ["bfloat16", "batch256", "throughput"]


def started(command, **environment):
    return subprocess.run(
        command, cwd=str(ROOT), env={**os.environ, **environment}, capture_output=True, text=True, timeout=400
    )


@pytest.fixture
def script(tmp_path):
    """Writes an executable of a name into a folder of its own; returns its path."""

    def write(name, *lines):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        path.chmod(0o755)
        return str(path)

    return write


@pytest.fixture
def sees_a_gpu(script):
    """Writes a Python that says it sees a GPU, and handles other calls by cases of a shell."""
    return lambda *cases: script(
        "python", 'case "$*" in', "-c*) exit 0 ;;", *cases, "esac", f'exec {sys.executable} "$@"')


def test_no_part_sets_a_variable_that_the_configuration_would_replace():
    lines = re.findall(r"limited env (.*)", (ROOT / "benchmarks" / "gpu.sh").read_text())
    given = [name for line in lines for name in re.findall(r"\b([A-Z_]+)=", line)]
    configuration = (ROOT / "configs" / "config_DEMO_GPU_PYTORCH.sh").read_text()
    assert given and not [
        name for name in given if re.search(rf"^export {name}=", configuration, re.MULTILINE)]


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU, and the bench of it takes long")
@pytest.mark.parametrize("command", [["benchmarks/gpu.sh"], ["make", "-s", "bench-gpu", "PARTS=probe,seeds"]])
def test_without_a_gpu_it_is_one_line(command):
    done = started(command)
    assert done.returncode == 2 and done.stdout == ""
    line = done.stderr.splitlines()[0]
    assert re.fullmatch(
        "bench-gpu: PyTorch of .* sees no GPU; .* NVIDIA GPU with its driver, .* pytorch-gpu", line)
    assert command[0] == "make" or done.stderr == line + "\n"


def test_without_pytorch_it_is_one_line(script):
    done = started(["benchmarks/gpu.sh"], PYTHON=script("python", "exit 1"))
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(
        "bench-gpu: .*/bin/python cannot import PyTorch; .*install.sh pytorch-gpu\n", done.stderr)


@pytest.mark.parametrize(
    "arguments, line",
    [(["--parts", "probe,step"], "there is no part step; there are probe norms tests "),
     (["--parts=probe,,data"], "there is no part without a name; there are probe "),
     (["--parts"], "--parts needs names, with commas: probe norms "),
     (["--output"], "--output needs a folder"), (["probe"], "what is probe? --help says what there is"),
     (["--parts=probe", "--all"], "what is --all? --help says what there is")])
def test_wrong_arguments_are_one_line(arguments, line):
    done = started(["benchmarks/gpu.sh", *arguments])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"bench-gpu: {line}") and done.stderr.count("\n") == 1


def test_help_names_every_part_and_its_limit():
    done = started(["benchmarks/gpu.sh", "--help"])
    assert done.returncode == 0 and "benchmarks/gpu.sh --parts probe,tests" in done.stdout
    rows = re.findall(r"^  (\w+) +(\d+)  (\w.*)", done.stdout, re.MULTILINE)
    assert [name for name, _, _ in rows] == PARTS
    assert [name for name, _, meaning in rows if meaning.endswith("(by name)")] == BY_NAME
    assert sum(int(limit) for name, limit, _ in rows if name not in BY_NAME) <= 15 * 60


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU, and the bench of it takes long")
def test_the_command_of_every_part_is_valid(sees_a_gpu, tmp_path):
    helped = sees_a_gpu(f'"-m "*) exec {sys.executable} "$@" --help ;;')
    done = started(
        ["benchmarks/gpu.sh", "--parts", ",".join(PARTS), "--output", tmp_path / "out"], PYTHON=helped,
        RESULTS=str(tmp_path / "five"))
    assert (done.returncode, done.stderr) == (1, "")
    assert re.findall(r"^=== (\w+), at most \d+ s: .", done.stdout, re.MULTILINE) == PARTS
    # Those that train get as far as a GPU; Click and pytest refuse what they do not know before they help.
    assert "\n=== failed: probe norms steps compile bfloat16 batch256 seeds; " in done.stdout
    assert done.stdout.count("rn50: bench-gpu: PyTorch sees no GPU here") == 6
    assert re.search("^rn50: GPU: no NVIDIA GPU", done.stdout, re.MULTILINE)
    assert (tmp_path / "out" / "log.txt").read_text() == done.stdout


@pytest.mark.parametrize("seconds, runs", [(0, ["1", "5"]), (250, ["1", "3"]), (500, ["1"])])
def test_as_many_seeds_run_as_there_is_time_for(sees_a_gpu, script, tmp_path, seconds, runs):
    script("timeout", "echo seeds of $NEXP")
    clock = tmp_path / "clock"  # on which whatever is waited for takes as long
    clock.write_text(
        f'wait() {{ builtin wait "$@"; local s=$?; SECONDS=$((SECONDS + {seconds})); return $s; }}')
    python = sees_a_gpu()
    path = f"{pathlib.Path(python).parent}:{os.environ['PATH']}"
    command = ["benchmarks/gpu.sh", "--parts=seeds", "-o", tmp_path / "out"]
    done = started(command, PYTHON=python, PATH=path, BASH_ENV=str(clock))
    assert done.returncode == 0 and re.findall(r"^seeds of (\d)$", done.stdout, re.MULTILINE) == runs


def test_without_names_the_parts_of_a_quarter_of_an_hour_run(sees_a_gpu, script, tmp_path):
    script("timeout", "exit 0")
    clock = tmp_path / "clock"  # on which each command takes a minute and a half
    clock.write_text('wait() { builtin wait "$@"; local s=$?; SECONDS=$((SECONDS + 90)); return $s; }')
    python = sees_a_gpu()
    path = f"{pathlib.Path(python).parent}:{os.environ['PATH']}"
    done = started(["benchmarks/gpu.sh", "-o", tmp_path], PYTHON=python, PATH=path, BASH_ENV=str(clock))
    given = re.findall(r"^=== (\w+), at most (\d+) s: ", done.stdout, re.MULTILINE)
    assert list(dict.fromkeys(name for name, _ in given)) == [name for name in PARTS if name not in BY_NAME]
    # Eight parts took 720 s; what is left is that of the seeds.
    [first, *_] = [int(limit) for name, limit in given if name == "seeds"]
    assert 900 - 8 * 90 - 60 < first <= 900 - 8 * 90


def test_the_tests_of_a_gpu_are_in_two_halves(sees_a_gpu, script, tmp_path):
    script("timeout", 'shift 2; echo "run $*"')
    python = sees_a_gpu()
    path = f"{pathlib.Path(python).parent}:{os.environ['PATH']}"
    command = ["benchmarks/gpu.sh", "--parts=tests,long_tests", "-o", tmp_path]
    done = started(command, PYTHON=python, PATH=path)
    runs = re.findall("^run .*", done.stdout, re.MULTILINE)
    assert [re.search("-m (gpu and .*?) -", run)[1] for run in runs] == [
        "gpu and not minute_on_gpu", "gpu and minute_on_gpu"]
    for run in runs:
        files = [ROOT / word for word in run.split() if word.startswith("tests/")]
        assert len(files) > 10 and all("ON_GPU" in file.read_text(encoding="utf-8") for file in files)


def test_a_part_ends_at_its_limit_and_the_next_one_runs(sees_a_gpu, script, tmp_path):
    # The real timeout, with a second for any limit.
    script("timeout", 'shift 2; exec /usr/bin/timeout --kill-after=15 1 "$@"')
    python = sees_a_gpu(
        "*gpu_probe.py) echo begun; exec sleep 60 ;;", "*gpu_norms.py) echo measured; exit 0 ;;")
    path = f"{pathlib.Path(python).parent}:{os.environ['PATH']}"
    done = started(["benchmarks/gpu.sh", "--parts=probe,norms", "-o", tmp_path], PYTHON=python, PATH=path)
    assert done.returncode == 1
    assert (
        "\nbegun\nbench-gpu: probe has reached its limit\n" in done.stdout and "\nmeasured\n" in done.stdout)
    assert re.search("^=== failed: probe; .*/log.txt has why, ", done.stdout, re.MULTILINE)


def test_ctrl_c_while_pytorch_is_imported_says_so(script, tmp_path):
    python = script("python", f"echo > {tmp_path}/begun; exec sleep 60")
    bench = subprocess.Popen(
        ["benchmarks/gpu.sh"], cwd=str(ROOT), text=True, env={**os.environ, "PYTHON": python},
        stderr=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(bench.pid, signal.SIGINT)
    assert (bench.communicate(timeout=60)[1], bench.returncode) == ("bench-gpu: stopped\n", 130)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_part_and_the_bench(sees_a_gpu, tmp_path, number):
    python = sees_a_gpu("*gpu_probe.py) exec sleep 61.5 ;;")
    bench = subprocess.Popen(
        ["benchmarks/gpu.sh", "--parts=probe,norms", "-o", str(tmp_path)], cwd=str(ROOT), text=True,
        env={**os.environ, "PYTHON": python}, stdout=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 60
    while not any(each.name() == "sleep" for each in psutil.Process(bench.pid).children(recursive=True)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(bench.pid, number)  # as a terminal does
    printed, _ = bench.communicate(timeout=60)
    assert (
        bench.returncode == 130 and "=== stopped in part probe, " in printed.splitlines()[-1]
        and "norms" not in printed)
    assert (tmp_path / "log.txt").read_text() == printed
    assert not [
        each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", "61.5"]]


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
@pytest.mark.parametrize("name", ["gpu_steps", "gpu_probe", "gpu_norms"])
def test_a_script_without_a_gpu_ends_with_one_line(tiny_environment, name):
    done = started([sys.executable, f"benchmarks/{name}.py"], **tiny_environment)
    assert done.returncode != 0
    [line] = done.stderr.splitlines()
    assert line.startswith("rn50: bench-gpu: PyTorch sees no GPU here; ")


def test_modes_are_measured_in_one_process(tiny_environment):
    command = [sys.executable, "benchmarks/gpu_steps.py", "--worker=steps", "--modes=eager,graph"]
    done = started([*command, "--seconds=1", "--rounds=2"], **{**tiny_environment, "FRAMEWORK": "pytorch"})
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert {mode: set(kinds) for mode, kinds in told.items()} == dict.fromkeys(
        ("eager", "graph"), {"synthetic", "real"})
    assert all(len(rates) == 2 and min(rates) > 0 for kinds in told.values() for rates in kinds.values())


@pytest.fixture
def environment(tiny_environment, monkeypatch):
    for name, value in tiny_environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    "fits, expected",
    [(100, ["eager graph fused"]), (40, ["eager graph", "fused"]), (16, ["eager", "graph", "fused"])])
@pytest.mark.usefixtures("environment")
def test_modes_take_turns_as_far_as_the_memory_holds_them_and_are_released(monkeypatch, fits, expected):
    class Network:
        """What a mode has in memory."""

    alive, groups = weakref.WeakSet(), []

    def by_turns(config, modes, seconds, rounds):
        assert not alive and (config.hyperparameters.batch_size, seconds, rounds) == (16, 3.0, 2)
        network = Network()
        network.itself = network  # as blocks of a network refer to each other
        alive.add(network)
        groups.append(" ".join(modes))
        return dict.fromkeys(modes, {})

    monkeypatch.setattr(gpu_steps, "most_images", lambda: fits)
    monkeypatch.setattr(gpu_steps, "measure_by_turns", by_turns)
    monkeypatch.setattr(gpu_steps.launchers, "bind", lambda *_: "")
    assert list(gpu_steps.measure(["eager", "graph", "fused"], 3.0, 2)) == ["eager", "graph", "fused"]
    assert groups == expected


@pytest.mark.parametrize(
    "gibibytes, precision, sizes",
    [(141, "float16", [256, 400]), (24, "float16", [256, None]), (24, "bfloat16", [256, None]),
     (8, "float16", [None])])
@pytest.mark.usefixtures("environment")
def test_a_batch_beyond_the_memory_becomes_what_fits(monkeypatch, gibibytes, precision, sizes):
    gpu = choices.Devices("gpu", 1, ("a GPU",), gibibytes * 1024, gibibytes * 1024, frozenset())
    monkeypatch.setattr(gpu_steps.choices, "devices", lambda machine: gpu)
    monkeypatch.setattr(gpu_steps.hardware, "read", lambda: None)
    environ = {
        **os.environ, "PRECISION": precision, "DEVICE": "gpu", "FRAMEWORK": "pytorch", "IMAGE_SIZE": "224",
        "EVAL_RESIZE": "256", "WIDTH": "1"}
    data = configuration.from_environment(environ).data
    fits = choices.fitting(gpu, "float16", data)
    found = gpu_steps.fitting("256,400", environ)
    assert found == [each or fits for each in sizes] and found[-1] <= fits


@pytest.mark.parametrize(
    "found, line",
    [({"compile": [100.0, 100.0], "fused": [107.9, 107.9]},
      "fused is 1.079 times compile (rule: 1.08): the batch-norm kernels go"),
     ({"compile": [100.0, 100.0], "fused": [108.1, 108.1]},
      "fused is 1.081 times compile (rule: 1.08): STEP_MODE=fused becomes the default"),
     ({"eager": [100.0], "fused": [120.0]}, None)])
def test_a_rule_decides_about_our_kernels(found, line):
    found = {mode: {"synthetic": values, "real": [1.0] * len(values)} for mode, values in found.items()}
    assert list(gpu_steps.verdict(found)) == ([line] if line else [])
    assert list(gpu_steps.verdict("out of memory, fused and compile")) == []


@pytest.mark.usefixtures("environment")
def test_rows_stand_beside_what_is_predicted_and_a_failure_is_a_row():
    rates = {"bytes": 4e12, "operations": 8e14}
    found = {"eager": {"real": [100.0, 300.0, 200.0]}, "fused": {"real": [120.0, 330.0, 260.0]}}
    eager, row = gpu_steps.rows_of(["eager", "fused"], 16, "float16", found, rates)
    predicted = 16 / step_floor.seconds(
        step_floor.kernels(step_floor.BUILT, 16, "float16", 32, 10, 0.125), 4e12, 8e14)
    assert (row["predicted"], row["of_predicted"]) == (predicted, 260 / predicted)
    assert gpu_steps.told(row).split() == [
        "fused", "real", "260", "120", "330", f"{predicted:,.0f}", "0.00", "1.200"]
    assert row["to_first"]["median"] == 1.2 and row["images_per_second"]["median"] == 260
    assert eager["to_first"]["median"] == 1 and eager["predicted"] < predicted
    [failed] = gpu_steps.rows_of(["compile", "fused"], 16, "float16", "out of memory", rates)
    assert gpu_steps.told(failed) == "compile,fused out of memory" and "images_per_second" not in failed


@pytest.mark.minute_on_gpu
@pytest.mark.parametrize("mode", [pytest.param("graph", marks=ON_GPU)])
def test_the_table_on_a_gpu(tiny_environment, tmp_path, mode):
    done = started(
        [sys.executable, "benchmarks/gpu_steps.py", "--batches=8,16", "--precisions=float16",
         f"--modes=eager,{mode}", "--seconds=2", "--rounds=2", "-o", str(tmp_path / "rows")],
        **tiny_environment)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert rows[0]["per_second"]["bytes"] > 1e11 and rows[0]["per_second"]["operations"] > 1e12
    assert [row["mode"] for row in rows if row["batch"] == 8] == ["eager", "eager", mode, mode]
    assert all(row["images_per_second"]["lowest"] > 0 for row in rows)
