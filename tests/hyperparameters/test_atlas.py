"""The atlas: that it has every published result, what it says of their histories, where own results stand."""

import base64
import hashlib
import html
import json
import re
import shlex

import pytest
from click.testing import CliRunner

from rn50.benchmark import rules
from rn50.cli import main
from rn50.errors import UserError
from rn50.hyperparameters.atlas import atlas, lineage, rows
from rn50.hyperparameters.borrow import origin
from rn50.results import published, rcp, score
from rn50.results.report import plots
from tests.results import scored
from tests.support.four_epochs import write_result


@pytest.fixture(scope="module")
def page():
    return atlas.render()


def section(page, name):
    return page.split(f'<section id="{name}"')[1].split("</section>")[0]


def cells(page, name):
    """The table of a section as rows of text."""
    body = re.findall(r"<tr[^>]*>(.*?)</tr>", section(page, name), re.DOTALL)
    texts = (re.split(r"<t[dh][^>]*>", row)[1:] for row in body)
    return [[html.unescape(re.sub(r"<[^>]*>", "", text)).strip() for text in row] for row in texts]


def atlas_of(*folders):
    return atlas.render(score.score(folders))


def pairs():
    return [*zip(rows.of_published(published.results()), published.results(), strict=True)]


def test_every_published_result_has_a_row_and_its_numbers(page):
    heading, *table = cells(page, "table")
    assert heading[:6] == ["system", "minutes", "number", "accelerator", "organisation", "round"]
    assert len(table) == len(published.results())
    assert [row[5] for row in table] == sorted((row[5] for row in table), reverse=True)
    newest_first = sorted(published.results(), key=lambda each: each.round, reverse=True)
    for row, each in zip(table, newest_first, strict=True):
        assert row[0].startswith(each.system) and float(row[1]) == pytest.approx(
            each.olympic_minutes, rel=0.03)
        assert row[2] == (f"{each.accelerators:,}" if each.accelerators else "-")
        assert row[4:6] == [each.organisation, each.round] and row[7] == (each.framework.strip() or "-")
        assert row[8] == f"{each.recipe.global_batch_size:,}"
    assert {row[6] for row in table} == {"closed", "open", "-"}
    [inspur] = [row for row in table if row[-1] == "rn50 borrow v0.7/Inspur/nf5488_mxnet"]
    assert inspur[:3] == ["nf5488_mxnet", "33.37", "8"] and inspur[9:11] == ["35", "2,799"]


def test_the_page_needs_nothing_but_itself_and_runs_no_script_but_its_own(page):
    assert len(page.encode()) < 1_000_000
    assert "@import" not in page and "url(#" in page and not re.search(r"url\((?!#)", page)
    addresses = re.findall(r'\s(?:src|href|xlink:href|action|srcset)="([^"]*)"', page)
    assert {address for address in addresses if not address.startswith("#")} == {"data:,"}
    [script] = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'" in page)
    assert not re.search(r"\b(?:fetch|XMLHttpRequest|import|eval)\b", script)


def test_the_epochs_of_a_reference_point_are_those_that_scale_a_score(page):
    """Without the fastest and the slowest run, as the official checker and rn50 rcp have them."""
    official = rcp.reference().rcp_data.values()
    means = {f"{point['BS']:,}": f"{point['RCP Mean']:.4g}" for point in official}
    assert {row[0]: row[4] for row in cells(page, "references")[1:]} == means and means["13,056"] == "45.5"


def test_every_link_leads_to_a_place_on_the_page(page):
    places = re.findall(r'\bid="([^"]*)"', page)
    of_rows = [row.anchor for row, _ in pairs()]
    assert len(set(of_rows)) == len(of_rows) and {*of_rows} <= {*places}
    links = re.findall(r'<a [^>]*href="#([^"]*)"', page)
    assert {*links} <= {*places} and len(links) > 3 * 280


def test_each_chart_has_the_results_that_know_both_its_axes(page):
    charts = re.findall(r"<svg.*?</svg>", section(page, "charts"), re.DOTALL)
    known = [each for each in published.results() if each.accelerators]
    speeds = [each for each in known if each.images_per_second_per_accelerator]
    reached = [each for each in published.results() if each.epochs_to_target]
    points = [re.findall(r'<a tabindex="-1" href="[^"]*"><title>([^<]*)<', chart) for chart in charts]
    references = [name for name in origin.names() if name.startswith(f"rcp/{rules.RULESETS[-1]}/")]
    names = [sorted(rows.anchor(each.name) for each in of) for of in (known, speeds, reached)]
    names[2] = sorted([*names[2], *references])
    assert list(map(sorted, points)) == names


