"""``run_with_docker.sh`` says before anything starts what a user can mend."""

import os
import pathlib
import re
import shutil

import pytest

from rn50.files import ROOT
from tests.system.containers.engines import MARKS, SOMEBODY

pytestmark = MARKS
USER_CAN_MEND = 2
GPUS = pathlib.Path("/etc/cdi/nvidia.yaml")


@pytest.mark.parametrize("nexp", ["0", "abc", "1.5"])
def test_number_of_runs_that_is_none(start, nexp):
    job = start(NEXP=nexp)
    assert job.wait() == USER_CAN_MEND
    assert job.complaint == f"run_with_docker.sh: NEXP={nexp} is not a number of runs; set NEXP=5"


@pytest.mark.parametrize("system", ["", "NF5688M7"])
def test_no_such_system(start, system):
    job = start(DGXSYSTEM=system)
    assert job.wait() == USER_CAN_MEND
    assert "DGXSYSTEM" in job.complaint
    systems = sorted(
        ["TINY", *(path.stem[len("config_") :] for path in (ROOT / "configs").glob("config_*.sh"))])
    assert " ".join(systems) in job.complaint


def test_no_such_configuration_file(start, tmp_path):
    absent = tmp_path / "absent.sh"
    job = start(CONFIG_FILE=str(absent))
    assert job.wait() == USER_CAN_MEND
    assert job.complaint == f"run_with_docker.sh: CONFIG_FILE={absent}: no such file"


def test_no_engine(start, tmp_path):
    for folder in filter(os.path.isdir, os.environ["PATH"].split(":")):
        for program in pathlib.Path(folder).iterdir():
            if program.name not in ("docker", "podman") and not (tmp_path / program.name).is_symlink():
                (tmp_path / program.name).symlink_to(program)
    job = start(before=["env", f"PATH={tmp_path}"])
    assert job.wait() == USER_CAN_MEND
    assert (
        job.complaint
        == "run_with_docker.sh: no docker or podman here; sudo apt-get install docker.io, or podman")


def test_an_engine_that_does_not_answer(start, tmp_path):
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed; .ci/run installs it")
    job = start(ENGINE="docker", DOCKER_HOST=f"unix://{tmp_path}/absent.sock")
    assert job.wait() == USER_CAN_MEND
    assert re.search(r"docker does not answer: .*absent\.sock.*sudo systemctl start docker", job.complaint)


def test_no_permission(start, engine):
    if engine != "docker" or os.geteuid():
        pytest.skip("podman needs no permission, and only root can become somebody without it")
    job = start(
        before=["setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups"], ENGINE=engine)
    assert job.wait() == USER_CAN_MEND
    assert re.search("docker: no permission to use it; sudo usermod -aG docker", job.complaint)


def test_no_image(start, engine):
    job = start(ENGINE=engine, CONT="rn50:of-nobody")
    assert job.wait() == USER_CAN_MEND
    said = f"CONT=rn50:of-nobody: {engine} has no such image; make image ENGINE={engine} STAGE=mxnet-cpu"
    assert said in job.complaint


def test_missing_data(contained, checkout):
    (checkout / "data" / "val.idx").unlink()
    job = contained()
    assert job.wait() == USER_CAN_MEND
    assert re.search(
        "DATADIR=.*data: no val.idx there; set DATADIR to the folder of train.rec", job.complaint)
    assert not (checkout / "results").exists()


def test_no_gpu_to_hand_over(contained, checkout):
    if list(GPUS.parent.glob("nvidia*")) or shutil.which("nvidia-container-runtime"):
        pytest.skip("this machine has NVIDIA's container toolkit")
    with (checkout / "configs" / "config_TINY.sh").open("a") as stream:
        stream.write("export DEVICE=gpu\n")
    job = contained()
    assert job.wait() == USER_CAN_MEND
    assert re.search("DEVICE=gpu: .* has no GPU to hand over; .*nvidia-ctk cdi generate", job.complaint)


def test_a_system_with_gpus_where_there_are_none(start, engine):
    if list(GPUS.parent.glob("nvidia*")) or shutil.which("nvidia-container-runtime"):
        pytest.skip("this machine has NVIDIA's container toolkit")
    job = start(ENGINE=engine, DGXSYSTEM="H200")
    assert job.wait() == USER_CAN_MEND
    assert re.search("DEVICE=gpu: .* has no GPU to hand over; .*nvidia-ctk cdi generate", job.complaint)


def test_gpus_are_handed_over_as_their_description_says(contained, checkout, engine):
    """A description of GPUs (CDI) puts another rn50 into the container: it runs, so the engine was given the
    GPUs."""
    if engine != "podman" or os.geteuid() or GPUS.exists():
        pytest.skip(
            "docker knows descriptions from version 25 on, and only root can write one where there is none")
    script = checkout / "described.py"
    script.write_text("import sys\nprint('rn50: the GPUs are here', file=sys.stderr)\nsys.exit(2)\n")
    with (checkout / "configs" / "config_TINY.sh").open("a") as stream:
        stream.write("export DEVICE=gpu\n")
    mount = f"{{hostPath: {script}, containerPath: /opt/rn50/rn50/__main__.py, options: [ro, bind]}}"
    GPUS.parent.mkdir(exist_ok=True)
    try:
        edits = f"{{mounts: [{mount}]}}"
        GPUS.write_text(
            f"cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: [{{name: all, containerEdits: {edits}}}]\n")
        job = contained(NEXP="1")
        assert job.wait() == USER_CAN_MEND
    finally:
        GPUS.unlink()
    assert job.complaint == "rn50: the GPUs are here"


def test_too_little_shared_memory(contained, checkout):
    with (checkout / "configs" / "config_TINY.sh").open("a") as stream:
        stream.write("export DGXNGPU=2\n")
    if os.geteuid():
        pytest.skip("only root can make a smaller /dev/shm")
    job = contained(
        before=[
            "unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"', "sh"])
    assert job.wait() == USER_CAN_MEND
    assert re.search("/dev/shm has 1 MiB free, and 2 ranks want 1024; sudo mount", job.complaint)
