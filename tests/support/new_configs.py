"""The configurations that `rn50 config new MINE` writes on seven machines: tests/golden/new_config.

Where one is to change, ``python -m tests.support.new_configs`` writes all of them again.
"""

import dataclasses

from rn50 import files
from rn50.files import ROOT
from rn50.machine.software import Software
from rn50.new_config import new_config
from tests.support.machines import simulated

GOLDEN = ROOT / "tests" / "golden" / "new_config"
AGAIN = "python -m tests.support.new_configs"
BARE = Software("3.11.7", {}, (), (), None)
"""Nothing is installed."""
MACHINES = {
    "H200": ("H100", 1, "NVIDIA H200", (9, 0), 143771, 4),
    "8xA100": ("8xA100", 8, "NVIDIA A100-SXM4-80GB", (8, 0), 81920, 4),
    "A100-40GB": ("1xA100", 1, "NVIDIA A100-PCIE-40GB", (8, 0), 40960, 4),
    "RTX-4090": ("no-GPU", 1, "NVIDIA GeForce RTX 4090", (8, 9), 24564, 890),
    "RTX-3090": ("no-GPU", 1, "NVIDIA GeForce RTX 3090", (8, 6), 24576, 420),
    "V100": ("container-3-cores", 1, "Tesla V100-SXM2-32GB", (7, 0), 32768, 0),
    "GTX-1080-Ti": ("no-GPU", 1, "NVIDIA GeForce GTX 1080 Ti", (6, 1), 11264, None)}
"""Name -> host, one of tests/golden/machines; number, model and compute capability of its GPUs; MiB of their
memory in all and in use, None where the driver does not report it."""


def machine(host, number, model, capability, memory, used=None):
    """A host with these GPUs."""
    like = simulated("8xA100").gpus[:number]
    facts = {"name": model, "capability": capability, "memory_mib": memory, "used_mib": used}
    return dataclasses.replace(
        simulated(host), gpus=tuple(dataclasses.replace(each, **facts) for each in like))


def text(name):
    """The file for one of ``MACHINES``, without the version of rn50."""
    new = new_config.make("MINE", machine(*MACHINES[name]), BARE)
    return new.text.replace(files.MARK, "written by rn50")


if __name__ == "__main__":
    for name in MACHINES:
        (GOLDEN / f"{name}.sh").write_text(text(name), encoding="utf-8")