def test_the_commands_of_the_rows_borrow(page):
    commands = [shlex.split(row[-1]) for row in (*cells(page, "table")[1:], *cells(page, "references")[1:])]
    assert {tuple(words[:2]) for words in commands} == {("rn50", "borrow")}
    names = [words[2] for words in commands]
    assert set(names) == {
        *(each.name for each in published.results()),
        *(name for name in origin.names() if name.startswith(f"rcp/{rules.RULESETS[-1]}/"))}
    for name in ("v0.7/Inspur/nf5488_mxnet", names[200], names[-1]):
        done = CliRunner().invoke(main, ["borrow", name, "DGXH100", "--global-batch-size", "3200", "--json"])
        assert done.exit_code == 0 and json.loads(done.stdout)["source"]["name"] == name


def test_the_history_of_inspur_is_that_of_the_table(page):
    best = {
        name: published.find(name, "").olympic_minutes
        for name in ("v0.7/Inspur/nf5488_mxnet", "v1.0/Inspur/nf5688m6_mxnet")}
    assert [f"{minutes:.2f}" for minutes in best.values()] == ["33.37", "27.38"]
    [history] = [row for row in cells(page, "histories") if row[:2] == ["Inspur", "8 A100-SXM"]]
    assert history[2].startswith("v0.7 33.37, v1.0 27.38 (-18.0 %), v1.1 27.57 (+0.7 %), v2.0 27.23 (-1.2 %)")
    assert history[3:] == ["-18.4 %", "+0.0 %", "-18.4 %"]
    for name in best:
        assert f'<a href="#{name}">{best[name]:.2f}</a>' in section(page, "histories")


def test_the_change_of_a_history_is_that_of_its_minutes_and_the_sum_of_its_parts(page):
    every = lineage.histories(pairs())
    for history, (_, _, steps, change, *parts) in zip(every, cells(page, "histories")[1:], strict=True):
        assert history.split and history.split.first == history.steps[0].row.minutes
        assert len(history.steps) > 2 or steps.endswith(f"({change})")
        total, epochs, speed = (float(each.split()[0]) for each in (change, *parts))
        assert total == pytest.approx(epochs + speed, abs=0.11)


def test_a_history_counts_no_logs_twice_and_the_fastest_of_a_round():
    results = {result.name: result for result in published.results()}
    every = lineage.histories(pairs())
    assert [one.ratio for one in every] == sorted(one.ratio for one in every) and len(every) > 30
    for history in every:
        taken = [results[shlex.split(step.row.command)[-1]] for step in history.steps]
        assert len({one.minutes for one in taken}) == len(taken) == len({one.round for one in taken})
        assert [one.round for one in taken] == sorted(one.round for one in taken)
        for one in taken:
            rivals = [
                row.minutes for row, other in pairs()
                if (row.round, row.board, row.accelerators, row.organisation.lower(), row.first_logs)
                == (one.round, history.steps[0].row.board, one.accelerators, one.organisation.lower(), None)]
            assert one.olympic_minutes == min(rivals)


def test_hyperparameters_are_equal_and_those_who_took_them_came_later(page):
    of = {row.anchor: result for row, result in pairs()}
    every = [*lineage.taken(pairs())]
    assert every and [len(each.later) for each in every] == sorted(
        (len(each.later) for each in every), reverse=True)
    for each in every:
        assert {of[row.anchor].recipe.shared for row in (*each.first, *each.later)} == {each.recipe}
        assert max(row.round for row in each.first) < min(row.round for row in each.later)
        owners = {row.organisation.lower() for row in each.first}
        assert not owners & {row.organisation.lower() for row in each.later}
    first, later, batch = cells(page, "recipes")[1][:3]
    assert (first, batch) == ("v0.7 Inspur", "3,264") and later.startswith("v1.0 Dell, GIGABYTE, NVIDIA")


def test_logs_that_were_submitted_again_are_said_to_be_the_same(page):
    again = [row[0] for row in cells(page, "table") if "same logs as" in row[0]]
    distinct = {(each.minutes, each.accuracy) for each in published.results()}
    assert len(again) == len(published.results()) - len(distinct) > 30
    name = "NVIDIA/dgxa100_n527_ngc22.04_mxnet"
    assert f"dgxa100_n527_ngc22.04_mxnet same logs as v2.0/{name}" in again


