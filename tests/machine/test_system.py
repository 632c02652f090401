"""The description of a system that a machine gives of itself: those of tests/golden/machines, and made-up
files."""

import pathlib

import pytest

from rn50.machine import description
from rn50.machine.sources import Sources
from tests.support import machines

LSCPU = """Model name:          Intel(R) Xeon(R) Platinum 8480+
L1d cache:           3 MiB (64 instances)
L2 cache:            128 MiB (64 instances)
"""


def told(name, environ=None):
    return description.read(machines.source(name)._replace(environ=environ or {}))


@pytest.mark.parametrize(
    "name, expected",
    [("H100",
      {"host_processors_per_node": "2", "host_processor_core_count": "56",
       "host_processor_vcpu_count": "112", "accelerator_model_name": "NVIDIA H100 80GB HBM3 (700 W)",
       "accelerator_memory_capacity": "81559 MiB", "accelerator_interconnect": "NVLink",
       "host_networking": "4 x 400 Gb/sec (4X NDR) InfiniBand"}),
     ("L40S",
      {"accelerator_interconnect": "PCIe",
       "accelerator_interconnect_topology": "SYS between 1 of 1 pairs"}),
     ("container-3-cores",
      {"host_processor_core_count": "32", "host_processor_frequency": "2.60GHz",
       "hw_notes": "the run could use 3 of 128 CPUs and 8 of 1008 GiB of memory"}),
     ("Slurm-cpuset", {"hw_notes": "the run could use 16 of 64 CPUs and 120 of 504 GiB of memory"})])
def test_machines(name, expected):
    found = told(name)
    assert {field: found[field] for field in expected} == expected


def test_a_machine_without_gpus_tells_of_none():
    found = told("no-GPU")
    assert found["host_processor_model_name"] == "Intel(R) Core(TM) i7-10510U CPU @ 1.80GHz"
    assert not any(field.startswith("accelerator") for field in found) and all(found.values())


def test_what_a_rank_sees_is_not_the_machine():
    assert told("8xA100", {"CUDA_VISIBLE_DEVICES": "3"}) == told("8xA100")


def test_a_machine_that_says_nothing_is_no_error(tmp_path):
    assert "host_processors_per_node" not in description.read(Sources(tmp_path, lambda argv: (127, ""), {}))


def test_disks_network_caches_and_operating_system(tmp_path):
    for file, content in {
        "sys/block/nvme0n1/size": "7501476528", "sys/block/nvme1n1/size": "7501476528",
        "sys/block/sda/size": "937703088", "sys/block/sda/queue/rotational": "1", "sys/block/loop0/size": "8",
        "sys/block/sdb/size": "0", "sys/class/net/eth0/speed": "25000",
        "sys/class/net/eth0/device/vendor": "0x15b3", "sys/class/net/lo/speed": "10000",
        "sys/class/net/eth1/speed": "-1", "sys/class/net/eth1/device/vendor": "0x15b3",
        "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 20.04.6 LTS"\n',
        "proc/sys/kernel/osrelease": "5.15.0-91-generic"}.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(content + "\n")

    def run(argv):
        return (0, LSCPU) if argv == ("lscpu",) else (127, "")

    found = description.read(Sources(tmp_path, run, {"NCCL_VERSION": "2.8.4"}))
    assert found["host_storage_type"] == "NVMe SSD + HDD"
    assert found["host_storage_capacity"] == "2 x 3841 GB + 1 x 480 GB"
    assert found["host_networking"] == "1 x 25 Gb/sec Ethernet"
    assert found["host_processor_caches"] == "L1d: 3 MiB (64 instances), L2: 128 MiB (64 instances)"
    assert found["operating_system"] == "Ubuntu 20.04.6 LTS, Linux 5.15.0-91-generic"
    assert found["nccl_version"] == "2.8.4"


def test_the_link_of_a_gpu():
    rows = (
        "index, name, uuid, pci.bus_id, driver_version, pcie.link.gen.max, pcie.link.width.max\n"
        "0, NVIDIA A100-SXM4-80GB, GPU-0, 00000000:07:00.0, 535.129.03, 4, 16\n")

    def run(argv):
        query = argv[1:] and argv[1].startswith("--query-gpu=")
        return machines._query(rows, argv[1][len("--query-gpu=") :].split(",")) if query else (127, "")

    assert (
        description.read(Sources(pathlib.Path("/nowhere"), run, {}))["accelerator_host_interconnect"]
        == "PCIe 4.0 x16")
