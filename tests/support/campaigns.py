"""Campaigns of ours without the training, and packages made of them."""

import contextlib
import json
import subprocess
from unittest import mock

from rn50.benchmark import rules
from rn50.machine import description
from rn50.run import provenance
from rn50.submission import describe, package, source
from tests.support import imagenet_run

DETAILS = {
    "host_storage_type": "NVMe SSD", "host_storage_capacity": "2 x 3840 GB",
    "host_memory_configuration": "16 x 64 GB DDR4-3200", "accelerator_host_interconnect": "PCIe 4.0 x16",
    "accelerator_memory_configuration": "HBM2", "cooling": "air: fans", "operating_system": "Ubuntu 20.04"}
"""What the simulated machine does not tell."""


def git(folder, *arguments):
    who = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", *who, *arguments], cwd=str(folder), check=True, capture_output=True, text=True).stdout.strip()


def make(folder, commit, machine, runs=rules.RUNS, config_file=imagenet_run.CONFIGURATION, first=0, **log):
    """Results as ``run_experiments.sh`` leaves them, but for the training."""
    folder.mkdir(parents=True)
    saved = {}
    for i in range(runs):
        file = folder / f"result_{i}.txt"
        seed, number = 17 * i * i + 5, first + i
        config = imagenet_run.configured(config_file, RESULT_FILE=str(file), SEED=str(seed))
        start = 1_700_000_000_000 + number * 3_600_000
        imagenet_run.write(file, seed, epoch_ms=46_000 + 10 * number, start_ms=start, config=config, **log)
        if not saved:  # of this machine, once
            provenance.save(config, seed, file)
            saved = {**json.loads(file.with_suffix(".json").read_text()), "commit": commit, "system": machine}
        own = {"seed": seed, "config": config.to_dict(), "variables": config.as_environment()}
        file.with_suffix(".json").write_text(json.dumps({**saved, **own}))
    return folder


def change(log, **facts):
    """Changes what was saved beside a log; None takes it away."""
    file = log.with_suffix(".json")
    saved = {**json.loads(file.read_text()), **facts}
    file.write_text(json.dumps({name: value for name, value in saved.items() if value is not None}))


def replace(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def details(results, **fields):
    (results / describe.DETAILS).write_text(json.dumps({**DETAILS, **fields}))  # JSON is YAML


def nobody():
    raise AssertionError("the runs have saved their machine")


@contextlib.contextmanager
def made_in(checkout):
    """Packages are made of a checkout, and this machine is not looked at."""
    with mock.patch.object(source, "CHECKOUT", checkout), mock.patch.object(description, "read", nobody):
        yield


def packaged(results, to, checkout, *others, rulesets=("1.0.0",)):
    with made_in(checkout):
        return package.package([results, *others], to, rulesets=rulesets)


def snapshot(folder):
    return {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
