"""Advice of the doctor on cores, memory, data and network of a machine."""

import dataclasses

import pytest

from rn50.data.recordio import IndexedRecordWriter
from rn50.doctor import doctor
from rn50.doctor import host as host_advice
from rn50.doctor.diagnosis import FAILURE, OK, WARNING
from rn50.machine.hardware import Mount
from tests.conftest import with_changes
from tests.doctor.examined import GPU_BUILD, config_of, examine
from tests.support.machines import simulated


@pytest.mark.parametrize("samples, found", [(3, "ok"), (2, "lists 3 records, but NUMEXAMPLES is 2")])
def test_the_number_of_records_is_that_of_the_configuration(tmp_path, samples, found):
    for split in ("train", "val"):
        with IndexedRecordWriter(tmp_path / split) as writer:
            for key in range(3):
                writer.write(key, key, b"image")
    config = config_of("DEMO_CPU", DATADIR=str(tmp_path))
    config = with_changes(config, data={"train_samples": samples, "eval_samples": 3})
    diagnosis = host_advice._data(simulated("8xA100"), config)
    assert found in (diagnosis.found if samples == 2 else diagnosis.severity)
    assert diagnosis.severity == (FAILURE if samples == 2 else OK)


def test_advice_for_a_container(data):
    found = examine("container-3-cores", "2xA30", data=data)
    assert "64 MiB" in found["/dev/shm"].found and "docker run --shm-size=1g" in found["/dev/shm"].remedy
    assert (
        "quota is 3 CPUs" in found["threads"].found
        and found["threads"].remedy == "set DALI_THREADS=1 in the configuration")
    assert found["memory"].found == "8.0 GiB (limit of the control group)"
    tiny = dataclasses.replace(
        simulated("container-3-cores"), mounts=(Mount("/dev/shm", "tmpfs", "shm", "rw,size=8192k"),))
    assert host_advice._shared_memory(tiny, 2).severity == FAILURE
    assert host_advice._shared_memory(tiny, 1).severity == OK


@pytest.mark.parametrize(
    "library, packages, severity",
    [("auto", {"torch": "2.13.0"}, FAILURE),
     ("dataloader", {"torch": "2.13.0", "nvidia-dali-cuda130": "2.4.0"}, FAILURE),
     ("auto", {"torch": "2.13.0", "nvidia-dali-cuda130": "2.4.0"}, OK)])
def test_batches_of_a_dataloader_fit_the_shared_memory(library, packages, severity):
    """8 processes with a batch each of both splits, 816 images of 224x224: 1.8 GiB in a container that has 64
    MiB."""
    config = with_changes(
        config_of("1xL40S", DATADIR="/nowhere"), hyperparameters={"batch_size": 816},
        input_pipeline={"library": library, "threads": 8, "prefetch_queue_depth": 2})
    software = dataclasses.replace(GPU_BUILD, packages=packages)
    found = {each.subject: each for each in doctor.examine(simulated("container-3-cores"), software, config)}[
        "/dev/shm"]
    assert found.severity == severity
    assert severity == OK or "processes take up to 1.8 GiB" in found.found
    assert severity == OK or found.remedy.startswith("docker run --shm-size=2g (or --ipc=host); or lower ")


def test_advice_for_a_cpuset_far_from_a_gpu(data):
    finding = examine("Slurm-cpuset", "2xA30", data=data)["binding"]
    assert (
        "no usable CPU is near GPU 0 (NUMA node 0)" in finding.found
        and "--gpu-bind=closest" in finding.remedy)


@pytest.mark.parametrize(
    "ranks, threads, severity, remedy",
    [
        (1, 0, OK, ""),
        (1, 7, OK, ""),
        (1, 8, WARNING, "set DALI_THREADS=7 in the configuration"),
        (2, 3, OK, ""),
        (2, 4, WARNING, "set DALI_THREADS=3 in the configuration"),
        (8, 1, OK, ""),  # on a CPU each input thread shares the core of its rank
        (9, 1, WARNING, "give the job more CPUs"),
    ],
)
def test_a_rank_and_its_input_pipeline_want_a_cpu_for_each_thread(data, ranks, threads, severity, remedy):
    config = with_changes(
        config_of("DEMO_CPU", DATADIR=str(data)), run={"ranks_per_node": ranks},
        input_pipeline={"threads": threads})
    found = {each.subject: each for each in doctor.examine(simulated("no-GPU"), GPU_BUILD, config)}
    assert (found["threads"].severity, found["threads"].remedy) == (severity, remedy)


