"""Check that a framework's GPU build has code for the GPUs, and that their driver runs its CUDA."""

from collections.abc import Sequence

from rn50 import frameworks
from rn50.doctor.diagnosis import INSTALL_DRIVER, OK, WARNING, Diagnosis
from rn50.frameworks import Traits
from rn50.machine.gpus import OLDEST_DRIVER, Gpu, newer


def capability(used: Sequence[Gpu], traits: Traits, build: str, grave: str, remedy: str = "") -> Diagnosis:
    """Check that ``build`` has code for the GPUs. ``remedy`` is for GPUs newer than all of its code."""
    subject = "compute capability"
    known = sorted({gpu.capability for gpu in used if gpu.capability})
    if not known:
        text = f"driver {used[0].driver} does not tell; {build} has code for {traits.code}"
        return Diagnosis(WARNING, subject, text, f"a newer driver tells: {INSTALL_DRIVER}")
    bad = [version for version in known if not traits.runs_on(version)]
    if not bad:
        shown = ", ".join(f"{major}.{minor}" for major, minor in known)
        return Diagnosis(OK, subject, f"{shown}; {build} has code for {traits.code}")
    name = next(gpu.name for gpu in used if gpu.capability == bad[0])
    shown = f"{name} has {bad[0][0]}.{bad[0][1]}"
    text = f"{shown}; {build} has code for {traits.code} only, and no driver changes that"
    remedies = (_with_another(bad[0]), remedy if bad[0] > max(traits.capabilities) else "")
    return Diagnosis(grave, subject, text, "; or ".join(filter(None, remedies)))


def _with_another(capability: tuple[int, int]) -> str:
    """Return how to train with a framework that has code for a GPU."""
    for value, traits in frameworks.every().items():
        if "gpu" in traits.precisions and traits.runs_on(capability):
            install = f"rm -rf .venv && {traits.install('gpu')}"
            return f"train with {traits.name}: FRAMEWORK={value} in the configuration, and {install}"
    return "use a newer GPU; rn50 run DEMO_CPU needs none"


def driver(version: str, cuda: int, grave: str) -> Diagnosis:
    """Check that a driver runs libraries of a major version of CUDA."""
    oldest = OLDEST_DRIVER[cuda]
    if newer(oldest, version):
        return Diagnosis(grave, "driver", f"{version}; CUDA {cuda} needs {oldest} or newer", INSTALL_DRIVER)
    return Diagnosis(OK, "driver", f"{version}; CUDA {cuda} runs on it")
