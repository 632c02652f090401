"""The table of published results: that it says what the logs say, and what is nearest to a batch size."""

import csv
import dataclasses
import io
import json
import re

import pytest

from rn50.benchmark import rules
from rn50.benchmark.recipe import Recipe
from rn50.results import published, rcp
from tests.support import imagenet_run, published_table
from tests.support.published import FOLDER, LOGS, needs_published


def test_the_table_is_read_whole_and_written_alike():
    table = published.TABLE.read_text(encoding="utf-8")
    assert published_table.to_csv(published.results()) == table
    assert len(published.results()) == 341
    assert len({(each.round, each.organisation, each.system) for each in published.results()}) == 341
    assert {each.round for each in published.results()} == {
        "v0.7", "v1.0", "v1.1", "v2.0", "v2.1", "v3.0", "v3.1", "v4.0"}


@pytest.mark.usefixtures("points_read_once")
def test_the_columns_of_the_table_agree_with_each_other():
    """Mean, speed and verdict follow from the runs, by the rules and the official checker."""
    for each in published.results():
        runs = list(zip(each.epochs, each.run_status, each.accuracy, each.minutes, strict=False))
        assert len(runs) == rules.RUNS
        converged = [
            status == "success" and accuracy >= rules.TARGET_ACCURACY for _, status, accuracy, _ in runs]
        order = sorted(range(len(runs)), key=lambda i: (not converged[i], runs[i][3] or 0.0))
        kept = [runs[i] for i in order[1:-1]]
        assert sum(converged) >= rules.RUNS - 1
        assert len(each.epochs_to_target) == sum(converged)
        assert each.olympic_minutes == pytest.approx(sum(run[3] for run in kept) / 3, abs=0.00015)
        if each.images_per_second_per_accelerator:
            images = sum(run[0] for run in kept) * rules.TRAIN_SAMPLES
            speed = images / sum(run[3] for run in kept) / 60 / each.accelerators
            assert each.images_per_second_per_accelerator == pytest.approx(speed, abs=1)
        if each.rcp_verdict:
            epochs = (*sorted(each.epochs_to_target), *(None for ok in converged if not ok))
            verdict = rcp.judge(f"{each.round[1:]}.0", each.recipe.global_batch_size, epochs)
            said = f"{verdict.message}, RCP test {'PASSED' if verdict.passed else 'FAILED'}"
            assert each.rcp_verdict == said
            if each.published_scaling_factor:
                assert verdict.factor == pytest.approx(each.published_scaling_factor, rel=1e-4)
        else:
            assert each.round == "v0.7"


def test_nearest_by_batch_size_then_accelerators_then_minutes():
    found = published.nearest(3264, "LARS", accelerators=8, number=8)
    assert {(each.recipe.global_batch_size, each.recipe.optimizer, each.accelerators) for each in found} == {
        (3264, "lars", 8)}
    assert [each.olympic_minutes for each in found] == sorted(each.olympic_minutes for each in found)
    [largest] = published.nearest(10**6, "lars", number=1)
    sizes = [each.recipe.global_batch_size for each in published.results()]
    assert largest.recipe.global_batch_size == max(sizes)
    # By the ratio 1664 is nearer to 1200 than 832 is; by the difference it would be 832.
    assert [each.recipe.global_batch_size for each in published.nearest(1200, "sgd", number=1)] == [1664]
    assert published.nearest(3264, "adam") == [] and published.nearest_recipes(3264, "adam") == []


def test_recipes_are_the_groups_that_results_share():
    first, *others = published.nearest_recipes(3264, "lars")
    assert len(first) == max(len(group) for group in (first, *others)) > 50
    assert {each.recipe.global_batch_size for group in (first, *others) for each in group} == {3264}
    rates = {(each.recipe.learning_rate, each.recipe.warmup_epochs) for each in first}
    assert rates == {(10.5, 2)} and {each.recipe.weight_decay for each in first} == {5e-05}
    runs = sum(len(each.run_status) for each in first)
    assert 0.9 < sum(len(each.epochs_to_target) for each in first) / runs < 1
    # The same decay in steps and in epochs is one recipe, and logs that came again in a later round count
    # once.
    [at_408, *_] = published.nearest_recipes(408, "lars")
    assert {each.recipe.decay_epochs for each in at_408} == {37}
    assert len({each.minutes for each in at_408}) == len(at_408)


def test_a_row_is_made_from_logs_and_description(tmp_path):
    logs = imagenet_run.published_tree(tmp_path)
    (logs / "scaling.json").write_text('{"scaling_factor": 1.25}')
    [row], left_out = published_table.collect([tmp_path])
    assert left_out == []
    keys = [
        json.loads(line.split(" ", 1)[1])["key"] for line in (logs / "result_0.txt").read_text().splitlines()]
    others_ms = len(keys) - 1 - keys.index("run_start") - 35  # every other record takes one
    expected = published.PublishedResult(
        round="v1.1", organisation="Org", system="box", division="closed", status="onprem", nodes=2,
        accelerators=8, accelerator_model="", framework="MXNet", recipe=Recipe(
            global_batch_size=3264, optimizer="lars", learning_rate=10.5, warmup_epochs=2, decay_epochs=37,
            weight_decay=5e-05, momentum=0.9, model_bn_span=408, gradient_accumulation_steps=1),
        first_evaluation_epoch=3,
        evaluation_interval=4, epochs=(35,) * 5, run_status=("success",) * 5, accuracy=(0.76082,) * 5,
        minutes=tuple(round((35 * (46_000 + 100 * n) + others_ms) / 60_000, 4) for n in range(5)),
        olympic_minutes=round((35 * 46_200 + others_ms) / 60_000, 4), published_scaling_factor=1.25,
        rcp_verdict="RCP found, RCP test PASSED",
        images_per_second_per_accelerator=round(
            35 * rules.TRAIN_SAMPLES / (35 * 46.2 + others_ms / 1000) / 8))
    assert row == expected


