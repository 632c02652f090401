"""The report: what stands on the page, and that it needs nothing but itself."""

import json
import os
import pathlib
import re

import pytest

from rn50 import terminal
from rn50.benchmark import rules
from rn50.errors import UserError
from rn50.hyperparameters.borrow import origin
from rn50.results import published, score, timing
from rn50.results.report import plots, report
from tests.results import scored
from tests.support.four_epochs import write_result, write_run
from tests.support.published import LOGS, needs_published


def page_of(*folders, rulesets=("4.0.0",)):
    return report.render(score.score(folders), rulesets)


def assert_needs_nothing(page):
    """Links to logs, which a reader may follow, are none of its needs."""
    assert "<script" not in page and "@import" not in page and "@font-face" not in page
    addresses = re.findall(r"""(?:\s(?:src|href|action|data|srcset)\s*=\s*"([^"]*)"|url\(([^)]*)\))""", page)
    assert addresses
    for address in map("".join, addresses):
        assert (
            address.startswith("#") or address == "data:," or re.fullmatch(r"[\w./%-]*\.(txt|log)", address)
        ), address
    assert "default-src 'none'" in page


def test_the_page_of_one_result(tmp_path):
    page = page_of(write_result(tmp_path / "box"))
    assert_needs_nothing(page)
    olympic = score.score([tmp_path / "box"])[0].olympic_minutes
    assert f'<p class="score">{olympic:.2f} <small>minutes' in page
    dropped = re.findall(
        r'<tr class="dropped">.*?<a class="what" [^>]*>(\w+)</a>\s*<td>([^<]*)<', page, re.DOTALL)
    assert dropped == [("result_1", "dropped, fastest"), ("result_3", "dropped, slowest")]
    assert page.count("<svg") == 4 and page.count("target 75.9 %") == 1
    assert "reference at 3,264" in page and rules.NOT_A_RESULT not in page
    assert page.count('class="bad">FAILED') == 5  # these logs lack half the keys
    assert '<details open><summary class="bad">0 of 5 checks passed' in page
    assert "No result_N.json beside the logs" in page


def row_of(page, name):
    """The cells of a row of the hyperparameters as text, with ≠ before those that are marked."""
    [row] = re.findall(rf"<tr><td>{re.escape(name)}(<td.*?)</tr>", page)
    return [
        mark and "≠ " + text or text for mark, text in re.findall(r'<td class="n( differs)?">([^<]*)', row)]


def test_published_recipes_and_results_stand_beside_the_hyperparameters(tmp_path):
    page = page_of(write_result(tmp_path / "box")).replace("<wbr>", "")
    groups = published.nearest_recipes(3264, "lars")
    headings = re.findall(r'<th scope="col" class="n">([^<]*)<small>([^<]*)</small>', page)
    assert headings == [
        *((group[0].name, f"published, {len(group)} results") for group in groups),
        ("rcp/3264", "reference at 3,264"), ("rcp/4096", "reference at 4,096")]
    for name, _ in headings:
        assert origin.find(name).name == name  # as rn50 borrow finds it
    assert row_of(page, "global batch") == ["3,264"] * 5 + ["≠ 4,096"]
    assert row_of(page, "base learning rate")[:2] == ["10.5", "10.5"]
    assert row_of(page, "decay")[:2] == ["5 epochs", "≠ 37 epochs"]
    assert row_of(page, "momentum")[:2] == ["-", "0.9"]  # what is not known of ours does not differ
    assert row_of(page, "epochs to target")[0] == "4"
    reached = sum(len(result.epochs_to_target) for result in groups[0])
    assert row_of(page, "runs that converged")[:2] == ["5 of 5", f"{reached} of {5 * len(groups[0])}"]
    nearest = page.split("Nearest published results")[1].split("</table>")[0]
    found = published.nearest(3264, "lars")
    assert re.findall(r"<tr><td>([^<]*)<td>", nearest) == [result.name for result in found]
    assert all(f"{result.olympic_minutes:.2f}<" in nearest for result in found)
    assert "<details open><summary>Beside published" in page


