"""Container engines: what they say, why one cannot be used, and the images that are built on them."""

import contextlib
import os
import shutil
import subprocess

import pytest

from tests.system.job import ROOT

SCRIPT = "./run_with_docker.sh"
BASE_IMAGE = "rn50-base"
SOMEBODY = 54321
"""A user that neither this machine nor the image knows."""
INDEX_PORT = 28417
"""Always the same, because engines keep the layers of a build by the values of its arguments."""
BUILD_LIMIT_S = 1500
MARKS = [pytest.mark.timeout(BUILD_LIMIT_S + 600), pytest.mark.xdist_group("engines")]
"""Of every test here: the first builds the image. With pytest-xdist one worker has all: podman takes from
docker what is long to build."""


def run(*command, **kwargs):
    """What a command says on standard output; fails where it fails."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, **kwargs)
    assert done.returncode == 0, (command, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


def refusal(engine):
    """Why an engine cannot be used; None where it answers."""
    if shutil.which(engine) is None:
        return f"{engine} is not installed; .ci/run installs it"
    asked = subprocess.run([engine, "ps"], capture_output=True, text=True)
    return f"{engine} does not answer: {asked.stderr.strip()}" if asked.returncode else None


def make_base(engine):
    """Make the base image where the engine has none."""
    if subprocess.run([engine, "image", "inspect", BASE_IMAGE], capture_output=True).returncode:
        if os.geteuid() or shutil.which("debootstrap") is None:
            pytest.skip("a base image needs root and debootstrap; .ci/run installs it")
        run(
            "requirements/base_image.sh", cwd=str(ROOT),
            env={**os.environ, "ENGINE": engine, "BASE_IMAGE": BASE_IMAGE})


def make_image(engine, stage, tag, program=None, **environment):
    """Build the image of a stage by ``make image``, with ``program`` in place of the engine."""
    with replacing(engine, tag):
        run(
            "make", "image", f"ENGINE={program or engine}", f"STAGE={stage}", f"BASE_IMAGE={BASE_IMAGE}",
            f"TAG={tag}", cwd=str(ROOT), env={**os.environ, **environment}, timeout=BUILD_LIMIT_S)


@contextlib.contextmanager
def replacing(engine, tag):
    """Remove the image that had a tag before, with its layers: an engine keeps gigabytes of each that another
    replaced."""
    before = run(engine, "images", "--quiet", tag).split()
    yield
    for image in set(before) - set(run(engine, "images", "--quiet", tag).split()):
        subprocess.run([engine, "rmi", image], capture_output=True)


def layers(engine, name):
    """The layers of an image, empty where there is none. Its identity differs by commit, for its labels."""
    asked = subprocess.run(
        [engine, "image", "inspect", "--format", "{{.RootFS.Layers}}", name], capture_output=True, text=True)
    return asked.stdout.strip()


def wrapper(path, engine, options):
    """Write a program that is ``engine`` with more options behind its verb."""
    path.write_text(f'#!/bin/sh\nverb=$1\nshift\nexec {engine} "$verb" {options} "$@"\n')
    path.chmod(0o755)
    return path


def hand_over(*names):
    """Give podman images of docker's that it has not got from an earlier call: gigabytes take minutes."""
    new = [name for name in names if layers("docker", name) != layers("podman", name)]
    with contextlib.ExitStack() as replaced:
        for name in new:
            replaced.enter_context(replacing("podman", name))
        if new:
            run("sh", "-c", 'docker save "$@" | podman load', "sh", *new, timeout=BUILD_LIMIT_S)


def containers(engine):
    """Names of our containers, of those that have ended too."""
    return run(engine, "ps", "--all", "--filter", "name=rn50-", "--format", "{{.Names}}").split()