def test_spinning_threads_are_warned_of(data):
    finding = examine("no-GPU", "DEMO_CPU", data=data, environ={"OMP_NUM_THREADS": "16"})["threads"]
    assert finding.severity == WARNING and finding.remedy == "unset OMP_NUM_THREADS"


def test_more_ranks_than_cpus_share_them(data):
    config = with_changes(config_of("DEMO_CPU", DATADIR=str(data)), run={"ranks_per_node": 9})
    found = {each.subject: each for each in doctor.examine(simulated("no-GPU"), GPU_BUILD, config)}
    assert found["binding"].severity == WARNING and "9 ranks share CPU 0-7" in found["binding"].found


@pytest.mark.parametrize(
    "machine_, nodes, locked, network",
    [("Slurm-cpuset", 1, WARNING, OK), ("Slurm-cpuset", 2, FAILURE, OK), ("8xA100", 2, OK, OK),
     ("MIG", 2, OK, WARNING)])
def test_several_machines_want_infiniband_and_locked_memory(data, machine_, nodes, locked, network):
    config = with_changes(config_of("1xA100", DATADIR=str(data)), run={"nodes": nodes})
    found = {each.subject: each for each in doctor.examine(simulated(machine_), GPU_BUILD, config)}
    assert (found["locked memory"].severity, found["network"].severity) == (locked, network)


def test_data(data):
    assert examine("no-GPU", "DEMO_CPU", data=data)["DATADIR"].found.startswith(
        f"{data} on ext4, 24 MiB of data, ")
    (data / "pack.json").write_text('{"classes": 3, "train": 30, "val": 2000}')
    own = examine("no-GPU", "DEMO_CPU", data=data)["DATADIR"]
    assert (own.severity, own.remedy) == (
        FAILURE, "give --set NUMCLASSES=3 --set NUMEXAMPLES=30 --set NUMVALEXAMPLES=2000, or set DATADIR to "
        "the data that are meant")
    (data / "pack.json").write_text('{"classes": 10, "train": 6000, "val": 2000, "short_side": 256}')
    resized = examine("no-GPU", "DEMO_CPU", data=data)["DATADIR"]
    assert resized.severity == FAILURE and resized.remedy.startswith("set SUBMISSION_DIVISION=open, or")
    is_open = with_changes(config_of("DEMO_CPU", DATADIR=str(data)), run={"division": "open"})
    found = {each.subject: each for each in doctor.examine(simulated("no-GPU"), GPU_BUILD, is_open)}
    assert found["DATADIR"].severity == OK
    assert found["DATADIR"].found.endswith("free, shorter side 256: open division only")
    (data / "val.idx").unlink()
    missing = examine("no-GPU", "DEMO_CPU", data=data)["DATADIR"]
    assert missing.severity == FAILURE and "val.idx" in missing.found and "set DATADIR" in missing.remedy


def test_data_on_a_network_file_system(data):
    facts = simulated("no-GPU")
    nfs = dataclasses.replace(
        facts, mounts=(*facts.mounts, Mount(str(data), "nfs4", "10.0.0.4:/imagenet", "rw")))
    found = {
        each.subject: each
        for each in doctor.examine(nfs, GPU_BUILD, config_of("DEMO_CPU", DATADIR=str(data)))}
    assert found["DATADIR"].severity == WARNING and "DALI_DONT_USE_MMAP=1" in found["DATADIR"].remedy


def test_data_larger_than_memory(data):
    with open(str(data / "train.rec"), "wb") as stream:
        stream.truncate(20 << 30)  # sparse
    finding = examine("container-3-cores", "DEMO_CPU", data=data)["memory"]
    assert finding.severity == WARNING and "8.0 GiB" in finding.found and "20.0 GiB" in finding.found


@pytest.mark.parametrize(
    "limit, ranks, severity", [(300, 1, FAILURE), (350, 1, OK), (350, 2, FAILURE), (700, 2, OK)])
def test_memory_that_no_rank_can_live_in(data, limit, ranks, severity):
    facts = dataclasses.replace(simulated("no-GPU"), memory_limit=limit << 20)
    config = with_changes(config_of("DEMO_CPU", DATADIR=str(data)), run={"ranks_per_node": ranks})
    found = {each.subject: each for each in doctor.examine(facts, GPU_BUILD, config)}
    assert found["memory"].severity == severity
