"""The facts of a machine, read from ten of tests/golden/machines and from this one."""

import dataclasses
import os
import pathlib
import random

import pytest

from rn50.machine import cgroup, cpu_list, gpus, hardware
from rn50.machine.sources import Sources, run
from tests.support.machines import MACHINES, NAMES, commands, simulated

GIB = 1 << 30


def numbers(facts):
    return cpu_list.write(cpu.number for cpu in facts.cpus)


# name: (usable CPUs, CPUs in all, quota, bytes of memory limit, capabilities of the GPUs, their NUMA nodes)
EXPECTED = {
    "8xA100": ("0-255", 256, None, None, [(8, 0)] * 8, [3, 3, 1, 1, 7, 7, 5, 5]),
    "1xA100": ("0-23", 24, None, None, [(8, 0)], [0]),
    "H100": ("0-223", 224, None, None, [(9, 0)] * 8, [0, 0, 0, 0, 1, 1, 1, 1]),
    "L40S": ("0-127", 128, None, None, [(8, 9)] * 2, [0, 1]), "MIG": ("0-63", 64, None, None, [(8, 0)], [0]),
    "container-3-cores": ("0-127", 128, 3.0, 8 * GIB, [(7, 0)] * 2, [0, 1]),
    "VM-without-NUMA": ("0-7", 8, None, None, [None], [None]),
    "Slurm-cpuset": ("32-47", 64, None, 120 * GIB, [(8, 0)] * 2, [0, 1]),
    "arm64": ("0-71", 72, None, None, [(9, 0)], [0]), "no-GPU": ("0-7", 8, None, None, [], [])}


def test_there_are_ten_machines():
    assert sorted(EXPECTED) == NAMES and len(NAMES) == 10


@pytest.mark.parametrize("name", NAMES)
def test_facts(name):
    facts = simulated(name)
    found = (
        numbers(facts), facts.online, facts.quota, facts.memory_limit, [gpu.capability for gpu in facts.gpus],
        [gpu.node for gpu in facts.gpus])
    assert found == EXPECTED[name]
    assert facts.memory > 15 * GIB and facts.host and facts.processor


def test_facts_that_one_machine_has():
    dgx, container, mig = simulated("8xA100"), simulated("container-3-cores"), simulated("MIG")
    assert set(dgx.links) == {"NV12"} and len(dgx.links) == 28
    assert dgx.infiniband == tuple(f"mlx5_{n}: 200 Gb/sec (4X HDR), InfiniBand" for n in range(4))
    assert dgx.shared_memory is None and dgx.locked_memory is None and dgx.open_files == 1048576
    assert (
        dgx.mount_of("/raid/imagenet").device == "/dev/md127"
        and dgx.mount_of("/raidx").device == "/dev/nvme0n1p2")
    assert container.in_container and not dgx.in_container
    assert container.shared_memory == 64 << 20 and container.locked_memory == 64 << 20
    assert container.mount_of("/data/train.rec").kind == "xfs"
    assert [profile for profile, _ in mig.gpus[0].instances] == ["3g.20gb", "3g.20gb"]
    assert (mig.gpus[0].used_mib, simulated("1xA100").gpus[0].free_mib) == (45, 81920 - 4)
    assert simulated("arm64").architecture == "aarch64"
    assert simulated("no-GPU").no_gpu == "nvidia-smi: command not found"


@pytest.mark.parametrize(
    "visible, seen", [("2,0", [2, 0]), ("1,9,3", [1]), ("-1", []), ("", []), ("GPU-a1b20005", [5])])
def test_visible_devices_are_in_the_order_of_the_ranks(visible, seen):
    facts = simulated("8xA100", {"CUDA_VISIBLE_DEVICES": visible})
    assert [gpu.index for gpu in facts.gpus] == seen
    assert seen or "CUDA_VISIBLE_DEVICES" in facts.no_gpu


def test_an_instance_of_mig_is_visible_by_its_uuid():
    uuid = simulated("MIG").gpus[0].instances[1][1]
    assert [gpu.index for gpu in simulated("MIG", {"CUDA_VISIBLE_DEVICES": uuid}).gpus] == [0]


def test_what_nvidia_smi_says_where_it_fails_is_kept():
    def broken(argv):
        if argv[0] == "nvidia-smi":
            return (
                18,
                "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161\n")
        return commands(MACHINES / "8xA100" / "commands")(argv)

    facts = hardware.read(Sources(MACHINES / "8xA100" / "root", broken, {}))
    assert facts.gpus == () and facts.no_gpu == "Failed to initialize NVML: Driver/library version mismatch"
    assert facts.nvidia_hardware


