"""Check that Python, packages and shared libraries are those that a run needs."""

import re
import sys
from typing import Iterator, Optional

from rn50.doctor.finding import FAILURE, OK, WARNING, Finding
from rn50.files import ROOT
from rn50.machine.software import Software
from rn50.settings.config import Config

OLDEST_PYTHON, NEWEST_PYTHON = (3, 8), (3, 12)
"""DALI 1.34 has wheels for these versions only."""

REQUIREMENTS = ROOT / "requirements"

SYSTEM_PACKAGES = {"libgomp.so.1": "libgomp1", "libquadmath.so.0": "libquadmath0", "libstdc++.so.6": "libstdc++6",
                   "libgcc_s.so.1": "libgcc-s1"}
"""Library -> the package of Debian and Ubuntu that contains it."""

WHEELS = {"libcudnn": "nvidia-cudnn-cu11", "libnccl": "nvidia-nccl-cu11", "libcublas": "nvidia-cublas-cu11",
          "libcublasLt": "nvidia-cublas-cu11", "libcufft": "nvidia-cufft-cu11", "libcusolver": "nvidia-cusolver-cu11",
          "libcusparse": "nvidia-cusparse-cu11", "libcurand": "nvidia-curand-cu11", "libnvrtc": "nvidia-cuda-nvrtc-cu11",
          "libcudart": "nvidia-cuda-runtime-cu11", "libnvToolsExt": "nvidia-nvtx-cu11"}
"""Library without its version -> the package of PyPI that contains it."""


def findings(software: Software, config: Optional[Config]) -> Iterator[Finding]:
    """Yield the findings on the framework's software; without a configuration on MXNet's."""
    yield _python(software)
    if config is not None and config.run.framework == "pytorch":
        yield _pytorch(software, config)
        return
    yield _packages(software, config)
    yield from _libraries(software)


def _python(software: Software) -> Finding:
    version = tuple(map(int, software.python.split(".")[:2]))
    if not OLDEST_PYTHON <= version <= NEWEST_PYTHON:
        return Finding(FAILURE, "Python", f"{software.python}; MXNet 1.9.1 and DALI 1.34 run on 3.8 to 3.12",
                       "sudo apt-get install python3.11 python3.11-venv; PYTHON=python3.11 requirements/install.sh mxnet-cpu")
    return Finding(OK, "Python", software.python)


def _packages(software: Software, config: Optional[Config]) -> Finding:
    on_gpus = config is not None and config.run.device == "gpu"
    wanted = "mxnet-cu112" if on_gpus else "mxnet-cpu"
    install = f"requirements/install.sh {wanted}, or make image STAGE={'gpu' if on_gpus else 'cpu'}"
    have = software.packages
    told = [name for name in sorted(have) if re.fullmatch(r"mxnet.*|nvidia-dali-.*|numpy|horovod", name)]
    shown = ", ".join(f"{name} {have[name]}" for name in told)
    if software.nvidia_container:
        return Finding(OK, "packages", f"NVIDIA's MXNet container {software.nvidia_container}: {shown}")
    if not {"mxnet", "mxnet-cu112"} & set(have):
        return Finding(FAILURE, "packages", f"no MXNet beside {shown or 'this Python'}", install)
    if on_gpus and "mxnet-cu112" not in have:
        return Finding(FAILURE, "packages", f"MXNet is the build for CPUs ({shown})", install)
    if not any(name.startswith("nvidia-dali-") for name in have):
        return Finding(FAILURE, "packages", f"no DALI beside {shown}", install)
    if config is not None and config.ranks > 1 and (on_gpus or config.run.nodes > 1) and "horovod" not in have:
        return Finding(FAILURE, "packages", f"no Horovod beside {shown}, and {config.ranks} ranks are asked for",
                       "make test, which builds it, or set DGXNGPU=1")
    if have.get("numpy", "1.").split(".")[0] != "1":
        return Finding(WARNING, "packages", f"{shown}: MXNet 1.9.1 was tried with NumPy 1.23.5 and 1.26.4 only", install)
    return Finding(OK, "packages", shown)


def _pytorch(software: Software, config: Config) -> Finding:
    on_gpus = config.run.device == "gpu"
    install = "pip install torch nvidia-dali-cuda130" if on_gpus else "requirements/install.sh pytorch-cpu"
    have = software.packages
    told = [name for name in sorted(have) if re.fullmatch(r"torch(vision)?|nvidia-dali-.*|numpy", name)]
    shown = ", ".join(f"{name} {have[name]}" for name in told)
    if "torch" not in have:
        return Finding(FAILURE, "packages", f"no PyTorch beside {shown or 'this Python'}", install)
    if on_gpus and have["torch"].endswith("+cpu"):
        return Finding(FAILURE, "packages", f"PyTorch is the build for CPUs ({shown})", install)
    if config.input_library == "dali" and not any(name.startswith("nvidia-dali-") for name in have):
        return Finding(FAILURE, "packages", f"no DALI beside {shown}", f"{install}, or set INPUT_LIBRARY=dataloader")
    if config.input_library == "torchvision" and "torchvision" not in have:
        return Finding(FAILURE, "packages", f"no torchvision beside {shown}",
                       f"pip install the torchvision that is made for PyTorch {have['torch']}, or set INPUT_LIBRARY=dataloader")
    return Finding(OK, "packages", shown)


def _libraries(software: Software) -> Iterator[Finding]:
    """Yield a finding for each library that the loader does not find."""
    if not software.missing_libraries and {"mxnet", "mxnet-cu112"} & set(software.packages):
        yield Finding(OK, "libraries", "libmxnet.so finds every library that it loads")
    for name in software.missing_libraries:
        holding = [folder for folder in software.libraries_off_path if (folder / name).exists()]
        if holding:
            folders = ":".join(map(str, software.libraries_off_path))
            yield Finding(FAILURE, "libraries", f"{name} is installed in {holding[0]}, where the loader does not look",
                          f"export LD_LIBRARY_PATH={folders}")
        else:
            yield Finding(FAILURE, "libraries", f"{name}, which libmxnet.so loads, is not installed", _bringing(name))


def _bringing(library: str) -> str:
    """Return the command that installs a library."""
    if library == "libcuda.so.1":
        return "it is the NVIDIA driver's: sudo apt-get install nvidia-driver; in a container: docker run --gpus all"
    if library in SYSTEM_PACKAGES:
        return f"sudo apt-get install {SYSTEM_PACKAGES[library]}"
    wheel = WHEELS.get(library.split(".so")[0])
    if wheel is None:
        return f"apt-file search {library} names the package that has it"
    pinned = re.search(rf"^{wheel}==\S+", _pins(), re.MULTILINE)
    return f"{sys.executable} -m pip install {pinned[0] if pinned else wheel}"


def _pins() -> str:
    try:
        return (REQUIREMENTS / "mxnet-cu112.txt").read_text(encoding="utf-8")
    except OSError:
        return ""