def test_own_results_stand_beside_them_and_a_demo_apart(tmp_path):
    scored.write_runs(tmp_path / "mine", 1300, 1301, 1302, 1303, 1304, platform="Mine")
    facts = {"train_samples": 10_000, "platform": f"Tiny ({rules.NOT_A_RESULT})"}
    scored.write_runs(tmp_path / "demo", 50, 51, 52, 53, 54, **facts)
    page = atlas_of(tmp_path / "mine", tmp_path / "demo")
    mine, *known = cells(page, "table")[1:]
    assert mine[0] == "Mine" and mine[1] == "21.70" and mine[5] == "own"
    assert mine[-1] == f"rn50 borrow {tmp_path}/mine"
    assert len(known) == len(published.results()) and "Tiny" not in section(page, "table")
    assert section(page, "charts").count('href="#own-1"') == 2  # the point, and the ring around it
    assert 'href="#own-2"' not in section(page, "charts") and "around: your own" in section(page, "charts")
    apart = section(page, "others")
    assert f'<p class="label">{rules.NOT_A_RESULT}</p>' in apart and 'href="#own-2"' in apart
    assert cells(page, "others")[1][0] == "Tiny"
    assert '<section id="others"' not in atlas.render()
    assert f"({len(published.results())} published, 1 of yours)" in page
    assert " and 2 of yours, not verified by MLCommons Association unless" in page.split("<footer>")[1]


@pytest.mark.slow
def test_a_published_result_given_as_own_is_said_to_be_that_one(tmp_path):
    known = published.find("v1.0/Inspur/nf5688m6_mxnet", "")
    scored.write_runs(tmp_path / "mine", *(60 * minutes for minutes in known.minutes))
    assert "same logs as v1.0" in cells(atlas_of(tmp_path / "mine"), "table")[1][0]
    scored.write_runs(tmp_path / "other", *(60 * minutes + 1 for minutes in known.minutes))
    assert "same logs" not in cells(atlas_of(tmp_path / "other"), "table")[1][0]


def test_names_fold_at_their_signs_and_points_of_one_place_lie_side_by_side(page):
    assert "dgxa100_<wbr>n527_<wbr>ngc22.04_<wbr>mxnet" in page
    boards = {row.board for row, _ in pairs() if row.board}
    legend = re.findall(r"</span> ([^<]+)</span>", section(page, "charts"))
    assert {*boards, rows.OTHERS} == {*legend} - {"reference convergence points"}
    colours = rows.series([row for row, _ in pairs()])
    drawn = rows.points([row for row, _ in pairs()], "accelerators", "minutes", colours)
    assert len({(series % plots.SERIES, plots.marker(series)) for series in colours.values()}) == len(colours)
    assert len({point.x for point in drawn}) > 2 * len({row.accelerators for row, _ in pairs()})
    rounds = re.findall(r"<option>(v[\d.]+)", page)
    assert rounds == sorted(rounds, reverse=True) and page.index('id="histories"') < page.index('id="table"')


@pytest.mark.slow
def test_text_of_files_is_escaped(tmp_path):
    bad = '<script>alert("1")</script>'
    folder = write_result(tmp_path / "a'<b>", platform=bad)
    demo = write_result(tmp_path / "demo", platform=f"{bad} {rules.NOT_A_RESULT}")
    for file in (*folder.iterdir(), *demo.iterdir()):
        record = {"time_ms": 0, "key": "submission_org", "value": bad, "metadata": {}}
        file.write_text(f"{file.read_text()}:::MLLOG {json.dumps(record)}\n")
    page = atlas_of(folder, demo)
    assert "alert(" in page and "<script>alert" not in page and "<b>" not in page
    assert page.count("<script") == 1
    assert shlex.split(cells(page, "table")[1][-1]) == ["rn50", "borrow", str(folder)]


def rn50(*arguments):
    return CliRunner(mix_stderr=False).invoke(main, ["atlas", *map(str, arguments)])


def test_the_command_writes_the_page_and_only_over_a_page_of_ours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert rn50().stdout == "atlas: atlas.html\n" and [*tmp_path.iterdir()] == [tmp_path / "atlas.html"]
    assert json.loads(rn50("-o", "atlas.html", "--json").stdout) == {"atlas": "atlas.html"}
    (tmp_path / "mine.html").write_text("<!DOCTYPE html><p>mine")
    refused = rn50("-o", "mine.html")
    assert refused.exit_code == 2 and refused.stderr.count("\n") == 1
    assert refused.stderr.startswith("rn50: mine.html: exists, and rn50 did not write it; give another place")
    assert (tmp_path / "mine.html").read_text() == "<!DOCTYPE html><p>mine"


@pytest.mark.parametrize("content", [None, "", "no log", ':::MLLOG {"key": 1}'])
def test_a_path_without_a_result_is_one_line(tmp_path, content):
    folder = tmp_path / "folder"
    folder.mkdir()
    if content is not None:
        (folder / "result_0.txt").write_text(content)
    done = rn50(folder, "-o", tmp_path / "atlas.html")
    assert done.exit_code == 2 and done.stderr.count("\n") == 1 and done.stderr.startswith(f"rn50: {folder}")
    assert not (tmp_path / "atlas.html").exists()
    with pytest.raises(UserError, match="no such file or folder"):
        atlas.write([tmp_path / "absent"], tmp_path / "atlas.html")
