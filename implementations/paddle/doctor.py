"""PaddlePaddle's part of ``rn50 doctor``: diagnoses of installed packages and of the GPUs.

``rn50/doctor`` calls ``packages`` and ``gpus``. This file imports no PaddlePaddle, which may be missing.
"""

from collections.abc import Iterator, Sequence

from rn50 import frameworks
from rn50.doctor import gpus as gpu_advice
from rn50.doctor.diagnosis import FAILURE, Diagnosis
from rn50.doctor.packages import decoding, install
from rn50.machine.gpus import Gpu
from rn50.machine.software import Software
from rn50.settings.config import Config


def packages(software: Software, config: Config | None) -> Iterator[Diagnosis]:
    """Yield diagnoses of the installed packages. ``config`` is None if the user named no configuration."""
    device = "cpu" if config is None else config.run.device
    package = {"cpu": "paddlepaddle", "gpu": "paddlepaddle-gpu"}[device]
    command = install(software, frameworks.traits("paddle"), device)
    shown = software.shown(frameworks.traits("paddle"))
    if {"paddlepaddle", "paddlepaddle-gpu"} <= set(software.packages):
        text = f"two builds of Paddle have overwritten each other's files ({shown})"
        remedy = f"in another checkout, whose .venv has one of them: {command}"
        yield Diagnosis(FAILURE, "packages", text, remedy)
    elif package not in software.packages:
        yield Diagnosis(FAILURE, "packages", f"no {package} beside {shown or 'this Python'}", command)
    else:
        yield decoding(software, config, shown, command)


def gpus(used: Sequence[Gpu], software: Software, grave: str, config: Config | None) -> Iterator[Diagnosis]:
    """Yield diagnoses of the GPUs that the ranks use. A fault that prevents their use has severity
    ``grave``."""
    traits = frameworks.traits("paddle")
    yield gpu_advice.capability(used, traits, "paddlepaddle-gpu", grave)
    yield gpu_advice.driver(used[0].driver, traits.cuda, grave)  # all GPUs of a machine have one driver