def test_an_optimizer_that_nobody_published(tmp_path):
    folder = write_result(tmp_path / "box")
    for file in folder.iterdir():
        file.write_text(file.read_text().replace('"lars"', '"adam"'))
    page = page_of(folder)
    assert "No published result of this optimizer is known." in page and ">published, " not in page
    assert "reference at 3,264" in page


@pytest.mark.parametrize(
    "epochs, scaled, said",
    [(35, "1.71",
      "<p>Reference convergence 4.0.0: RCP found, passed; faster than the reference, so minutes x "
      "1.0043956"),
     (39, None, "<p>Reference convergence 4.0.0: RCP found, passed; not scaled.</p>"),
     (31, None, '<p class="bad">Reference convergence 4.0.0: RCP found, FAILED: no score that can be '
      "published.</p>")])
def test_scaled_minutes_and_the_verdict_of_reference_convergence(tmp_path, epochs, scaled, said):
    scored.write_runs(tmp_path, 100, 101, 102, 103, 104, global_batch_size=3264, epochs=epochs)
    page = page_of(tmp_path)
    assert '<p class="score">1.70 <small>minutes, mean of the middle 3 of 5 runs<' in page
    shown = re.findall(r'<p class="scaled">([\d.]+) <small>minutes, scaled by reference convergence', page)
    assert shown == ([scaled] if scaled else []) and said in page
    assert "<p>Slowest run 3.9 % above the fastest, relative to the mean.</p>" in page


def test_of_more_runs_the_median_set_is_shown(tmp_path):
    """Seven in a row: the score is that of the five in the middle, and the first and the last are struck out
    too."""
    for number, epoch_ms in enumerate((9_000, 11_000, 10_400, 10_500, 10_600, 10_000, 14_000)):
        write_run(tmp_path / "box" / f"result_{number}.txt", epoch_ms, start_ms=1_000_000 * number)
    [system] = score.score([tmp_path / "box"])
    page = page_of(tmp_path / "box")
    assert (
        f"{system.olympic_minutes:.2f} <small>minutes, mean of the middle 3 of 5 runs, the median set of five"
        in page)
    struck = dict(
        re.findall(
            r'<tr class="dropped">.*?<a class="what" [^>]*>(\w+)</a>\s*<td[^>]*>([^<]*)<', page, re.DOTALL))
    outside = {run.file.stem: "not in the median set" for run in system.runs if not run.in_set}
    assert len(outside) == 2 and struck == {
        "result_1": "dropped, slowest", "result_5": "dropped, fastest", **outside}
    assert page.count("in the mean<td") == 3  # a log with less than the rules want makes no valid score
    write_run(tmp_path / "box" / "result_6.txt", 14_000, accuracy=0.7, start_ms=6_000_000)
    assert "not in the median set, did not converge" in page_of(tmp_path / "box")


def test_several_results_side_by_side(tmp_path):
    for name, factor in (("a", 1), ("b", 4)):
        seconds = [factor * each for each in (100, 90, 110, 120, 105)]
        scored.write_runs(tmp_path / name, *seconds, platform=name, epochs=12)
    page = page_of(tmp_path / "a", tmp_path / "b")
    overview = page.split("<section")[0]
    assert '<th scope="row">scaled minutes' in overview and overview.count('class="bad">FAILED') == 2
    assert "p-values and intervals are corrected for 3 tests" in overview


def test_the_label_stands_once_above_everything(tmp_path):
    demo = write_result(tmp_path / "demo", train_samples=10_000, platform=f"8xBox ({rules.NOT_A_RESULT})")
    real = write_result(tmp_path / "real", platform="other")
    page = page_of(demo)
    assert (
        page.count(rules.NOT_A_RESULT) == 1
        and f'<p class="label">{rules.NOT_A_RESULT}</p>' in page.split("<h2")[0])
    assert (
        "<details><summary>Beside published hyperparameters, which are of ImageNet and no measure for "
        "other data" in page)
    page = page_of(demo, real)
    overview, of_demo, of_real = page.split("<section")
    assert (
        page.count(rules.NOT_A_RESULT) == 2
    )  # in the banner, and in a folded table as the platform, which differs
    assert f'<p class="label">{rules.NOT_A_RESULT}: <a href="#result-1">8xBox</a> </p>' in overview
    assert (
        overview.count(">demo data</span>") == of_demo.count(">demo data</span>") == 1
        and ">demo data<" not in of_real)
    assert "not comparable: other data" in overview


