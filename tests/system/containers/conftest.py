"""Real engines, the image that ``make image`` builds on a bare Debian, and ``run_with_docker.sh`` as a user
types it."""

import functools
import http.server
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

import pytest

from tests.system.containers import engines
from tests.system.job import ROOT, Job, configuration_file


@pytest.fixture(scope="session", params=["docker", "podman"])
def engine(request):
    """An engine that answers."""
    reason = engines.refusal(request.param)
    if reason:
        pytest.skip(reason)
    return request.param


@pytest.fixture(scope="session")
def image(engine, tmp_path_factory):
    """The image with MXNet for CPUs, built by ``make image`` on a base that is made here, without a registry.

    Docker builds all of it. Podman takes what is long to build, all but the last stage, from docker, where
    there is one.
    """
    stage, tag, program = "mxnet-cpu", "rn50-test:mxnet-cpu", None
    if engine == "podman" and engines.refusal("docker") is None:
        engines.make_base("docker")
        folder = tmp_path_factory.mktemp("engines")
        ready = {target: f"{tag}-{target}" for target in ("unchecked", "check")}
        for target, name in ready.items():
            only = engines.wrapper(folder / target, "docker", f"--target={target}")
            engines.make_image("docker", stage, name, only)
        engines.hand_over(*ready.values())
        contexts = (
            f"--build-context={target}=container-image://localhost/{name}" for target, name in ready.items())
        program = engines.wrapper(folder / "podman", "podman", " ".join(contexts))
    else:
        engines.make_base(engine)
    engines.make_image(engine, stage, tag, program)
    return tag


@pytest.fixture(scope="session")
def pytorch_index(tmp_path_factory):
    """The address of an index of this machine that has PyTorch's build for CPUs, as a user names PyTorch's
    own one."""
    pinned = re.search(r"^torch==\S+", (ROOT / "requirements/pytorch-cpu.txt").read_text(), re.MULTILINE)
    folder = tmp_path_factory.mktemp("index")
    download = [
        sys.executable, "-m", "pip", "--quiet", "download", "--no-deps",
        f"--dest={folder / 'simple' / 'torch'}"]
    asked = subprocess.run([*download, pinned[0]], capture_output=True, text=True)
    if asked.returncode:
        pytest.skip(f"no build of PyTorch for CPUs: {asked.stderr.strip()[-200:]}")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", engines.INDEX_PORT), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()


@pytest.fixture(scope="session")
def pytorch_image(engine, pytorch_index):
    """The image of PyTorch for CPUs."""
    tag = "rn50-test:pytorch-cpu"
    engines.make_base(engine)
    engines.make_image(engine, "pytorch-cpu", tag, PIP_EXTRA_INDEX_URL=pytorch_index)
    return tag


@pytest.fixture
def checkout(tiny_environment):
    """What the script needs of the repository, where everybody may read it, and a system TINY."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        shutil.copytree(str(ROOT / "configs"), str(folder / "configs"))
        shutil.copytree(tiny_environment.pop("DATADIR"), str(folder / "data"))
        for script in (engines.SCRIPT, "run_experiments.sh"):
            shutil.copy(str(ROOT / script), name)
        del tiny_environment["SEED"]
        configuration_file(
            folder / "configs" / "config_TINY.sh", {**tiny_environment, "DATADIR": str(folder / "data")})
        yield folder


@pytest.fixture
def start(checkout):
    """Starts the script; ``start(NEXP="2", before=["setpriv", ...])``."""
    jobs = []

    def started(before=(), **environment):
        variables = {
            "CONFIG_FILE": "", "DGXSYSTEM": "TINY", "LOGDIR": "", "ENGINE": "", "CONT": "", **environment}
        jobs.append(Job(variables, [*before, engines.SCRIPT], checkout))
        return jobs[-1]

    yield started
    for job in jobs:
        job.end()


@pytest.fixture
def contained(start, engine, image):
    """As ``start``, on a real engine; afterwards no container may be left."""
    there = set(engines.containers(engine))
    yield lambda **environment: start(**{"ENGINE": engine, "CONT": image, **environment})
    left = set(engines.containers(engine)) - there
    if left:
        engines.run(engine, "rm", "--force", *left)
    assert not left
