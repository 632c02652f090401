"""The doctor on one of the machines of tests/golden/machines, as it would advise there."""

from rn50.doctor import doctor
from rn50.doctor.diagnosis import OK
from rn50.machine.software import Software
from rn50.settings import named
from tests.support.machines import simulated

GPU_BUILD = Software(
    "3.10.12",
    {"mxnet-cu112": "1.9.1", "nvidia-dali-cuda110": "1.34.0", "numpy": "1.23.5", "horovod": "0.28.1",
     "mlperf-logging": "4.1.68"},
    (), (), None)


def config_of(system, **environ):
    """The configuration of one of configs/, as run_and_time.sh would read it."""
    return named.read(system, environ={"PATH": "/usr/bin:/bin", **environ})


def examine(name, system=None, software=GPU_BUILD, data="/nowhere", environ=None):
    """subject -> finding, for a machine and a system."""
    environ = environ or {}
    config = None if system is None else config_of(system, DATADIR=str(data), **environ)
    findings = doctor.examine(simulated(name, environ), software, config)
    assert len({each.subject for each in findings}) == len(findings)
    for each in findings:
        assert each.found and (each.severity == OK or each.remedy), each
    return {each.subject: each for each in findings}
