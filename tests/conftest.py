"""A tiny data set, the configuration that fits it, and the order in which tests run."""

import ctypes
import dataclasses
import gc
import os
import pathlib
import re
import sys
import time

import pytest

# Before anything loads OpenMP: the runs are tiny, and threads that wait for a busy core would take many times
# as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A `make` that a test calls would take these from the `make` that runs the tests, and print its folder.
os.environ.pop("MAKEFLAGS", None)
os.environ.pop("MAKELEVEL", None)
# With it, every one of the processes that tests start would compile our modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

from rn50.data.demo import dataset
from rn50.settings import config as configuration
from tests.support import published, tiers

sys.dont_write_bytecode = False  # as above
pytest_plugins = ["tests.support.fixtures", "tests.support.left_running"]
TESTS = pathlib.Path(__file__).resolve().parent


def has_gpu() -> bool:
    """Whether there is a driver and a GPU that it offers."""
    count = ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


HAS_GPU = has_gpu()
ON_GPU = (pytest.mark.gpu, pytest.mark.skipif(not HAS_GPU, reason="needs a GPU; make test-gpu"))
"""The marks of a test, or of one case of it, that needs one."""
OPTIONAL = (
    "mlperf_logging", "nvidia", "inotify_simple", "hypothesis", "onnx", "onnxruntime", "matplotlib",
    "safetensors")
"""Packages that a machine with a GPU may lack: make test-gpu needs none of them, and make test-all installs
all."""
TRAIN_SAMPLES, EVAL_SAMPLES = 203, 57
LIGHT = "(not slow or smoke)"
"""How the choice of marks of `make test` begins."""
LEFT_OUT = pytest.StashKey[int]()
UNTIL = float(os.environ.get("TESTS_UNTIL", "inf"))
"""Seconds since the epoch. A test that would begin later fails at once: where CI is ended from outside after
90 minutes, nobody learns which fail. `.ci/run` sets it for `make test-rest` alone."""
LONGEST = (
    "system/containers/test_docker", "system/containers/test_docker_refused", "system/test_launchers",
    "system/test_faults", "system/test_terminal", "speed/test_throughput",
    "hyperparameters/test_search_workers", "hyperparameters/test_search",
    "hyperparameters/test_search_refused", "system/test_experiments", "speed/test_profile",
    "speed/test_tuning")
"""What takes longest starts first, so that no worker is left alone with it in the end."""


def pytest_configure(config):
    """Keep the order of ``pytest_collection_modifyitems``: pytest-xdist 3.7 and later would begin with the
    largest groups."""
    config.option.loadscopereorder = False
    config.stash[LEFT_OUT] = 0


def pytest_ignore_collect(collection_path, config):
    """Leave out of `make test` what none of its tests is in: such a file may import what is not installed."""
    light = config.option.markexpr.startswith(LIGHT) and collection_path.match("test_*.py")
    if not light or tiers.of(collection_path) != tiers.TEST_ALL:
        return None
    text = collection_path.read_text(encoding="utf-8")
    config.stash[LEFT_OUT] += len(re.findall(r"^def test_", text, re.MULTILINE))
    return True


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks, and pytest-xdist reads the groups
def pytest_collection_modifyitems(items):
    """Mark what is slow, order it, and group it for pytest-xdist.

    The tests of the longest files go to any worker. The others of a file go to one worker, which makes its
    fixtures once; files that share a costly fixture share a group too
    (``pytestmark = pytest.mark.xdist_group("packing")``).
    """
    ranks = {}
    for item in items:
        file = tiers.name(item.path)
        if item.get_closest_marker("published"):
            item.add_marker("slow")
            if not published.FOLDER.is_dir():
                item.add_marker(pytest.mark.skip(reason="the maintainers' own: needs the published logs"))
        if tiers.is_long(file) or tiers.is_of_another_framework(file, item.name):
            item.add_marker("slow")
        if file not in LONGEST and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(file))
        late = not item.get_closest_marker("slow") and not item.get_closest_marker("smoke")
        ranks[item] = LONGEST.index(file) if file in LONGEST else len(LONGEST) + late
        if item.get_closest_marker("minute_on_gpu"):  # Inductor compiles each kernel of the network
            ranks[item] = -1
    items.sort(key=ranks.__getitem__)


def pytest_make_parametrize_id(val):
    """Name a case after the beginning of a long text, not after megabytes of it."""
    return f"{val[:60]!r}..." if isinstance(val, str | bytes) and len(val) > 200 else None


