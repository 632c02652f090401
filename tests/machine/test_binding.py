"""The CPUs of a rank: inside what it may use, near its GPU, and its own where there are enough.

Processes: a process binds itself.
"""

import dataclasses
import itertools
import os
import random
import subprocess
import sys

import pytest

from rn50.machine import binding, cpu_list, hardware
from rn50.machine.binding import RankBinding
from rn50.machine.hardware import Cpu
from tests.support.machines import NAMES, simulated


def shown(plan):
    return [cpu_list.write(each.cpus) for each in plan]


def check(facts, plan, ranks):
    """What holds of every plan."""
    assert [each.local_rank for each in plan] == list(range(ranks))
    mask = {cpu.number for cpu in facts.cpus}
    core = {cpu.number: (cpu.node, cpu.socket, cpu.core) for cpu in facts.cpus}
    for each in plan:
        assert each.cpus and set(each.cpus) <= mask and len(set(each.cpus)) == len(each.cpus)
        own_cores = [core[cpu] for cpu in each.cpus]
        first = own_cores[: len(set(own_cores))]
        assert len(set(first)) == len(first), "one CPU of each core comes first"
    cores = [{core[cpu] for cpu in each.cpus} for each in plan]
    if len(set(core.values())) >= ranks:
        assert sum(map(len, cores)) == len(set().union(*cores)), "no core twice where there are enough"
    if facts.quota is not None and ranks <= facts.usable_cpus:
        assert len({cpu for each in plan for cpu in each.cpus}) <= facts.usable_cpus


@pytest.mark.parametrize("name", NAMES)
def test_every_plan_of_every_machine_is_within_its_range(name):
    facts = simulated(name)
    for ranks, near_gpus in itertools.product(range(1, 18), (True, False)):
        plan = binding.plan(facts, ranks, near_gpus)
        check(facts, plan, ranks)
        assert plan == binding.plan(facts, ranks, near_gpus)


def test_dgx_a100():
    """Each rank has half of its GPU's node, and half of a node of that socket to which no GPU is attached."""
    plan = binding.plan(simulated("8xA100"), 8)
    assert shown(plan) == [
        "0-7,48-55,128-135,176-183", "8-15,56-63,136-143,184-191", "16-23,32-39,144-151,160-167",
        "24-31,40-47,152-159,168-175", "64-71,112-119,192-199,240-247", "72-79,120-127,200-207,248-255",
        "80-87,96-103,208-215,224-231", "88-95,104-111,216-223,232-239"]
    assert [each.numa_node for each in plan] == [3, 3, 1, 1, 7, 7, 5, 5]
    assert plan[0].cpus[:8] == tuple(range(48, 56)), "its GPU's node first"
    assert plan[0].cpus[16:24] == tuple(range(176, 184)), "siblings last"


@pytest.mark.parametrize(
    "name, ranks, cpus, nodes",
    [("1xA100", 1, ["0-23"], [0]),
     ("H100", 8,
      ["0-13,112-125", "14-27,126-139", "28-41,140-153", "42-55,154-167", "56-69,168-181",
       "70-83,182-195", "84-97,196-209", "98-111,210-223"],
      [0, 0, 0, 0, 1, 1, 1, 1]),
     ("H100", 1, ["0-55,112-167"], [0]), ("MIG", 1, ["0-63"], [0]),
     ("VM-without-NUMA", 1, ["0-7"], [None]), ("VM-without-NUMA", 3, ["0-1", "2-4", "5-7"], [None] * 3),
     ("Slurm-cpuset", 2, ["32-39", "40-47"], [1, 1]), ("arm64", 1, ["0-71"], [0]),
     ("no-GPU", 1, ["0-7"], [0]), ("no-GPU", 2, ["0-3", "4-7"], [0, 0]),
     ("no-GPU", 3, ["0-1", "2-3", "4-7"], [0] * 3), ("no-GPU", 5, ["0-7"] * 5, [0] * 5)])
