"""What ``--json`` prints is what the documentation says. Verbs that train are compared where they are
tested."""

import json
import pathlib
import re
import shutil

import click
import pytest
from click.testing import CliRunner

from rn50.cli import main
from rn50.data.demo import dataset
from tests.results.scored import write_runs
from tests.support import documented, image_tree

GOLDEN = pathlib.Path(__file__).parent / "golden" / "json.txt"
OTHERS = {
    *("rate", "comparison", "borrow --suggest", "plan --curve", "plan --open"),
    *("rcp --passes", "run --against", "score --against")}
"""Types, and what a verb prints with an option."""


def printed(*arguments, environ=None):
    done = CliRunner(mix_stderr=False).invoke(main, [*map(str, arguments), "--json"], env=environ)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def verbs(group, path=""):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from verbs(command, f"{path}{name} ")
        elif not command.hidden and any(option.name == "as_json" for option in command.params):
            yield path + name


def test_every_verb_with_json_is_documented_and_compared():
    """Where it is tested, what it printed is given to ``documented.differences``."""
    assert set(documented.verbs()) - OTHERS == set(verbs(main))
    tests = [path.read_text(encoding="utf-8") for path in pathlib.Path(__file__).parent.rglob("test_*.py")]
    compared = set(re.findall(r'documented\.differences\(\s*"([^"]+)"', "".join(tests)))
    here = pathlib.Path(__file__).read_text(encoding="utf-8")
    assert [verb for verb in set(documented.verbs()) - compared if f'"{verb}"' not in here] == []


def test_no_field_has_changed_unnoticed():
    """A contract changes only together with tests/golden/json.txt."""
    fields = [
        f"{verb}: {path}: {type_}" for verb, fields in documented.verbs().items()
        for path, type_ in fields.items()]
    assert sorted(fields) == GOLDEN.read_text(encoding="utf-8").splitlines()


def test_the_comparison_finds_what_differs():
    whole = {
        "base": "a", "trials": [], "in_time": True, "changes": {"LR": "1"}, "images_per_second_before": 1,
        "images_per_second_after": 1.0, "after_of_before": None, "of_synthetic": 1.0,
        "overlap": {
            "input": 9.0, "step": 1.0, "together": 1.0,
            "of_slower": {"median": 1.0, "lowest": 1.0, "highest": 1.0, "rounds": 5, "shown": False},
            "lost": 0.0, "hidden": 1.0, "exclude_each_other": False, "remedy": ""},
        "faster": False, "written": None}
    assert documented.differences("tune input", whole) == []
    for name, value, says in (
        ("in_time", 1, "is int"), ("base", None, "is null"), ("new", 1, "is not documented"),
        ("after_of_before", {"median": 1}, "is missing"), ("trials", [{}], "is missing"),
    ):
        assert says in " ".join(documented.differences("tune input", {**whole, name: value}))
    del whole["faster"]
    assert documented.differences("tune input", whole) == ["tune input.faster is missing"]


@pytest.fixture
def results(tmp_path):
    """Two results, the second of which breaks a rule."""
    write_runs(tmp_path / "one", 100, 101, 102, 103, 104)
    write_runs(tmp_path / "two", 110, 111, 112, 113, 114, base_learning_rate=11, accuracy=0.7)
    return tmp_path / "one", tmp_path / "two"


@pytest.mark.parametrize(
    "verb, arguments",
    [("config show", ("DEMO_CPU",)), ("doctor", ("DEMO_CPU",)),
     ("plan", ("--accelerators", "8", "--global-batch-size", "3200", "--accelerator", "H100-SXM-80GB")),
     ("borrow", ("v1.0/Inspur/nf5688m6_mxnet", "DGXA100")), ("borrow", ("rcp/3264", "DGXA100")),
     ("borrow --suggest", ("--global-batch-size", "1024", "-n", "40"))])
def test_verbs_that_need_no_data(verb, arguments):
    assert documented.differences(verb, printed(*verb.split(), *arguments)) == []


def test_plan_a_curve():
    curve = printed("plan", "--accelerator", "H100-SXM-80GB")
    assert documented.differences("plan --curve", curve) == [] and len(curve["curve"]) > 10


def test_verbs_on_data(tmp_path):
    image_tree.make(tmp_path / "images")
    for verb, arguments in (
        ("pack", (tmp_path / "images", tmp_path / "packed")),
        ("unpack", (tmp_path / "packed", tmp_path / "again")), ("verify", (tmp_path / "packed",)),
    ):
        assert documented.differences(verb, printed(verb, *arguments)) == [], verb
    (tmp_path / "packed" / "val.rec").write_bytes((tmp_path / "packed" / "val.rec").read_bytes()[:-100])
    spoiled = printed("verify", tmp_path / "packed")
    assert spoiled["faults"]["kept"] and documented.differences("verify", spoiled) == []
    shutil.copytree(str(tmp_path / "packed"), str(tmp_path / "copy"))
    storage = printed(
        "bench", "storage", tmp_path / "packed", tmp_path / "copy", "--seconds", "1", "--rounds", "1")
    assert documented.differences("bench storage", storage) == []


def test_demo_data(tmp_path, monkeypatch):
    small = {**dataset.Settings._field_defaults, "train": 150, "val": 70}  # which takes 2 s, not a minute
    monkeypatch.setattr(dataset.Settings.__new__, "__defaults__", tuple(small.values()))
    assert documented.differences("demo-data", printed("demo-data", tmp_path / "demo")) == []


def test_verbs_on_results(results, tmp_path):
    for verb, options in (
        ("score", ()), ("check", ()), ("report", ("-o", tmp_path / "report.html")),
        ("atlas", ("-o", tmp_path / "atlas.html")), ("compare", ()),
    ):
        assert documented.differences(verb, printed(verb, *results, *options)) == [], verb
    (results[0] / "result_4.txt").rename(results[0] / "result_4.txt.partial")
    assert documented.differences("watch", printed("watch", results[0])) == []


@pytest.mark.slow
def test_a_campaign_whose_runs_are_there(results):
    assert documented.differences("run", printed("run", "DEMO_CPU", "-o", results[0])) == []


def test_config_new(tmp_path):
    assert (
        documented.differences(
            "config new", printed("config", "new", "MINE", "-o", tmp_path / "config_MINE.sh"))
        == [])
