"""Jobs that end with their test, and what two ranks need."""

import importlib.util
import pathlib
import shutil
import socket

import pytest

from rn50.data.demo import dataset
from tests.contract.frameworks import FRAMEWORKS, installed
from tests.system.cluster import Host, Slurm, need_slurm
from tests.system.job import Job

PRECIOUS = "the result of an earlier run\n"


@pytest.fixture
def results(tmp_path):
    """A results folder that holds a result already, which must not be touched."""
    folder = tmp_path / "results"
    folder.mkdir()
    earlier = folder / "result_0.txt"
    earlier.write_text(PRECIOUS)
    yield folder
    assert earlier.read_text() == PRECIOUS


@pytest.fixture
def start(tiny_environment, results):
    """Starts a run on the tiny data set; ``start(LR="1.0")`` changes a variable. The log is ``results /
    "result_1.txt"``.

    The test is skipped where the framework is not installed.
    """
    jobs = []

    def started(**changes):
        if changes.get("FRAMEWORK", "mxnet") in FRAMEWORKS:
            installed(changes.get("FRAMEWORK", "mxnet"))
        jobs.append(Job({**tiny_environment, "RESULT_FILE": str(results / "result_1.txt"), **changes}))
        return jobs[-1]

    yield started
    for job in jobs:
        job.end()


@pytest.fixture(scope="module")
def memorised(tmp_path_factory):
    """A small data set that is its own validation set, so that a run soon reaches the target."""
    folder = tmp_path_factory.mktemp("data") / "memorised"
    dataset.generate(folder, dataset.Settings(train=40, val=10), workers=1)
    for suffix in ("rec", "idx"):
        shutil.copy(str(folder / f"train.{suffix}"), str(folder / f"val.{suffix}"))
    # These are of another validation set.
    for name in ("certificate.json", "demo_dataset.json"):
        (folder / name).unlink()
    return folder


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """Slurm on this machine alone."""
    need_slurm()
    cluster = Slurm([Host(socket.gethostname(), "127.0.0.1")], tmp_path_factory.mktemp("slurm"))
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def horovod():
    """Needed by tests of two ranks. Looked for, not imported: no framework belongs into the process of these
    tests."""
    package = importlib.util.find_spec("horovod")
    if package is None or not list(pathlib.Path(package.origin).parent.glob("mxnet/mpi_lib*.so")):
        pytest.skip("two ranks need Horovod with MXNet; 'make test-rest' builds it")


@pytest.fixture(params=["python", "horovodrun"])
def two_ranks(request):
    """The environment of two ranks that sum in shared memory, and of two of Horovod."""
    if request.param == "horovodrun":
        request.getfixturevalue("horovod")
    return {"DGXNGPU": "2", "LAUNCHER": request.param}
