"""``rn50 audit`` on logs that were damaged or forged: it says what it can, in sentences of a bearable length,
or refuses them in one; it never fails, and never prints what is no number.

Processes: a terminal folds a name.
"""

import contextlib
import json
import warnings

import pytest

from rn50.audit import audit
from rn50.errors import UserError
from rn50.hyperparameters.atlas import atlas
from rn50.results import own_points, run
from rn50.terminal import Terminal, print_json
from tests.audit import made
from tests.conftest import in_test_all
from tests.support import documented
from tests.support.typed import RN50, on_terminal

DESCRIPTION = {
    "submitter": "Org", "division": "closed", "number_of_nodes": "1", "accelerators_per_node": "8",
    "accelerator_model_name": "NVIDIA A100-SXM4-80GB"}


def edit(folder, change, pattern="result_*.txt"):
    """Apply ``change`` to every record of the logs below a folder."""
    for log in sorted(folder.rglob(pattern)):
        lines = []
        for line in log.read_text().splitlines():
            record = json.loads(line.removeprefix(":::MLLOG "))
            change(record)
            lines.append(f":::MLLOG {json.dumps(record)}\n")
        log.write_text("".join(lines))


def replace(key, field, value):
    """A change that gives every record of ``key`` another value of a field."""
    return lambda record: record.update({field: value}) if record["key"] == key else None


def published(folder, **described):
    """A set of runs in the tree of a round, with the description of its system."""
    organisation = folder / "training_results_v3.0" / "Org"
    (organisation / "systems").mkdir(parents=True)
    (organisation / "systems" / "sys.json").write_text(json.dumps({**DESCRIPTION, **described}))
    return made.write(organisation / "results" / "sys" / "resnet", made.campaign(5))