def pytest_collection_finish():
    """Leave what was collected, millions of objects that stay, out of garbage collections."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Fail what there is no time for."""
    if time.time() > UNTIL:
        pytest.fail("NOT TESTED: no time left", pytrace=False)


def pytest_deselected(items):
    """Count what a choice of marks leaves out."""
    items[0].config.stash[LEFT_OUT] += len(items)


def pytest_sessionfinish(session):
    """Hand the count of a worker of pytest-xdist to the process that reports."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash[LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Take the count of a worker; all workers collect the same tests."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_unconfigure(config):
    """Say what `make test` leaves out, in its last line."""
    count, is_worker = config.stash[LEFT_OUT], hasattr(config, "workerinput")
    if count and not is_worker and config.option.markexpr.startswith(LIGHT):
        print(f"more than {count:,} tests of other frameworks, launchers and containers: make test-all")


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    """Skip a file that imports one of ``OPTIONAL`` where it is missing."""
    report = (yield).get_result()
    error = report.call.excinfo.value if report.failed else None
    while error is not None:
        package = str(getattr(error, "name", "")).partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and package in OPTIONAL:
            report.outcome, report.longrepr = "skipped", (str(collector.path), 0, f"Skipped: needs {package}")
            return
        error = error.__cause__


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """Say how many tests run at once: one more than cores, as some of them wait, and two more of those of
    `make test-all`, which wait longer; six at most."""
    waiting = 1 if config.option.markexpr.startswith(LIGHT) else 2
    return min(4, len(os.sched_getaffinity(0))) + waiting


PATHS_OF_CHILDREN = {name: os.environ.get(name) for name in ("PYTHONSAFEPATH", "PYTHONPATH")}


@pytest.fixture(autouse=True)
def environment_of_children_as_it_was():
    """Commands that a test, or a fixture of a module, calls in this process change what Python finds in later
    ones."""
    for name, value in PATHS_OF_CHILDREN.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """A demo data set of 203 + 57 images: neither divides by any batch size or number of ranks in use."""
    folder = tmp_path_factory.mktemp("data") / "tiny"
    dataset.generate(folder, dataset.Settings(train=TRAIN_SAMPLES, val=EVAL_SAMPLES), workers=1)
    return folder


@pytest.fixture
def tiny_environment(tiny_folder):
    """Environment variables of a run of a few seconds on ``tiny_folder``."""
    return {
        "OPTIMIZER": "lars", "BATCHSIZE": "16", "LR": "2.0", "WARMUP_EPOCHS": "1", "NUMEPOCHS": "2",
        "MOM": "0.9", "WD": "5e-5", "LARSETA": "0.001", "LABELSMOOTHING": "0.1", "EVAL_OFFSET": "0",
        "EVAL_PERIOD": "1", "BN_GAMMA_ZERO": "1", "DGXSYSTEM": "TINY", "DGXNGPU": "1", "DGXNNODES": "1",
        "DEVICE": "cpu", "PRECISION": "float32", "SUBMISSION_ORG": "test, not an MLPerf result",
        "SUBMISSION_STATUS": "research", "SEED": "7", "DATADIR": str(tiny_folder),
        "NUMEXAMPLES": str(TRAIN_SAMPLES), "NUMVALEXAMPLES": str(EVAL_SAMPLES), "NUMCLASSES": "10",
        "IMAGE_SIZE": "32", "EVAL_RESIZE": "36", "CROP_AREA_MIN": "0.3", "WIDTH": "0.125",
        "DALI_THREADS": "1", "DALI_ROI_DECODE": "1"}


@pytest.fixture
def tiny_config(tiny_environment):
    """The configuration of ``tiny_environment``."""
    return configuration.from_environment(tiny_environment)


def in_test_all(*cases):
    """Cases of a parametrisation that `make test` leaves out: they say nearly what the others say, and take
    long."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for case in cases]


def every_fourth(cases):
    """The cases of a long table, of which `make test` runs every fourth."""
    return [case if at % 4 == 0 else in_test_all(case)[0] for at, case in enumerate(cases)]


def with_changes(config, environment=None, **sections):
    """``config`` with fields of its sections replaced: ``with_changes(config, data={"folder": "x"})``; its
    environment, if one is given, wholly."""
    changed = {
        name: dataclasses.replace(getattr(config, name), **fields) for name, fields in sections.items()}
    return dataclasses.replace(
        config, environment=config.environment if environment is None else environment, **changed)
