"""A machine that is not here yet, from what is known of its GPUs: ``4 x 24GB 8.9``."""

import dataclasses
import re

from rn50.errors import UserError, excerpt
from rn50.machine import hardware
from rn50.machine.gpus import OLDEST_DRIVER, Gpu
from rn50.machine.hardware import Cpu, Machine
from rn50.machine.software import Software
from rn50.new_config.choices import MOST_THREADS

_GPUS = re.compile(r"([1-9]\d{0,3}) *x *([1-9]\d{0,3}) *GB? *,? +(\d{1,2})\.(\d)", re.IGNORECASE)
ABSENT = Software("3.11", {}, (), (), None)
"""Software of that machine: nothing is installed, and nothing is known to be missing."""


def machine(text: str) -> Machine:
    """Return the machine with the GPUs of ``text``: their number, the memory of each and their compute
    capability. All that is assumed beside stands in its processor, which the file names.

    Raises UserError if the text is of another form.
    """
    found = _GPUS.fullmatch(text.strip())
    if not found:
        problem = "not the number of GPUs, the memory of each and their compute capability"
        without = "without a GPU the configuration is DEMO_CPU"
        raise UserError(f"--for {excerpt(text)}", problem, f'write --for "4 x 24GB 8.9"; {without}')
    number, gigabytes, *capability = map(int, found.groups())
    newest = OLDEST_DRIVER[max(OLDEST_DRIVER)]
    unknown = {field.name: None for field in dataclasses.fields(Gpu)}
    known = {"driver": newest, "memory_mib": gigabytes * 1024.0, "mig": False, "instances": (), "slowed": ()}
    known |= {"name": f"GPU of compute capability {found[3]}.{found[4]}", "capability": tuple(capability)}
    gpus = [Gpu(**{**unknown, **known, "index": index, "uuid": ""}) for index in range(number)]
    return dataclasses.replace(
        hardware.read(),
        gpus=tuple(gpus),
        processor=f"assumed: all GPU memory free, driver {newest} or newer",
        cpus=tuple(Cpu(cpu, cpu, 0, None) for cpu in range(number * (MOST_THREADS + 1))),
        quota=None,
        memory=None,
        memory_limit=None,
    )