def test_plans(name, ranks, cpus, nodes):
    plan = binding.plan(simulated(name), ranks)
    assert shown(plan) == cpus
    assert [each.numa_node for each in plan] == nodes


def test_sockets_whose_cpus_alternate():
    plan = binding.plan(simulated("L40S"), 2)
    assert all(cpu % 2 == each.local_rank for each in plan for cpu in each.cpus)
    assert [len(each.cpus) for each in plan] == [64, 64]


def test_a_rank_follows_its_visible_gpu():
    assert [
        each.numa_node for each in binding.plan(simulated("H100", {"CUDA_VISIBLE_DEVICES": "7,0"}), 2)
    ] == [1, 0]


def test_one_rank_without_a_gpu_has_the_whole_machine():
    plan = binding.plan(simulated("H100"), 1, near_gpus=False)
    assert shown(plan) == ["0-223"] and plan[0].numa_node is None


def test_a_quota_limits_the_number_of_cpus():
    facts = simulated("container-3-cores")
    assert [len(each.cpus) for each in binding.plan(facts, 1)] == [3]
    assert [len(each.cpus) for each in binding.plan(facts, 2)] == [1, 2]
    assert [len(each.cpus) for each in binding.plan(facts, 8)] == [1] * 8
    assert [each.numa_node for each in binding.plan(facts, 2)] == [0, 1]


def test_two_containers_with_a_quota_do_not_start_at_one_core():
    facts = simulated("container-3-cores")
    places = {
        binding.plan(dataclasses.replace(facts, host=f"{number:012x}"), 1)[0].cpus for number in range(20)}
    assert len(places) > 10


def test_fewer_cpus_than_ranks_under_a_quota_are_shared():
    facts = simulated("no-GPU")
    tight = dataclasses.replace(facts, cpus=facts.cpus[:2], quota=1.5)
    check(tight, binding.plan(tight, 4), 4)


def test_any_topology():
    """Random sockets, nodes, siblings, masks, quotas and GPUs."""
    chance = random.Random(1)
    some = simulated("8xA100")
    for _ in range(1000):
        sockets, nodes, cores, threads = (chance.randint(1, most) for most in (2, 4, 8, 2))
        every = [
            Cpu(((t * sockets + s) * nodes + n) * cores + c, (s * nodes + n) * cores + c, s, s * nodes + n)
            for s in range(sockets) for n in range(nodes) for c in range(cores) for t in range(threads)]
        mask = tuple(sorted(chance.sample(every, chance.randint(1, len(every)))))
        gpus = tuple(
            dataclasses.replace(gpu, node=chance.choice([None, *range(sockets * nodes)])) for gpu in some.gpus
        )
        facts = dataclasses.replace(
            some, cpus=mask, quota=chance.choice([None, chance.uniform(0.2, len(mask) - 0.01)]),
            gpus=gpus[: chance.randint(0, 8)], host=str(chance.random()))
        ranks = chance.randint(1, 10)
        check(facts, binding.plan(facts, ranks), ranks)


def child(code):
    """What a new process prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.strip()


def test_a_process_is_bound_and_says_so():
    last = binding.plan(hardware.read(), len(os.sched_getaffinity(0)))[-1]
    said, bound = child(
        f"import os; from rn50.machine.binding import RankBinding, apply; print(apply({last!r}))\n"
        "print(sorted(os.sched_getaffinity(0)))").splitlines()
    assert bound == str(sorted(last.cpus))
    assert said == binding.describe(last)


@pytest.mark.parametrize("cpus", [(100000,), (), (-1,)])
def test_binding_that_is_refused_is_not_fatal(cpus):
    before = os.sched_getaffinity(0)
    assert "not bound" in binding.apply(RankBinding(0, cpus, None))
    assert os.sched_getaffinity(0) == before


def test_the_line_names_the_node():
    assert (
        binding.describe(RankBinding(2, (4, 5, 6, 9), 1)) == "rank 2 of this machine: CPU 4-6,9 (NUMA node 1)"
    )
