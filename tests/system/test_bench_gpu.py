"""The bench of a GPU: without one a single line, and what it measures as far as a CPU can go through it."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

from benchmarks import step_floor
from tests.conftest import HAS_GPU, ON_GPU

torch = pytest.importorskip("torch")
ROOT = pathlib.Path(__file__).resolve().parents[2]


def started(command, **environment):
    return subprocess.run(command, cwd=str(ROOT), env={**os.environ, **environment}, capture_output=True, text=True, timeout=400)


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU, and the bench of it takes long")
def test_without_a_gpu_it_is_one_line():
    done = started(["benchmarks/gpu.sh"])
    assert done.returncode == 2 and done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("bench-gpu: ") and "sees no GPU" in line and "NVIDIA driver" in line


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
def test_the_table_without_a_gpu_is_one_line(tiny_environment):
    done = started([sys.executable, "benchmarks/gpu_steps.py"], **tiny_environment)
    assert done.returncode == 2 and done.stdout == ""
    [line] = done.stderr.splitlines()
    assert "PyTorch sees no GPU here" in line


def test_a_pair_of_modes_is_measured_in_turn(tiny_environment):
    command = [sys.executable, "benchmarks/gpu_steps.py", "--worker=graph", "--seconds=2", "--rounds=2"]
    done = started(command, **{**tiny_environment, "FRAMEWORK": "pytorch"})
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert {mode: set(kinds) for mode, kinds in told.items()} == dict.fromkeys(("eager", "graph"), {"synthetic", "real"})
    assert all(len(rates) == 2 and min(rates) > 0 for kinds in told.values() for rates in kinds.values())


def test_rows_stand_beside_what_is_predicted_and_a_failure_is_a_row(tiny_environment, monkeypatch):
    spec = importlib.util.spec_from_file_location("gpu_steps", ROOT / "benchmarks" / "gpu_steps.py")
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    for name, value in tiny_environment.items():
        monkeypatch.setenv(name, value)
    rates = {"bytes": 4e12, "operations": 8e14}
    found = {"eager": {"real": [100.0, 300.0, 200.0]}, "fused": {"real": [120.0, 330.0, 260.0]}}
    [row] = bench.rows_of("fused", 16, "float16", found, rates)
    predicted = 16 / step_floor.seconds(step_floor.kernels(step_floor.BUILT, 16, "float16", 32, 10, 0.125), 4e12, 8e14)
    assert (row["predicted"], row["of_predicted"]) == (predicted, 260 / predicted)
    assert row["to_eager"]["median"] == 1.2 and row["images_per_second"]["median"] == 260
    [eager] = bench.rows_of("eager", 16, "float16", found, rates)
    assert "to_eager" not in eager and eager["predicted"] < predicted
    [failed] = bench.rows_of("compile", 16, "float16", "out of memory", rates)
    assert failed["failure"] == "out of memory" and "images_per_second" not in failed


@pytest.mark.parametrize("mode", [pytest.param("graph", marks=ON_GPU)])
def test_the_table_on_a_gpu(tiny_environment, mode):
    done = started([sys.executable, "benchmarks/gpu_steps.py", "--batches=8,16", "--precisions=float16", f"--modes={mode}",
                    "--seconds=2", "--rounds=2", "--json"], **tiny_environment)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["per_second"]["bytes"] > 1e11 and told["per_second"]["operations"] > 1e12
    assert [row["mode"] for row in told["rows"] if row["batch"] == 8] == ["eager", "eager", mode, mode]
    assert all(row["images_per_second"]["lowest"] > 0 for row in told["rows"])
