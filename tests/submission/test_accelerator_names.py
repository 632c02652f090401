"""``rn50 check`` on the name of the accelerator, in the description of a system or beside its runs."""

import json
import shutil

import pytest

from rn50.files import ROOT
from rn50.results.validity.findings import WARNING
from rn50.submission import check
from tests.support import imagenet_run

pytestmark = pytest.mark.usefixtures("official_checkers")
EVIDENCE = ROOT / "docs" / "evidence" / "h200" / "one_run_graph"
NEW = "nothing if it is new"
UNLESS = f"if it is that; {NEW}"


def warned(folder):
    findings = check.check([folder], ["4.0.0"]).findings
    return [one for one in findings if one.rule.startswith("an accelerator has the name")]


@pytest.mark.parametrize(
    ("model", "number", "said"),
    [
        ("NVIDIA H100-SXM5-80GB", "8", []),
        ("NVIDIA H100 80GB HBM3 (700 W)", "8", []),  # as nvidia-smi names it
        ("NVIDIA A100-SXM4-40GB + NVIDIA H200 (700 W)", "8", []),
        ("N/A", "8", []),
        (None, "8", []),
        ("NVIDIA B200 (1000 W)", "0", []),  # trained on the processor
        ("NVIDIA A100-SMX4-80GB + NVIDIA T4", "8",
         [("accelerator NVIDIA A100-SMX4-80GB", f"write A100-SXM-80GB {UNLESS}"),
          ("accelerator NVIDIA T4", f"correct its name; {NEW}")]),
        (["NVIDIA"], 8, [("accelerator ['NVIDIA']", f"correct its name; {NEW}")]),
    ],
)
def test_a_name_that_nobody_published_is_said_with_the_nearest(tmp_path, model, number, said):
    logs = tmp_path / "Somebody" / "results" / "box" / "resnet"
    description = tmp_path / "Somebody" / "systems" / "box.json"
    for folder in (logs, description.parent):
        folder.mkdir(parents=True)
    imagenet_run.write(logs / "result_0.txt", seed=5)
    fields = {"number_of_nodes": "1", "accelerators_per_node": number, "accelerator_model_name": model}
    description.write_text(json.dumps(fields))
    found = warned(logs)
    assert [(one.message.partition(":")[0], one.remedy) for one in found] == said
    assert all((one.severity, one.file.name) == (WARNING, "box.json") for one in found)


@pytest.mark.parametrize(("device", "said"), [("gpu", 1), ("cpu", 0)])
def test_a_run_that_saved_its_accelerator_is_told_too(tmp_path, device, said):
    for file in EVIDENCE.glob("result_0.*"):
        shutil.copy(str(file), str(tmp_path))
    saved = json.loads((tmp_path / "result_0.json").read_text())
    assert saved["system"]["accelerator_model_name"].startswith("NVIDIA H200") and not warned(tmp_path)
    saved["config"]["run"]["device"], saved["system"]["accelerator_model_name"] = device, "NVIDIA B200"
    (tmp_path / "result_0.json").write_text(json.dumps(saved))
    found = warned(tmp_path)
    assert [one.remedy for one in found] == [f"write H200-SXM-141GB {UNLESS}"] * said
