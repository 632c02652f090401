"""The report and the atlas in a real headless Chromium, driven through chromedriver: what they ask the
network for, what they say, and how the atlas filters and sorts."""

import functools
import http.server
import re
import threading
import time

import pytest

from rn50.benchmark import rules
from rn50.hyperparameters.atlas import atlas
from rn50.results import published, score
from rn50.results.report import report
from tests.support import imagenet_run
from tests.support.browser import DESKTOP, PHONE, needs_browser, started
from tests.support.four_epochs import write_result

pytestmark = needs_browser
FIGURES = {"one.html": 4, "two.html": 11, "atlas.html": 4}
"""Charts of a page: four of each result, and three of all where there are several; three of the atlas, and
one of the demo data set."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with started(tmp_path_factory.mktemp("profile")) as session:
        yield session


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A web server on loopback with the report of one result, that of two and their atlas, and the paths that
    it was asked for."""
    folder = tmp_path_factory.mktemp("site")
    first = write_result(folder / "a", platform="demo data set, not an MLPerf result")
    second = write_result(folder / "b", platform="other" * 12)
    (folder / "one.html").write_text(report.render(score.score([first]), ["4.0.0"]), encoding="utf-8")
    (folder / "two.html").write_text(report.render(score.score([first, second]), ["4.0.0"]), encoding="utf-8")
    valid = tmp_path_factory.mktemp("valid")
    for seed in range(1, 6):
        imagenet_run.write(valid / f"result_{seed}.txt", seed, SUBMISSION_PLATFORM=rules.NOT_A_RESULT)
    (folder / "atlas.html").write_text(atlas.render(score.score([valid, second])), encoding="utf-8")
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, form, *values):
            asked.append(self.path)

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


@pytest.mark.parametrize("page", FIGURES)
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_no_error_no_request_and_nothing_cut_off(browser, site, page, width):
    address, asked = site
    del asked[:]
    browser.console(), browser.requests()  # what earlier pages left
    browser.visit(f"{address}/{page}", width)
    time.sleep(1)  # for what a page might load late
    assert browser.console() == []
    assert browser.requests() == [f"{address}/{page}"] and asked == [f"/{page}"]
    assert browser.ask("document.documentElement.scrollWidth") <= width
    figures = browser.ask(
        "[...document.querySelectorAll('figure svg')].map(s => s.getBoundingClientRect().width)")
    assert len(figures) == FIGURES[page] and min(figures) >= 0.8 * PHONE
    texts = "[...document.querySelectorAll('figure text')].map(t => t.getBoundingClientRect().height)"
    assert min(browser.ask(texts)) >= 8  # px: small, and legible


@pytest.mark.parametrize("page", ["one.html", "atlas.html"])
def test_the_plots_follow_the_colour_scheme(browser, site, page):
    address, _ = site
    colours = {}
    for scheme in ("light", "dark"):
        browser.visit(f"{address}/{page}", DESKTOP, scheme)
        colours[scheme] = [
            browser.ask("getComputedStyle(document.body).backgroundColor"),
            browser.ask("getComputedStyle(document.querySelector('figure text')).fill")]
    assert colours["light"] == ["rgb(255, 255, 255)", "rgb(28, 33, 40)"]
    assert colours["dark"] == ["rgb(20, 24, 29)", "rgb(228, 232, 237)"]


ROWS = "[...document.querySelectorAll('#results tbody tr')].filter(row => row.checkVisibility())"
POINTS = (
    "[...document.querySelectorAll('#charts figure a')].filter(point => point.getBoundingClientRect().width)")


def column(browser, number):
    return browser.ask(f"{ROWS}.map(row => row.cells[{number}].textContent)")


def click(browser, selector):
    browser.ask(
        f"document.querySelector({selector!r}).dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")


def choose(browser, name, value):
    field = f"document.querySelector('[name={name}]')"
    browser.ask(f"[{field}.value = {value!r}, {field}.dispatchEvent(new Event('input', {{bubbles: true}}))]")


