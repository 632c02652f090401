"""A log and the file beside it are of one run: score, check and package refuse those that contradict."""

import shutil

import pytest

from rn50.benchmark import rules
from rn50.results import sidecar
from rn50.run import provenance
from tests.results.mutations import ALL, delete, rewrite
from tests.support import imagenet_run
from tests.support.campaigns import change, replace

pytestmark = pytest.mark.xdist_group("campaign")


def in_every_sidecar(old, new):
    return lambda f: [replace(f / name.replace(".txt", ".json"), old, new) for name in ALL]


def saved_in_all(**facts):
    return lambda f: [change(f / name, **facts) for name in ALL]


FAULTS = {
    f"{label} beside the log alone": (
        spoil, f"what was saved beside the log says {label}, and the log does not")
    for label, spoil in {
        rules.FINE_TUNED: in_every_sidecar('"initial_weights": null', '"initial_weights": "w.safetensors"'),
        rules.SPARSE: in_every_sidecar('"sparsity": "none"', '"sparsity": "2:4"'),
        rules.QUANTIZED: in_every_sidecar('"quantization": "none"', '"quantization": "int8"'),
        rules.RESUMED: saved_in_all(resumed_after=12)}.items()}
FAULTS |= {
    "other seeds beside the logs": (saved_in_all(seed=99), "seed is 22 in the log and 99 beside it"),
    "a seed beside a log without one": (
        lambda f: rewrite(f, delete("seed"), ALL), "seed is None in the log and 22 beside it"),
    "one sidecar for five runs": (
        lambda f: [shutil.copyfile(f / "result_0.json", f / f"result_{n}.json") for n in range(1, 5)],
        "seed is 22 in the log and 5 beside it"),
    "another learning rate beside the logs": (
        in_every_sidecar('"learning_rate": 10.5', '"learning_rate": 11'),
        "base learning rate is 10.5 in the log and 11 beside it"),
    "another batch size beside the logs": (
        in_every_sidecar('"batch_size": 408', '"batch_size": 204'),
        "global_batch_size is 3264 in the log and 1632 beside it"),
    "another number of ranks beside the logs": (
        in_every_sidecar('"ranks_per_node": 8', '"ranks_per_node": 4'),
        "global_batch_size is 3264 in the log and 1632 beside it"),
    "another decay beside the logs": (
        in_every_sidecar('"num_epochs": 37', '"num_epochs": 47'), "decay is 37 in the log and 47 beside it"),
    "another certificate beside the logs": (
        saved_in_all(**{"data certificate": {"sha256": "00"}}),
        f"certificate_sha256 is {'5e' * 32} in the log and 00 beside it"),
    "another precision beside the logs": (
        saved_in_all(precision="float32"), "precision is float16 in the log and float32 beside it"),
    "open beside the logs": (
        in_every_sidecar('"division": "closed"', '"division": "open"'),
        "submission_division is closed in the log and open beside it"),
    "variables that are not its configuration": (
        in_every_sidecar('"LR": "10.5"', '"LR": "11"'),
        "LR is 11 in the variables beside it, and 10.5 in the configuration"),
    "one run of five on another accelerator": (
        lambda f: change(f / "result_3.txt", system={"accelerator_model_name": "NVIDIA H100 80GB HBM3"}),
        "system / accelerator_model_name is ")}


@pytest.mark.parametrize("name", FAULTS)
def test_a_contradiction_is_refused_by_all(results, refused, name):
    refused(results, *FAULTS[name])


def test_a_resumed_run_says_so_beside_its_log(tmp_path):
    log, config = tmp_path / "result_0.txt", imagenet_run.configured()
    provenance.save(config, 5, log)
    assert "resumed_after" not in sidecar.read(log)
    provenance.save(config, 5, log, resumed_after=4)
    assert sidecar.read(log)["resumed_after"] == 4


def test_a_sidecar_with_two_seeds_is_none(results):
    replace(results / "result_0.json", '"seed": 5', '"seed": 7, "seed": 5')
    assert sidecar.read(results / "result_0.txt") == {}