@pytest.mark.parametrize(
    "vendor, class_, there",
    [("0x10de", "0x030200", True), ("0x10de", "0x040300", False), ("0x8086", "0x030000", False)])
def test_a_gpu_without_a_driver_is_seen_on_the_bus(tmp_path, vendor, class_, there):
    device = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text(vendor + "\n")
    (device / "class").write_text(class_ + "\n")
    assert hardware.read(Sources(tmp_path, lambda argv: (127, ""), {})).nvidia_hardware is there


def test_nothing_that_tells_is_no_error(tmp_path):
    facts = hardware.read(Sources(tmp_path, lambda argv: (127, ""), {}))
    assert {cpu.number for cpu in facts.cpus} == os.sched_getaffinity(0)
    assert facts.memory is None and facts.quota is None and facts.mounts == () and facts.shared_memory == 0


@pytest.mark.parametrize("garbage", [b"\xff\xfe\x00", b"a,b,c,d\n1,2\n,,,\n", b"0::\n:::\n - cgroup2\n"])
def test_garbage_is_no_error(tmp_path, garbage):
    for path in ("status", "cgroup", "mountinfo", "limits"):
        (tmp_path / "proc/self").mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc/self" / path).write_bytes(garbage)
    facts = hardware.read(Sources(tmp_path, lambda argv: (0, garbage.decode(errors="replace")), {}))
    assert facts.cpus and facts.gpus == ()


def test_this_machine():
    facts = hardware.read()
    assert {cpu.number for cpu in facts.cpus} == os.sched_getaffinity(0)
    assert facts.online == os.cpu_count()
    assert facts.memory == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert facts.mount_of(str(pathlib.Path(__file__).resolve())).folder


def test_commands_end_in_time_and_never_raise(monkeypatch):
    assert run(["no-such-command-anywhere"])[0] == 127
    assert run(["yes"]) == (126, "yes printed more than 4,194,304 bytes")
    assert run(["sh", "-c", "echo out; echo err >&2; exit 3"]) == (3, "out\nerr\n")
    monkeypatch.setattr("rn50.machine.sources.TIME_LIMIT_S", 0.1)
    assert run(["sleep", "30"])[0] == 124


def hierarchy(root, groups, mounts, files):
    for path, content in {"proc/self/cgroup": groups, "proc/self/mountinfo": mounts, **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content + "\n")
    return cgroup.read(Sources(root))


V2 = "35 23 0:30 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw"
V1 = "36 25 0:30 {root} /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct"


def test_the_tightest_limit_of_all_groups_around_decides(tmp_path):
    limits = hierarchy(
        tmp_path, "0::/a/b/c", V2,
        {"sys/fs/cgroup/a/cpu.max": "400000 100000", "sys/fs/cgroup/a/b/cpu.max": "150000 100000",
         "sys/fs/cgroup/a/b/c/cpu.max": "max 100000", "sys/fs/cgroup/a/memory.max": "1000",
         "sys/fs/cgroup/a/b/memory.max": "2000", "sys/fs/cgroup/a/b/c/memory.max": "max",
         "sys/fs/cgroup/cpuset.cpus.effective": "0-7", "sys/fs/cgroup/a/b/c/cpuset.cpus.effective": "2-3"})
    assert limits == cgroup.Limits((2, 3), 1.5, 1000)


@pytest.mark.parametrize("root", ["/", "/docker/f00"])
def test_version_1_with_the_hosts_name_of_the_group(tmp_path, root):
    """In a container the hierarchy is mounted from the container's own group on, but named as the host sees
    it."""
    folder = "sys/fs/cgroup/cpu,cpuacct" + ("/docker/f00/sub" if root == "/" else "/sub")
    limits = hierarchy(
        tmp_path, "4:cpu,cpuacct:/docker/f00/sub\n1:name=systemd:/docker/f00", V1.format(root=root),
        {f"{folder}/cpu.cfs_quota_us": "250000", f"{folder}/cpu.cfs_period_us": "100000"})
    assert limits == cgroup.Limits(None, 2.5, None)