@pytest.mark.slow
def test_a_demo_has_no_division(tmp_path):
    """It is no result, whatever its log must say to the official checker."""
    logged = [(0, "submission_division", "closed", {}), (0, "submission_status", "research", {})]
    page = page_of(write_result(tmp_path / "real", extra=logged))
    assert "<dt>division, status</dt><dd>closed, research</dd>" in page
    platform = f"8xBox ({rules.NOT_A_RESULT})"
    page = page_of(write_result(tmp_path / "demo", train_samples=10_000, platform=platform, extra=logged))
    assert "<dt>division, status</dt><dd>demo</dd>" in page and "closed, research" not in page


@pytest.mark.parametrize(
    "value, text",
    [(27.3812, "27.38"), (0.346667, "0.35"), (0.1, "0.10"), (0.0996, "0.10"), (0.0348, "0.035"),
     (0.00151, "0.0015")])
def test_minutes_have_two_decimals_and_two_digits(value, text):
    assert terminal.minutes(value) == text


def test_what_a_log_says_is_text_and_not_html(tmp_path):
    page = page_of(write_result(tmp_path / "box\x07", platform="<script>alert(1)</script>\x1b[31m"))
    assert "<script" not in page and r"&lt;script&gt;alert(1)&lt;/script&gt;\x1b[31m" in page
    assert r"box\x07" in page and not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", page)


def test_a_run_that_missed_and_runs_that_are_no_result(tmp_path):
    folder = write_result(tmp_path / "box")
    write_run(folder / "result_2.txt", accuracy=0.7)
    assert "dropped, did not converge" in page_of(folder)
    write_run(folder / "result_0.txt", accuracy=0.7)
    page = page_of(folder)
    assert "no score <small>2 runs did not converge" in page and 'class="dropped"' not in page


def test_logs_that_say_little_or_nonsense(tmp_path):
    """No clock, no evaluation, numbers that are none: the page says less, and that is all."""
    lone = tmp_path / "result_0.txt"
    lone.write_text(':::MLLOG {"time_ms": 1, "key": "init_start", "value": null, "metadata": {}}\n')
    page = page_of(lone)
    assert "run 1 of 5 so far <small>no score yet" in page and page.count("<svg") == 0
    nonsense = [
        (4000, "global_batch_size", 0, {}), (4000, "eval_accuracy", "high", {"epoch_num": 1}),
        (4000, "epoch_start", None, {"epoch_num": [1]}),
        (4000, "block_start", None, {"first_epoch_num": "x"}),
        (4000, "lars_opt_momentum", {"a": ["<b>"]}, {})]
    page = page_of(write_result(tmp_path / "odd", extra=nonsense))
    assert page.count("<svg") == 4 and "<b>" not in page


def test_environment_shows_what_differs_between_runs(tmp_path):
    folder = write_result(tmp_path / "box")
    for number in range(4):
        facts = {
            "machine": "a box", "config": {"run": {"device": "gpu" if number else "cpu"}},
            "packages": {"numpy": "1.23.5"}}
        (folder / f"result_{number}.json").write_text(json.dumps(facts))
    (folder / "result_4.json").write_text("{not json")
    page = page_of(folder)
    assert "<td>machine<td>a box</tr>" in page and "<td>numpy<td>1.23.5</tr>" in page
    assert "<td>device<td>result_0.txt: cpu; result_1.txt: gpu;" in page