def test_what_the_tree_does_not_say_stays_empty(tmp_path):
    logs = imagenet_run.published_tree(tmp_path, round_="v0.7", number_of_nodes="")
    first = logs / "result_0.txt"
    evaluated = re.compile(r'("key": "eval_.*"epoch_num": )3\b')
    first.write_text(evaluated.sub(r"\g<1>2", first.read_text()))
    [row], _ = published_table.collect([tmp_path])
    assert (row.nodes, row.accelerators, row.images_per_second_per_accelerator, row.rcp_verdict) == (
        None, None, None, "")
    assert (row.first_evaluation_epoch, row.evaluation_interval, row.published_scaling_factor) == (
        None, None, None)
    assert published.from_csv(io.StringIO(published_table.to_csv([row]))) == [row]


def test_the_command_prints_the_table_and_names_what_it_leaves_out(tmp_path, capsys):
    imagenet_run.published_tree(tmp_path, system="b")
    logs = imagenet_run.published_tree(tmp_path / "more", system="a")
    assert published_table.main([str(tmp_path)]) == 0
    assert [row["system"] for row in csv.DictReader(io.StringIO(capsys.readouterr().out))] == ["a", "b"]
    (logs / "result_3.txt").write_text("nothing\n")
    assert published_table.main([str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert [row["system"] for row in csv.DictReader(io.StringIO(said.out))] == ["b"]
    assert "result_3.txt: no :::MLLOG line" in said.err and "left out" in said.err
    assert published_table.main([str(tmp_path / "absent")]) == 2
    assert "absent: no such file or folder" in capsys.readouterr().err


@needs_published
def test_the_command_makes_the_rows_of_the_published_logs():
    found, left_out = published_table.collect([LOGS])
    key = {(each.round, each.organisation, each.system): each for each in published.results()}
    assert len(found) == 8 and left_out == []
    for row in found:
        assert dataclasses.asdict(row) == dataclasses.asdict(key[row.round, row.organisation, row.system])


COLUMNS = {
    "version": "round", "org": "organisation", "system": "system", "division": "division", "status": "status",
    "accelerator_model": "accelerator_model", "framework": "framework", "gbs": "global_batch_size",
    "opt": "optimizer", "base_lr": "base_learning_rate", "warmup_epochs": "warmup_epochs",
    "decay_epochs": "decay_epochs", "weight_decay": "weight_decay", "momentum": "momentum",
    "label_smoothing": "label_smoothing", "bn_span": "model_bn_span",
    "grad_accum": "gradient_accumulation_steps", "first_eval_epoch": "first_evaluation_epoch",
    "eval_interval": "evaluation_interval", "epochs": "epochs", "run_status": "run_status",
    "final_acc": "accuracy", "run_minutes": "minutes", "olympic_minutes": "olympic_minutes",
    "published_scaling_factor": "published_scaling_factor", "rcp_checker": "rcp_verdict", "nodes": "nodes",
    "accelerators": "accelerators", "img_s_per_acc_effective": "images_per_second_per_accelerator"}
"""Of the collected facts, and here."""
TEXTS = (
    "version", "org", "system", "division", "status", "accelerator_model", "framework", "opt", "rcp_checker")


@needs_published
def test_the_table_says_what_was_collected_of_all_rounds():
    facts = {}
    for file in (FOLDER / "resnet_results.csv", FOLDER / "v4.0" / "resnet_results.csv"):
        with file.open(newline="", encoding="utf-8") as table:
            facts |= {(row["version"], row["org"], row["system"]): row for row in csv.DictReader(table)}
    ours = {
        (row["round"], row["organisation"], row["system"]): row
        for row in csv.DictReader(published.TABLE.open(newline=""))}
    assert ours.keys() == facts.keys()
    compared = 0
    for key, fact in facts.items():
        for theirs, name in COLUMNS.items():
            # What cannot be said in a number (an interval of 3 or 4 epochs, a decay named pow2, a crash) is
            # left empty.
            said = fact[theirs].split(" (logged")[0].strip()
            if (
                said in ("", "N/A", "pow2") or (";" in said and theirs not in TEXTS)
                or said.startswith("CRASH")
            ):
                continue
            if theirs in ("accelerators", "img_s_per_acc_effective") and not fact["nodes"]:
                assert (
                    ours[key][name] == ""
                )  # of one node, as its description does not give the number of nodes
                continue
            mine = ours[key][name]
            if theirs == "img_s_per_acc_effective":
                assert float(mine) == pytest.approx(
                    float(said), abs=5
                )  # runs of different lengths are weighed differently
            elif theirs in TEXTS:
                assert mine == said, (key, name)
            elif theirs == "run_status":
                assert mine == said.replace("None", "unfinished")
            else:
                numbers = [None if each in ("-", "None", "NA") else float(each) for each in said.split()]
                ours_too = [None if each == "-" else float(each) for each in mine.split()]
                if name == "decay_epochs" and numbers[0] % 1:  # of steps, one an epoch off at most
                    step = int(fact["gbs"]) / rules.TRAIN_SAMPLES
                    assert abs(ours_too[0] - numbers[0]) <= numbers[0] * step + 0.005, (key, name)
                else:
                    assert ours_too == numbers, (key, name)
            compared += 1
    assert compared > 7900