@pytest.fixture
def atlas_page(browser, site):
    browser.visit(f"{site[0]}/atlas.html", DESKTOP)
    return browser


def test_the_atlas_sorts_by_a_click_and_says_so(atlas_page):
    page, button = atlas_page, "th[data-name=images_per_second] button"
    click(page, button)
    shown = column(page, 10)
    known = [int(text.replace(",", "")) for text in shown if text != "-"]
    assert known == sorted(known) and 200 < len(known) < len(shown) and shown[len(known)] == "-"
    assert page.ask("[...document.querySelectorAll('[aria-sort]')].map(th => th.ariaSort)") == ["ascending"]
    said = page.ask("document.querySelector('[role=status]').textContent")
    assert re.fullmatch(r"(\d+) of \1 results, by images/s each, ascending", said), said
    click(page, button)
    assert column(page, 10) == shown[: len(known)][::-1] + shown[len(known) :]  # what is not known stays last
    click(page, "th[data-name=organisation] button")
    names = [name.lower() for name in column(page, 4) if name != "-"]
    assert names == sorted(names) and names[0] == "ailiverse"


def test_the_atlas_filters_rows_and_points_alike(atlas_page):
    page, results = atlas_page, published.results()
    before = len(page.ask(f"{POINTS}.map(point => 0)"))
    choose(page, "round", "v1.0")
    choose(page, "organisation", "Inspur")
    of_inspur = [one.system for one in results if (one.round, one.organisation) == ("v1.0", "Inspur")]
    assert [text.split()[0] for text in column(page, 0)] == of_inspur
    assert page.ask("document.querySelector('[role=status]').textContent").startswith(f"{len(of_inspur)} of ")
    links = page.ask(f"{POINTS}.map(point => point.getAttribute('href'))")
    points = [link for link in links if not link.startswith("#rcp/")]
    assert sorted(points) == sorted(f"#v1.0/Inspur/{name}" for name in 3 * of_inspur)
    click(page, "a[href='#v0.7/Inspur/nf5488_mxnet']")  # a hidden row: the filter gives way
    time.sleep(0.2)
    assert len(column(page, 0)) == len(results) + 1 and len(page.ask(f"{POINTS}.map(point => 0)")) == before
    choose(page, "framework", "jax")
    assert column(page, 0) and all("jax" in text.lower() for text in column(page, 7))


def test_a_point_leads_to_its_row(atlas_page):
    page = atlas_page
    page.ask("document.querySelector('#charts a[href=\"#v1.0/Inspur/nf5688m6_mxnet\"]').focus()")
    click(page, "#charts a[href='#v1.0/Inspur/nf5688m6_mxnet']")
    time.sleep(0.2)
    row = "document.querySelector('tr:target')"
    assert page.ask(f"{row}.textContent").endswith("rn50 borrow v1.0/Inspur/nf5688m6_mxnet")
    top, bottom = page.ask(f"[{row}.getBoundingClientRect().top, {row}.getBoundingClientRect().bottom]")
    assert 0 <= top < bottom <= 844


def test_the_atlas_is_whole_without_javascript(browser, site):
    browser.devtools("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.visit(f"{site[0]}/atlas.html", DESKTOP)
        forms = browser.ask("[...document.querySelectorAll('form, button')].filter(e => e.checkVisibility())")
        assert forms == [] and len(column(browser, 0)) == len(published.results()) + 1
    finally:
        browser.devtools("Emulation.setScriptExecutionDisabled", value=False)


def test_it_can_tell_a_page_that_asks_for_more(browser, site, tmp_path):
    """The checks above see a script error and a request, on a page that has both."""
    address, _ = site
    bad = tmp_path / "bad.html"
    bad.write_text(f'<script>undefinedName()</script><img src="{address}/absent.png">')
    browser.console(), browser.requests()
    browser.visit(bad.as_uri(), DESKTOP)
    time.sleep(1)
    assert any("undefinedName" in message for message in browser.console())
    assert f"{address}/absent.png" in browser.requests()