@pytest.mark.slow
def test_names_that_look_like_formulas_are_names(tmp_path):
    first, second = (write_result(tmp_path / name, platform=name) for name in ("$x^$", "$\\frac$"))
    page = page_of(first, second)
    assert "$x^$" in page and "$\\frac$" in page


@pytest.mark.slow
def test_where_it_is_written(tmp_path, monkeypatch):
    box, other = write_result(tmp_path / "box"), write_result(tmp_path / "other")
    assert report.write([box], ["4.0.0"]) == box / "report.html"
    monkeypatch.chdir(tmp_path)
    drawn = []
    assert report.write([box, other], ["4.0.0"], progress=lambda *count: drawn.append(count)) == pathlib.Path(
        "report.html")
    assert drawn == [(1, 2), (2, 2)]
    assert (tmp_path / "report.html").read_text(encoding="utf-8").rstrip().endswith("</html>")
    with pytest.raises(UserError, match="cannot be written .*--output"):
        report.write([box], ["4.0.0"], tmp_path / "absent" / "report.html")
    report.write([box], ["4.0.0"])  # in place of the one that is there
    for mine in (box / "result_0.txt", tmp_path / "mine"):
        mine.touch()
        mine.write_text(mine.read_text() or "mine")
        before = mine.read_text()
        with pytest.raises(UserError, match=f"^{mine}: .*; give another place with --output"):
            report.write([box], ["4.0.0"], mine)
        assert mine.read_text() == before
    assert not list(tmp_path.rglob("*.partial"))


@needs_published
@pytest.mark.usefixtures("points_read_once")
def test_every_published_system(tmp_path):
    """Of all frameworks: a page under 2 MB a system, times that add up to the minutes of the score."""
    systems = score.score([LOGS])
    assert len(systems) >= 8
    for system in systems:
        for run in system.runs:
            times = timing.run_times(run.log)
            if times is not None:
                parts = times.first_epoch + times.later_epochs + times.evaluation + times.blocks + times.gaps
                assert parts / 60 == pytest.approx(run.minutes) and times.gaps >= 0
                assert times.first_epoch + times.blocks > 0
    page = report.render(systems, ["1.0.0"])
    assert_needs_nothing(page)
    [inspur] = [system for system in systems if system.system == "nf5688m6_mxnet"]
    of_inspur = next(part for part in page.split("<section") if ">nf5688m6_mxnet</h2>" in part)
    assert '<p class="scaled">' not in of_inspur and "from round v2.1 on only" in of_inspur
    assert (
        '<dt>per accelerator</dt><dd class="rate">3,412</dd>' in of_inspur and "8 accelerators" in of_inspur)
    assert "unverified" not in page  # they are not ours to call so
    assert len(report.render([inspur], ["1.0.0"]).encode()) < 500_000
    assert len(page.encode()) < 2_000_000
    assert page.count("<section") == len(systems)


def test_names_of_files_are_no_formulas_and_no_markup(tmp_path):
    names = (b"result_\xff.txt", b"result_$x^$.txt", b"result_<b>.txt", b"result_a\nb.txt", b"result_a.txt")
    for number, name in enumerate(names):
        scored.write_run(tmp_path / "log.txt", 100 + number)
        (tmp_path / "log.txt").rename(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    scored.write_run(tmp_path / "result_a.log", 110)
    page = tmp_path / "page.html"
    report.write([tmp_path, tmp_path / "result_a.log"], ["4.0.0"], page)
    text = page.read_text()
    assert "<b>" not in text and "result_$x^$" in text and "result_&lt;b&gt;" in text
    assert text.count("result_a.txt") and text.count("result_a.log")


@pytest.mark.parametrize("count", [0, 1, 2, 999, 1000, 1001, 1999, 2000, 2001, 100_000])
def test_a_curve_has_at_most_so_many_points_and_its_last_one(count):
    points = [(float(x), 0.5) for x in range(count)]
    thinned = plots._thinned(points)
    assert len(thinned) <= plots.MOST_POINTS and list(thinned[:1] + thinned[-1:]) == points[:1] + points[-1:]
    assert count > plots.MOST_POINTS or thinned == points
