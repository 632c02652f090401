"""PyTorch's part of ``rn50 doctor``: findings on installed packages and on the GPUs.

``rn50/doctor`` calls ``packages`` and ``gpus``. This file imports no PyTorch, which may be missing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from rn50 import frameworks
from rn50.doctor import gpus as gpu_advice
from rn50.doctor.diagnosis import FAILURE, Diagnosis
from rn50.doctor.packages import decoding, install
from rn50.machine.gpus import Gpu
from rn50.machine.software import Software
from rn50.settings.config import Config

DALI_OF = {"cpu": "nvidia-dali-cuda110", "gpu": "nvidia-dali-cuda130"}
"""The package of DALI in the requirements for each device. If both are installed, one has overwritten files
of the other."""

CUDA_RUNTIME = r"nvidia-cuda-runtime(-cu\d+)?"
"""Pattern of the names of the package of CUDA's runtime: nvidia-cuda-runtime, or nvidia-cuda-runtime-cu12."""

COMPILED = {"cpu": ("compile",), "gpu": ("compile", "fused")}
"""Values of STEP_MODE with which PyTorch's compiler or Triton builds C or C++ code, by device."""


def packages(software: Software, config: Config | None) -> Iterator[Diagnosis]:
    """Yield findings on installed packages. ``config`` is None if the user has named no configuration."""
    yield _packages(software, config)
    missing = software.missing_to_compile
    if config and missing and config.run.step_mode in COMPILED[config.run.device]:
        mode = config.run.step_mode
        text = f"STEP_MODE={mode} compiles when a run starts, and lacks {' and '.join(missing)}"
        without = "graph" if config.run.device == "gpu" else "eager"
        remedy = f"sudo apt-get install {' '.join(missing)}, or set STEP_MODE={without}"
        yield Diagnosis(FAILURE, "compiler", text, remedy)


def gpus(used: Sequence[Gpu], software: Software, grave: str, config: Config | None) -> Iterator[Diagnosis]:
    """Yield findings on the GPUs that the ranks use; faults have the severity ``grave``."""
    traits = frameworks.traits("pytorch")
    cuda = _cuda(software.packages, traits.cuda)
    if cuda is None:
        return
    # A build for an older CUDA supports other GPUs, which only PyTorch itself can list; a run asks PyTorch.
    if cuda >= traits.cuda:
        yield gpu_advice.capability(used, traits, f"PyTorch for CUDA {cuda}", grave)
    yield gpu_advice.driver(used[0].driver, min(cuda, traits.cuda), grave)


def _cuda(have: Mapping[str, str], required: int) -> int | None:
    """Return the major version of the CUDA that the installed PyTorch is built for; None if its version and
    the packages beside it do not tell. If PyTorch is not installed, return ``required``: the version that our
    requirements would install."""
    if "torch" not in have:
        return required
    if match := re.search(r"\+cu(\d+)\d$", have["torch"]):  # 2.9.0+cu130 is built for CUDA 13.0
        return int(match[1])
    runtime = [version for name, version in have.items() if re.fullmatch(CUDA_RUNTIME, name)]
    return int(runtime[0].split(".")[0]) if runtime else None


def _packages(software: Software, config: Config | None) -> Diagnosis:
    """Return the finding on the packages of PyTorch, and on those that decode images for it."""
    device = "cpu" if config is None else config.run.device
    have = software.packages
    command = install(software, frameworks.traits("pytorch"), device)
    if any(name.startswith("nvidia-dali-") and name != DALI_OF[device] for name in have):
        command = f"rm -rf .venv && {command}"  # the installer refuses a folder with the other DALI
    shown = software.shown(frameworks.traits("pytorch"))
    if "torch" not in have:
        return Diagnosis(FAILURE, "packages", f"no PyTorch beside {shown or 'this Python'}", command)
    if device == "gpu" and have["torch"].endswith("+cpu"):
        return Diagnosis(FAILURE, "packages", f"PyTorch is the build for CPUs ({shown})", command)
    return decoding(software, config, shown, command)
