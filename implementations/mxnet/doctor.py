"""MXNet's part of ``rn50 doctor``: findings on packages, on the libraries of libmxnet.so, and on the GPUs.

``rn50/doctor`` calls ``packages`` and ``gpus``. This file imports no MXNet, which may be missing.
"""

import sys
from collections.abc import Iterator, Sequence

from rn50 import frameworks, process
from rn50.doctor import gpus as gpu_advice
from rn50.doctor.diagnosis import FAILURE, INSTALL_DRIVER, OK, WARNING, Diagnosis
from rn50.doctor.packages import install as install_command
from rn50.files import ROOT
from rn50.machine.gpus import Gpu, newer
from rn50.machine.software import Software
from rn50.packages import pinned
from rn50.settings.config import Config

FULL_DRIVER = "520.61.05"
"""First driver that comes with CUDA 11.8 (release notes of CUDA 11.8, table 3). MXNet compiles its fused
operators to PTX by libnvrtc 11.8, and an older driver may not know this PTX."""

SYSTEM_PACKAGES = {
    "libgomp.so.1": "libgomp1",
    "libquadmath.so.0": "libquadmath0",
    "libstdc++.so.6": "libstdc++6",
    "libgcc_s.so.1": "libgcc-s1",
}
"""Library -> the package of Debian and Ubuntu that contains it."""

_LIBRARIES = ("cudnn", "nccl", "cublas", "cufft", "cusolver", "cusparse", "curand")
WHEELS = {
    **{f"lib{name}": f"nvidia-{name}-cu11" for name in _LIBRARIES},
    "libcublasLt": "nvidia-cublas-cu11",
    "libnvrtc": "nvidia-cuda-nvrtc-cu11",
    "libcudart": "nvidia-cuda-runtime-cu11",
    "libnvToolsExt": "nvidia-nvtx-cu11",
}
"""Library without its version, such as libcudnn -> the package of PyPI that contains it."""


def packages(software: Software, config: Config | None) -> Iterator[Diagnosis]:
    """Yield findings on installed packages and shared libraries. ``config`` is None if the user has named no
    configuration."""
    yield _packages(software, config)
    yield from _libraries(software)


def gpus(used: Sequence[Gpu], software: Software, level: str, config: Config | None) -> Iterator[Diagnosis]:
    """Yield findings on the GPUs that the ranks use. ``level`` is the severity of those that prevent their
    use."""
    yield _capability(used, software, level)
    environ = config.environment if config else process.environment()
    yield _driver(used[0].driver, level, fuses=environ.get("MXNET_USE_FUSION") != "0")


def _packages(software: Software, config: Config | None) -> Diagnosis:
    """Check that MXNet for the device, DALI and, where the ranks need it, Horovod are installed, and a NumPy
    with which MXNet was tried."""
    on_gpus = config is not None and config.run.device == "gpu"
    device = "gpu" if on_gpus else "cpu"
    versions, traits = software.packages, frameworks.traits("mxnet")
    shown = software.shown(traits)
    install = f"{install_command(software, traits, device)}, or make image STAGE=mxnet-{device}"
    if software.nvidia_container:
        return Diagnosis(OK, "packages", f"NVIDIA's MXNet container {software.nvidia_container}: {shown}")
    if not {"mxnet", "mxnet-cu112"} & set(versions):
        return Diagnosis(FAILURE, "packages", f"no MXNet beside {shown or 'this Python'}", install)
    if on_gpus and "mxnet-cu112" not in versions:
        return Diagnosis(FAILURE, "packages", f"MXNet is the build for CPUs ({shown})", install)
    if not software.has_dali:
        return Diagnosis(FAILURE, "packages", f"no DALI beside {shown}", install)
    if config and config.ranks > 1 and (on_gpus or config.run.nodes > 1) and "horovod" not in versions:
        text = f"no Horovod beside {shown}, and {config.ranks} ranks are asked for"
        build = f"requirements/install.sh horovod{'-nccl' if on_gpus else ''}"
        # ``to_one_rank``: such as DGXNGPU=1
        remedy = f"{build}, or set {config.to_one_rank} in the configuration"
        return Diagnosis(FAILURE, "packages", text, f"requirements/install.sh horovod-build && {remedy}")
    if versions.get("numpy", "1.").split(".")[0] != "1":
        # pip, not install.sh, which would do nothing: it has installed these requirements before.
        pinned = "1.26.4" if software.python.startswith("3.12") else "1.23.5"
        text = f"{shown}: MXNet 1.9.1 was tried with NumPy 1.23.5 and 1.26.4 only"
        return Diagnosis(WARNING, "packages", text, f"{sys.executable} -m pip install numpy=={pinned}")
    return Diagnosis(OK, "packages", shown)


