"""Real engines, the image that ``make image`` builds on a bare Debian, and ``run_with_docker.sh`` as a user types it."""

import pathlib
import shutil
import tempfile

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
    """The image of stage cpu, built by ``make image`` on a base that is made here, without a registry.

    Docker builds all of it. Podman takes the base and the stage that compiles Horovod from docker, where there is one, and builds
    the rest.
    """
    program = engine
    if engine == "podman" and engines.refusal("docker") is None:
        engines.make_base("docker")
        engines.make_image("docker", "cpu-packages", engines.PACKAGES)
        for name in (engines.BASE_IMAGE, engines.PACKAGES):
            engines.hand_over(name)
        program = tmp_path_factory.mktemp("podman") / "podman"
        stage = f"--build-context=cpu-packages=container-image://localhost/{engines.PACKAGES}"
        program.write_text(f'#!/bin/sh\nverb=$1\nshift\nexec podman "$verb" {stage} "$@"\n')
        program.chmod(0o755)
    else:
        engines.make_base(engine)
    engines.make_image(program, "cpu", engines.IMAGE)
    return engines.IMAGE


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
        configuration_file(folder / "configs" / "config_TINY.sh", {**tiny_environment, "DATADIR": str(folder / "data")})
        yield folder


@pytest.fixture
def start(checkout):
    """Starts the script; ``start(NEXP="2", before=["setpriv", ...])``."""
    jobs = []

    def started(before=(), **environment):
        variables = {"CONFIG_FILE": "", "DGXSYSTEM": "TINY", "LOGDIR": "", "ENGINE": "", "CONT": "", **environment}
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