@pytest.mark.parametrize(
    "groups, mounts, file",
    [("0::/a/b", V2, "sys/fs/cgroup/a/b/memory.events"),
     ("4:memory:/docker/f00\n0::/", V1.format(root="/docker/f00").replace("cpu,cpuacct", "memory"),
      "sys/fs/cgroup/memory/memory.oom_control")],
)  # fmt: skip
def test_kills_for_lack_of_memory_are_those_of_the_innermost_group(tmp_path, groups, mounts, file):
    files = {"sys/fs/cgroup/a/memory.events": "oom_kill 7", file: "oom 3\noom_kill 2\noom_group_kill 0"}
    hierarchy(tmp_path, groups, mounts, files)
    assert cgroup.oom_kills(Sources(tmp_path)) == 2
    assert cgroup.oom_kills(Sources(tmp_path / "absent")) == 0


def test_no_limits(tmp_path):
    assert hierarchy(tmp_path, "0::/", V2, {}) == cgroup.Limits(None, None, None)


@pytest.mark.parametrize(
    "mask, cpuset, usable",
    [("0-7", "0-7", "0-7"), ("2-3", "0-7", "2-3"), ("0-127", "4,6", "4,6"), ("0-5", "4-7", "4-5")])
def test_cpus_in_the_mask_and_in_the_cpuset(tmp_path, mask, cpuset, usable):
    hierarchy(
        tmp_path, "0::/", V2,
        {"proc/self/status": f"Cpus_allowed:\tff\nCpus_allowed_list:\t{mask}",
         "sys/fs/cgroup/cpuset.cpus.effective": cpuset})
    assert numbers(hardware.read(Sources(tmp_path, commands(MACHINES / "no-GPU" / "commands"), {}))) == usable


def test_the_file_system_of_a_path():
    """The longest folder, and of two mounted on one folder the later; the root may stand behind what is
    mounted on it."""
    mounts = tuple(
        hardware.Mount(folder, kind, "", "")
        for folder, kind in [("/data", "nfs"), ("/data/fast", "xfs"), ("/data", "ext4"), ("/", "overlay")])
    facts = dataclasses.replace(simulated("no-GPU"), mounts=mounts)
    kinds = {
        path: facts.mount_of(path).kind for path in ("/data", "/data/x", "/data/fast/x", "/database", "/")}
    assert kinds == {
        "/data": "ext4", "/data/x": "ext4", "/data/fast/x": "xfs", "/database": "overlay", "/": "overlay"}
    assert dataclasses.replace(facts, mounts=()).mount_of("/data") is None


def test_a_gpu_whose_index_is_no_number_is_none():
    row = ", ".join(["N/A"] * len(gpus.QUERIED.split(",")))
    sources = Sources(environ={}, run=lambda argv: (0, f"{gpus.QUERIED.replace(',', ', ')}\n{row}\n"))
    assert gpus.read(sources) == ((), row)


def test_lists_of_cpus():
    assert cpu_list.parse("0-3,8,10-11\n") == (0, 1, 2, 3, 8, 10, 11)
    assert cpu_list.write([11, 10, 8, 3, 2, 1, 0, 8]) == "0-3,8,10-11"
    assert cpu_list.parse("") == () and cpu_list.write([]) == ""
    chance = random.Random(0)
    for _ in range(200):
        some = tuple(sorted(chance.sample(range(300), chance.randrange(300))))
        assert cpu_list.parse(cpu_list.write(some)) == some


def test_a_quota_counts_as_cpus_the_last_one_in_part():
    facts = simulated("no-GPU")
    assert facts.usable_cpus == 8
    assert [dataclasses.replace(facts, quota=quota).usable_cpus for quota in (0.5, 1, 2.1, 7.9)] == [
        1, 1, 3, 8]


@pytest.mark.parametrize(
    "vendor, flags, expected",
    [("AuthenticAMD", "sse2 avx2 avx512f avx512bw avx512dq avx512vl", 512),
     ("HygonGenuine", "sse2 avx2 avx512f", 256), ("AuthenticAMD", "sse2 avx", 0),
     ("GenuineIntel", "sse2 avx2 avx512f avx512bw avx512dq avx512vl", 0)])
def test_vectors_of_a_processor_that_intel_has_not_made(tmp_path, vendor, flags, expected):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text(
        f"processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: fpu {flags}\n")
    assert hardware.foreign_vectors(Sources(tmp_path)) == expected


def test_a_machine_without_cpuinfo_has_no_vectors(tmp_path):
    assert hardware.foreign_vectors(Sources(tmp_path)) == 0