def _capability(used: Sequence[Gpu], software: Software, level: str) -> Diagnosis:
    """Check that MXNet has code for the GPUs. The traits do not describe the build of NVIDIA's container, so
    there the compute capabilities are only shown."""
    if software.nvidia_container:
        capabilities = sorted({gpu.capability for gpu in used if gpu.capability})
        shown = ", ".join(f"{major}.{minor}" for major, minor in capabilities)
        text = f"{shown or 'unknown'}; MXNet is that of NVIDIA's container {software.nvidia_container}"
        return Diagnosis(OK, "compute capability", text)
    mxnet = frameworks.traits("mxnet")
    return gpu_advice.capability(used, mxnet, "mxnet-cu112", level, "use NVIDIA's MXNet container")


def _driver(version: str, level: str, fuses: bool) -> Diagnosis:
    """Check that the driver runs MXNet's CUDA and, if MXNet ``fuses`` operators, that it knows their PTX."""
    finding = gpu_advice.driver(version, frameworks.traits("mxnet").cuda, level)
    if finding.severity == OK and newer(FULL_DRIVER, version) and fuses:
        unknown = "whose libnvrtc makes PTX of MXNet's fused operators that it does not know"
        shown = f"{version} is older than CUDA 11.8, {unknown}"
        remedy = f"export MXNET_USE_FUSION=0, or have {FULL_DRIVER} at least: {INSTALL_DRIVER}"
        return Diagnosis(WARNING, "driver", shown, remedy)
    return finding


def _libraries(software: Software) -> Iterator[Diagnosis]:
    """Yield a finding for each library of libmxnet.so that the dynamic loader does not find, or a single one
    if it finds all of them."""
    if not software.missing_libraries and {"mxnet", "mxnet-cu112"} & set(software.packages):
        yield Diagnosis(OK, "libraries", "libmxnet.so finds every library that it loads")
    for name in software.missing_libraries:
        holding = [folder for folder in software.libraries_off_path if (folder / name).exists()]
        if holding:
            folders = ":".join(map(str, software.libraries_off_path))
            text = f"{name} is installed in {holding[0]}, where the loader does not look"
            yield Diagnosis(FAILURE, "libraries", text, f"export LD_LIBRARY_PATH={folders}")
        else:
            text = f"{name}, which libmxnet.so loads, is not installed"
            yield Diagnosis(FAILURE, "libraries", text, _remedy(name))


def _remedy(library: str) -> str:
    """Return the command that installs a library, or words on where it comes from."""
    if library == "libcuda.so.1":
        return f"it is the NVIDIA driver's: {INSTALL_DRIVER}; in a container: docker run --gpus all"
    if library in SYSTEM_PACKAGES:
        return f"sudo apt-get install {SYSTEM_PACKAGES[library]}"
    wheel = WHEELS.get(library.split(".so")[0])
    if wheel is None:
        return f"apt-file search {library} names the package that has it"
    versions = [ROOT / "requirements" / "mxnet-cu112.txt"]  # missing without a checkout
    return f"{sys.executable} -m pip install {pinned(wheel, versions) or wheel}"
