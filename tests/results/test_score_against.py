"""``rn50 score --against``: what a table of results lacks, has without logs, and has of other minutes."""

import csv
import io
import json
import re

import pytest
from click.testing import CliRunner

from rn50.cli import main
from rn50.errors import Status
from rn50.results import score, scoreboard
from tests.results.scored import write_runs
from tests.support import documented
from tests.support.imagenet_run import published_tree

DESCRIPTION = {
    "submitter": "The Org", "host_processor_model_name": "EPYC", "host_processors_per_node": "2",
    "host_processor_core_count": "64", "hw_notes": "", "sw_notes": ""}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Three results of a round that scales, two of which have one system_name, and the official table of
    them."""
    from mlperf_logging.result_summarizer import result_summarizer

    folder = tmp_path_factory.mktemp("round")
    for number, (system, name) in enumerate((("a_mxnet", "A"), ("a_pytorch", "A"), ("b", "Big B"))):
        logs = published_tree(folder, "v3.0", system=system, system_name=name, **DESCRIPTION)
        for file in logs.iterdir():
            *lines, stop = file.read_text().splitlines()
            ms = re.search(r'"time_ms": (\d+)', stop)[1]
            lines.append(stop.replace(ms, str(int(ms) + 60_000 * number)))
            file.write_text("\n".join(lines) + "\n")
        for scored in score.score([logs]):
            (logs / "scaling.json").write_text(json.dumps({"scaling_factor": scored.convergence.factor}))
    table, *_ = result_summarizer.summarize_results(
        str(folder / "training_results_v3.0" / "Org"), "training", "3.0.0")
    return folder, table.to_csv(index=False)


def against(tree, text, *options):
    folder, table = tree[0], tree[0] / "summary.csv"
    table.write_text(text)
    done = CliRunner(mix_stderr=False).invoke(main, ["score", str(folder), "--against", str(table), *options])
    return done.exit_code, done.stdout.replace(str(table), "summary.csv"), done.stderr


def edited(text, change, keep=("submitter", "system", "resnet", "details_url")):
    rows = list(csv.DictReader(io.StringIO(text)))
    change(rows)
    out = io.StringIO()
    writer = csv.DictWriter(out, [name for name in rows[0] if name in keep])
    writer.writeheader()
    writer.writerows({name: row[name] for name in writer.fieldnames} for row in rows)
    return out.getvalue()


def in_other_words(rows):
    for row in rows:
        row.update(submitter=" the ORG", system=row["system"].lower(), resnet=f"{float(row['resnet']):.2f}")
        row["details_url"] = ""


def wrong(rows):
    rows[-1]["resnet"] = "30.5"


def gone(rows):
    del rows[0]


def another(rows):
    rows += [{**rows[0], "system": "C", "details_url": ""}, {**rows[0], "resnet": ""}, rows[0]]


def unscaled(rows):
    rows[0]["resnet"] = repr(float(rows[0]["resnet"]) * 35 / 35.15384615384615)


@pytest.mark.parametrize(
    "change, says",
    [(lambda rows: None, []), (in_other_words, []),
     (wrong, ["v3.0/Org/b: 29.08 minutes by the logs (28.95 unscaled), 30.5 in the table"]),
     (gone, ["v3.0/Org/a_mxnet: not in the table"]), (another, ["The Org/C: no logs"]),
     (unscaled, ["v3.0/Org/a_mxnet: 27.07 minutes by the logs (26.95 unscaled), 26.95"])])
def test_what_differs_from_the_official_table(tree, change, says):
    status, said, _ = against(tree, edited(tree[1], change))
    *lines, summary = said.splitlines()
    assert len(lines) == len(says) and all(map(str.startswith, lines, says)), said
    assert status == (Status.FAULT if says else Status.SUCCESS)
    differ = f"{len(says)} difference" + "s" * (len(says) != 1)
    assert summary == f"summary.csv: {differ} in {4 if change is another else 3} results"


def test_of_two_systems_of_one_name_the_nearest_minutes_belong_together(tree):
    """Without the address of its description, the second row of the name could be of either."""

    def one(rows):
        in_other_words(rows)
        del rows[0]

    assert (
        "v3.0/Org/a_mxnet: not in the table\nsummary.csv: 1 difference in 3"
        in against(tree, edited(tree[1], one))[1])


def test_json_and_the_tables_of_our_own(tree):
    status, said, _ = against(tree, edited(tree[1], gone), "--json")
    printed = json.loads(said)
    assert documented.differences("score --against", printed) == []
    assert (status, printed["differences"]) == (Status.FAULT, 1)
    assert [one["difference"] for one in printed["results"]] == ["not in the table", None, None]
    assert against(tree, scoreboard.to_csv(score.score([tree[0]])))[0] == Status.SUCCESS
    of_round = edited(
        tree[1], lambda rows: [row.update(round="v3.0", organisation="Org") for row in rows],
        ("round", "organisation", "system", "resnet", "details_url"))
    assert against(tree, of_round)[0] == Status.SUCCESS


@pytest.mark.parametrize(
    "text, says",
    [("", "no columns system and resnet in its first line"),
     ("# a page\n\nwords, and more\n", "no columns system and resnet in its first line"),
     ("system,resnet\nbox,soon\n", "line 2: could not convert string to float: 'soon'"),
     ("system,resnet\nbox," + "1" * 200_000 + "\n", "line 1: field larger than field limit")])
def test_what_is_no_table_is_one_line(tree, text, says):
    status, said, error = against(tree, text)
    assert (status, said, error.count("\n")) == (Status.USER_ERROR, "", 1) and says in error


def test_a_result_that_the_rules_refuse_is_said_to_be_one(tree, tmp_path):
    write_runs(tmp_path, 1300, 1301, 1302, 1303, 1304)
    write_runs(tmp_path / "refused", 1300, 1301, 1302, 1303, 1304, base_learning_rate=9)
    log = tmp_path / "refused" / "result_3.txt"
    log.write_text(log.read_text().replace('"value": 9,', '"value": 8,'))
    status, said, _ = against((tmp_path,), "submitter,system,resnet\nsomebody,8xbox,21.80\n")
    assert status == Status.FAULT
    assert "8xBox: not in the table; NOT A VALID RESULT: refused: the runs are not of" in said
