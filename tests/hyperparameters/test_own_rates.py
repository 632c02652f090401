"""Rates of this code in ``rn50 plan``: those of docs/evidence, those of results/, and an estimate from
another GPU's."""

import dataclasses
import json

import pytest
from click.testing import CliRunner

from rn50.audit import audit
from rn50.cli import main
from rn50.files import ROOT
from rn50.hyperparameters.plan import own_rates
from rn50.hyperparameters.plan.images_per_second import Conditions
from rn50.reproduction import expectation, reproduction
from rn50.results import chips, published
from tests.audit import made
from tests.support.machines import simulated

EVIDENCE = ROOT / "docs" / "evidence"
H200, H100, RTX = "H200-SXM-141GB", "H100-SXM-80GB", "RTX-4090"
TASK = "224x224, 1000 classes, width 1"


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A folder of results beside that of the evidence."""
    monkeypatch.setattr(own_rates, "FOLDERS", (EVIDENCE, tmp_path))
    return tmp_path


def bench(folder, model, cells, task=TASK):
    """What ``rn50 bench throughput`` writes: cells of (ranks, batch size, image size, rates by data)."""
    rows = [
        {"model": "ours", "ranks": ranks, "nodes": 1, "batch_size": batch, "image_size": size,
         "images_per_second": {kind: {"median": rate} for kind, rate in rates.items()}}
        for ranks, batch, size, rates in cells]
    folder.mkdir(parents=True)
    text = json.dumps({"accelerator": model, "task": task, "cells": rows})
    (folder / "cells.json").write_text(text)


def this_code(*arguments):
    done = CliRunner(mix_stderr=False).invoke(main, ["plan", *arguments, "--json"])
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["this_code"]


@pytest.mark.parametrize(
    "number, batch, rate, path",
    [(1, 408, 9127, "steps.jsonl"), (8, 400, 9127, "steps.jsonl"), (1, 256, 8551, "seeds_fused")])
def test_the_nearest_measurement_on_real_data_counts_and_its_fastest_mode(results, number, batch, rate, path):
    own = own_rates.find(Conditions(H200, number, batch))
    assert own.images_per_second == pytest.approx(rate, abs=0.5)
    assert EVIDENCE / "h200" / path in (own.path, own.path.parent)


def test_a_report_of_the_checkout_counts_if_it_is_of_the_whole_network(results):
    real = {"real": 24_000.0, "synthetic": 25_000.0}
    others = [(4, 400, 128, {"real": 9e9}), (8, 408, 224, {"synthetic": 9e9})]
    bench(results / "whole", "NVIDIA H100 80GB HBM3", [(4, 400, 224, real), *others])
    bench(results / "quarter", "NVIDIA H100 80GB HBM3", [(8, 408, 224, real)], "224x224, width 0.25")
    own = own_rates.find(Conditions(H100, 8, 408))
    assert own == (Conditions(H100, 4, 400), 6000, results / "whole" / "cells.json", "")
    said = this_code("--accelerators", "8", "--gbs", "3264", "--accelerator", H100)
    assert said["is_measured"] and "6,000 images/s on 4 x H100-SXM-80GB with 400 images" in said["basis"]
    assert said["minutes_low"] < said["minutes"] < said["minutes_high"]
    assert said["images_per_second_per_accelerator"] == pytest.approx(6000, rel=0.05)


@pytest.mark.parametrize(
    "name, text",
    [("cells.json", "{"), ("cells.json", "[]"), ("cells.json", '{"accelerator": null}'),
     ("steps.jsonl", '{"batch": 400}\n'), ("steps.jsonl", "\0"), ("result_0.txt", "no log"),
     ("steps.jsonl", '{"accelerator": "H100 SXM 80GB", "batch": 0, "data": "real", '
      '"images_per_second": {"median": 5}}')])
def test_damaged_files_are_left_out(results, name, text):
    (results / name).write_text(text)
    assert own_rates.find(Conditions(H100, 8, 408)) is None
    assert len(list(own_rates.every())) == 5  # the evidence


def test_a_gpu_of_one_published_system_has_an_estimate_by_memory_bandwidth(results):
    said = this_code("--accelerators", "1", "--accelerator", RTX)
    assert not said["is_measured"] and f"1,008 GB/s, where {H200} with 4,800 made 8,551" in said["basis"]
    shown = CliRunner().invoke(main, ["plan", "--accelerators", "4", "--accelerator", RTX]).output
    first, second, *_ = shown.split("\n")
    assert first.startswith("this code, by estimate: 115 minutes (86.1 to 154), from the memory bandwidth: ")
    assert second.startswith(f"4 x {RTX} at global batch 1,024, with others' code: 178 minutes ")
    assert said["images_per_second_per_accelerator"] == pytest.approx(8551 * 1008 / 4800, rel=0.05)
    assert said["minutes_high"] > 1.4 * said["minutes_low"]
    assert this_code("--accelerators", "8", "--accelerator", H100) is None  # many systems are published
    assert this_code("--accelerators", "8", "--accelerator", "V100-SXM-16GB") is None  # no STEP_MODE=fused


def test_a_measurement_of_the_user_stands_alone(results):
    asked = ("--accelerators", "1", "--gbs", "408", "--accelerator", H200)
    assert this_code(*asked)["minutes"] == pytest.approx(82.3, abs=0.1)
    assert this_code(*asked, "--images-per-second", "9000") is None


def test_data_sheets_are_of_names_that_plan_knows():
    assert {*chips.data_sheets()} < {*chips.known(published.results())}
    assert all(str(sheet.gigabytes) in name for name, sheet in chips.data_sheets().items() if "GB" in name)


def test_audit_and_reproduce_have_them_beside_those_of_others(results, tmp_path):
    bench(results / "bench", "NVIDIA A100-SXM4-40GB", [(8, 408, 224, {"real": 16_000.0})])
    says = "this code, measured: 2,000 images/s on 8 x A100-SXM-40GB with 408 images each"
    made.write(tmp_path / "Org" / "results" / "Box" / "resnet", made.campaign(5))
    system = {"accelerator_model_name": "NVIDIA A100-SXM4-40GB", "number_of_nodes": "1",
              "accelerators_per_node": "8", "division": "closed", "system_name": "Box"}
    (tmp_path / "Org" / "systems").mkdir()
    (tmp_path / "Org" / "systems" / "Box.json").write_text(json.dumps(system))
    [one] = audit.audit([tmp_path / "Org"]).audits
    assert any(f"predicted from others; {says}" in each.found for each in one.evidence)
    told = reproduction.plan("v1.0/Inspur/nf5688m6_mxnet", None, tmp_path / "to", 5, 0.03)
    facts = dataclasses.replace(told.here.facts, gpus=simulated("8xA100").gpus)
    rate = expectation.expected(told.claim, told.here._replace(facts=facts), 5)[1]
    assert rate.value and rate.basis.startswith(says)
