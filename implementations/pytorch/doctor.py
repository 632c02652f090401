"""PyTorch's part of ``rn50 doctor``. Imports no PyTorch."""

import re
from typing import Iterator, Optional

from rn50.doctor.finding import FAILURE, OK, Finding
from rn50.machine.software import Software
from rn50.settings.config import Config


def packages(software: Software, config: Optional[Config]) -> Iterator[Finding]:
    """Yield findings on installed packages; ``config`` is None where nothing is configured."""
    yield _packages(software, config)


def _packages(software: Software, config: Optional[Config]) -> Finding:
    on_gpus = config is not None and config.run.device == "gpu"
    library = "dali" if config is None else config.input_pipeline.library
    install = "pip install torch nvidia-dali-cuda130" if on_gpus else "requirements/install.sh pytorch-cpu"
    have = software.packages
    relevant = [name for name in sorted(have) if re.fullmatch(r"torch(vision)?|nvidia-dali-.*|numpy", name)]
    shown = ", ".join(f"{name} {have[name]}" for name in relevant)
    if "torch" not in have:
        return Finding(FAILURE, "packages", f"no PyTorch beside {shown or 'this Python'}", install)
    if on_gpus and have["torch"].endswith("+cpu"):
        return Finding(FAILURE, "packages", f"PyTorch is the build for CPUs ({shown})", install)
    if library == "dali" and not any(name.startswith("nvidia-dali-") for name in have):
        return Finding(FAILURE, "packages", f"no DALI beside {shown}", f"{install}, or set INPUT_LIBRARY=dataloader")
    if library == "torchvision" and "torchvision" not in have:
        return Finding(FAILURE, "packages", f"no torchvision beside {shown}",
                       f"pip install the torchvision that is made for PyTorch {have['torch']}, or set INPUT_LIBRARY=dataloader")
    return Finding(OK, "packages", shown)