def printed(folder, capsys):
    """The audit, its table and its JSON; a warning, such as NumPy's, is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = audit.audit([folder])
        audit.print_report(report, Terminal())
        text = capsys.readouterr().out
        print_json(report)
    assert documented.differences("audit", json.loads(capsys.readouterr().out)) == []
    assert " nan" not in text and " inf" not in text and "\x1b" not in text
    assert max(map(len, text.splitlines())) < 400
    return report.audits[0], text


FORGED = [
    None, 1e308, "\x1b[31m\n",
    *in_test_all(True, -1, -1e308, 1e-308, float("nan"), "é" * 5000, {"a": [1]}, 2**62 - 1)]


def of_last_epoch(key, metadata):
    """A change of the metadata of the last record of ``key``."""
    return lambda record: (
        record.update(metadata=metadata)
        if record["key"] == key and record["metadata"].get("epoch_num", 35) == 35 else None)


@pytest.mark.parametrize("value", FORGED, ids=lambda value: repr(value)[:12])
def test_forged_values(tmp_path, capsys, value):
    changes = [
        replace(key, "value", value)
        for key in ("seed", "global_batch_size", "train_samples", "throughput", "eval_accuracy")]
    changes += [of_last_epoch(key, {"epoch_num": value}) for key in ("epoch_stop", "eval_accuracy")]
    changes += [of_last_epoch("run_stop", value), of_last_epoch("run_stop", {"status": value})]
    for number, change in enumerate(changes):
        folder = made.write(tmp_path / str(number), made.campaign(5, stated=1.0))
        edit(folder, change, "result_0.txt")
        printed(folder, capsys)


@pytest.mark.parametrize("value", FORGED, ids=lambda value: repr(value)[:12])
def test_forged_descriptions(tmp_path, capsys, value):
    fields = ("number_of_nodes", "accelerators_per_node", "accelerator_model_name")
    folder = published(tmp_path / "r", **dict.fromkeys(fields[1:], value))
    printed(folder, capsys)
    folder = published(tmp_path / "s", **dict.fromkeys(fields[:2], value))
    edit(folder, replace("train_samples", "value", value))
    edit(folder, replace("opt_name", "value", "é" * 5000))
    printed(folder, capsys)


@pytest.mark.parametrize("moved", [-made.FIRST_MS, 32_503_680_000_000, -2 * made.FIRST_MS], ids=str)
def test_clocks_of_other_centuries(tmp_path, capsys, moved):
    folder = made.write(tmp_path / "r", made.campaign(5))
    edit(folder, lambda record: record.update(time_ms=record["time_ms"] + moved))
    assert printed(folder, capsys)[0].verdict == "nothing stands out in 10 of 13 tests"


def test_runs_that_take_no_time(tmp_path, capsys):
    folder = made.write(tmp_path / "r", made.campaign(5))
    edit(folder, lambda record: record.update(time_ms=made.FIRST_MS))
    with pytest.raises(UserError, match="r: no run took time from run_start to run_stop; give finished runs"):
        audit.audit([folder])
    whole = made.write(tmp_path / "s", made.campaign(5))
    assert [one.verdict for one in audit.audit([folder, whole]).audits] == [
        "nothing to test", "nothing stands out in 10 of 13 tests"]
    edit(whole, lambda record: record.update(time_ms=made.FIRST_MS), "result_3.txt")
    one, _ = printed(whole, capsys)
    assert one.runs == 4 and made.notes(one) == ("no time from start to stop: result_3.txt",)


@pytest.mark.parametrize(
    "epoch", [lambda epoch: 36 - epoch, lambda epoch: epoch * 1e-310, lambda epoch: epoch % 35])
def test_evaluations_out_of_order(tmp_path, capsys, epoch):
    def change(record):
        if record["key"] == "eval_accuracy":
            record["metadata"]["epoch_num"] = epoch(record["metadata"]["epoch_num"])

    folder = made.write(tmp_path / "r", made.campaign(5))
    edit(folder, change)
    one, _ = printed(folder, capsys)
    assert "launch gaps" not in one.verdict


def test_images_per_second_beyond_belief(tmp_path, capsys):
    folder = made.write(tmp_path / "r", made.campaign(5, stated=1.0))
    edit(folder, replace("throughput", "value", 1e308))
    assert "states over ten times more images/s than its time stamps give" in printed(folder, capsys)[1]


@pytest.mark.parametrize("name", [None, ["lars"], 7])
def test_an_optimizer_that_is_no_name(tmp_path, capsys, name):
    folder = made.write(tmp_path / "r", made.campaign(5))
    edit(folder, replace("opt_name", "value", name))
    assert "too little is known of an optimizer that is not logged" in printed(folder, capsys)[1]


def test_numbers_of_files_that_are_dates(tmp_path, capsys):
    folder = made.write(tmp_path / "r", made.campaign(3), ["20230101120000", "20230101123000", "9" * 200])
    one, text = printed(folder, capsys)
    assert one.verdict == "nothing stands out in 6 of 13 tests" and "numbered by no count of runs" in text


def test_runs_of_two_systems_in_a_folder(tmp_path, capsys):
    folder = made.write(tmp_path / "r", made.campaign(5))
    edit(folder, replace("global_batch_size", "value", 816), "result_[01].txt")
    edit(folder, replace("submission_platform", "value", "other\n"), "result_0.txt")
    one, _ = printed(folder, capsys)
    assert {evidence.test: evidence.found for evidence in one.stands_out} == {
        "setup": "the runs are not of one configuration: submission_platform is other\n in result_0.txt, "
        "8xBox in result_1.txt, result_2.txt, result_3.txt, result_4.txt; global_batch_size is 816 in "
        "result_0.txt, result_1.txt, 3264 in result_2.txt, result_3.txt, result_4.txt"}


def test_names_are_shown_and_not_obeyed(tmp_path, capsys):
    folder = made.write(tmp_path / "a 'b' \"c\"\n\x1b[31m<b>%s", made.campaign(5, optimizer="\x1b[2J[bold]"))
    _, text = printed(folder, capsys)
    assert "\\n\\x1b[31m<b>%s: 5 runs" in text and "\\x1b[2J[bold]" in text


@pytest.mark.parametrize(
    "read",
    [lambda folder, progress: audit.audit([folder], progress),
     lambda folder, progress: atlas.write([folder], folder / "atlas.html", progress),
     lambda folder, progress: own_points.points([folder], progress)],
    ids=["audit", "atlas", "rcp"])
def test_many_files_are_counted(tmp_path, monkeypatch, read):
    monkeypatch.setattr(run, "MANY_FILES", 1)
    counted = []
    with contextlib.suppress(UserError):  # these logs make no reference convergence point
        read(made.write(tmp_path / "r", made.campaign(3)), lambda done, total: counted.append((done, total)))
    assert counted in ([(0, 1), (1, 1)], [(1, 3), (2, 3), (3, 3)])


def test_a_long_name_stays_whole_on_a_narrow_terminal(tmp_path):
    placed = made.campaign(6)
    folder = made.write(tmp_path / "r", [placed[0], *placed[2:]])
    for log in folder.iterdir():
        log.rename(log.with_name(f"{'a_long_name_' * 6}{log.stem}.log"))
    done = on_terminal([*RN50, "audit", *sorted(folder.iterdir())])
    cells = [line.split("│")[2].strip() for line in done.lines if line.startswith("│")]
    assert done.status == 1 and f"{'a_long_name_' * 6}result_1.log" in "".join(cells)
