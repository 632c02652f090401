"""The logs of an H200 in docs/evidence score what the pages say of them, and pass every check."""

import json

import pytest

from rn50.files import ROOT
from rn50.results import score, timing
from rn50.results.result_files import find_result_files
from rn50.submission import check

H200 = ROOT / "docs" / "evidence" / "h200"


@pytest.fixture(scope="module", params=sorted(path.name for path in H200.iterdir() if path.is_dir()))
def folder(request):
    """A folder of the runs of one command."""
    return H200 / request.param


@pytest.mark.parametrize(
    "name, minutes, mean, epochs, kilojoules, rate",
    [("seeds_fused", 0.3026, None, [15, 11, 11, 11, 15], 10.6, 8551),
     ("one_run_graph", None, 0.4313, [11], None, 4999)])
def test_minutes_epochs_energy_and_rate(name, minutes, mean, epochs, kilojoules, rate):
    [system] = score.score([H200 / name])
    found = system.olympic_minutes, system.mean_minutes, system.energy and system.energy.kilojoules
    expected = [value and pytest.approx(value, abs=0.00005) for value in (minutes, mean)]
    assert list(found[:2]) == expected and [run.epochs for run in system.runs] == epochs
    assert found[2] == (kilojoules and pytest.approx(kilojoules, abs=0.05))
    assert timing.training_rate([run.log for run in system.runs]) == pytest.approx(rate, abs=0.5)
    assert system.label == "demo data set, not an MLPerf result"


def test_every_official_checker_passes(folder):
    report = check.check([folder])
    runs = len(list(folder.glob("result_*.txt")))
    assert report.ok and [verdict.ok for verdict in report.verdicts] == [True] * 4 * runs


def test_what_they_say_of_the_machine_is_public(folder):
    for file in find_result_files([folder]):
        sidecar = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
        assert sidecar["system"]["accelerator_model_name"].startswith("NVIDIA H200")
        assert sidecar["machine"].startswith("vm: ") and sidecar["environment"] == {}
        assert sidecar["config"]["data"]["folder"] in ("data/demo_224", "/tmp/rn50/data/demo_224")
        assert sidecar["config"]["run"]["result_file"].startswith("/tmp/")
